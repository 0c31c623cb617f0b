"""Rows on their way into the store: cleaned piece by piece, what cannot be an event set aside with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from auditlib.errors import LogError
from auditlib.sessions.log_rows import LONGEST_VALUE, Piece, Remarks, shown
from auditlib.sessions.manifest import ColumnMapping, Reject
from auditlib.sessions.spool import Spool
from auditlib.sessions.store_stage import REJECTED, STAGED
from auditlib.sessions.time_formats import TimeFormat
from auditlib.sessions.time_guess import TimeEvidence

JOINER = "+"
# What exporters write where there is no value; compared without the spaces around it.
MISSING = ("", "?", "NULL", "null", "NaN", "nan", "N/A", "n/a", "#N/A")
_ABSENT = "(absent)"
_MOST_NAMES = 5000


def spool_schema(mapping: ColumnMapping) -> pa.Schema:
    """Columns of a cleaned row: those of STAGED with the time still a text, and one per attribute."""
    extra = [(f"attribute_{number}", pa.string()) for number in range(len(mapping.attributes))]
    fields = [pa.field("time", pa.string()) if one.name == "time" else one for one in STAGED]
    return pa.schema([*fields, *extra])


@dataclass(slots=True)
class Tally:
    """What was counted while rows were cleaned."""

    rows: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    missing: dict[str, dict[str, int]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    remarks: Remarks = field(default_factory=Remarks)


class Staging:
    """Cleans pieces of a log into two spools: rows that may become events, and rejects."""

    def __init__(
        self,
        mapping: ColumnMapping,
        rows: Spool,
        rejects: Spool,
        missing: Sequence[str] = MISSING,
        told: TimeFormat | None = None,
    ) -> None:
        self.tally = Tally()
        self.evidence = TimeEvidence(told)
        self._mapping = mapping
        self._rows = rows
        self._rejects = rejects
        self._missing = pa.array([marker.strip() for marker in missing], pa.string())
        self._place = {column: place for place, column in enumerate(mapping.columns())}
        self._joined_from: dict[str, tuple[str, ...]] = {}

    def add(self, piece: Piece) -> None:
        """Clean a piece: missing values become null, rows without session, event or time become rejects."""
        self.tally.rows += len(piece.source_row) + len(piece.rejects)
        self.reject(piece.rejects)
        values = {column: self._cleaned(column, piece.values[place]) for column, place in self._place.items()}
        reasons = self._reasons(values, len(piece.source_row))
        self._reject_rows(piece, reasons.to_pylist())
        batch = self._batch(piece, values).filter(pc.is_null(reasons))
        self._note(batch)
        self._rows.write(batch)

    def reject(self, rejects: Sequence[Reject]) -> None:
        """Set rows aside, and count their reasons."""
        for one in rejects:
            self.tally.rejects[one.reason] = self.tally.rejects.get(one.reason, 0) + 1
        if rejects:
            rows = [(one.source_row, one.session_id or None, one.reason, one.text) for one in rejects]
            columns = zip(zip(*rows, strict=True), REJECTED.types, strict=True)
            self._rejects.write(pa.record_batch([pa.array(one, kind) for one, kind in columns], schema=REJECTED))

    def _batch(self, piece: Piece, values: dict[str, pa.Array]) -> pa.RecordBatch:
        mapping = self._mapping
        nothing = pa.nulls(len(piece.source_row), pa.string())
        columns = [
            pa.array(piece.source_row, pa.int64()),
            pa.array(piece.row_hash, pa.int64()),
            values[mapping.session],
            self._joined([values[name] for name in mapping.event]),
            values[mapping.time],
            *(values[name] if name else nothing for name in (mapping.customer, mapping.asset)),
            *(values[name] for name in mapping.attributes),
        ]
        return pa.record_batch(columns, schema=self._rows.schema)

    def _cleaned(self, column: str, values: list[str | None]) -> pa.Array:
        """The values of a column, null where a marker stands for a missing one; the markers are counted."""
        texts = pa.array(values, pa.string())
        trimmed = pc.utf8_trim_whitespace(texts)
        empty = pc.or_kleene(pc.is_null(texts), pc.is_in(trimmed, value_set=self._missing))
        markers = pc.value_counts(trimmed.filter(empty)).to_pylist()
        for marker in markers:
            counts = self.tally.missing.setdefault(column, {})
            name = _ABSENT if marker["values"] is None else marker["values"]
            counts[name] = counts.get(name, 0) + marker["counts"]
        return pc.if_else(empty, None, texts) if markers else texts

    def _reasons(self, values: dict[str, pa.Array], size: int) -> pa.Array:
        """Why each row cannot be an event; null where it can."""
        roles = [("session", self._mapping.session), *(("event", name) for name in self._mapping.event)]
        conditions = [
            (pc.is_null(values[name]), f"no {role}: {name} is missing")
            for role, name in [*roles, ("time", self._mapping.time)]
        ]
        for name, texts in values.items():
            too_long = pc.fill_null(pc.greater(pc.utf8_length(texts), LONGEST_VALUE), fill_value=False)
            conditions.append((too_long, f"{name} is longer than {LONGEST_VALUE} characters"))
        reasons = pa.nulls(size, pa.string())
        for hit, reason in reversed(conditions):  # the first reason that applies is the one that stays
            reasons = pc.if_else(hit, reason, reasons)
        return reasons

    def _joined(self, parts: list[pa.Array]) -> pa.Array:
        """One name per row; LogError when the joiner would make one name of two different events."""
        if len(parts) == 1:
            return parts[0]
        # A missing part makes the whole name null; such rows are rejects anyway.
        names = pc.binary_join_element_wise(*parts, JOINER)
        for name, *values in set(zip(*(one.to_pylist() for one in (names, *parts)), strict=True)):
            known = self._joined_from.setdefault(name, tuple(values)) if name is not None else tuple(values)
            if known != tuple(values):
                raise LogError(
                    f"{known} and {tuple(values)} both make the event {name!r}, because values hold a {JOINER!r}; "
                    "name one column as the event, or rename the values"
                )
        return names

    def _note(self, batch: pa.RecordBatch) -> None:
        self.evidence.add(batch.column("time"))
        if len(self.tally.names) <= _MOST_NAMES:
            self.tally.names.update(pc.unique(batch.column("name")).to_pylist())
        for column, what in (("session_id", "session"), ("name", "event")):
            odd = pc.sum(pc.match_substring_regex(batch.column(column), "[[:cntrl:]]")).as_py()
            self.tally.remarks.count(f"rows with control characters in the {what}", odd or 0)

    def _reject_rows(self, piece: Piece, reasons: list[str | None]) -> None:
        session = piece.values[self._place[self._mapping.session]]
        self.reject(
            [
                Reject(piece.source_row[row], session[row], reason, shown([values[row] for values in piece.values]))
                for row, reason in enumerate(reasons)
                if reason is not None
            ]
        )


def twins(names: set[str]) -> list[str]:
    """Event names that differ from another only in case or in the spaces around and between words, in groups."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(" ".join(name.lower().split()), []).append(name)
    return [" / ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
