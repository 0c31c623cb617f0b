"""What the pages show of a revision without loading its weights: event names and the order its events may come in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import streamlit as st

from auditlib.decoders.guarded_folder import read_file
from auditlib.errors import IntegrityError, PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder, EventOrder
from auditlib.views import event_names
from auditlib.web.catalogue import Entry

_LARGEST = 16 << 20
_MANIFEST = "revision.json"
_UNREADABLE = (PrefixgateError, ValueError, KeyError, TypeError, RecursionError)


def event_map(entry: Entry | None) -> EventMap | None:
    """The revision's event map; None when its folder is gone or cannot be read."""
    if entry is None or entry.folder is None:
        return None
    try:
        return _event_map(entry.folder, entry.digest)
    except _UNREADABLE:  # the board says that the folder is gone; here its names are simply not known
        return None


def order(entry: Entry | None) -> CompiledOrder | None:
    """The revision's event order, compiled; None when its folder is gone or cannot be read."""
    if entry is None or entry.folder is None:
        return None
    try:
        return _order(entry.folder, entry.digest)
    except _UNREADABLE:
        return None


def names_of(entry: Entry | None, events: str) -> str:
    """Names for ids joined by "-", the last few of them, arrows between; the ids when the event map is gone."""
    return named(event_map(entry), events)


def named(mapping: EventMap | None, events: str) -> str:
    """`names_of` under an event map at hand: for tables, whose rows share one."""
    return event_names.named(mapping, events)


def possible_pairs(compiled: CompiledOrder, mapping: EventMap, names: tuple[str, ...]) -> np.ndarray:
    """Whether an event may ever follow another: bool [N + 1, N + 1], rows start + names, columns names + end.

    True where at least one state that the row's event leads to allows the column's event, under any condition.
    """
    ids = np.array([mapping.events[name] for name in names if name in mapping.events], dtype=int)
    known = np.array([name in mapping.events for name in names], dtype=bool)
    columns = np.append(ids, mapping.end)
    found = np.zeros((len(ids) + 1, len(columns)), dtype=bool)
    for automaton in compiled.automata().values():
        # Each combination of conditions allows some steps; a step that any allows is not forbidden.
        found[0] |= automaton.legal[0, columns]
        for row, event in enumerate(ids, start=1):
            reached = automaton.step[:, event]
            found[row] |= automaton.legal[np.unique(reached[reached >= 0])][:, columns].any(axis=0)
    whole = np.ones((len(names) + 1, len(names) + 1), dtype=bool)  # what the map does not name is not judged
    whole[np.ix_(np.append(True, known), np.append(known, True))] = found
    return whole


# What fails is raised, because that is not kept: a folder that was away for a moment would stay so until a restart.
@st.cache_resource(max_entries=16, show_spinner=False)
def _event_map(folder: Path, digest: str) -> EventMap:
    return EventMap.from_json(_text(folder, digest, "event_map"))


@st.cache_resource(max_entries=16, show_spinner="Compiling the event order")
def _order(folder: Path, digest: str) -> CompiledOrder:
    return EventOrder.from_json(_text(folder, digest, "event_order")).compile(_event_map(folder, digest))


def _text(folder: Path, digest: str, part: str) -> str:
    """The file that the revision's manifest names for `part`; IntegrityError when the folder holds another revision."""
    content = read_file(folder, _MANIFEST, _LARGEST)
    _require(content, digest, folder / _MANIFEST)
    manifest = json.loads(content)
    name = str(manifest[part])
    text = read_file(folder, name, _LARGEST)
    _require(text, manifest["files"][name], folder / name)
    return text.decode()


def _require(content: bytes, digest: str, place: Path) -> None:
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise IntegrityError(f"{place} is not what the revision recorded; its events are not named by it")
