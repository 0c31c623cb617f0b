"""Rollout: the arms, the evidence as it came about, the next decision, and the sample that it still needs."""

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.views import charts_rollout
from auditlib.views.text import in_markdown
from auditlib.web import parts_rollout, rollout_facts, shell, state
from auditlib.web.desk import plainly

shell.enter()
st.title("Rollout", help="How a packaged artifact is taken into service step by step, or back.")
st.caption("Is the new artifact as good as what it replaces? The evidence may be looked at any time; moves are signed.")
settings = state.settings()
folder = parts_rollout.choose(rollout_facts.rollouts(settings.home), settings.home)
try:
    found = rollout_facts.followed(folder, settings.trust)
except PrefixgateError as problem:
    st.error(f"This rollout does not hold: {in_markdown(plainly(problem), 1000)}.", icon=":material/gpp_bad:")
    st.stop()
parts_rollout.where(found.chain)
if found.log is None or found.evidence is None or found.decision is None:
    st.info("No live log lies beside the chain yet: put it there as log.parquet, log.csv, or a folder named log.")
else:
    parts_rollout.coming(found.decision, found.chain.standing)
    st.header("Arms", help="Bad units of the new arm and the fallback; what is assigned at random is in the plan.")
    parts_rollout.arms(rollout_facts.arms(found.evidence))
    st.header(
        "Evidence", help="An e-value that a harmless new arm raises to the limit with a chance below alpha, ever."
    )
    st.caption(
        "Near 1 or below, nothing speaks against the new arm. A line at the dashed limit stops the rollout. "
        "Beyond 1e+8 or 1e-4 a line runs along the edge; the text under the pointer has its number."
    )
    st.plotly_chart(charts_rollout.evidence(rollout_facts.history(found), found.chain.plan.threshold), key="evidence")
    st.header("The log itself")
    parts_rollout.faults(found.log, found.evidence.faults)
st.header("Moves", help="Signed, each naming the one before it.")
parts_rollout.moves(found.chain)
