"""A file that rows are written to once and read back from: what a log holds need not fit into memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from auditlib.errors import StoreError


class Spool:
    """Record batches of one schema, first written, then read as often as needed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._path = path
        self._writer = pa.ipc.new_file(str(path), schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error there is nothing left to save, and a full disk would only raise a second one.
        with contextlib.suppress(OSError) if kind else self._translated():
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Put a batch at the end. StoreError when the disk takes no more."""
        with self._translated():
            self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in the order they were written; nothing can be written afterwards."""
        with self._translated():
            self._writer.close()
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"rows cannot be kept in {self._path.parent}: {error}; make room there or set TMPDIR to another folder"
            ) from error
