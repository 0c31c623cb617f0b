"""Causality: does any logit depend on what comes later?"""

import streamlit as st

from auditlib.views import charts
from auditlib.web import kept, parts, parts_cases, parts_jobs, shell, tables

AUDIT = "causality"

here = shell.enter()
st.title("Causality", help="A decoder that sees later events scores well in training and cannot be right in service.")
st.caption("Do the logits of a prefix stay the same, bit for bit, whatever follows it?")
run = parts.need_run(here, AUDIT)
parts.shown_run(here, run)
parts_jobs.audit_buttons(here, AUDIT)
parts.audit_head(run, AUDIT)
st.caption("Truncation is judged by the size of a change, every other probe by whether anything changed at all.")
probes = tables.of_run(run, AUDIT, "probes")
kept.chart(kept.of_run(run), "changes", lambda: charts.changes_by_position(probes))

if parts_cases.of_audit(run, AUDIT):
    st.header(parts_cases.SECTION)
    parts_cases.counterexamples(here, run, AUDIT)

st.header("Checks")
tables.checks(run, [AUDIT], "causality-checks")
parts.notes(here, run, AUDIT)

st.header("Prefixes that changed", help="The worst observations of each probe; each opens in the inspector.")
changed = kept.made(kept.of_run(run), "largest changes", lambda: tables.largest_first(probes, "value"))
tables.prefixes(here, changed, "probes", ["probe", "path", "position", "value"], "change")
