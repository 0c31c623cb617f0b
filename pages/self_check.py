"""Self-check: would the audits have seen a fault in this decoder? What became of those that were planted."""

from collections import Counter

import streamlit as st

from auditlib.views import charts_self_check
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import kept, parts, parts_jobs, shell, tables

here = shell.enter()
st.title("Self-check", help="Faults of publicly reported kinds are planted in the decoder under audit, one at a time.")
st.caption("Would the audits have seen a fault in this decoder? Only the check that claims to see a fault is asked.")
run = parts.need_run(here)
parts.shown_run(here, run)
parts_jobs.audit_buttons(here, None)
found = run.report.get("self_check") or {"ran": False}
if not found["ran"]:
    st.info("The self-check was left out of this run.")
    st.stop()
if found["problem"]:
    st.warning(f"The self-check could not run: {in_markdown(found['problem'], 2000)}", icon=":material/warning:")
row = st.container(horizontal=True)
row.metric("planted", found["planted"], help="Faults that this decoder can carry.")
row.metric("caught", found["caught"], help="Seen by the check that claims to see them.")
row.metric("missed", len(found["missed"]), help="Claimed and not seen. One is enough to refuse the release.")
row.metric("false alarms", len(found["false_alarms"]), help="Checks that alarm without any fault.")
row.metric(
    "not tried", len(found["not_applicable"]), help="Faults that could not be tried here, for the reasons below."
)
for name in (*found["missed"], *found["false_alarms"]):
    st.error(f"Not told apart: {in_markdown(name)}", icon=":material/close:")

faults, about = tables.of_run(run, "self check", "faults"), kept.of_run(run)
kept.chart(about, "caught-by-kind", lambda: charts_self_check.caught_by_kind(faults))
kept.chart(about, "margins", lambda: charts_self_check.margins(faults))
if undrawn := charts_self_check.undrawn(faults):
    st.caption(undrawn)

st.header("Faults", help="Margin: the value over its limit, or the count itself where the limit is 0.")
tables.observations(here, run, "self check", "faults", "planted-faults")

st.header("Equivalent mutants", help="Changes that no check can see, because they change no answer.")
parts.lines([f"{safe(name)}: {safe(reason, 500)}" for name, reason in found["equivalent"].items()])
st.header("Could not be tried", help="In the table of faults their outcome is: not applicable.")
reasons = Counter(found["not_applicable"].values())
parts.lines([f"{plural(count, 'fault')}: {safe(reason, 500)}" for reason, count in reasons.most_common()])
