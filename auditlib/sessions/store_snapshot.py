"""Snapshots in the store: copied when a split is made, read for ever after."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa

from auditlib.errors import StoreError
from auditlib.sessions.snapshot import FrozenSession, Side, Snapshot, Terms, content_digest
from auditlib.sessions.store_counts import rows

_ROW = (
    "select side, session_id, events, customers, assets, attributes, epoch_us(first_time), epoch_us(last_time) "
    "from store.main.frozen"
)
_FETCH = 2000


def snapshots(cursor: duckdb.DuckDBPyConnection) -> tuple[Snapshot, ...]:
    """Every snapshot, oldest first; StoreError when a row is none."""
    found = rows(cursor, "select digest, document from store.main.snapshots order by snapshot_no")
    return tuple(_snapshot(digest, document) for digest, document in found)


def _snapshot(digest: str, document: str) -> Snapshot:
    try:
        values = json.loads(document)
        return Snapshot(**{**values, "digest": digest, "by": tuple(values["by"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"snapshot {digest} of the store is damaged: {error}; split again") from error


def frozen(
    cursor: duckdb.DuckDBPyConnection,
    snapshot: Snapshot,
    side: Side | None,
    limit: int | None,
    session_ids: Sequence[str] | None = None,
) -> Iterator[FrozenSession]:
    """Yield rows of a snapshot ordered by side, id and content, filtered by side and ids where these are given."""
    number = rows(cursor, "select min(snapshot_no) from store.main.snapshots where digest = ?", [snapshot.digest])[0][0]
    if number is None:
        raise StoreError(f"the store has no snapshot {snapshot.digest}; list them with SessionStore.snapshots")
    yield from _read(cursor, number, side, limit, session_ids)


def _read(
    cursor: duckdb.DuckDBPyConnection,
    number: int,
    side: Side | None,
    limit: int | None,
    session_ids: Sequence[str] | None = None,
) -> Iterator[FrozenSession]:
    query = (
        f"{_ROW} where snapshot_no = ? and (? is null or side = ?) "
        "and (? or session_id in (select unnest(?::varchar[]))) "
        "order by side, session_id, events, first_time limit ?"
    )
    try:
        cursor.execute(query, [number, side, side, session_ids is None, list(session_ids or ()), limit])
        while batch := cursor.fetchmany(_FETCH):
            for row in batch:
                yield _frozen_session(row)
    except duckdb.Error as error:
        raise StoreError(f"the session store is damaged: {error}; import the log again into a new store") from error


def _frozen_session(row: tuple[Any, ...]) -> FrozenSession:
    side, session_id, events, customers, assets, attributes, first, last = row
    return FrozenSession(
        side, session_id, tuple(events), tuple(customers), tuple(assets), attributes or {}, int(first), int(last)
    )


def freeze(
    connection: duckdb.DuckDBPyConnection, terms: Terms, sides: dict[str, Side], components: tuple[int, int]
) -> Snapshot:
    """Copy the sessions of `sides` into the store and give the snapshot, or the equal one that is there already."""
    number = rows(connection, "select coalesce(max(snapshot_no), 0) + 1 from store.main.snapshots")[0][0]
    _copy(connection, number, sides)
    frozen_rows = list(_read(connection.cursor(), number, None, None))
    digest = content_digest(terms, frozen_rows)
    # The digest is known only once the rows are there, so an equal snapshot is found after copying.
    for snapshot in snapshots(connection):
        if snapshot.digest == digest:
            connection.execute("delete from store.main.frozen where snapshot_no = ?", [number])
            return snapshot
    snapshot = _described(digest, terms, frozen_rows, components)
    document = json.dumps(snapshot.to_dict(), sort_keys=True)
    connection.execute("insert into store.main.snapshots values (?, ?, ?)", [number, digest, document])
    return snapshot


def _copy(connection: duckdb.DuckDBPyConnection, number: int, sides: dict[str, Side]) -> None:
    chosen = pa.table(
        {"session_id": pa.array(sides.keys(), pa.string()), "side": pa.array(sides.values(), pa.string())}
    )
    connection.register("chosen", chosen)
    connection.execute(
        "insert into store.main.frozen "
        "with sequences as (select session_id, list(name order by event_no) as events "
        "from store.main.events group by session_id) "
        "select ?, chosen.side, chosen.session_id, sequences.events, sessions.customers, sessions.assets, "
        "sessions.attributes, sessions.first_time, sessions.last_time "
        "from chosen join store.main.sessions sessions using (session_id) join sequences using (session_id) "
        "order by chosen.side, chosen.session_id",
        [number],
    )
    connection.unregister("chosen")
    copied = rows(connection, "select count(*) from store.main.frozen where snapshot_no = ?", [number])[0][0]
    if copied != len(sides):
        raise StoreError(f"{len(sides) - copied} of {len(sides)} sessions to freeze are not in the store; split again")


def _described(digest: str, terms: Terms, frozen_rows: list[FrozenSession], components: tuple[int, int]) -> Snapshot:
    sessions = {"training": 0, "held-out": 0, "quarantined": 0}
    events = dict(sessions)
    for row in frozen_rows:
        sessions[row.side] += 1
        events[row.side] += len(row.events)
    return Snapshot(
        digest=digest,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        by=terms.by,
        held_out=terms.held_out,
        seed=terms.seed,
        chronological=terms.chronological,
        quarantine=terms.quarantine,
        training_sessions=sessions["training"],
        held_out_sessions=sessions["held-out"],
        quarantined=sessions["quarantined"],
        training_events=events["training"],
        held_out_events=events["held-out"],
        components=components[0],
        largest_component=components[1],
    )
