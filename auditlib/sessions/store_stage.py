"""Rows on the doorstep of the store: temporary tables that an import fills before anything is decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa

from auditlib.errors import StoreError
from auditlib.sessions.store_counts import rows

# What the importer hands over, one row per usable row of the log; attributes follow as attribute_0, attribute_1, …
STAGED = pa.schema(
    [
        ("source_row", pa.int64()),
        ("row_hash", pa.int64()),
        ("session_id", pa.string()),
        ("name", pa.string()),
        ("time", pa.timestamp("us")),
        ("customer", pa.string()),
        ("asset", pa.string()),
    ]
)
REJECTED = pa.schema(
    [("source_row", pa.int64()), ("session_id", pa.string()), ("reason", pa.string()), ("text", pa.string())]
)


def stage_events(connection: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table], attributes: Sequence[str]) -> None:
    """Put rows of STAGED, with one more column per attribute, into a temporary table, a piece at a time."""
    extra = "".join(f", attribute_{number} varchar" for number in range(len(attributes)))
    connection.execute(
        "create temp table staged (source_row bigint, row_hash bigint, session_id varchar, name varchar, "
        f"time timestamp, customer varchar, asset varchar{extra})"
    )
    _fill(connection, "insert into staged select * from piece", tables)


def stage_rejects(connection: duckdb.DuckDBPyConnection, tables: Iterable[pa.Table]) -> None:
    """Put rows of REJECTED into a temporary table, a piece at a time."""
    connection.execute(
        "create temp table rejected (source_row bigint, session_id varchar, reason varchar, text varchar)"
    )
    _fill(connection, "insert into rejected select * from piece", tables)


def _fill(connection: duckdb.DuckDBPyConnection, statement: str, tables: Iterable[pa.Table]) -> None:
    for table in tables:
        connection.register("piece", table)
        connection.execute(statement)
        connection.unregister("piece")


def refuse_known_sessions(connection: duckdb.DuckDBPyConnection) -> None:
    """StoreError when staged sessions are in the store: two exports of one session would count its events twice."""
    known = rows(
        connection,
        "select session_id, import_id from store.main.sessions where session_id in (select session_id from staged) "
        "order by session_id",
    )
    if known:
        shown = ", ".join(repr(session_id) for session_id, _ in known[:3])
        raise StoreError(
            f"{len(known)} sessions of this log are in the store already, the first are {shown} "
            f"(import {known[0][1]}); import into a new store, or undo that import"
        )
