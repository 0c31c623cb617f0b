"""How long work tells its watcher where it stands."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called between small pieces of work; may raise CancelledError to stop it."""

    def __call__(self, done: int, total: int, note: str) -> None:
        """Say that `done` of `total` pieces are finished and what is going on."""


def silent(done: int, total: int, note: str) -> None:
    """Report to nobody."""


def part(progress: Progress, begin: float, end: float, name: str) -> Progress:
    """Progress of a piece of work that is the share from `begin` to `end` of a larger one, told in thousandths.

    `name` stands before each note; an empty one leaves the notes as they are.
    """

    def report(done: int, total: int, note: str) -> None:
        """Tell the watcher of the larger work; what that raises to stop it passes through."""
        share = begin + (end - begin) * done / max(total, 1)
        progress(round(1000 * share), 1000, ": ".join(text for text in (name, note) if text))

    return report
