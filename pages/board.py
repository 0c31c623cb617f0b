"""Release board: which revision is refused and why, before anything else."""

import streamlit as st

from auditlib.web import address, parts, parts_board, parts_jobs, shell
from auditlib.web.text import TERMS

here = shell.enter()
st.title("Release board", help="Every revision of the store with what its newest run amounts to.")
st.caption(
    "May this decoder be released? What was not measured is a no. "
    "A fault of the cache blocks cached decoding, a fault of a decoding setting blocks that setting."
)
if not here.entries:
    parts.need_run(here)
for entry in here.entries:
    parts_board.card(here, entry)

st.header(parts_board.chosen_title(here), help=TERMS["run"], anchor=False)
run = parts.need_run(here)
parts_jobs.audit_buttons(here)
parts_board.facts(run)
parts_board.decision(run)
# A link to one check's past opens it.
first = "Trend" if address.value("check") else None
shown, place = address.section("Checks", "Trend", default=first)
with place:
    if shown == "Checks":
        parts_board.all_checks(here, run)
    else:
        st.caption("One check over all runs so far, with the limit that each run was held to.")
        parts_board.trend_of_a_check(here, run)
