"""Sessions: what was imported, how it was split, what leaks, and which event follows which."""

import streamlit as st

from auditlib.web import address, parts_import, parts_rules, parts_sessions, sessions_facts, shell
from auditlib.web.text import TERMS

here = shell.enter()
st.title("Sessions", help=TERMS["snapshot"])
st.caption("What the decoder is trained and audited on, and whether the held-out side is really held out.")
store = here.places.store
if not store.is_file():
    parts_import.wizard(here)
    st.stop()
parts_sessions.numbers(sessions_facts.summary(store))
# A link to proposed rules opens them.
first = "Rules" if address.value("support") else None
shown, place = address.section(
    "Imports", "Split and leakage", "Variants", "Lengths and times", "Transitions", "Rules", default=first
)
with place:
    if shown == "Imports":
        st.caption("Nothing is dropped silently: each row that is not among the events stands here.")
        parts_sessions.imports(store)
        parts_import.undo_newest(here)
        st.subheader("Import a log")
        parts_import.wizard(here)
    elif shown == "Split and leakage":
        st.caption("Sessions, customers or assets on both sides would let a decoder copy answers.")
        parts_sessions.split(here)
        parts_import.split_form(here)
    elif here.snapshot is None:
        parts_sessions.not_split()
    elif shown == "Variants":
        st.caption("A variant is one sequence of events, however many sessions went that way.")
        parts_sessions.variants(here)
    elif shown == "Lengths and times":
        st.caption("Both sides should look alike, unless the split is chronological: then the held-out side is later.")
        parts_sessions.lengths(here)
        parts_sessions.times(here)
    elif shown == "Transitions":
        st.caption("How often each event followed each, over all sessions of the snapshot, training and held-out.")
        parts_sessions.transitions(here)
    else:
        st.caption("What nearly every training session keeps may be a rule. You accept or strike out each.")
        parts_rules.mining(here)
