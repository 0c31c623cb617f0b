"""Times of staged rows: read in one way, brought to one clock, and put into tables for the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from auditlib.errors import LogError
from auditlib.sessions.manifest import Reject
from auditlib.sessions.spool import Spool
from auditlib.sessions.staging import Staging
from auditlib.sessions.time_formats import TimeFormat
from auditlib.sessions.time_guess import instants
from auditlib.sessions.times import FIRST_YEAR, NO_OFFSET, Times, offset_name


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of all staged rows: how they were read and why so, and the zone of those that state none."""

    form: TimeFormat
    reason: str
    zone: ZoneInfo | None
    times: Times


def stated_zones(times: Times, zone: ZoneInfo | None) -> dict[str, int]:
    """How many times state which offset ("none": no offset).

    LogError when some state one and others do not, unless a zone was named for the latter: their order is unknown.
    """
    found, counts = np.unique(times.offset[times.valid], return_counts=True)
    zones = {offset_name(offset): count for offset, count in zip(found.tolist(), counts.tolist(), strict=True)}
    if NO_OFFSET in found and len(found) > 1 and zone is None:
        stated = ", ".join(f"{name} in {count}" for name, count in zones.items() if name != "none")
        raise LogError(
            f"{zones['none']} rows state no time zone and others do ({stated}), so their order is unknown; "
            "say in which zone the former are with --time-zone, such as UTC or Europe/Berlin"
        )
    return zones


def timed_tables(rows: Spool, timing: Timing, staging: Staging) -> Iterator[pa.Table]:
    """Yield the spooled rows with their times in microseconds UTC; rows whose time does not exist become rejects."""
    place = rows.schema.get_field_index("time")
    start = 0
    for batch in rows.batches():
        part = timing.times.take(slice(start, start + batch.num_rows))
        utc, exists, twice = instants(part, timing.zone)
        staging.tally.remarks.count("clock readings that the zone has twice, of which the earlier was taken", twice)
        staging.reject(_untimed(batch, part, exists, timing))
        times = pa.array(utc, pa.int64()).cast(pa.timestamp("us"))
        yield pa.table(batch).set_column(place, "time", times).filter(pa.array(exists))
        start += batch.num_rows


def _untimed(batch: pa.RecordBatch, times: Times, exists: NDArray[np.bool_], timing: Timing) -> list[Reject]:
    columns = {name: batch.column(name) for name in ("source_row", "session_id", "time")}
    unreadable = f"the time is no date from {FIRST_YEAR} on, written as {timing.form.name}"
    skipped = f"the clocks of {timing.zone} skip this time"
    return [
        Reject(
            columns["source_row"][row].as_py(),
            columns["session_id"][row].as_py(),
            skipped if times.valid[row] else unreadable,
            columns["time"][row].as_py(),
        )
        for row in np.flatnonzero(~exists).tolist()
    ]
