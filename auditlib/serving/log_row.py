"""One row a request and arm: what a rollout later reads. The only place where the columns of the live log stand.

In a canary stage a request is answered by one arm and has one row. In the shadow stage both arms answer it and it has
two rows with the same `request_id`: the fallback's, which was served, and the new artifact's, which was not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

import pyarrow as pa

Arm = Literal["new", "fallback"]

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which no file of texts holds
_TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("arrival", _TIME, nullable=False),
        pa.field("start", _TIME),
        pa.field("first_event", _TIME),
        pa.field("end", _TIME, nullable=False),
        pa.field("session", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("artifact", pa.string(), nullable=False),
        pa.field("cache", pa.bool_(), nullable=False),
        pa.field("decoding", pa.string(), nullable=False),
        pa.field("prefix_length", pa.int64(), nullable=False),
        pa.field("output_length", pa.int64(), nullable=False),
        pa.field("batch_size", pa.int64(), nullable=False),
        pa.field("stop", pa.string()),
        pa.field("valid", pa.bool_()),
        pa.field("rule", pa.string()),
        pa.field("mask_empty", pa.bool_(), nullable=False),
        pa.field("events_digest", pa.string()),
        pa.field("shadow_events_digest", pa.string()),
        pa.field("first_differing_step", pa.int64()),
        pa.field("margin", pa.float64()),
        pa.field("largest_logit_gap", pa.float64()),
        pa.field("cache_bytes", pa.int64()),
        pa.field("fallback", pa.string()),
        pa.field("error", pa.string()),
    ]
)
"""Columns of the live log with their types. What is not nullable must be there in every row, errors included."""

OF_AN_ANSWER = ("start", "first_event", "stop", "valid", "events_digest")
"""Columns that must be there too when `error` is null: an answer about which they are silent was not measured."""


@dataclass(frozen=True, slots=True)
class LogRow:
    """One request as one arm answered it. Times are microseconds since 1970 in UTC; digests are "sha256:…".

    `session`: hashed. `stage`: the rollout's, such as "shadow" or "canary 5". `artifact`: the one that answered, so a
    request of the new arm that the fallback artifact answered carries the fallback's digest, and `fallback` says why.
    `batch_size`: rows decoded together when it started. `valid` False: `rule` names the order rule broken.
    `shadow_events_digest`: what the full prefix path of the same artifact gave for this request, None where it was not
    compared; where it differs, `first_differing_step` (new events from 0), `margin` (logits between the full path's
    best two events there) and `largest_logit_gap` (logits between the paths there) must stand beside it.
    `error`: code, None when an answer was given.
    """

    request_id: str
    arrival: int
    start: int | None
    first_event: int | None
    end: int
    session: str
    arm: Arm
    stage: str
    artifact: str
    cache: bool
    decoding: str
    prefix_length: int
    output_length: int
    batch_size: int
    stop: str | None
    valid: bool | None
    rule: str | None
    mask_empty: bool
    events_digest: str | None
    shadow_events_digest: str | None = None
    first_differing_step: int | None = None
    margin: float | None = None
    largest_logit_gap: float | None = None
    cache_bytes: int | None = None
    fallback: str | None = None
    error: str | None = None


def fits(row: LogRow) -> bool:
    """Whether each value is of its column's own type, so that the row can stand in a table."""
    return all(_is_of(getattr(row, field.name), field) for field in SCHEMA)


def _is_of(value: object, field: pa.Field) -> bool:
    if value is None:
        return bool(field.nullable)
    if field.type == pa.string():
        return isinstance(value, str) and not _SURROGATE.search(value)
    if field.type == pa.bool_():
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if field.type == pa.float64():
        # An integer too large for a float is one too large for the 64 bits of the other columns as well.
        return isinstance(value, float) or _is_int64(value)
    return _is_int64(value)


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def to_table(rows: Iterable[LogRow]) -> pa.Table:
    """Rows as a table with the log's schema, in their order."""
    listed = list(rows)
    names = [field.name for field in fields(LogRow)]
    return pa.table({name: [getattr(row, name) for row in listed] for name in names}, schema=SCHEMA)
