"""Rules that a store's training side suggests, and which held-out sessions break each; read once a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.candidates import Proposal
from auditlib.events.event_map import EventMap
from auditlib.events.mining import propose
from auditlib.events.order import EventOrder
from auditlib.sessions.session import Session
from auditlib.sessions.store import SessionStore

MOST_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class Mined:
    """Proposed rules, and per rule name the held-out sessions that break it (session_id, number, event, sequence).

    `counts` are all breaking sessions by rule name; the tables list at most a thousand a rule.
    """

    proposals: tuple[Proposal, ...]
    broken: dict[str, pd.DataFrame]
    counts: dict[str, int]
    training: int
    held_out: int


@st.cache_resource(max_entries=8, show_spinner="Mining rules from the training side")
def mined(store: Path, snapshot: str, min_support: float) -> Mined:
    """Rules that at least `min_support` of the training sessions keep, held against the held-out ones."""
    with SessionStore.open(store) as opened:
        frozen = opened.snapshot(snapshot)
        training = [session.events for session in opened.sessions(frozen, "training")]
        found = tuple(propose(training, min_support=min_support))
        names = EventMap.build(opened.event_names())
        broken = _broken(found, names, opened.sessions(frozen, "held-out"))
    tables = {name: pd.DataFrame(rows[:MOST_LISTED], columns=_COLUMNS) for name, rows in broken.items()}
    counts = {name: len(rows) for name, rows in broken.items()}
    return Mined(found, tables, counts, len(training), frozen.held_out_sessions)


def order_of(proposals: Iterable[Proposal], version: str) -> EventOrder:
    """The accepted rules as an event order; OrderError for a version that is no text."""
    return EventOrder(version=version, rules=tuple(one.rule for one in proposals), reopening=None)


def compiles(store: Path, order: EventOrder) -> str:
    """Why the rules do not go together, empty when they do."""
    try:
        with SessionStore.open(store) as opened:
            order.compile(EventMap.build(opened.event_names()))
    except PrefixgateError as problem:
        return str(problem)
    return ""


_COLUMNS = ["session_id", "number", "event", "sequence"]
_Row = tuple[str, int, str, str]


def _broken(proposals: Iterable[Proposal], names: EventMap, sessions: Iterable[Session]) -> dict[str, list[_Row]]:
    """Each rule alone against every session: what one rule forbids must not hide what another does."""
    machines = [(p.rule.name, EventOrder("1", (p.rule,)).compile(names).automaton({})) for p in proposals]
    found: dict[str, list[_Row]] = {name: [] for name, _ in machines}
    ways: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for session in sessions:
        ways[session.events].append(session.session_id)
    for events, who in ways.items():
        ids, words = names.encode(events), " → ".join(events)
        for name, machine in machines:
            wrong = machine.first_wrong(ids, ended=True)
            if wrong is not None:
                found[name] += [(session, wrong.position + 1, names.name(wrong.event), words) for session in who]
    return found
