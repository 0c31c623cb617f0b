"""Whether an artifact's folder still holds what was loaded from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from auditlib.errors import PrefixgateError
from auditlib.serving.artifact import open_artifact

State = Literal["same", "changed", "missing"]

_Signature = tuple[tuple[str, int, int, int], ...]


class OnDisk:
    """Watches one folder. What is served came into memory when it was verified, so a change here changes no answer."""

    def __init__(self, folder: Path, digest: str) -> None:
        """`digest` is that of the artifact which was loaded from `folder`."""
        self._folder, self._digest = folder, digest
        self._seen: _Signature | None = None
        self._state: State = "same"

    def state(self) -> State:
        """How the folder is now. It is verified anew, file by file, whenever sizes or times are not those last seen."""
        found = _signature(self._folder)
        if found != self._seen:
            self._state, self._seen = self._verified(), found
        return self._state

    def _verified(self) -> State:
        if not self._folder.is_dir():
            return "missing"
        try:
            open_artifact(self._folder, self._digest)
        except PrefixgateError:
            return "changed"
        return "same"


def _signature(folder: Path) -> _Signature:
    """Name, size, time of change and number of everything in the folder; empty where it cannot be read."""
    found = []
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118 - a name from a hostile folder stays a plain string
            try:
                status = os.lstat(path)
            except OSError:
                found.append((path, -1, -1, -1))
            else:
                # Not the time of modification, which anybody may set back, but that of the last change of the inode.
                found.append((path, status.st_size, status.st_ctime_ns, status.st_ino))
    return tuple(sorted(found))
