"""The journal of a live log: JSON lines, one row each, of which a killed writer may have left the last one torn."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditlib.runs.live_files import TYPED, Part, bytes_of, sha256_of_bytes
from auditlib.serving.log_row import SCHEMA

_NAMES = frozenset(SCHEMA.names)


def read_lines_part(file: Path) -> Part:
    """A journal. A line that is no row of the log is counted and left out, a last line without its end too."""
    data = bytes_of(file)
    unread: Counter[str] = Counter()
    *lines, torn = data.split(b"\n")
    if torn:
        unread["last line without its end"] += 1
    rows = [row for line in lines if (row := _row(line, unread)) is not None]
    return Part(_table(rows, unread), sha256_of_bytes(data), dict(unread))


def _row(line: bytes, unread: Counter[str]) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if isinstance(row, dict) and set(row) == _NAMES:
        return row
    unread["line that is no row"] += 1
    return None


def _table(rows: list[dict[str, Any]], unread: Counter[str]) -> pa.Table:
    try:
        return pa.Table.from_pylist(rows, TYPED)
    except (pa.ArrowException, TypeError, OverflowError):
        # Row by row only now: arrow does not say which of them it could not take.
        kept = [row for row in rows if _fits(row)]
        unread["line with a value of another type"] += len(rows) - len(kept)
        return pa.Table.from_pylist(kept, TYPED)


def _fits(row: dict[str, Any]) -> bool:
    try:
        pa.Table.from_pylist([row], TYPED)
    except (pa.ArrowException, TypeError, OverflowError):
        return False
    return True
