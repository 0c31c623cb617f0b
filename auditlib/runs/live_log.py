"""Live logs, read: a service's folder, or a file of Parquet, CSV, JSON lines or DuckDB; the same rows whichever it is.

A log is a stranger's file. Only the expected columns are read, each as its one type; what cannot be read is counted by
reason, and nothing is passed over silently.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from auditlib.errors import LogError
from auditlib.release.rollout_rows import LiveRows
from auditlib.runs.live_columns import to_rows
from auditlib.runs.live_files import Part, read_csv_part, read_duckdb_part, read_parquet_part
from auditlib.runs.live_lines import read_lines_part

_TRIES = 5


class _MovedError(LogError):
    """A journal is no longer where it was."""


@dataclass(frozen=True)
class LiveLog:
    """A log as it was when it was read. `lacking` counts, by column and reason, rows that are not whole."""

    path: Path
    rows: LiveRows
    parts: Mapping[str, Part]
    lacking: Mapping[str, int]

    @property
    def files(self) -> Sequence[Mapping[str, Any]]:
        """For each file: its name, sha256, number of rows, and the digest of these rows."""
        return [
            {"name": name, "sha256": part.sha256, "rows": part.table.num_rows, "digest": _digest(part.table)}
            for name, part in self.parts.items()
        ]

    def digest_of(self, name: str, rows: int) -> str | None:
        """Digest of the first so many rows of a file; None when it has fewer, or is not there."""
        part = self.parts.get(name)
        return None if part is None or part.table.num_rows < rows else _digest(part.table.slice(0, rows))


def read_live_log(path: Path) -> LiveLog:
    """The log at `path`. LogError when it is missing, of no known kind, or lacks a column.

    A Parquet part that was not written to its end is left out and counted as unfinished; a last line that has no line
    end is left out and counted as unread. The journal of a service, with rows that are in no part yet, is read too.
    """
    for _ in range(_TRIES - 1):
        try:
            return _read_once(path)
        except _MovedError:
            continue  # a journal became a part between listing and reading; list again
    return _read_once(path)


def _read_once(path: Path) -> LiveLog:
    unread: Counter[str] = Counter()
    parts: dict[str, Part] = {}
    unfinished = 0
    for file in _files(path):
        part = _read(file)
        unread.update(part.unread)
        unfinished += part.unfinished
        if part.sha256:
            # a journal becomes the part of its name, with the same rows in front: one name for both
            parts[file.name.replace(".jsonl", ".parquet").replace("journal-", "part-")] = part
    if not parts:
        raise LogError(f"{path} holds no finished file of a live log; give a Parquet, CSV or DuckDB log")
    rows, lacking = to_rows([part.table for part in parts.values()], unread, unfinished)
    return LiveLog(path, rows, parts, lacking)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        # journals first: one that becomes a part meanwhile is then missed at reading, and not passed over
        journals = sorted(path.glob("journal-*.jsonl"))
        # names with a dot in front are files that a writer has not renamed yet: they are no part of the log so far
        parts = sorted(file for file in path.glob("*.parquet") if not file.name.startswith("."))
        written = {file.stem.replace("part-", "journal-") for file in parts}
        # a journal beside its own part was left by a kill between writing the one and removing the other
        return [*parts, *(file for file in journals if file.stem not in written)]
    return [path]


def _read(file: Path) -> Part:
    readers = {
        ".parquet": read_parquet_part, ".csv": read_csv_part, ".jsonl": read_lines_part, ".duckdb": read_duckdb_part,
    }  # fmt: skip
    reader = readers.get(file.suffix)
    if reader is None:
        raise LogError(f"{file} is no live log; its name must end in {', '.join(readers)}, or be a folder of parts")
    try:
        return reader(file)
    except LogError as error:
        raise error if file.exists() or file.suffix != ".jsonl" else _MovedError(str(error)) from error


class _Hasher:
    """A file that keeps nothing but the SHA-256 of what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.closed = False

    def write(self, data: bytes) -> int:
        """Take bytes up."""
        self.hash.update(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing; there is nothing to flush."""

    def close(self) -> None:
        """Say so from now on."""
        self.closed = True


def _digest(table: pa.Table) -> str:
    """Digest of rows, the same from whatever file they were read: of their text, a null told from an empty text."""
    hasher = _Hasher()
    options = pa_csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with pa.PythonFile(hasher, mode="w") as sink:
        pa_csv.write_csv(table.combine_chunks(), sink, options)
    return f"sha256:{hasher.hash.hexdigest()}"
