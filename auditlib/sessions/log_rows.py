"""What a reader of logs gives: pieces of rows by column, and rows that it could not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from auditlib.sessions.manifest import Reject

# Rows in a piece: enough to work on whole arrays, few enough to stay small.
PIECE = 20_000
# A column may not hold longer texts; a name of this length is an accident of quoting.
LONGEST_VALUE = 4096


@dataclass(frozen=True, slots=True)
class LogHead:
    """What the start of a log tells: its columns in order, first rows, and how it is written.

    `complete` is False where later rows may have further columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    encoding: str
    delimiter: str | None = None
    complete: bool = True


@dataclass(slots=True)
class Piece:
    """Some rows: one list of texts (None where absent) per wanted column, beside line and hash of each row.

    `row_hash` is equal for rows that are equal in every column, wanted or not.
    """

    values: list[list[str | None]]
    source_row: list[int]
    row_hash: list[int]
    rejects: list[Reject] = field(default_factory=list)


@dataclass(slots=True)
class Remarks:
    """Counts that a reader keeps while it reads, by what they are of."""

    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        """Add to the count of `what`."""
        if number:
            self.counts[what] = self.counts.get(what, 0) + number


class LogReader(Protocol):
    """A log of one format."""

    def head(self, rows: int) -> LogHead:
        """Columns and the first `rows` rows; LogError when the log cannot be read at all."""

    def pieces(self, columns: Sequence[str], remarks: Remarks) -> Iterator[Piece]:
        """Yield every row of the log; LogError when it is truncated or damaged."""


def shown(values: Sequence[str | None], longest: int = 200) -> str:
    """The start of a row for a person to recognise it by."""
    text = " | ".join("" if value is None else value for value in values)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
