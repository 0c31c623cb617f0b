"""A run's counterexamples as the pages show them, read as plain JSON: the room that makes them would load torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditlib.errors import IntegrityError
from auditlib.files import sha256_of
from auditlib.numbers import number
from auditlib.runs.folder import Run
from auditlib.views.text import plural

_FOLDER = "counterexamples/"


@dataclass(frozen=True, slots=True)
class ShownCase:
    """The smallest comparison that still fails, in words. `events` are the ids of the row that is compared."""

    check: str
    words: str
    events: str
    asked: Sequence[Mapping[str, Any]]
    against: Sequence[Mapping[str, Any]]
    file: str
    located: str


def cases_of(run: Run, audit: str) -> tuple[ShownCase, ...]:
    """Counterexamples of one audit; none where it failed in no way that calls can show. IntegrityError when altered."""
    names = [name for name in run.manifest["files"] if name.startswith(_FOLDER) and name.endswith(".json")]
    documents = {name: json.loads(content(run, name)) for name in sorted(names)}
    places = _places(run, audit)
    return tuple(
        _case(name, document, places.get(f"{audit}: {document['check']}", ""))
        for name, document in documents.items()
        if document["audit"] == audit
    )


def names_of(run: Run, audit: str) -> list[str]:
    """Files of an audit's counterexamples, by their names alone."""
    marked = f"_{audit.replace(' ', '_')}_"
    return [name for name in run.manifest["files"] if name.startswith(_FOLDER) and marked in name]


def content(run: Run, name: str) -> bytes:
    """Bytes of a file that the run's manifest lists; IntegrityError when they are not those that were written."""
    path = run.folder / name
    if path.is_symlink() or not path.is_file() or sha256_of(path) != run.manifest["files"][name]:
        raise IntegrityError(f"{path} is missing or differs from what the run's manifest recorded; audit again")
    return path.read_bytes()


def row_events(steps: Sequence[Mapping[str, Any]], row: int) -> tuple[int, ...]:
    """Ids that one row of the last call has read, over all calls before it; reorders are followed backwards."""
    events: list[int] = []
    # From the last call back, because a reorder says where each row came from.
    for step in reversed(steps):
        if step["verb"] == "reorder":
            row = step["parents"][row]
            continue
        cells = zip(step["events"][row], step["valid"][row], strict=True)
        events = [event for event, valid in cells if valid] + events
    return tuple(events)


def _case(name: str, document: Mapping[str, Any], located: str) -> ShownCase:
    asked, against = document["asked"], document.get("against")
    gap = document["gap"] if isinstance(document["gap"], str) else number(document["gap"])
    events = row_events(asked["steps"], asked["row"])
    # The start is no event that anybody entered; the inspector does not count it either.
    after = plural(max(len(events) - 1, 0), "event")
    words = f"gap {gap} where {number(document['limit'])} is allowed, after the start and {after}"
    return ShownCase(
        check=str(document["check"]),
        words=words,
        events="-".join(map(str, events)),
        asked=asked["steps"],
        against=against["steps"] if against else [],
        file=name,
        located=located,
    )


def _places(run: Run, audit: str) -> dict[str, str]:
    """Sentence about the first place that differs, by case."""
    table = run.table(audit, "located")
    return {} if table.empty else dict(zip(table["case"], table["sentence"], strict=True))
