"""Event map: names of events ↔ ids that a decoder reads and predicts (`event_map.json` of contract 1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from auditlib.errors import EventMapError
from auditlib.events.documents import Entry, parse, read_text, shown, text_problem

LARGEST_ID = 65_535
KEYS = ("format", "version", "padding", "start", "end", "events", "unknown")


@dataclass(frozen=True)
class EventMap:
    """Ids of padding, start, end and every named event; `unknown` stands for every other name, or is None.

    Raises EventMapError when two meanings share an id.
    """

    version: str
    padding: int
    start: int
    end: int
    events: Mapping[str, int]
    unknown: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", dict(self.events))  # nobody else holds this copy
        _check_names("the version", [self.version])
        _check_names("an event name", self.events)
        _check_ids([*self._special().items(), *((repr(name), number) for name, number in self.events.items())])

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def build(cls, names: Iterable[str], version: str = "1", *, unknown: bool = False) -> EventMap:
        """Map of new ids: padding 0, start 1, end 2, then the distinct names in alphabetical order, unknown last."""
        ordered = sorted(set(names))
        events = {name: number for number, name in enumerate(ordered, start=3)}
        return cls(version, 0, 1, 2, events, 3 + len(ordered) if unknown else None)

    @classmethod
    def from_json(cls, text: str, where: str = "event map") -> EventMap:
        """Map written in a JSON text; EventMapError names `where`, the place in it and the reason."""
        top = parse(text, where, EventMapError)
        members = top.members(KEYS[:-1], KEYS[-1:])
        members["format"].expect_format(1)
        return cls._from_members(top, members)

    @classmethod
    def _from_members(cls, top: Entry, members: Mapping[str, Entry]) -> EventMap:
        names = members["events"].mapping()
        ids = {name: entry.integer() for name, entry in names.items()}
        numbers = [members[key].integer() for key in ("padding", "start", "end")]
        unknown = members.get("unknown")
        unknown_id = None if unknown is None or unknown.value is None else unknown.integer()
        version = members["version"].text()
        return top.make(cls, version, *numbers, ids, unknown_id)

    @classmethod
    def read(cls, path: Path | str) -> EventMap:
        """Map in a file; EventMapError when it cannot be read or makes no sense."""
        return cls.from_json(read_text(Path(path), EventMapError), str(path))

    def to_json(self) -> str:
        """The one JSON text of this map: events by id, so that equal maps give equal bytes."""
        by_id = dict(sorted(self.events.items(), key=lambda item: item[1]))
        values = (1, self.version, self.padding, self.start, self.end, by_id, self.unknown)
        return json.dumps(dict(zip(KEYS, values, strict=True)), ensure_ascii=False, indent=2) + "\n"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the map's JSON, as `sha256:<hex>`."""
        return "sha256:" + hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    @cached_property
    def size(self) -> int:
        """Smallest vocabulary size that holds every id."""
        return 1 + max(self._names)

    @cached_property
    def domain(self) -> tuple[int, ...]:
        """Ids that can happen in a session, ascending: every event, and unknown where there is one."""
        extra = () if self.unknown is None else (self.unknown,)
        return tuple(sorted((*self.events.values(), *extra)))

    @cached_property
    def _names(self) -> dict[int, str]:
        special = {number: f"<{meaning}>" for meaning, number in self._special().items()}
        return special | {number: name for name, number in self.events.items()}

    def _special(self) -> dict[str, int]:
        unknown = {} if self.unknown is None else {"unknown": self.unknown}
        return {"padding": self.padding, "start": self.start, "end": self.end, **unknown}

    def name(self, event: int) -> str:
        """Name of an id; `<padding>`, `<start>`, `<end>` and `<unknown>` for the special ones."""
        try:
            return self._names[event]
        except KeyError:
            known = f"{min(self._names)} to {max(self._names)}"
            raise EventMapError(f"event map {self.version!r}: id {event} means nothing; ids are {known}") from None

    def encode(self, names: Iterable[str]) -> tuple[int, ...]:
        """Ids of names in order; EventMapError lists all names that the map lacks, unless it has an unknown id."""
        asked = tuple(names)
        if self.unknown is not None:
            return tuple(self.events.get(name, self.unknown) for name in asked)
        try:
            return tuple(self.events[name] for name in asked)
        except KeyError:
            lacking = ", ".join(sorted({repr(name) for name in asked if name not in self.events}))
            raise EventMapError(
                f"event map {self.version!r} lacks the events {lacking}; "
                "map them on import, add them to a new version of the map, or give the map an unknown id"
            ) from None

    def check_size(self, vocabulary_size: int) -> None:
        """Nothing, when every id is below the vocabulary size; EventMapError otherwise."""
        if self.size > vocabulary_size:
            raise EventMapError(
                f"event map {self.version!r} has id {self.size - 1} ({shown(self.name(self.size - 1))}), "
                f"but the decoder's vocabulary size is {vocabulary_size}; use the map it was trained with"
            )


def _check_names(what: str, names: Iterable[str]) -> None:
    for name in names:
        problem = text_problem(name) if isinstance(name, str) else f"is {name!r}; write a string"
        if problem:
            raise EventMapError(f"{what} {problem}")


def _check_ids(meanings: Iterable[tuple[str, int]]) -> None:
    taken: dict[int, str] = {}
    for meaning, number in meanings:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= LARGEST_ID:
            raise EventMapError(f"{meaning} has id {number!r}; ids are whole numbers from 0 to {LARGEST_ID}")
        if number in taken:
            raise EventMapError(f"{taken[number]} and {meaning} share id {number}; give each its own")
        taken[number] = meaning
