"""Work in pieces, so that a watcher sees progress and can stop it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from auditlib.progress import Progress

Piece = tuple[str, Callable[[], None]]
"""A note for the watcher, and the work."""

_QUIET = 0.2


class Watch:
    """Runs pieces and tells a watcher where they stand; `tick` repeats the last word within a long piece."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done, self._total, self._note = 0, 1, ""
        self._told = 0.0

    def run(self, pieces: Iterable[Piece]) -> None:
        """Do all pieces in order; the watcher may raise CancelledError before each and within."""
        # Listed first, for the total: a generator of pieces must not ask for what an earlier piece finds.
        listed: Sequence[Piece] = tuple(pieces)
        for done, (note, work) in enumerate(listed):
            self._done, self._total, self._note = done, len(listed), note
            self._tell()
            work()
        self._done = self._total = max(len(listed), 1)
        self._tell()

    def tick(self) -> None:
        """Say that work goes on, at most five times a second: this is asked before every call of a decoder."""
        if time.monotonic() - self._told >= _QUIET:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        self._progress(self._done, self._total, self._note)
