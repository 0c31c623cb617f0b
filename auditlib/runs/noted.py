"""Where the revision of a run lay, as noted beside the runs, and what its events are called. Loads no weights."""

from __future__ import annotations

import json
from pathlib import Path

from auditlib.decoders.guarded_folder import read_file
from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.runs.folder import Run

_FOLDER = ".origins"  # lists of runs pass over names with a dot
_LARGEST, _LARGEST_MAP = 1 << 16, 16 << 20
_MANIFEST = "revision.json"


def note_of(run: Run) -> Path:
    """The file that notes where a run's inputs lay, whether or not it is there."""
    return run.folder.absolute().parent / _FOLDER / f"{run.id}.json"


def noted_folder(run: Run) -> Path | None:
    """Where the note says that the revision lay; None where there is no note or it makes no sense."""
    path = note_of(run)
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    try:
        noted = json.loads(path.read_bytes())["revision"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Path(noted) if isinstance(noted, str) and "\0" not in noted else None


def event_map_of(run: Run) -> EventMap | None:
    """The event map that a run was measured with; None where it is not at its noted place, or another one is."""
    folder = noted_folder(run)
    if folder is None:
        return None
    try:
        name = json.loads(read_file(folder, _MANIFEST, _LARGEST_MAP))["event_map"]
        found = EventMap.from_json(read_file(folder, str(name), _LARGEST_MAP).decode())
    except (PrefixgateError, ValueError, KeyError, TypeError, RecursionError):
        return None
    # The note is believed by nobody: a map counts only when it is the one that the run names.
    return found if found.digest == run.manifest["event_map"]["digest"] else None
