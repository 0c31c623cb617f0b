"""Parts of the prefix inspector: choosing a prefix, stepping through it, and appending events by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder
from auditlib.sessions.session import Session
from auditlib.views.text import in_markdown, number, plural, safe
from auditlib.web import address, prefix_choice, sessions_facts, state
from auditlib.web.inspection import Seen
from auditlib.web.prefix_choice import Prefix, flags_text
from auditlib.web.text import TERMS

_OFFERED = 500
_FAILED = "inspector failed"


def choose_prefix(here: state.Selection, mapping: EventMap, compiled: CompiledOrder) -> Prefix:
    """The prefix of the address, and the ways to change it: another session, events pasted by hand."""
    found: dict[str, Session] = {}
    if here.snapshot is not None:
        held_out = sessions_facts.held_out(here.places.store, here.snapshot, _OFFERED)
        found = {session.session_id: session for session in held_out}
    ids = _ids(found, mapping)
    _pickers(found, mapping, ids)
    flags = _flags(compiled, found.get(address.value("session") or ""))
    return Prefix(ids, flags)


def choose_step(prefix: Prefix, names: Sequence[str]) -> int:
    """How many events of the prefix have been read, start included: a link may say so, a slider changes it."""
    last = len(prefix.ids)
    asked = address.value("step") or ""
    position = min(max(int(asked), 1), last) if asked.isdigit() and len(asked) < 6 else last
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


def append_buttons(prefix: Prefix, table: pd.DataFrame, mapping: EventMap) -> None:
    """Buttons that append one of the likeliest legal next events, a box for any other, and one to take the last away.

    `table` has the columns event, id, full, cached, legal.
    """
    st.subheader("Append an event", anchor=False)
    row = st.container(horizontal=True)
    likely = table[table["legal"].astype(bool) & table["id"].isin(mapping.domain)].nlargest(6, "full")
    for name, event, chance in zip(likely["event"], likely["id"], likely["full"], strict=True):
        row.button(
            f"{in_markdown(name, 40)} · {chance:.1%}",
            key=f"append-{event}",
            on_click=_show,
            args=((*prefix.ids, int(event)),),
        )
    row.button(
        "Take the last away",
        key="shorten",
        icon=":material/undo:",
        disabled=len(prefix.ids) == 1,
        on_click=_show,
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


def next_table(table: pd.DataFrame) -> None:
    """Every possible next event with both probabilities, and the rule that forbids it."""
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


def steps_table(steps: pd.DataFrame, tolerance: float | None) -> None:
    """Event by event: its probability by both paths, the gap, and whether the rules allowed it."""
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


def _ids(found: Mapping[str, Session], mapping: EventMap) -> tuple[int, ...]:
    """Ids of the address; when it has none, those of its session, or else the start alone."""
    text, session = address.value("events"), found.get(address.value("session") or "")
    try:
        if text is None and session is not None:
            return prefix_choice.of_session(session, mapping)
        return prefix_choice.from_link(text, mapping) if text else (mapping.start,)
    except PrefixgateError as problem:
        st.warning(in_markdown(problem, 500))
        return (mapping.start,)


def _pickers(found: dict[str, Session], mapping: EventMap, ids: tuple[int, ...]) -> None:
    """Ways to bring another prefix: a held-out session, or names pasted by hand."""
    if problem := st.session_state.pop(_FAILED, None):
        st.error(in_markdown(problem, 600))
    left, right = st.columns(2)
    left.selectbox(
        "A held-out session",
        list(found),
        index=None,
        key="pick-session",
        format_func=lambda one: f"{safe(one, 40)} · {len(found[one].events)} events",
        placeholder="Choose one, or type its id",
        on_change=lambda: _show_session(found, mapping),
        help=TERMS["prefix"],
    )
    right.text_area(
        "Or paste events",
        key="paste",
        placeholder="opened, assigned, …",
        height=68,
        on_change=lambda: _show_pasted(mapping),
        help="Names separated by commas, arrows or new lines.",
    )
    if len(ids) == 1:
        st.info("Nothing but the start is shown. Choose a session, paste events, or append one below.")


def _flags(compiled: CompiledOrder, session: Session | None) -> tuple[bool, ...]:
    """Which conditions hold: those of the chosen session, else what the person says."""
    possible = list(compiled.automata())
    if len(possible) == 1:
        return possible[0]
    if session is not None:
        return tuple(condition.holds(session.attributes) for condition in compiled.conditions)
    labels = {flags_text(flags): _condition_words(compiled, flags) for flags in possible}
    chosen = address.choose(st.container(), "when", "Rules for a session", list(labels), shown=lambda key: labels[key])
    return next(flags for flags in possible if flags_text(flags) == chosen)


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


def _condition_words(compiled: CompiledOrder, flags: tuple[bool, ...]) -> str:
    """What is assumed of the session, in words."""
    held = zip(compiled.conditions, flags, strict=True)
    return safe(" and ".join(f"{'' if holds else 'not '}{condition}" for condition, holds in held))


def _show(ids: tuple[int, ...]) -> None:
    """Make `ids` the prefix that is shown, looked at from its end."""
    address.put(events="-".join(map(str, ids)), step=None)


def _show_session(found: dict[str, Session], mapping: EventMap) -> None:
    chosen = st.session_state["pick-session"]
    if chosen is None:
        return
    try:
        _show(prefix_choice.of_session(found[chosen], mapping))
        address.put(session=chosen)
    except PrefixgateError as problem:
        st.session_state[_FAILED] = str(problem)


def _show_pasted(mapping: EventMap) -> None:
    try:
        _show(prefix_choice.from_names(st.session_state["paste"], mapping))
        address.put(session=None)
    except PrefixgateError as problem:
        st.session_state[_FAILED] = str(problem)


def _append_any(prefix: Prefix, mapping: EventMap) -> None:
    name = st.session_state["append-any"]
    if name is not None:
        _show((*prefix.ids, mapping.events[name]))
    st.session_state["append-any"] = None
