"""When the sessions of a snapshot began and how long they took, counted where they lie."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import duckdb

from auditlib.sessions.snapshot import Side, Snapshot
from auditlib.sessions.store_counts import rows

Period = Literal["day", "week", "month", "year"]
BINS_A_DECADE = 5
# How many days a log may span for bars of each period; some sixty to a hundred of them can still be told apart.
_SPANS: tuple[tuple[int, Period], ...] = ((60, "day"), (730, "week"), (3650, "month"))
_SIDES = (
    "from store.main.frozen where side in ('training', 'held-out') and snapshot_no = "
    "(select min(snapshot_no) from store.main.snapshots where digest = ?)"
)


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Times of the sessions on both sides of a snapshot; moments are UTC.

    `durations`: side, bin and sessions, from first to last event: bin b holds 10 ** (b / BINS_A_DECADE) seconds up to
    the next bin, None the sessions that took no time. `spread`: of each side the median and the 95th percentile of the
    durations in seconds, both of them durations of sessions. `starts`: side, first day of a `period`, and the sessions
    that began in it; periods without any are left out.
    """

    durations: tuple[tuple[Side, int | None, int], ...]
    spread: dict[Side, tuple[float, float]]
    starts: tuple[tuple[Side, datetime, int], ...]
    period: Period


def times(cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> SessionTimes:
    """The times of a snapshot; empty tables for one without sessions, StoreError where the store cannot be read."""
    took = f"(select side, (epoch_us(last_time) - epoch_us(first_time)) / 1e6 as seconds {_SIDES})"
    durations = rows(
        cursor,
        f"select side, case when seconds > 0 then floor({BINS_A_DECADE} * log10(seconds))::int end as bin, count(*) "  # noqa: S608
        f"from {took} group by all order by side, bin nulls first",
        [snapshot.digest],
    )
    spread = rows(
        cursor,
        "select side, quantile_disc(seconds, 0.5), quantile_disc(seconds, 0.95) "  # noqa: S608
        f"from {took} group by side order by side",
        [snapshot.digest],
    )
    period = _period(cursor, snapshot)
    starts = rows(
        cursor,
        f"select side, date_trunc(?, first_time)::timestamp as start, count(*) {_SIDES} "
        "group by all order by side, start",
        [period, snapshot.digest],
    )
    return SessionTimes(
        tuple((side, place, count) for side, place, count in durations),
        {side: (float(median), float(high)) for side, median, high in spread},
        tuple((side, start, count) for side, start, count in starts),
        period,
    )


def _period(cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot) -> Period:
    """The shortest period whose bars can still be told apart over the whole snapshot."""
    found = rows(cursor, f"select date_diff('day', min(first_time), max(first_time)) {_SIDES}", [snapshot.digest])
    days = found[0][0] or 0
    return next((period for most, period in _SPANS if days <= most), "year")
