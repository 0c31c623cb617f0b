"""Two runs paired, read once for each pair: runs never change, and neither do snapshots."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.runs.folder import Run
from auditlib.sessions.store import SessionStore
from auditlib.views.paired import Pairing, pair, sessions_of
from auditlib.web import prefix_choice, revision_facts, state


def others(here: state.Selection) -> dict[str, Run]:
    """Runs that the chosen one may be compared with: on its snapshot and of other revisions first, newest first."""
    found = [run for entry in here.entries for run in entry.runs if here.run is not None and run.id != here.run.id]
    found.sort(key=lambda run: str(run.manifest["created"]), reverse=True)
    return {run.id: run for run in sorted(found, key=lambda run: _distance(run, here.run))}


def paired(here: state.Selection, before: Run, after: Run) -> Pairing:
    """The two runs, question by question; without names and right answers where revision or snapshot are gone."""
    mapping = revision_facts.event_map(here.entry)
    return _paired(here.places.store, before.id, after.id, before, after, mapping)


@st.cache_resource(max_entries=8, show_spinner="Pairing the sessions")
def _paired(store: Path, first: str, second: str, _before: Run, _after: Run, _mapping: EventMap | None) -> Pairing:  # noqa: ARG001  the ids name the runs in the cache's key
    truth = _truth(store, str(_after.manifest["snapshot"]["digest"]), sessions_of(_before, _after), _mapping)
    return pair(_before, _after, truth, _mapping.name if _mapping is not None else str)


def _truth(
    store: Path, snapshot: str, sessions: tuple[str, ...], mapping: EventMap | None
) -> dict[str, tuple[int, ...]]:
    """Whole rows of ids of some held-out sessions; none where the snapshot is not in this store."""
    if mapping is None:
        return {}
    try:
        with SessionStore.open(store) as opened:
            frozen = opened.snapshot(snapshot)
            rows = [opened.session(frozen, session) for session in sessions]
        return {row.session_id: (*prefix_choice.of_session(row, mapping), mapping.end) for row in rows}
    except PrefixgateError:
        return {}


def _distance(run: Run, chosen: Run | None) -> tuple[bool, bool]:
    """What makes a run a worse partner: another snapshot, then the same revision."""
    if chosen is None:
        return False, False
    return run.manifest["snapshot"]["digest"] != chosen.manifest["snapshot"]["digest"], run.revision == chosen.revision
