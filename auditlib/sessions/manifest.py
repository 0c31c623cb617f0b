"""What an import says about itself: which columns it read, what it counted, what it could not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Which column of a log holds what; `event` may be several columns, whose values are joined with "+"."""

    session: str
    event: tuple[str, ...]
    time: str
    customer: str | None = None
    asset: str | None = None
    attributes: tuple[str, ...] = ()

    def columns(self) -> tuple[str, ...]:
        """Every column that is read, each once, in a fixed order."""
        optional = (self.customer, self.asset)
        wanted = (self.session, *self.event, self.time, *(name for name in optional if name), *self.attributes)
        return tuple(dict.fromkeys(wanted))

    def to_dict(self) -> dict[str, Any]:
        """JSON values; columns that are not used are null."""
        return {**asdict(self), "event": list(self.event), "attributes": list(self.attributes)}


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that is not among the events: where it stands in the log, why it was left out, and its start.

    `source_row` counts lines of the file from 1 (CSV, XES) or rows from 1 (Parquet); where an XES log has several
    events on a line, each counts as a line of its own. `session_id` is None where the
    row does not say which session it belongs to.
    """

    source_row: int
    session_id: str | None
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class ImportManifest:
    """One import: the source by name and digest, how it was read, and the count of everything unusual.

    Ties are events with the time of an event before them in the same session: the order of the file decides.
    `out_of_order` counts rows with an earlier time than the row before them of the same session; they are sorted in.
    `duplicates` are rows equal to an earlier row of their session in every column of the log, `repeats` equal in event
    and time; both stay among the events, because a log without a unique id per row cannot tell an error of the export
    from the same step done twice, and the counts that others publish include them.
    `rejected_sessions` lost at least one event to a reject. `changing` counts sessions whose customer, asset or
    attribute takes more than one value. `zones` counts rows by the offset they state ("none": no offset).
    """

    import_id: int
    imported: str
    source: str
    sha256: str
    size: int
    format: str
    encoding: str
    delimiter: str | None
    mapping: ColumnMapping
    guessed: tuple[str, ...]
    time_format: str
    time_format_reason: str
    time_zone: str | None
    rows: int
    sessions: int
    events: int
    rejects: int
    rejected_sessions: int
    first_time: str
    last_time: str
    reject_reasons: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    zones: Mapping[str, int] = field(default_factory=dict)
    duplicates: int = 0
    repeats: int = 0
    ties: int = 0
    out_of_order: int = 0
    changing: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the format number that `from_dict` reads."""
        lists = {"guessed": list(self.guessed), "notes": list(self.notes), "mapping": self.mapping.to_dict()}
        return {"manifest_format": FORMAT, **asdict(self), **lists}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ImportManifest:
        """The manifest that `to_dict` wrote; KeyError or TypeError when it is none."""
        values = {name: value for name, value in document.items() if name != "manifest_format"}
        mapping = dict(values["mapping"])
        for name in ("event", "attributes"):
            mapping[name] = tuple(mapping[name])
        for name in ("guessed", "notes"):
            values[name] = tuple(values[name])
        return cls(**{**values, "mapping": ColumnMapping(**mapping)})
