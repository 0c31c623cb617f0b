"""Cache parity: does the cached path say what the full path says, at every append step?"""

import streamlit as st

from auditlib.views import charts
from auditlib.web import parts, parts_cases, parts_jobs, shell, tables
from auditlib.web.text import TERMS

AUDIT = "cache parity"

here = shell.enter()
st.title("Cache parity", help=TERMS["gap"])
st.caption("After every appended event, does the cached path give the logits of the whole prefix run alone?")
run = parts.need_run(here, AUDIT)
parts_jobs.audit_buttons(here, AUDIT)
parts.audit_head(run, AUDIT)
parts.figures(run, AUDIT, {name: TERMS[name] for name in ("tolerance", "noise floor")})
limits = (parts.information(run, AUDIT, "tolerance"), parts.information(run, AUDIT, "noise floor"))
st.plotly_chart(charts.gap_by_step(run.table(AUDIT, "steps"), *limits), key="gap-by-step")

parts_cases.counterexamples(here, run, AUDIT)

st.header("Worst prefixes", help=TERMS["prefix"])
row = st.container(horizontal=True)
gaps = tables.gaps_by_size(run)
gaps = tables.choose_rows(row, gaps, "origin", "Prefixes of", all_first=False)
gaps = tables.choose_rows(row, gaps, "probe", "Probe")
tables.prefixes(here, gaps, "gaps", ["gap", "step", "probe", "session_id"], "worst prefix")

st.header("Probes", help="Each probe appends, pads, drops or reorders in another way that a cache may get wrong.")
st.plotly_chart(charts.checks_on_log(parts.checks_of(run, AUDIT), "Largest gap of each probe"), key="probes")
tables.checks(run, [AUDIT], "parity-checks")
parts.notes(run, AUDIT)

st.header("Cache identity", help="A cache belongs to one revision, dtype and exact row of events, and to nothing else.")
parts.audit_head(run, "cache identity")
tables.observations(run, "cache identity", "trials", "trials")

st.header("Numerics", help="Error of the cached path over error of the full path, both against float64, per session.")
parts.audit_head(run, "numerics")
st.plotly_chart(charts.ratio_by_session(run.table("numerics", "sessions"), 1.25), key="ratios")
