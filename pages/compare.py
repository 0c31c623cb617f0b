"""Compare: what became of each held-out session from one run to another."""

import streamlit as st

from auditlib.views import charts_compare
from auditlib.views.paired import terms, tolerance_of
from auditlib.web import comparison, parts, parts_compare, shell

here = shell.enter()
st.title("Compare", help="Two runs over the same held-out sessions, paired session by session.")
st.caption("What became better, what became worse, and which sessions flipped from one run to the other?")
after = parts.need_run(here)
before = parts_compare.choose_other(here)
parts_compare.head(before, after, terms(before, after))
found = comparison.paired(here, before, after)

st.header("Sessions that flip", help="Good in one run and not in the other: within tolerance, valid, or right.")
parts_compare.flips(here, before, after, found.flips)

st.header("Paired differences", help="Each session is compared with itself, so that what is hard for both cancels out.")
st.plotly_chart(charts_compare.differences(found.differences), key="differences-chart")
parts_compare.differences(before, after, found)

st.header("Gaps", help="Largest gap between cached and full path of each distinct way through a session.")
st.plotly_chart(charts_compare.gap_against_gap(found.gaps, (tolerance_of(before), tolerance_of(after))), key="gaps")

st.header("Policies", help="Rates over all sequences of each run, with the bound that so few sequences allow.")
parts_compare.rates(before, after)

st.header("Latency", help="From the moment at which a request was meant to arrive to its first event, and to its end.")
parts_compare.latency(before, after)
