"""Sessions: what was imported, how it was split, what leaks, and which event follows which."""

import streamlit as st

from auditlib.views import charts_sessions
from auditlib.web import parts_import, parts_rules, parts_sessions, sessions_facts, shell
from auditlib.web.text import TERMS

here = shell.enter()
st.title("Sessions", help=TERMS["snapshot"])
st.caption("What the decoder is trained and audited on, and whether the held-out side is really held out.")
store = here.places.store
if store.is_file():
    parts_sessions.numbers(sessions_facts.summary(store))
    st.header("Imports", help="Nothing is dropped silently: each row that is not among the events stands here.")
    parts_sessions.imports(store)
    parts_import.undo_newest(here)
st.subheader("Import a log")
parts_import.wizard(here)

if store.is_file():
    st.header("Split and leakage", help="Sessions, customers or assets on both sides would let a decoder copy answers.")
    parts_sessions.split(here)
    parts_import.split_form(here)
if here.snapshot is not None:
    st.header("Lengths and variants", help="A variant is one sequence of events, however many sessions went that way.")
    st.plotly_chart(charts_sessions.lengths(sessions_facts.lengths(store, here.snapshot)), key="lengths")
    parts_sessions.variants(here)

    st.header("Transitions", help=TERMS["event order"])
    parts_sessions.transitions(here)

    st.header("Rules", help="What nearly every training session keeps may be a rule. You accept or strike out each.")
    parts_rules.mining(here)
