"""Serving: what an artifact serves and what is off in it, its bench, replay and rehearsal, and a memory planner."""

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.views.text import in_markdown
from auditlib.web import parts_packaging, parts_serving, parts_shelf, serving_facts, shell, state
from auditlib.web.desk import Desk

here = shell.enter()
st.title("Serving", help="An artifact is what is served of a run: a revision, a way to decode, and bounds.")
st.caption("What does this artifact serve, how fast, and does an answer ever depend on its company?")
root = state.settings().artifacts
folder = parts_shelf.choose(serving_facts.artifacts(root), here)
artifact = None
found: dict[str, serving_facts.Measured] = {}
if folder is not None:
    try:
        artifact = serving_facts.opened(folder)
    except PrefixgateError as problem:
        st.error(f"This artifact does not hold. {in_markdown(problem, 1000)}", icon=":material/gpp_bad:")
if artifact is not None:
    parts_serving.head(artifact)
    parts_serving.blocked(artifact)
    parts_packaging.measure_buttons(Desk(state.settings()), artifact.folder, artifact.digest)
    found, problems = serving_facts.evidence(root, artifact.digest)
    for words in problems:
        st.warning(in_markdown(words, 1000), icon=":material/warning:")
    st.header("Bench", help="Latency counts from the moment at which a request was meant to arrive.", anchor=False)
    if parts_serving.evidence_head("bench", found.get("bench")):
        parts_serving.bench(found["bench"])
    st.header("Replay", help="Saved answers beside those that come out in other company.", anchor=False)
    if parts_serving.evidence_head("replay", found.get("replay")):
        parts_serving.replay(found["replay"])
    st.header("Rehearsal", help="Failures planted in the running service, and who answered then.", anchor=False)
    if parts_serving.evidence_head("rehearsal", found.get("rehearsal")):
        parts_serving.rehearsal(found["rehearsal"])

st.header("Memory planner", help="Keys and values only; weights and the process come on top.", anchor=False)
parts_serving.planner(serving_facts.starting_plan(artifact, found.get("bench")))
