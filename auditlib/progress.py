"""How long work tells its watcher where it stands."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called between small pieces of work; may raise CancelledError to stop it."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """Say that `done` of `total` pieces are finished and what is going on."""


def silent(done: int, total: int, note: str) -> None:
    """Report to nobody."""
