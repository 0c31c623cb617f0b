"""Cache parity: does the cached path say what the full path says, at every append step?"""

import streamlit as st

from auditlib.views import charts, worst
from auditlib.web import address, kept, parts, parts_cases, parts_jobs, shell, tables
from auditlib.web.text import TERMS

AUDIT = "cache parity"

here = shell.enter()
st.title("Cache parity", help=TERMS["gap"])
st.caption("After every appended event, does the cached path give the logits of the whole prefix run alone?")
run = parts.need_run(here, AUDIT)
parts.shown_run(here, run)
parts_jobs.audit_buttons(here, AUDIT)
for audit, section in ((AUDIT, "Probes"), ("cache identity", "Cache identity"), ("numerics", "Numerics")):
    parts.audit_head(run, audit, section)
about = kept.of_run(run)
found = (parts_cases.SECTION,) if parts_cases.of_audit(run, AUDIT) else ()
shown, place = address.section("Gaps", "Worst prefixes", *found, "Probes", "Cache identity", "Numerics")
with place:
    if shown == "Gaps":
        parts.figures(run, AUDIT, {name: TERMS[name] for name in ("tolerance", "noise floor")})
        st.caption(f"Held-out sessions are drawn, event by event. {worst.held_out_note(tables.gaps_by_size(run))}")
        limits = (parts.information(run, AUDIT, "tolerance"), parts.information(run, AUDIT, "noise floor"))
        kept.chart(about, "gap-by-step", lambda: charts.gap_by_step(run.table(AUDIT, "steps"), *limits))
    elif shown == "Worst prefixes":
        gaps = tables.gaps_by_size(run)
        st.caption(f"{TERMS['prefix']} {worst.held_out_note(gaps)}")
        row = st.container(horizontal=True)
        gaps = tables.choose_rows(row, gaps, "origin", "Prefixes of", all_first=False)
        gaps = tables.choose_rows(row, gaps, "probe", "Probe")
        tables.prefixes(here, gaps, "gaps", ["gap", "step", "probe", "session_id"], "worst prefix")
    elif shown == parts_cases.SECTION:
        parts_cases.counterexamples(here, run, AUDIT)
    elif shown == "Probes":
        st.caption("Each probe appends, pads, drops or reorders in another way that a cache may get wrong.")
        checks = parts.checks_of(run, AUDIT)
        kept.chart(about, "probes", lambda: charts.checks_on_log(checks, "Largest gap of each probe"))
        tables.checks(run, [AUDIT], "parity-checks")
        parts.notes(here, run, AUDIT)
    elif shown == "Cache identity":
        st.caption("A cache belongs to one revision, dtype and exact row of events, and to nothing else.")
        tables.observations(here, run, "cache identity", "trials", "trials")
        tables.checks(run, ["cache identity"], "identity-checks")
        parts.notes(here, run, "cache identity")
    else:
        st.caption("Error of the cached path over error of the full path, both against float64, per session.")
        sessions = tables.of_run(run, "numerics", "sessions")
        kept.chart(about, "ratios", lambda: charts.ratio_by_session(sessions, 1.25))
        tables.checks(run, ["numerics"], "numerics-checks")
        parts.notes(here, run, "numerics")
