"""Policies: what each way of choosing the next event makes of the decoder."""

import streamlit as st

from auditlib.views import charts_policies
from auditlib.web import address, kept, parts, parts_board, parts_jobs, parts_policies, shell, tables
from auditlib.web.text import TERMS

AUDIT = "decoding policy"
GRAMMAR = "event grammar"

here = shell.enter()
st.title("Policies", help=TERMS["order mask"])
st.caption(
    "Does greedy, sampled and beam decoding keep the event order, end by itself and never emit padding? "
    "Each setting is measured with and without the order mask; only proposed settings count."
)
run = parts.need_run(here, AUDIT)
parts.shown_run(here, run)
parts_jobs.audit_buttons(here, AUDIT)
parts_board.decision(run)
for audit in (AUDIT, GRAMMAR):
    parts.audit_head(run, audit)
    parts_policies.counted_elsewhere(run, audit)
rates, about = tables.of_run(run, AUDIT, "rates"), kept.of_run(run)
shown, place = address.section("Invalid orders", "Stops and repetition", "Sequences", "Event grammar", "Checks")
with place:
    if shown == "Invalid orders":
        st.caption(f"The line from each rate ends at its upper bound. {TERMS['upper bound']}")
        kept.chart(about, "invalid", lambda: charts_policies.invalid_rates(rates))
        parts_policies.rates_table(run, rates)
    elif shown == "Stops and repetition":
        st.caption(f"Capped: {TERMS['capped'][:1].lower()}{TERMS['capped'][1:]}")
        kept.chart(about, "stops", lambda: charts_policies.stops(rates))
        kept.chart(about, "duplication", lambda: charts_policies.duplication(rates))
    elif shown == "Sequences":
        st.caption("What was decoded after each held-out prefix; the first wrong event and the rule it breaks.")
        parts_policies.sequences(here, tables.of_run(run, AUDIT, "sequences"))
    elif shown == "Event grammar":
        st.caption("Proved over every state of the rules, not sampled from sessions.")
        parts.notes(here, run, GRAMMAR)
        tables.observations(here, run, GRAMMAR, "flags", "flags")
    else:
        tables.checks(run, [AUDIT, GRAMMAR], "policy-checks")
