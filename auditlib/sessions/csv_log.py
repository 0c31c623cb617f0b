"""Rows of a delimited text file, one line at a time: nothing is guessed that the file does not say."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, BinaryIO

from auditlib.errors import LogError
from auditlib.sessions.log_file import LogFile
from auditlib.sessions.log_rows import PIECE, LogHead, Piece, Remarks, shown
from auditlib.sessions.manifest import Reject

DELIMITERS = (",", ";", "\t", "|")
_LONGEST_LINE = 2**22
_MOST_COLUMNS = 4096
_SNIFFED_ROWS = 50
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class _QuotesError(LogError):
    """Quotes that cannot be followed; under another delimiter they may be none."""


class CsvLog:
    """A CSV (or tab, semicolon, bar separated) log. UTF-8 unless a byte order mark or `encoding` says otherwise."""

    def __init__(self, log: LogFile, encoding: str | None = None, delimiter: str | None = None) -> None:
        if delimiter is not None and len(delimiter) != 1:
            raise LogError(f"the delimiter {delimiter!r} must be one character, such as ; or a tab")
        self._log = log
        self._encoding = encoding or _marked_encoding(log)
        self._delimiter = delimiter or self._sniffed_delimiter()

    def head(self, rows: int) -> LogHead:
        """Columns and first rows; rows of another width are shown as far as they go."""
        with self._reader(self._delimiter) as reader:
            columns = self._columns(reader)
            first = [row for row in self._tolerant(reader, rows) if row]
        padded = tuple(tuple((*row, *[None] * len(columns))[: len(columns)]) for row in first)
        return LogHead(columns, padded, self._encoding, self._delimiter)

    def pieces(self, columns: Sequence[str], remarks: Remarks) -> Iterator[Piece]:
        """Yield the rows; a row of the wrong width or with broken quotes is a reject."""
        with self._reader(self._delimiter) as reader:
            names = self._columns(reader)
            wanted = [self._place(names, column) for column in columns]
            while (piece := self._piece(reader, wanted, len(names), remarks)) is not None:
                yield piece

    def _piece(self, reader: Any, wanted: list[int], width: int, remarks: Remarks) -> Piece | None:
        kept: list[list[str]] = []
        piece = Piece([], [], [])
        ended = True
        for line, row in islice(self._rows(reader, piece.rejects), PIECE):
            ended = False
            if len(row) == width:
                kept.append(row)
                piece.source_row.append(line)
            elif row:
                reason = f"{len(row)} columns instead of {width}"
                piece.rejects.append(Reject(line, _at(row, wanted[0]), reason, shown(row)))
            else:
                remarks.count("blank lines")
        if not kept and not piece.rejects:
            if ended:
                return None
            raise LogError(f"{self._log.source} has {PIECE:,} blank lines in a row; it is no event log")
        # Over the whole row: columns that nobody maps still tell two rows apart.
        piece.row_hash = [hash(tuple(row)) for row in kept]
        # A list per column: slicing all rows once is quicker than building each row anew.
        piece.values = [list(map(itemgetter(place), kept)) for place in wanted]
        return piece

    def _rows(self, reader: Any, rejects: list[Reject]) -> Iterator[tuple[int, list[str]]]:
        """Yield (line, row); broken quotes become rejects, a quote that never closes is the end of the log."""
        while True:
            line = reader.line_num + 1
            try:
                yield line, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self._refuse_unclosed(error, line)
                last = f" (to line {reader.line_num})" if reader.line_num > line else ""
                rejects.append(Reject(line, None, f"broken quotes{last}: {error}", ""))

    def _refuse_unclosed(self, error: csv.Error, line: int) -> None:
        if "unexpected end of data" in str(error) or "field larger" in str(error):
            raise _QuotesError(
                f"{self._log.source}, line {line}: a quoted value never ends, so the rest of the file cannot be told "
                "apart; the file is truncated or its quotes are broken: export it again"
            ) from error

    def _tolerant(self, reader: Any, rows: int) -> Iterator[list[str]]:
        return (row for _, row in islice(self._rows(reader, []), rows))

    def _columns(self, reader: Any) -> tuple[str, ...]:
        names = self._header(reader)
        if not names:
            raise LogError(f"{self._log.source} has no header line; the first line must name the columns")
        if len(names) > _MOST_COLUMNS:
            raise LogError(f"{self._log.source} has {len(names)} columns, at most {_MOST_COLUMNS} are read; drop some")
        return tuple(name.strip() for name in names)

    def _header(self, reader: Any) -> list[str]:
        try:
            return next((row for row in reader if row), [])
        except csv.Error as error:
            raise _QuotesError(
                f"{self._log.source}: the header has broken quotes ({error}); export it again"
            ) from error

    def _place(self, names: tuple[str, ...], column: str) -> int:
        if names.count(column) > 1:
            raise LogError(f"{self._log.source}: {names.count(column)} columns are called {column!r}; rename one")
        return names.index(column)

    def _sniffed_delimiter(self) -> str:
        """The delimiter under which most of the first rows have the width of the header, then the widest header."""
        scores = {delimiter: self._fit(delimiter) for delimiter in DELIMITERS}
        return max(DELIMITERS, key=lambda delimiter: scores[delimiter])

    def _fit(self, delimiter: str) -> tuple[bool, float, int]:
        widths: list[int] = []
        with self._reader(delimiter) as reader, contextlib.suppress(_QuotesError):
            widths.append(len(self._header(reader)))
            widths.extend(len(row) for row in self._tolerant(reader, _SNIFFED_ROWS) if row)
        width, rows = (widths or [0])[0], widths[1:]
        return width > 1, sum(row == width for row in rows) / max(1, len(rows)), width

    @contextlib.contextmanager
    def _reader(self, delimiter: str) -> Iterator[Any]:
        with self._log.stream(_LONGEST_LINE) as stream:
            text = _text(stream, self._encoding, self._log.source)
            try:
                reader = csv.reader(text, delimiter=delimiter, strict=True)
            except (TypeError, ValueError) as error:
                raise LogError(f"{delimiter!r} cannot separate columns: {error}; name another delimiter") from error
            try:
                yield reader
            except UnicodeError as error:
                # The decoder works ahead of the lines, so the place is only near.
                raise LogError(
                    f"{self._log.source} is not {self._encoding} text near line {reader.line_num + 1}: {error}; "
                    "say which encoding it has, such as --encoding cp1252"
                ) from error


def _at(row: list[str], place: int) -> str | None:
    return row[place] if place < len(row) and row[place].strip() else None


def _marked_encoding(log: LogFile) -> str:
    with log.stream() as stream:
        start = stream.read(4)
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def _text(stream: BinaryIO, encoding: str, source: str) -> io.TextIOWrapper:
    try:
        return io.TextIOWrapper(stream, encoding=encoding, errors="strict", newline="")
    except (LookupError, ValueError) as error:
        raise LogError(f"{source}: {encoding!r} is no known text encoding; name one such as utf-8 or cp1252") from error
