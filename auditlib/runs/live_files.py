"""One file of a live log as a table with the log's columns and types."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from auditlib.errors import LogError
from auditlib.serving.log_row import SCHEMA
from auditlib.sessions.regular import open_regular

TABLE = "live_log"
"""Name of the table in a DuckDB log."""

TYPED = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
"""The log's columns and types; what may be null is looked at later, row by row."""

_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Part:
    """Rows of one file in its order; `sha256` is empty for a file that was not written to its end."""

    table: pa.Table
    sha256: str
    unread: Mapping[str, int]
    unfinished: int = 0


def read_parquet_part(file: Path) -> Part:
    """A Parquet file. LogError when it is whole and yet cannot be read as a live log."""
    data = bytes_of(file)
    # a writer puts the footer last: without the mark at the end the file is being written, or its writer was killed
    if not (data.startswith(_MAGIC) and data.endswith(_MAGIC) and len(data) > 12):
        return Part(TYPED.empty_table(), "", {}, unfinished=1)
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as reader:
            _require_columns(file, reader.schema_arrow.names)
            table = reader.read(columns=SCHEMA.names)
        return Part(_typed(file, table), sha256_of_bytes(data), {})
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LogError(f"{file.name} is damaged Parquet: {error}; restore it from where it was written") from error


def read_csv_part(file: Path) -> Part:
    """A CSV file with a header line. Lines of another width, and values of another type, are counted and left out."""
    data = bytes_of(file)
    unread: Counter[str] = Counter()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        unread["last line without its end"] += 1
    _require_columns(file, _header(file, whole))
    try:
        table = _texts(whole, unread)
    except (pa.ArrowException, ValueError) as error:
        raise LogError(f"{file.name} is no CSV that can be read: {error}; export it again") from error
    columns, broken = {}, pa.array([False] * table.num_rows)
    for field in TYPED:
        columns[field.name], bad = _column(table[field.name].combine_chunks(), field, unread)
        broken = pa.compute.or_(broken, bad)
    typed = pa.table(columns, schema=TYPED).filter(pa.compute.invert(broken))
    return Part(typed, sha256_of_bytes(data), dict(unread))


def read_duckdb_part(file: Path) -> Part:
    """The plain table `live_log` of a DuckDB file, opened like a stranger's: read-only, nothing else within reach."""
    data = bytes_of(file)
    if data[8:12] != b"DUCK":
        raise LogError(f"{file.name} is not a DuckDB file; give the path of a live log")
    if file.with_name(f"{file.name}.wal").exists():
        raise LogError(f"{file.name}.wal lies beside the log: close the program that writes it, then read again")
    try:
        # The bytes that were hashed are those that are opened: the file itself may be exchanged in between.
        with TemporaryDirectory() as scratch, _locked_down(_copied(data, Path(scratch))) as connection:
            _require_columns(file, _plain_columns(connection))
            wanted = ", ".join(f'"{name}"' for name in SCHEMA.names)
            table = connection.sql(f"select {wanted} from log.main.{TABLE} order by rowid").to_arrow_table()  # noqa: S608
    except duckdb.Error as error:
        raise LogError(f"{file.name} cannot be read as a live log: {error}; export it again") from error
    return Part(_typed(file, table), sha256_of_bytes(data), {})


def _copied(data: bytes, folder: Path) -> Path:
    copy = folder / "log.duckdb"
    copy.write_bytes(data)
    return copy


def _locked_down(file: Path) -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {
        "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        "python_enable_replacements": "false", "temp_directory": "",
    }  # fmt: skip
    connection = duckdb.connect(":memory:", config=settings)
    try:
        quoted = str(file).replace("'", "''")
        connection.execute(f"attach '{quoted}' as log (read_only)")
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def _plain_columns(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Columns of the table; none when it is a view, which would run a query that a stranger wrote."""
    found = connection.execute(
        "select columns.column_name, tables.sql from duckdb_columns() columns join duckdb_tables() tables "
        "using (database_name, schema_name, table_name) "
        "where database_name = 'log' and schema_name = 'main' and columns.table_name = ?",
        [TABLE],
    ).fetchall()
    # a generated column is an expression that a stranger wrote, run at every reading
    if any("generated" in str(sql).casefold() for _, sql in found):
        raise LogError(f"the table {TABLE} has generated columns; export it as plain values")
    return [name for name, _ in found]


def bytes_of(file: Path) -> bytes:
    """All bytes of a regular file; LogError when there is none to read."""
    try:
        with open_regular(file) as opened:
            return opened.read()
    except (OSError, ValueError) as error:
        raise LogError(f"{file} cannot be opened: {error}; give the path of a live log") from error


def sha256_of_bytes(data: bytes) -> str:
    """`sha256:<hex>` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _require_columns(file: Path, names: list[str]) -> None:
    wrong = [name for name in SCHEMA.names if names.count(name) != 1]
    if wrong:
        raise LogError(f"{file.name} lacks columns of a live log, or has them twice: {', '.join(wrong)}; see the docs")


def _typed(file: Path, table: pa.Table) -> pa.Table:
    """Columns in the log's types, where that loses nothing."""
    columns = {}
    for field in TYPED:
        column = table[field.name]
        if pa.types.is_null(column.type):  # a writer that knew no value of a column may not know its type either
            column = pa.nulls(table.num_rows, field.type)
        if pa.types.is_timestamp(field.type) and not (pa.types.is_timestamp(column.type) and column.type.tz):
            raise LogError(f"{file.name}: column {field.name} holds {column.type}, it must hold times with a zone")
        if pa.types.is_string(field.type) != _is_text(column.type):
            raise LogError(f"{file.name}: column {field.name} holds {column.type}, it must hold {field.type}")
        try:
            columns[field.name] = column.cast(field.type)
        except pa.ArrowException as error:
            raise LogError(f"{file.name}: column {field.name} does not hold {field.type}: {error}") from error
    return pa.table(columns, schema=TYPED)


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_text(inner) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _header(file: Path, data: bytes) -> list[str]:
    try:
        first = data[: data.find(b"\n") + 1].decode("utf-8-sig")
        return next(csv.reader(io.StringIO(first), strict=True), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"{file.name} has no header line that can be read: {error}; export it again") from error


def _texts(data: bytes, unread: Counter[str]) -> pa.Table:
    """All columns of a CSV as text, an empty field as null."""

    def skip(_: Any) -> str:
        """The word that has pyarrow leave out a line of another width; counts the line."""
        unread["line of another width"] += 1
        return "skip"

    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(SCHEMA.names, pa.string()), include_columns=SCHEMA.names, null_values=[""],
        strings_can_be_null=True, quoted_strings_can_be_null=True,
    )  # fmt: skip
    parse = pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip)
    return pa_csv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)


def _column(texts: pa.Array, field: pa.Field, unread: Counter[str]) -> tuple[pa.Array, pa.Array]:
    """A column in its type, and which values were none of it [N]; those are null and counted."""
    try:
        return texts.cast(field.type), pa.array([False] * len(texts))
    except pa.ArrowException:
        values = [None if text is None else _value(text, field.type) for text in texts.to_pylist()]
        bad = [text is not None and value is None for text, value in zip(texts.to_pylist(), values, strict=True)]
        unread[f"{field.name}: not {field.type}"] += sum(bad)
        return pa.array(values, field.type), pa.array(bad)


def _value(text: str, kind: pa.DataType) -> Any:
    try:
        return pa.array([text]).cast(kind)[0].as_py()
    except pa.ArrowException:
        return None
