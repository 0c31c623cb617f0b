"""Verdict: why the gate says what it says, a reviewer's signature, and whether a signature holds."""

import streamlit as st

from auditlib.web import (
    identity,
    parts,
    parts_board,
    parts_jobs,
    parts_packaging,
    parts_signing,
    parts_verdict,
    shell,
    state,
)
from auditlib.web.desk import Desk

here = shell.enter()
sent = parts_signing.sent()
desk = Desk(state.settings(), identity.reviewer())
st.title("Verdict", help="A signed statement about one run: what was measured, on what, and what follows from it.")
st.caption("The gate judges the numbers, a reviewer signs. A reviewer may refuse an approved run, never the reverse.")
run = parts.need_run(here)
parts_board.facts(run)
parts_verdict.why(run)
parts_board.decision(run)
parts_jobs.audit_buttons(here)

st.header("Serving artifact", help="What the run allows to be served, in one closed folder that the verdict names.")
parts_packaging.of_run(desk, here, run)

st.header("Signatures", help="A verdict counts when as many people have signed it as the trust file asks for.")
parts_verdict.signatures(desk, here, run)
parts_verdict.people(desk, run)

st.header("Sign")
parts_signing.sign_form(desk, run, sent)

st.header("Verify a verdict", help="Checks signatures, people, times and digests. A valid verdict may still say no.")
parts_verdict.verify_upload(desk, here)

st.header("Report")
parts_verdict.reports(desk, run)
