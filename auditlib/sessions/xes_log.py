"""Events of an XES log, streamed through expat: no tree, no DOCTYPE, no depth without bound.

Trace attributes are columns with the prefix "case:", event attributes columns of their own name (pm4py's names).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from xml.parsers import expat

from auditlib.errors import LogError
from auditlib.sessions.log_file import LogFile
from auditlib.sessions.log_rows import PIECE, LogHead, Piece, Remarks
from auditlib.sessions.manifest import Reject

TRACE = "case:"
_CHUNK = 2**16
_DEEPEST = 64
_LONGEST_TAG = 2**22
_HEAD_EVENTS = 5000
_LONGEST_TRACE = 100_000
_LOG, _TRACE, _EVENT, _ATTRIBUTE = 1, 2, 3, 4
_VALUED = frozenset({"string", "date", "int", "float", "boolean", "id"})


class XesLog:
    """An XES log; its encoding is the one that the XML declares."""

    def __init__(self, log: LogFile) -> None:
        self._log = log

    def head(self, rows: int) -> LogHead:
        """Attributes of the first 5,000 events as columns, and the first `rows` events; later ones may have more."""
        handler = _Handler(self._log.source, None, Remarks())
        complete = True
        for _ in _parsed(self._log, handler):
            if handler.events >= _HEAD_EVENTS:
                complete = False
                handler.finish()
                break
        columns = tuple(dict.fromkeys(name for attributes in handler.seen for name in attributes))
        first = tuple(tuple(attributes.get(name) for name in columns) for attributes in handler.seen[:rows])
        return LogHead(columns, first, handler.encoding, complete=complete)

    def pieces(self, columns: Sequence[str], remarks: Remarks) -> Iterator[Piece]:
        """Yield the events in the order of the log; an event outside any trace is a reject."""
        handler = _Handler(self._log.source, columns, remarks)
        for _ in _parsed(self._log, handler):
            if len(handler.piece.source_row) >= PIECE:
                yield handler.take()
        if handler.piece.source_row or handler.piece.rejects:
            yield handler.take()


def _parsed(log: LogFile, handler: _Handler) -> Iterator[None]:
    """Feed the log to the handler, and yield between chunks. LogError for whatever is no whole XML document."""
    parser = expat.ParserCreate()
    handler.attach(parser)
    fed = 0
    with log.stream() as stream:
        while True:
            chunk = stream.read(_CHUNK)
            _feed(parser, chunk, log.source)
            fed += len(chunk)
            # expat keeps a tag in memory until it ends, and one that never ends would fill it.
            if fed - parser.CurrentByteIndex > _LONGEST_TAG:
                raise LogError(f"{log.source}, line {parser.CurrentLineNumber}: a tag of over {_LONGEST_TAG:,} bytes")
            yield
            if not chunk:
                return


def _feed(parser: expat.XMLParserType, chunk: bytes, source: str) -> None:
    try:
        parser.Parse(chunk, not chunk)
    except expat.ExpatError as error:
        if not chunk:
            raise LogError(
                f"{source} is truncated: the XML ends at line {error.lineno} before its tags are closed; fetch it again"
            ) from error
        raise LogError(
            f"{source}, line {error.lineno}: no well-formed XML ({expat.ErrorString(error.code)}); export it again"
        ) from error
    except (LookupError, ValueError) as error:
        raise LogError(
            f"{source}: the XML has an encoding that cannot be read ({error}); export it as UTF-8"
        ) from error


class _Handler:
    """Turns tags into rows. Without wanted columns it only collects what each event has, in `seen`."""

    def __init__(self, source: str, columns: Sequence[str] | None, remarks: Remarks) -> None:
        self.encoding = "utf-8"
        self.seen: list[dict[str, str]] = []
        self.piece = Piece([[] for _ in columns or ()], [], [])
        self._source = source
        self._columns = columns
        self._remarks = remarks
        self._depth = 0
        self._trace: dict[str, str] | None = None
        self._event: dict[str, str] | None = None
        self._event_line = 0
        self._waiting: list[tuple[int, dict[str, str]]] = []  # events of a trace whose attributes may still come
        self._names: set[str] = set()
        self.events = 0

    def attach(self, parser: expat.XMLParserType) -> None:
        """Listen to the parser."""
        self._parser = parser
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.XmlDeclHandler = self._declaration

    def take(self) -> Piece:
        """The rows since the last call."""
        piece, self.piece = self.piece, Piece([[] for _ in self._columns or ()], [], [])
        return piece

    def _refuse_doctype(self, *_: Any) -> None:
        raise LogError(
            f"{self._source}, line {self._parser.CurrentLineNumber}: a DOCTYPE, which can read files and fill memory, "
            "is never read; remove it if you trust the log"
        )

    def _declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        self.encoding = (encoding or "utf-8").lower()

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == _ATTRIBUTE and self._event is not None:
            self._keep(self._event, tag.rpartition(":")[2], attributes)
            return
        name = tag.rpartition(":")[2]
        if self._depth == _EVENT and self._trace is not None:
            if name == "event":
                # The order of the log decides between events of one time, so no two may have the same place in it.
                self._event_line = max(self._parser.CurrentLineNumber, self._event_line + 1)
                self._event = {}
            else:
                self._keep(self._trace, name, attributes)
        elif self._depth <= _TRACE:
            self._start_outer(name)
        elif self._depth > _DEEPEST:
            line = self._parser.CurrentLineNumber
            raise LogError(f"{self._source}, line {line}: tags stand {_DEEPEST} deep, which no event log needs")

    def _start_outer(self, name: str) -> None:
        line = self._parser.CurrentLineNumber
        if self._depth == _LOG and name != "log":
            raise LogError(f"{self._source}, line {line}: the outermost tag is <{name}>, an XES log has <log>")
        if self._depth == _TRACE and name == "trace":
            self._trace = {}
        elif self._depth == _TRACE and name == "event":
            self.piece.rejects.append(Reject(line, None, "event outside any trace", ""))

    def _keep(self, into: dict[str, str], name: str, attributes: dict[str, str]) -> None:
        key, value = attributes.get("key"), attributes.get("value")
        if name not in _VALUED:
            return  # lists and containers hold no value of their own
        if key is None or value is None:
            self._remarks.count("attributes without key or value")
        elif key in into:
            self._remarks.count("attributes given twice, of which the first was read")
        else:
            into[key] = value

    def _end(self, _tag: str) -> None:
        if self._depth == _EVENT and self._event is not None:
            self._waiting.append((self._event_line, self._event))
            self._event = None
            self.events += 1
            if len(self._waiting) > _LONGEST_TRACE:
                raise LogError(
                    f"{self._source}, line {self._event_line}: a trace of more than {_LONGEST_TRACE:,} events"
                    "; no session is that long, so check what a trace stands for"
                )
        elif self._depth == _TRACE and self._trace is not None:
            self.finish()
        self._depth -= 1

    def finish(self) -> None:
        """Turn the events of the trace that is open, if any, into rows."""
        trace, self._trace = self._trace, None
        if trace is None:
            return
        name = trace.get("concept:name")
        if name is not None and name in self._names:
            self._remarks.count("traces with the name of an earlier one, joined to it")
        self._names.add(name or "")
        if not self._waiting:
            self._remarks.count("traces without events")
        # Trace attributes win over event attributes of the same prefixed name, which pm4py sometimes writes.
        prefixed = {TRACE + key: value for key, value in trace.items()}
        for line, event in self._waiting:
            row = {**event, **prefixed}
            if self._columns is None:
                self.seen.append(row)
            else:
                self._add(line, row, self._columns)
        self._waiting = []

    def _add(self, line: int, row: dict[str, str], columns: Sequence[str]) -> None:
        for values, column in zip(self.piece.values, columns, strict=True):
            values.append(row.get(column))
        self.piece.source_row.append(line)
        self.piece.row_hash.append(hash(tuple(sorted(row.items()))))
