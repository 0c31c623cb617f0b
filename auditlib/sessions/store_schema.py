"""The tables of a session store, and the check that a file has exactly these."""

from __future__ import annotations

from pathlib import Path

import duckdb

from auditlib.errors import StoreError

STORE_FORMAT = "1"

# No keys and no defaults: an index would cost more memory than a large import may take, and what must be unique is
# checked by the one writer.
TABLES: dict[str, dict[str, str]] = {
    "meta": {"name": "VARCHAR", "value": "VARCHAR"},
    "imports": {"import_id": "INTEGER", "manifest": "VARCHAR", "undone": "VARCHAR"},
    "sessions": {
        "session_id": "VARCHAR",
        "import_id": "INTEGER",
        "events": "INTEGER",
        "first_time": "TIMESTAMP",
        "last_time": "TIMESTAMP",
        "first_row": "BIGINT",
        "customers": "VARCHAR[]",
        "assets": "VARCHAR[]",
        "attributes": "MAP(VARCHAR, VARCHAR)",
    },
    "events": {
        "session_id": "VARCHAR",
        "event_no": "INTEGER",
        "name": "VARCHAR",
        "time": "TIMESTAMP",
        "source_row": "BIGINT",
        "import_id": "INTEGER",
    },
    "rejects": {
        "import_id": "INTEGER",
        "source_row": "BIGINT",
        "session_id": "VARCHAR",
        "reason": "VARCHAR",
        "text": "VARCHAR",
    },
    "snapshots": {"snapshot_no": "INTEGER", "digest": "VARCHAR", "document": "VARCHAR"},
    "frozen": {
        "snapshot_no": "INTEGER",
        "side": "VARCHAR",
        "session_id": "VARCHAR",
        "events": "VARCHAR[]",
        "customers": "VARCHAR[]",
        "assets": "VARCHAR[]",
        "attributes": "MAP(VARCHAR, VARCHAR)",
        "first_time": "TIMESTAMP",
        "last_time": "TIMESTAMP",
    },
    "revisions": {"name": "VARCHAR", "folder": "VARCHAR", "digest": "VARCHAR", "registered": "VARCHAR"},
}


def create_layout(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables in the empty database `store`."""
    for table, columns in TABLES.items():
        inside = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        connection.execute(f"create table store.main.{table} ({inside})")
    connection.execute("insert into store.main.meta values ('format', ?)", [STORE_FORMAT])


def check_layout(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """StoreError unless every expected table is a plain table with the expected columns.

    A view of that name would run a query that a stranger wrote, so it is refused.
    """
    try:
        found = _columns(connection)
        _refuse_other_layout(found, path)
        version = connection.execute(
            "select value from store.main.meta where name = 'format' order by value"
        ).fetchall()
    except duckdb.Error as error:
        raise StoreError(f"{path.name} is damaged: {error}; import the log again into a new store") from error
    if version != [(STORE_FORMAT,)]:
        raise StoreError(
            f"{path.name} has store format {version}, this version reads {STORE_FORMAT}; import the log anew"
        )


def _refuse_other_layout(found: dict[str, dict[str, str]], path: Path) -> None:
    for table, columns in TABLES.items():
        if found.get(table) != columns:
            raise StoreError(
                f"{path.name} is no session store of this version: table {table!r} is {_shown(found.get(table))}; "
                "give the path of a store that `import` made"
            )


def _columns(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    rows = connection.execute(
        "select columns.table_name, columns.column_name, columns.data_type "
        "from duckdb_columns() columns join duckdb_tables() tables using (database_name, schema_name, table_name) "
        "where database_name = 'store' and schema_name = 'main' order by columns.table_name, columns.column_index"
    ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found


def _shown(columns: dict[str, str] | None) -> str:
    return "missing" if columns is None else f"made of {', '.join(columns)}"
