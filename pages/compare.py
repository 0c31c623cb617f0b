"""Compare: what became of each held-out session from one run to another."""

import streamlit as st

from auditlib.views import charts_compare
from auditlib.views.paired import terms, tolerance_of
from auditlib.web import address, comparison, kept, parts, parts_compare, shell

here = shell.enter()
st.title("Compare", help="Two runs over the same held-out sessions, paired session by session.")
st.caption("What became better, what became worse, and which sessions flipped from one run to the other?")
after = parts.need_run(here)
before = parts_compare.choose_other(here)
parts_compare.head(before, after, terms(before, after))
found, about = comparison.paired(here, before, after), comparison.about(here, before, after)
shown, place = address.section("Sessions that flip", "Paired differences", "Gaps", "Policies", "Latency")
with place:
    if shown == "Sessions that flip":
        st.caption("Good in one run and not in the other: within tolerance, valid, or right.")
        parts_compare.flips(here, before, after, found)
    elif shown == "Paired differences":
        st.caption("Each session is compared with itself, so that what is hard for both cancels out.")
        kept.chart(about, "differences-chart", lambda: charts_compare.differences(found.differences))
        parts_compare.differences(before, after, found, about)
    elif shown == "Gaps":
        st.caption("Largest gap between cached and full path of each distinct way through a session.")
        limits = (tolerance_of(before), tolerance_of(after))
        kept.chart(about, "gaps", lambda: charts_compare.gap_against_gap(found.gaps, limits))
    elif shown == "Policies":
        st.caption("Rates over all sequences of each run, with the bound that so few sequences allow.")
        parts_compare.rates(before, after)
    else:
        st.caption("From the moment at which a request was meant to arrive to its first event, and to its end.")
        parts_compare.latency(before, after)
