"""Policies: what each way of choosing the next event makes of the decoder."""

import streamlit as st

from auditlib.views import charts_policies
from auditlib.web import parts, parts_board, parts_jobs, parts_policies, shell, tables
from auditlib.web.text import TERMS

AUDIT = "decoding policy"

here = shell.enter()
st.title("Policies", help=TERMS["order mask"])
st.caption(
    "Does greedy, sampled and beam decoding keep the event order, end by itself and never emit padding? "
    "Each setting is measured with and without the order mask; only proposed settings count."
)
run = parts.need_run(here, AUDIT)
parts_jobs.audit_buttons(here, AUDIT)
parts_board.decision(run)
parts.audit_head(run, AUDIT)
rates = run.table(AUDIT, "rates")

st.header("Invalid orders", help=TERMS["upper bound"])
st.plotly_chart(charts_policies.invalid_rates(rates), key="invalid")
parts_policies.rates_table(run, rates)

st.header("Stops and repetition", help=TERMS["capped"])
st.plotly_chart(charts_policies.stops(rates), key="stops")
st.plotly_chart(charts_policies.duplication(rates), key="duplication")

st.header(
    "Sequences", help="What was decoded after each held-out prefix; the first wrong event and the rule it breaks."
)
parts_policies.sequences(here, run.table(AUDIT, "sequences"))

st.header("Event grammar", help="Proved over every state of the rules, not sampled from sessions.")
parts.audit_head(run, "event grammar")
parts.notes(run, "event grammar")
tables.observations(run, "event grammar", "flags", "flags")

st.header("Checks")
tables.checks(run, [AUDIT, "event grammar"], "policy-checks")
