"""Log rows on disk: a journal that loses nothing to a kill, turned into Parquet parts that appear only when whole."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet as pq

from auditlib.files import write_whole
from auditlib.serving.log_row import LogRow, fits, to_table

_JOURNAL = "journal-*.jsonl"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a killed process left behind: rows that were saved, and lines that it had not finished writing."""

    rows: int = 0
    broken: int = 0


class RequestLog:
    """Keeps rows in a folder: `part-*.parquet`, and a journal of what is not in a part yet.

    Each row is in the journal before its answer goes out, so a killed process loses at most the line it was writing;
    the next RequestLog on the folder turns what it left into a part. Several processes may write into one folder.
    """

    def __init__(self, folder: Path, *, rows_a_part: int = 10_000) -> None:
        """Make the folder where there is none, and save what a killed process left in it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._most = rows_a_part
        self._lock = threading.Lock()
        self._rows: list[LogRow] = []
        self.recovered = _recover(folder)
        self._path, self._journal = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, row: LogRow) -> None:
        """Write one row down; it survives this process from here on. ValueError for one that no part could hold."""
        if not fits(row):
            raise ValueError("a value in the row is not of its column's type")
        line = json.dumps(asdict(row), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._write(line)
            self._rows.append(row)
            if len(self._rows) % self._most == 0:
                # The row survives in the journal even when no part can be written; that is tried again later.
                with suppress(OSError):
                    self._roll()

    def flush(self) -> None:
        """Put all rows into Parquet parts now."""
        with self._lock:
            if self._rows:
                self._roll()

    def close(self) -> None:
        """Flush, and leave no journal behind."""
        with self._lock:
            _write_part(self.folder, self._rows, self._path.stem)
            self._journal.close()
            self._path.unlink(missing_ok=True)
            self._rows = []

    def _opened(self) -> tuple[Path, io.FileIO]:
        """A new journal. Its lock is held while this process lives, so that nobody takes it for abandoned."""
        path = self.folder / f"journal-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        aside = path.with_suffix(".new")
        journal = io.FileIO(aside, "a")
        fcntl.flock(journal, fcntl.LOCK_EX)
        aside.rename(path)  # under its own name only once it is locked
        return path, journal

    def _write(self, line: bytes) -> None:
        """Append a whole line or nothing: half of one, from a full disk, would swallow the next row as well."""
        end, written = self._journal.seek(0, os.SEEK_END), 0
        try:
            written = self._journal.write(line)  # unbuffered: one line is one write
        finally:
            if written < len(line):
                self._journal.truncate(end)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _roll(self) -> None:
        """Turn the journal into a part and begin the next one. The part first: a kill between the two is found out.

        The next journal is there before the part: were it missing afterwards, later rows would go into this journal
        and take the place of this part.
        """
        path, journal = self._opened()
        try:
            _write_part(self.folder, self._rows, self._path.stem)
        except OSError:
            journal.close()
            path.unlink(missing_ok=True)
            raise
        old, done = self._journal, self._path
        self._path, self._journal, self._rows = path, journal, []
        old.close()
        done.unlink(missing_ok=True)


def _recover(folder: Path) -> Recovered:
    """Turn journals that no process holds any more into parts."""
    rows = broken = 0
    for path in sorted(folder.glob(_JOURNAL)):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # another process is writing it, or making a part of it
            if os.fstat(file.fileno()).st_nlink == 0:
                continue  # another process has just made a part of it
            found, torn = _lines(file.read())
            # Under the lock to the end: of two services that start at once, one does this and the other passes by.
            _write_part(folder, found, path.stem)
            path.unlink(missing_ok=True)
            rows, broken = rows + len(found), broken + torn
    return Recovered(rows, broken)


def _lines(content: bytes) -> tuple[list[LogRow], int]:
    """Whole rows of a journal, and how many lines are none."""
    found, broken = [], 0
    for line in content.splitlines():
        try:
            row = LogRow(**_object(line))
        except (ValueError, TypeError):
            broken += 1
            continue
        # One value of another type would make the whole part impossible, at this start and at every later one.
        if fits(row):
            found.append(row)
        else:
            broken += 1
    return found, broken


def _object(line: bytes) -> dict[str, Any]:
    document = json.loads(line)
    return document if isinstance(document, dict) else {}  # no row can be made of nothing


def _write_part(folder: Path, rows: list[LogRow], journal: str) -> None:
    """Rows as one part, named after the journal that they come from: written twice, they still stand there once."""
    if not rows:
        return
    buffer = io.BytesIO()
    pq.write_table(to_table(rows), buffer, compression="zstd")
    write_whole(folder / f"{journal.replace('journal', 'part')}.parquet", buffer.getvalue())
