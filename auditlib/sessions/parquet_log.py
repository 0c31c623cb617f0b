"""Rows of a Parquet log, in batches, as texts: typed times keep their value and zone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from auditlib.errors import LogError
from auditlib.sessions.log_file import LogFile
from auditlib.sessions.log_rows import PIECE, LogHead, Piece, Remarks


class ParquetLog:
    """A Parquet log with one row per event."""

    def __init__(self, log: LogFile) -> None:
        if log.packed is not None:
            raise LogError(f"{log.source} is a packed Parquet file, which cannot be read in parts; unpack it first")
        self._log = log

    def head(self, rows: int) -> LogHead:
        """Columns and first rows."""
        with self._file() as file:
            names = tuple(file.schema_arrow.names)
            batch = next(file.iter_batches(batch_size=max(1, rows)), None)
            columns = [] if batch is None else [_texts(column) for column in batch.columns]
        return LogHead(names, tuple(zip(*columns, strict=True)), "parquet")

    def pieces(self, columns: Sequence[str], remarks: Remarks) -> Iterator[Piece]:
        """Yield the rows; rows count from 1."""
        with self._file() as file:
            names = file.schema_arrow.names
            wanted = [self._place(names, column, file.schema_arrow) for column in columns]
            nested = sum(pa.types.is_nested(kind) for kind in file.schema_arrow.types)
            remarks.count("columns hold lists or structures, which were not read", nested)
            done = 0
            for batch in file.iter_batches(batch_size=PIECE):
                values = [_texts(column) for column in batch.columns]
                hashes = [hash(row) for row in zip(*values, strict=True)]
                source_rows = list(range(done + 1, done + batch.num_rows + 1))
                done += batch.num_rows
                yield Piece([values[place] for place in wanted], source_rows, hashes)

    def _place(self, names: list[str], column: str, schema: pa.Schema) -> int:
        if names.count(column) > 1:
            raise LogError(f"{self._log.source}: {names.count(column)} columns are called {column!r}; rename one")
        place = names.index(column)
        if pa.types.is_nested(schema.types[place]):
            raise LogError(f"{self._log.source}: column {column!r} holds {schema.types[place]}, it must hold one value")
        return place

    @contextlib.contextmanager
    def _file(self) -> Iterator[pq.ParquetFile]:
        self._log.raw.seek(0)
        try:
            with pq.ParquetFile(pa.PythonFile(self._log.raw, mode="r")) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError, UnicodeError, MemoryError) as error:
            raise LogError(f"{self._log.source} is truncated or damaged Parquet: {error}; export it again") from error


def _texts(column: pa.Array) -> list[str | None]:
    """Values as text; those of nested types only serve to tell rows apart, and bytes that are no text stand in hex."""
    if pa.types.is_nested(column.type):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    kind = column.type
    if isinstance(column, pa.ExtensionArray) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [_text(value) for value in column.to_pylist()]
    # As text, typed times go the same way as written ones, with the same checks.
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _text(value: object) -> str | None:
    """Bytes as the text that they are, since many programs write texts so, or else in hex."""
    if not isinstance(value, bytes):
        return None if value is None else str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
