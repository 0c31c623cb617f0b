"""Choosing a prefix for the inspector: a held-out session, or events pasted by hand. The address keeps the choice."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder
from auditlib.sessions.session import Session
from auditlib.views.text import in_markdown, safe
from auditlib.views.worst import worst
from auditlib.web import address, disk, prefix_choice, sessions_facts, state
from auditlib.web.prefix_choice import Prefix, flags_text
from auditlib.web.text import TERMS

# A select box holds all its options in the browser; a longer list is reached by links and by pasting.
_OFFERED = 500
_FAILED = "inspector failed"


def begin_with_the_worst(here: state.Selection) -> None:
    """Where the address names no prefix, take the one that the run's worst finding rests on."""
    # An empty inspector teaches nothing.
    found = worst(here.run) if here.run else None
    if found is not None and not address.value("events") and not address.value("session"):
        address.put(events=found.events, session=found.session_id or None)


def choose_prefix(here: state.Selection, mapping: EventMap, compiled: CompiledOrder) -> Prefix:
    """The prefix of the address, and the ways to change it: another session, events pasted by hand."""
    found = _sessions(here)
    ids = _ids(found, mapping)
    _pickers(found, mapping, ids)
    flags = _flags(compiled, found.get(address.value("session") or ""))
    return Prefix(ids, flags)


def _sessions(here: state.Selection) -> dict[str, Session]:
    """Sessions to choose from by id, and the one of the address however many there are: its rules go by what it is."""
    snapshot, asked, store = _snapshot(here), address.value("session"), here.places.store
    if snapshot is None:
        return {}
    found = {session.session_id: session for session in sessions_facts.held_out(store, snapshot, _OFFERED)}
    if asked and asked not in found:
        named = sessions_facts.session(store, snapshot, asked)
        if named is not None:
            return {**found, asked: named}
        st.warning(
            f"Session {in_markdown(asked, 80)} is not in the snapshot, so which conditions of the event order hold for "
            "it is not known.",
            icon=":material/help:",
        )
    return found


def _snapshot(here: state.Selection) -> str | None:
    """The snapshot whose sessions the chosen run measured, where the store has it; else the one of the sidebar."""
    own = str(here.run.manifest["snapshot"]["digest"]) if here.run is not None else None
    return own if own in {one.digest for one in disk.snapshots(here.places.store)} else here.snapshot


def show(ids: tuple[int, ...]) -> None:
    """Make `ids` the prefix that is shown, looked at from its end; for callbacks of buttons."""
    address.put(events="-".join(map(str, ids)), step=None)


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
    session = address.value("session") or ""
    whole = found.get(session)
    # The box names the session while all of it is shown; else choosing it again must be possible.
    st.session_state["pick-session"] = session if whole and ids == _whole(whole, mapping) else None
    left.selectbox(
        "A held-out session",
        list(found),
        index=None,
        key="pick-session",
        format_func=lambda one: f"{safe(one, 40)} · {len(found[one].events)} events",
        placeholder=f"From {safe(session, 40)}; choose any" if session else "Choose one, or type its id",
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


def _whole(session: Session, mapping: EventMap) -> tuple[int, ...] | None:
    """Ids of a whole session; None where this revision's map does not know all of its events."""
    try:
        return prefix_choice.of_session(session, mapping)
    except PrefixgateError:
        return None


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


def _condition_words(compiled: CompiledOrder, flags: tuple[bool, ...]) -> str:
    """What is assumed of the session, in words."""
    held = zip(compiled.conditions, flags, strict=True)
    return safe(" and ".join(f"{'' if holds else 'not '}{condition}" for condition, holds in held))


def _show_session(found: dict[str, Session], mapping: EventMap) -> None:
    chosen = st.session_state["pick-session"]
    if chosen is None:
        return
    try:
        show(prefix_choice.of_session(found[chosen], mapping))
        address.put(session=chosen)
    except PrefixgateError as problem:
        st.session_state[_FAILED] = str(problem)


def _show_pasted(mapping: EventMap) -> None:
    try:
        show(prefix_choice.from_names(st.session_state["paste"], mapping))
        address.put(session=None)
    except PrefixgateError as problem:
        st.session_state[_FAILED] = str(problem)
