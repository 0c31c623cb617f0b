"""Counts for people: variants, transitions and lengths, of the store now or of one side of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from auditlib.errors import StoreError
from auditlib.sessions.snapshot import Side, Snapshot


@dataclass(frozen=True, slots=True)
class Variant:
    """One sequence of events and how many sessions went exactly that way."""

    events: tuple[str, ...]
    sessions: int


@dataclass(frozen=True, slots=True)
class Transition:
    """How often `then` directly followed `first`; None is the start (as `first`) or the end (as `then`)."""

    first: str | None
    then: str | None
    count: int


def rows(cursor: duckdb.DuckDBPyConnection, query: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
    """Every row of a query; StoreError when DuckDB cannot answer it."""
    try:
        return cursor.execute(query, values or []).fetchall()
    except duckdb.Error as error:
        raise StoreError(f"the session store is damaged: {error}; import the log again into a new store") from error


def _sequences(snapshot: Snapshot | None, side: Side | None) -> tuple[str, list[Any]]:
    """A query that gives one list of events per session, and its values."""
    if snapshot is None:
        return "select list(name order by event_no) as events from store.main.events group by session_id", []
    query = (
        "select events from store.main.frozen where (? is null or side = ?) and snapshot_no = "
        "(select min(snapshot_no) from store.main.snapshots where digest = ?)"
    )
    return query, [side, side, snapshot.digest]


def variants(
    cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, side: Side | None, limit: int
) -> tuple[Variant, ...]:
    """The `limit` most frequent sequences; equal counts by the sequence itself."""
    query, values = _sequences(snapshot, side)
    found = rows(
        cursor,
        f"select events, count(*) from ({query}) group by events order by count(*) desc, events limit ?",  # noqa: S608
        [*values, limit],
    )
    return tuple(Variant(tuple(events), count) for events, count in found)


def transitions(
    cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, side: Side | None
) -> tuple[Transition, ...]:
    """Every pair that occurs with its count, sorted by names, start and end last."""
    query, values = _sequences(snapshot, side)
    # Place 0 of a list is null, and so is the place after its last: they stand for the start and the end.
    found = rows(
        cursor,
        "select pair[1], pair[2], count(*) from (select unnest(list_transform(range(len(events) + 1), "  # noqa: S608
        f"lambda step: [events[nullif(step, 0)], events[step + 1]])) as pair from ({query})) "
        "group by all order by 1 nulls last, 2 nulls last",
        values,
    )
    return tuple(Transition(*row) for row in found)


def lengths(cursor: duckdb.DuckDBPyConnection, snapshot: Snapshot | None, side: Side | None) -> dict[int, int]:
    """Events in a session → sessions with that many."""
    query, values = _sequences(snapshot, side)
    found = rows(
        cursor,
        f"select len(events), count(*) from ({query}) group by len(events) order by len(events)",  # noqa: S608
        values,
    )
    return dict(found)
