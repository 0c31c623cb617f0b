"""Columns of a live log as the plain numbers that evidence is counted from, and which rows are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from auditlib.decoding.generated import Stop
from auditlib.release.rollout_rows import FALLBACK, NEW, LiveRows
from auditlib.serving.log_row import OF_AN_ANSWER, SCHEMA

_Flags = NDArray[np.bool_]

_IDENTIFYING = ("request_id", "arrival", "end", "session", "arm", "stage", "artifact")
"""Without these a row cannot be filed anywhere."""

_STOPS = get_args(Stop)
_OF_A_DIFFERENCE = ("margin", "largest_logit_gap")


def to_rows(tables: Sequence[pa.Table], unread: Counter[str], unfinished: int) -> tuple[LiveRows, Mapping[str, int]]:
    """Rows of all tables, and by reason how many of them are not whole. What cannot be filed is added to `unread`."""
    file = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    table = pa.concat_tables(tables)
    filed = _filed(table, unread)
    table, file = table.filter(pa.array(filed)).combine_chunks(), file[filed]
    lacking = {reason: found for reason, found in _lacking(table) if found.any()}
    not_whole = np.logical_or.reduce([np.zeros(table.num_rows, bool), *lacking.values()])
    stage, stages = _coded(table["stage"])
    artifact, artifacts = _coded(table["artifact"])
    compared = _there(table["events_digest"]) & _there(table["shadow_events_digest"])
    rows = LiveRows(
        request=_coded(table["request_id"])[0],
        session=_coded(table["session"])[0],
        arm=np.where(_equal(table["arm"], "new"), NEW, FALLBACK).astype(np.int8),
        stage=stage,
        artifact=artifact,
        file=file,
        arrival=_microseconds(table["arrival"]),
        end=_microseconds(table["end"]),
        cached=_true(table["cache"]),
        whole=~not_whole,
        invalid=_false(table["valid"]) | _true(table["mask_empty"]),
        error=_there(table["error"]),
        fell_back=_there(table["fallback"]),
        left=_equal(table["error"], "caller left"),
        compared=compared,
        differs=_false(pc.equal(table["events_digest"], table["shadow_events_digest"])),
        margin=_number(table["margin"]),
        stages=stages,
        artifacts=artifacts,
        unread=dict(unread),
        unfinished=unfinished,
    )
    return rows, {reason: int(found.sum()) for reason, found in lacking.items()}


def _filed(table: pa.Table, unread: Counter[str]) -> _Flags:
    """Rows that name their request, arm, stage and artifact [N]."""
    filed = np.ones(table.num_rows, bool)
    for name in _IDENTIFYING:
        there = _there(table[name])
        unread[f"{name}: missing"] += int((~there & filed).sum())
        filed &= there
    known = _equal(table["arm"], "new") | _equal(table["arm"], "fallback")
    unread["arm: neither new nor fallback"] += int((~known & filed).sum())
    return filed & known


def _lacking(table: pa.Table) -> list[tuple[str, _Flags]]:
    """Reasons for which rows are not whole, with the rows [N]."""
    answered = ~_there(table["error"])
    differs = _false(pc.equal(table["events_digest"], table["shadow_events_digest"]))
    always = [field.name for field in SCHEMA if not field.nullable and field.name not in _IDENTIFYING]
    found = [(f"{name}: missing", ~_there(table[name])) for name in always]
    found += [(f"{name}: missing", answered & ~_there(table[name])) for name in OF_AN_ANSWER]
    found += [(f"{name}: negative", _number(table[name]) < 0) for name in ("prefix_length", "output_length")]
    stops = np.logical_or.reduce([_equal(table["stop"], word) for word in _STOPS])
    found += [
        ("batch_size: too small", _number(table["batch_size"]) < np.where(answered, 1, 0)),
        ("times out of order", _disordered(table)),
        ("stop: unknown", _there(table["stop"]) & ~stops),
        ("rule: missing", answered & _false(table["valid"]) & ~_there(table["rule"])),
        ("cache_bytes: missing", answered & _true(table["cache"]) & ~(_number(table["cache_bytes"]) >= 0)),
        ("first_differing_step: missing", differs & ~_there(table["first_differing_step"])),
    ]
    # a gap or margin that is no number says as little as one that is not there
    found += [(f"{name}: missing", differs & ~np.isfinite(_number(table[name]))) for name in _OF_A_DIFFERENCE]
    return found


def _disordered(table: pa.Table) -> _Flags:
    """Rows whose times contradict each other [N]; a start or first event that is not there is passed over."""
    times = [table[name] for name in ("arrival", "start", "first_event", "end")]
    newest = _microseconds(times[0])
    wrong = np.zeros(table.num_rows, bool)
    for column in times[1:]:
        there, at = _there(column), _microseconds(column)
        wrong |= there & (at < newest)
        newest = np.where(there, at, newest)
    return wrong


def _coded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """A text column as numbers that are equal where the texts are, and the texts by number."""
    if len(column) == 0:
        return np.zeros(0, np.int64), ()
    # One array first: a chunked one has no indices as a whole.
    coded = column.combine_chunks().dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), tuple(coded.dictionary.to_pylist())


def _there(column: pa.ChunkedArray) -> _Flags:
    return np.asarray(column.is_valid().to_numpy(), bool)


def _true(column: pa.ChunkedArray) -> _Flags:
    return np.asarray(pc.fill_null(column, False).to_numpy(), bool)


def _false(column: pa.ChunkedArray) -> _Flags:
    return ~np.asarray(pc.fill_null(column, True).to_numpy(), bool)


def _equal(column: pa.ChunkedArray, word: str) -> _Flags:
    return _true(pc.equal(column, word))


def _microseconds(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), np.int64)


def _number(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Values, NaN where there is none."""
    return np.asarray(pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(), np.float64)
