"""What the pages show of a store, read once for each state of its file or once for each (unchanging) snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.sessions.session import Session
from auditlib.sessions.snapshot import Side
from auditlib.sessions.split import LeakageReport
from auditlib.sessions.split import leakage as measure_leakage
from auditlib.sessions.store import SessionStore, StoreSummary
from auditlib.sessions.store_counts import Variant
from auditlib.sessions.store_times import SessionTimes
from auditlib.web.disk import stamp

MOST_REJECTS = 100_000
"""How many rejected rows are read for a page; one more is asked for, so that a page can say that there are more."""
_SIDES: tuple[Side, ...] = ("training", "held-out")


def summary(store: Path) -> StoreSummary:
    """How much the store holds now."""
    found: StoreSummary = _summary(store, stamp(store))
    return found


def imports(store: Path) -> pd.DataFrame:
    """One row an import: what was read, and everything that was unusual about it."""
    rows = [_import_row(manifest) for manifest in _imports(store, stamp(store))]
    return pd.DataFrame(rows)


def rejects(store: Path, limit: int = MOST_REJECTS + 1) -> pd.DataFrame:
    """Rows of the logs that are not among the events, with the reason; the first `limit` of them."""
    found = _rejects(store, stamp(store), limit)
    rows = [{"line": r.source_row, "session": r.session_id or "", "reason": r.reason, "text": r.text} for r in found]
    return pd.DataFrame(rows, columns=["line", "session", "reason", "text"])


@st.cache_resource(max_entries=16, show_spinner="Counting sessions")
def lengths(store: Path, snapshot: str) -> pd.DataFrame:
    """Sessions by number of events and side: columns length, side, sessions."""
    with SessionStore.open(store) as opened:
        frozen = opened.snapshot(snapshot)
        rows = [
            (length, side, count) for side in _SIDES for length, count in opened.lengths(frozen, side).items()
        ]  # fmt: skip
    return pd.DataFrame(rows, columns=["length", "side", "sessions"])


@st.cache_resource(max_entries=16, show_spinner="Counting sessions")
def times(store: Path, snapshot: str) -> SessionTimes:
    """When the sessions of either side began, and how long they took."""
    with SessionStore.open(store) as opened:
        return opened.times(opened.snapshot(snapshot))


@st.cache_resource(max_entries=16, show_spinner="Counting transitions")
def transitions(store: Path, snapshot: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Names, and how often each followed each: int [N + 1, N + 1], rows start + names, columns names + end."""
    with SessionStore.open(store) as opened:
        found = opened.transitions(opened.snapshot(snapshot))
    names = tuple(sorted({name for one in found for name in (one.first, one.then) if name is not None}))
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names) + 1, len(names) + 1), dtype=np.int64)
    for one in found:
        row = 0 if one.first is None else place[one.first] + 1
        counts[row, len(names) if one.then is None else place[one.then]] += one.count
    return names, counts


@st.cache_resource(max_entries=16, show_spinner="Counting variants")
def variants(store: Path, snapshot: str, limit: int = 200) -> tuple[Variant, ...]:
    """The most frequent sequences of events on the held-out side."""
    with SessionStore.open(store) as opened:
        return opened.variants(opened.snapshot(snapshot), "held-out", limit)


@st.cache_resource(max_entries=16, show_spinner="Looking for leakage")
def leakage(store: Path, snapshot: str) -> LeakageReport:
    """What training and held-out side share."""
    with SessionStore.open(store) as opened:
        return measure_leakage(opened, opened.snapshot(snapshot))


@st.cache_resource(max_entries=8, show_spinner="Reading sessions")
def held_out(store: Path, snapshot: str, limit: int) -> Sequence[Session]:
    """The first held-out sessions by id."""
    with SessionStore.open(store) as opened:
        return tuple(opened.sessions(opened.snapshot(snapshot), "held-out", limit))


def session(store: Path, snapshot: str, session_id: str) -> Session | None:
    """One session of a snapshot by its id; None where the snapshot has none of that id, or cannot be read now."""
    try:
        found: Session = _session(store, snapshot, session_id)
    except PrefixgateError:  # not kept: a store may be back at the next look
        return None
    return found


@st.cache_resource(max_entries=200, show_spinner=False)
def _session(store: Path, snapshot: str, session_id: str) -> Session:
    with SessionStore.open(store) as opened:
        return opened.named(opened.snapshot(snapshot), [session_id])[0]


def _import_row(manifest: Any) -> dict[str, Any]:
    mapping = manifest.mapping
    return {
        "number": manifest.import_id,
        "log": manifest.source,
        "sessions": manifest.sessions,
        "events": manifest.events,
        "rejects": manifest.rejects,
        "reasons": ", ".join(f"{reason}: {count}" for reason, count in manifest.reject_reasons.items()),
        "duplicates": manifest.duplicates,
        "ties in time": manifest.ties,
        "out of order": manifest.out_of_order,
        "columns": f"session {mapping.session}, event {' + '.join(mapping.event)}, time {mapping.time}",
        "guessed": ", ".join(manifest.guessed),
        "times": manifest.time_format_reason,
        "imported UTC": manifest.imported,
    }


@st.cache_resource(max_entries=8, show_spinner=False)
def _summary(store: Path, version: tuple[int, ...]) -> Any:  # noqa: ARG001  a part of the cache's key
    with SessionStore.open(store) as opened:
        return opened.summary()


@st.cache_resource(max_entries=8, show_spinner=False)
def _rejects(store: Path, version: tuple[int, ...], limit: int) -> Any:  # noqa: ARG001  a part of the cache's key
    with SessionStore.open(store) as opened:
        return opened.rejects(limit=limit)


@st.cache_resource(max_entries=8, show_spinner=False)
def _imports(store: Path, version: tuple[int, ...]) -> Any:  # noqa: ARG001  a part of the cache's key
    with SessionStore.open(store) as opened:
        return opened.imports()
