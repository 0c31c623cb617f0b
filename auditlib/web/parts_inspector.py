"""Parts of the prefix inspector: what both paths say of a prefix, event by event, and what may come next."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.events.event_map import EventMap
from auditlib.numbers import number
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, kept
from auditlib.web.inspection import Seen
from auditlib.web.parts_prefix import show
from auditlib.web.prefix_choice import Prefix

_FIRST = "Gaps"
_BY_LINK = {
    "step": "What comes next",
    "edit": "What if",
    "other": "Whose cache",
    "head": "Attention",
    "layer": "Attention",
}
"""Section of the page that a value in the address belongs to."""


def section() -> tuple[str, DeltaGenerator]:
    """The open section and its place; a link that names an edit, a request or a head opens theirs."""
    linked = (name for value, name in _BY_LINK.items() if address.value(value) not in (None, "none"))
    return address.section(_FIRST, *dict.fromkeys(_BY_LINK.values()), default=next(linked, _FIRST))


def describe(prefix: Prefix, seen: Seen) -> None:
    """The prefix in words: whose it is, and all its events."""
    session = address.value("session")
    st.text(" → ".join(safe(name, 40) for name in seen.names))
    whose = f"From session {in_markdown(session, 80)}. " if session else ""
    st.caption(f"{whose}{plural(len(prefix.ids) - 1, 'event')} after the start.")


def verdict_on(seen: Seen, tolerance: float | None) -> None:
    """In words: where the paths part for the first time, and which event the rules forbid first."""
    steps = seen.steps
    if tolerance is None:
        st.info("No tolerance was measured for this revision: gaps are shown, and not judged.")
    else:
        # Written so that a gap that is not a number counts as over.
        over = steps[~(steps["gap"] <= tolerance)]
        _parity_words(over, tolerance)
    wrong = steps[~steps["legal"].astype(bool)]
    if len(wrong):
        first = wrong.iloc[0]
        rules = _rules_against(seen, int(first["step"]))
        name = in_markdown(first["event"], 60)
        st.warning(
            f"Event {first['step'] - 1}, {name}, is illegal there: {in_markdown(rules)}", icon=":material/block:"
        )


def choose_step(prefix: Prefix, names: Sequence[str]) -> int:
    """How many events of the prefix have been read, start included: a link may say so, a slider changes it."""
    last = len(prefix.ids)
    asked = address.value("step") or ""
    position = min(max(int(asked), 1), last) if re.fullmatch(r"[0-9]{1,5}", asked) else last
    if last == 1:
        return 1
    st.session_state["at"] = position
    st.select_slider(
        "Look at what comes after",
        list(range(1, last + 1)),
        key="at",
        format_func=lambda step: f"{step - 1}. {safe(names[step - 1], 30)}",
        on_change=lambda: address.put(step=str(st.session_state["at"])),
        help="The figure and table below show what either path expects after this event.",
    )
    return position


def order_words(table: pd.DataFrame, mapping: EventMap) -> None:
    """Where the event order stands after the chosen event: what may come, whether the session may end, what waits."""
    legal = table[table["legal"].astype(bool)]
    if legal.empty:
        st.text("Event order: an event before this was illegal, so nothing may follow.")
        return
    # By name: the table is ordered by what the decoder thinks likely, which the rules do not know.
    names = sorted(safe(name, 40) for name in legal.loc[legal["id"] != mapping.end, "event"])
    may = f"Event order: allows {', '.join(names) or 'no further event'}."
    end = table[table["id"] == mapping.end].iloc[0]
    if end["legal"]:
        st.text(f"{may} The session may end here.")
    else:
        st.text(f"{may} The session may not end yet: {safe(end['rules'], 400)} waits.")


def append_buttons(prefix: Prefix, table: pd.DataFrame, mapping: EventMap) -> None:
    """Buttons that append one of the likeliest legal next events, a box for any other, and one to take the last away.

    `table` has the columns event, id, full, cached, legal.
    """
    st.subheader("Append an event", anchor=False)
    row = st.container(horizontal=True)
    # Ids without a name may be likely too, but nobody can append them by name.
    likely = table[table["legal"].astype(bool) & table["id"].isin(mapping.domain)].nlargest(6, "full")
    for name, event, chance in zip(likely["event"], likely["id"], likely["full"], strict=True):
        row.button(
            f"{in_markdown(name, 40)} · {chance:.1%}",
            key=f"append-{event}",
            on_click=show,
            args=((*prefix.ids, int(event)),),
        )
    row.button(
        "Take the last away",
        key="shorten",
        icon=":material/undo:",
        disabled=len(prefix.ids) == 1,
        on_click=show,
        args=(prefix.ids[:-1],),
    )
    st.selectbox(
        "Any event, also one that the rules forbid",
        list(mapping.events),
        index=None,
        key="append-any",
        format_func=lambda name: safe(name, 60),
        on_change=lambda: _append_any(prefix, mapping),
    )


def next_table(table: pd.DataFrame, about: str) -> None:
    """Every possible next event with both probabilities, and the rule that forbids it; `about` names the place."""
    kept.drawn(about, "next-table", lambda: _draw_next(table))


def steps_table(seen: Seen, tolerance: float | None) -> None:
    """Event by event: its probability by both paths, the gap, and whether the rules allowed it."""
    kept.drawn(f"{seen.about} {tolerance}", "steps-table", lambda: _draw_steps(seen.steps, tolerance))


def _draw_next(table: pd.DataFrame) -> None:
    shown = pd.DataFrame(
        {
            "next event": [safe(name) for name in table["event"]],
            "full path": [number(value) for value in table["full"]],
            "cached path": [number(value) for value in table["cached"]],
            "allowed": ["✓ legal" if legal else "✗ illegal" for legal in table["legal"]],
            "forbidden by": [_why(row["rules"], row["legal"]) for _, row in table.iterrows()],
        }
    )
    st.dataframe(shown, key="next-table", hide_index=True, alt="Next events by both paths, legal ones told apart")


def _draw_steps(steps: pd.DataFrame, tolerance: float | None) -> None:
    within = [tolerance is None or gap <= tolerance for gap in steps["gap"]]
    shown = pd.DataFrame(
        {
            "number": steps["step"] - 1,
            "event": [safe(name) for name in steps["event"]],
            "full path": [number(value) for value in steps["full_probability"].astype(float)],
            "cached path": [number(value) for value in steps["cached_probability"].astype(float)],
            "gap after it": [number(value) for value in steps["gap"]],
            "parity": ["✓ within tolerance" if ok else "✗ over tolerance" for ok in within],
            "order": ["✓ legal" if legal else "✗ illegal" for legal in steps["legal"]],
        }
    )
    st.dataframe(shown, key="steps-table", hide_index=True, alt="The prefix event by event")


def _append_any(prefix: Prefix, mapping: EventMap) -> None:
    name = st.session_state["append-any"]
    if name is not None:
        show((*prefix.ids, mapping.events[name]))
    st.session_state["append-any"] = None


def _parity_words(over: pd.DataFrame, tolerance: float) -> None:
    """Whether the paths agree, and if not, from where on."""
    if over.empty:
        st.success(f"Both paths agree after every event, within {number(tolerance)} logit.", icon=":material/check:")
        return
    first = over.iloc[0]
    st.error(
        f"The paths part after event {first['step'] - 1}, {in_markdown(first['event'], 60)}: "
        f"gap {number(first['gap'])} logit where {number(tolerance)} is allowed.",
        icon=":material/close:",
    )


def _rules_against(seen: Seen, step: int) -> str:
    """Names of the rules that forbid the event that comes as number `step`, start included."""
    table = seen.next_events(step - 1)
    named = table.loc[table["id"] == seen.prefix.ids[step - 1], "rules"]
    return str(named.iloc[0]) if len(named) and named.iloc[0] else "nothing may follow a wrong event"


def _why(rules: str, legal: bool) -> str:
    """Which rules forbid an event; those that are no events, and all after a wrong one, are forbidden by no rule."""
    return safe(rules) or ("" if legal else "no event at this place")
