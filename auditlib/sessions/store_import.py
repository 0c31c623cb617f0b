"""Imports in the store: staged rows become events and sessions, and everything unusual is counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from auditlib.errors import StoreError
from auditlib.sessions.manifest import ImportManifest
from auditlib.sessions.store_counts import rows


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted while rows became sessions; see ImportManifest for the meaning of each."""

    sessions: int
    events: int
    first_time: datetime
    last_time: datetime
    duplicates: int
    repeats: int
    ties: int
    out_of_order: int
    rejected_sessions: int
    changing: dict[str, int]


def next_import_id(connection: duckdb.DuckDBPyConnection) -> int:
    """The id of the import to come; ids of undone imports are not used again."""
    found: int = rows(connection, "select coalesce(max(import_id), 0) + 1 from store.main.imports")[0][0]
    return found


def refuse_known_source(connection: duckdb.DuckDBPyConnection, sha256: str) -> None:
    """StoreError when a log of the same bytes is in the store."""
    found = rows(
        connection, "select import_id, manifest from store.main.imports where undone is null order by import_id"
    )
    for import_id, manifest in found:
        if json.loads(manifest).get("sha256") == sha256:
            raise StoreError(f"this log is in the store already (import {import_id}); undo that import to read it anew")


def settle(connection: duckdb.DuckDBPyConnection, import_id: int, attributes: Sequence[str]) -> Counts:
    """Turn the staged rows into events and sessions of `import_id`, and give the counts."""
    # source_row breaks ties, so that the order of the log decides between events of the same time.
    connection.execute(
        "create temp table placed as select *, "
        "row_number() over (partition by session_id order by time, source_row) as event_no, "
        "lag(time) over (partition by session_id order by time, source_row) as time_before, "
        "lag(time) over (partition by session_id order by source_row) as time_of_row_before from staged"
    )
    connection.execute(
        "insert into store.main.events select session_id, event_no, name, time, source_row, ? "
        "from placed order by session_id, event_no",
        [import_id],
    )
    _insert_sessions(connection, import_id, attributes)
    connection.execute(
        "insert into store.main.rejects select ?, source_row, session_id, reason, text from rejected "
        "order by source_row",
        [import_id],
    )
    counts = _count(connection, attributes)
    for table in ("staged", "placed", "rejected"):
        connection.execute(f"drop table {table}")
    return counts


def _insert_sessions(connection: duckdb.DuckDBPyConnection, import_id: int, attributes: Sequence[str]) -> None:
    firsts = "".join(
        f", first(attribute_{number} order by event_no) filter (attribute_{number} is not null) as attribute_{number}"
        for number in range(len(attributes))
    )
    pairs = ", ".join(f"{{'k': ?, 'v': attribute_{number}}}" for number in range(len(attributes)))
    taken = f"map_from_entries(list_filter([{pairs}], lambda pair: pair.v is not null))" if attributes else "map {}"
    connection.execute(
        "insert into store.main.sessions with "  # noqa: S608
        f"{_values('customer')}, {_values('asset')}, "
        "plain as (select session_id, count(*) as events, min(time) as first_time, max(time) as last_time, "
        f"min(source_row) as first_row{firsts} from placed group by session_id) "
        "select session_id, ?, events, first_time, last_time, first_row, coalesce(customers, []), "
        f"coalesce(assets, []), {taken} "
        "from plain left join customer_lists using (session_id) left join asset_lists using (session_id) "
        "order by session_id",
        [import_id, *attributes],
    )


def _values(column: str) -> str:
    """Part of a query: every value of a column per session, first seen first."""
    return (  # the column is one of two words of this module
        f"{column}_values as (select session_id, {column} as value, min(event_no) as seen from placed "  # noqa: S608
        f"where {column} is not null group by session_id, {column}), "
        f"{column}_lists as (select session_id, list(value order by seen) as {column}s "
        f"from {column}_values group by session_id)"
    )


def _count(connection: duckdb.DuckDBPyConnection, attributes: Sequence[str]) -> Counts:
    events, ties, out_of_order, first, last = rows(
        connection,
        "select count(*), count(*) filter (time = time_before), count(*) filter (time < time_of_row_before), "
        "min(time), max(time) from placed",
    )[0]
    return Counts(
        sessions=_one(connection, "select count(distinct session_id) from placed"),
        events=events,
        first_time=first,
        last_time=last,
        duplicates=events - _one(connection, "select count(*) from (select distinct session_id, row_hash from placed)"),
        repeats=events - _one(connection, "select count(*) from (select distinct session_id, name, time from placed)"),
        ties=ties,
        out_of_order=out_of_order,
        rejected_sessions=_one(connection, "select count(distinct session_id) from rejected"),
        changing=_changing(connection, attributes),
    )


def _changing(connection: duckdb.DuckDBPyConnection, attributes: Sequence[str]) -> dict[str, int]:
    columns = {"customer": "customer", "asset": "asset"}
    columns |= {name: f"attribute_{number}" for number, name in enumerate(attributes)}
    counts = {
        name: _one(
            connection,
            f"select count(*) from (select session_id from placed group by session_id "  # noqa: S608
            f"having count(distinct {column}) > 1)",
        )
        for name, column in columns.items()
    }
    return {name: count for name, count in counts.items() if count}


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    found: int = rows(connection, query)[0][0]
    return found


def record(connection: duckdb.DuckDBPyConnection, manifest: ImportManifest) -> None:
    """Put the manifest of an import beside its rows."""
    document = json.dumps(manifest.to_dict(), sort_keys=True)
    connection.execute("insert into store.main.imports values (?, ?, null)", [manifest.import_id, document])


def undo(connection: duckdb.DuckDBPyConnection, import_id: int) -> None:
    """Remove what an import brought; its manifest stays, marked with the time of the undoing."""
    known: list[tuple[Any, ...]] = rows(
        connection, "select import_id from store.main.imports where undone is null order by import_id"
    )
    if (import_id,) not in known:
        shown = ", ".join(str(one) for (one,) in known) or "none"
        raise StoreError(f"there is no import {import_id} to undo; imports in the store: {shown}")
    for table in ("events", "sessions", "rejects"):
        connection.execute(f"delete from store.main.{table} where import_id = ?", [import_id])  # noqa: S608
    now = datetime.now(UTC).isoformat(timespec="seconds")
    connection.execute("update store.main.imports set undone = ? where import_id = ?", [now, import_id])
