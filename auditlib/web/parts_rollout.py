"""Parts of the rollout page: which rollout, where it stands, what comes next, and what for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import streamlit as st

from auditlib.release.rollout_chain import Chain
from auditlib.release.rollout_decision import Decision, Need
from auditlib.release.rollout_plan import RELEASED
from auditlib.release.rollout_standing import FALLBACK_ONLY, REPLAYED, ROLLED_BACK, Standing
from auditlib.release.rollout_transition import Transition
from auditlib.runs.live_log import LiveLog
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, clock, rollout_facts
from auditlib.web.text import short

_SIGNED = "This page only looks. The move is made and signed by `python -m auditlib rollout advance`."
_ENDED = {RELEASED: "Released, and watched on.", ROLLED_BACK: "Rolled back: this chain is at its end."}
"""What is said in place of a next move where none is to come."""

_ARMS = {
    "stage": "In shadow the fallback answers and the new arm runs beside it; in canary 5, 5 % go to the new arm.",
    "requests": "Requests that the log has of this arm in this stage.",
    "whole": "Of these, rows that lack nothing: only they count towards the sample.",
    "invalid": "Units with an answer that breaks the event order.",
    "errors": "Units with a request that nothing answered.",
    "slow": "Units with a request slower than the fallback's 95th percentile in the shadow stage.",
    "compared": "New answers that were compared with the full prefix path.",
    "differ": "Compared answers that differ by more than a near tie: one of them rolls the rollout back.",
    "ties": "Compared answers that differ by a near tie only, which is no harm.",
}
_COUNTED = ("compared", "differ", "ties")
"""Columns of counts that are texts, because the fallback has none."""


def choose(found: Mapping[str, Path], home: Path) -> Path:
    """The rollout that is looked at; without any, words that say how one begins below `home`, and the page ends."""
    if not found:
        st.info("There is no rollout yet. One begins on the command line; its chain and log lie here, one folder each.")
        chain = home / "rollouts" / "NAME" / rollout_facts.CHAIN
        st.code(f"python -m auditlib rollout start --chain {safe(chain, 400)} …", language=None, wrap_lines=True)
        st.stop()
    name = address.choose(
        st.container(), "rollout", "Rollout", list(found), shown=safe, help="A folder with a chain and a log."
    )
    return found[name or next(iter(found))]


def where(chain: Chain) -> None:
    """The states of the rollout in their order, the one that it is in said in words and marked."""
    standing = chain.standing
    paused = ", paused" if standing.paused else ""
    kind = {ROLLED_BACK: st.error, RELEASED: st.success}.get(standing.state, st.info)
    kind(f"It is at: {in_markdown(standing.state)}{paused}.", icon=":material/location_on:")
    states = (FALLBACK_ONLY, REPLAYED, *chain.plan.names)
    past = {move.to for move in chain.moves}
    row = st.container(horizontal=True)
    for state in states:
        here = state == standing.state
        icon = ":material/location_on:" if here else ":material/check:" if state in past else ":material/more_horiz:"
        row.badge(state, color="blue" if here else "green" if state in past else "gray", icon=icon)


def coming(decision: Decision, standing: Standing) -> None:
    """The next decision in one sentence, with every reason, and what sample is still needed."""
    ended = {} if standing.paused else _ENDED
    words = {
        "promote": f"Next: promote to {decision.to}.",
        "hold": ended.get(standing.state, "Next: hold, the evidence does not allow more."),
        "pause": "Next: pause, something about the log must be looked at by a person.",
        "roll back": "Next: roll back.",
    }[decision.action]
    kind = {"promote": st.success, "hold": st.info, "pause": st.warning, "roll back": st.error}[decision.action]
    kind("\n\n".join([words, *(in_markdown(_sentence(reason), 500) for reason in decision.reasons)]))
    if decision.action != "hold":
        st.markdown(_SIGNED)  # not a caption: a command in one is too faint to be read in dark mode
    if not decision.needed:
        return
    st.subheader("Sample", help="What this stage must have seen before it may be left, whatever was seen so far.")
    for need in decision.needed:
        _need(need)


def arms(table: pd.DataFrame) -> None:
    """Rows and bad units of each arm, stage by stage."""
    if table.empty:
        st.text("No row of the log counts yet.")
        return
    columns = {
        name: st.column_config.Column(help=meaning, alignment="right" if name in _COUNTED else None)
        for name, meaning in _ARMS.items()
    }
    st.dataframe(table, key="arms", hide_index=True, column_config=columns, alt="Rows of each arm by stage")


def faults(log: LiveLog, found: Mapping[str, int]) -> None:
    """What is wrong with the log itself, each with its count."""
    listed = [("fault", found), ("not whole", log.lacking), ("unreadable", log.rows.unread)]
    lines = [f"{kind}: {safe(name)}, {plural(n, 'row')}" for kind, counts in listed for name, n in counts.items() if n]
    if log.rows.unfinished:
        lines.append(f"not written to their end: {plural(log.rows.unfinished, 'file')}")
    for line in lines or ["Nothing is wrong with the log."]:
        st.text(line)


def moves(chain: Chain) -> None:
    """Every signed move, newest first."""
    rows = [
        {
            "when": clock.when(move.time.isoformat()), "to": safe(move.to), "move": move.kind,
            "signed by": safe(person), "decided by": move.by,
            "why": safe(move.comment or "; ".join(move.reasons or _documents(move)), 300),
        }
        for move, person in zip(chain.moves, chain.people, strict=True)
    ]  # fmt: skip
    st.dataframe(pd.DataFrame(rows[::-1]), key="moves", hide_index=True, alt="Signed moves of the rollout")
    st.caption(
        f"Artifact {short(chain.standing.artifact)}, plan {short(chain.plan.digest)}. Head of the chain, to be noted "
        f"somewhere else because it tells a chain that was cut off: {safe(chain.head)}"
    )


def _documents(move: Transition) -> list[str]:
    return [f"{one['kind']} {short(one['digest'])}" for one in move.documents]


def _need(need: Need) -> None:
    share = min(1.0, need.have / need.need) if need.need else 1.0
    missing = max(0, need.need - need.have)
    rest = "enough" if not missing else f"{missing:,} more"
    st.progress(share, text=f"{safe(_capital(need.what))}: {need.have:,}, at least {need.need:,} needed: {rest}")


def _sentence(words: str) -> str:
    return f"{_capital(words)}."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
