"""What changes where a block ends that the decoder names, such as an attention window: rows go just beyond it.

A cache that rolls a step too early, or is read out of order once it has wrapped, is right everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from auditlib.audits.growing import Bench, Growing, Layout, Side, feed

_SIDES: tuple[Side, ...] = ("right", "left")
_LAST_STEPS = 8
_LONG = 130  # a window beyond this many events is not walked through twice, event by event


def _beyond_alone(bench: Bench, end: int) -> None:
    """Single events from a short prompt through two wraps of a ring, and from just before its first."""
    wraps = 2 * end + 3 if end <= _LONG else end + 3
    row = bench.material.rows(1, wraps, f"beyond {end}")[0]
    for first in {max(1, end // 2), max(1, end - 2)} if end <= _LONG else {end - 2}:
        if first < len(row):
            feed(bench, "single events", [row], first, 1)


def _beyond_in_chunks(bench: Bench, end: int) -> None:
    """Chunks that begin before the end of a block and end behind it, and prompts that do."""
    row = bench.material.rows(1, end + 9, f"chunks beyond {end}")[0]
    for first, size in ((end - 1, 2), (end - 2, 3), (end - 1, 5), (end, 3), (end + 1, 2)):
        if 0 < first < len(row):
            feed(bench, "chunks of 2, 3 and 5", [row], first, size)


def _beyond_unevenly(bench: Bench, end: int) -> None:
    """Rows on either side of the end of a block that pass it one by one, or stand idle behind it."""
    for side in _SIDES:
        growing, chance = _beside(bench, "uneven rows", Layout(side, 1, garbage=True), end)
        for _ in range(_LAST_STEPS):
            growing.append([chance.randrange(4) for _ in growing.rows])


def _beyond_padded(bench: Bench, end: int) -> None:
    """Prompts of mixed lengths around the end of a block, behind padding, on both paths."""
    growing, _ = _beside(bench, "padded left", Layout("left", 2, garbage=True), end)
    growing.full()
    growing.singles(2)
    growing.append([2, 0, 3, 1])
    growing.singles(2)


def _beyond_reordered(bench: Bench, end: int) -> None:
    """Rows that swap and double just when some of them have passed the end of a block."""
    growing, _ = _beside(bench, "reordered rows", Layout(), end)
    for again, order in enumerate(((3, 1, 1, 0, 2), (4, 3, 2, 1, 0), (2, 2))):
        growing.take(order, growing.offspring(order, f"beyond {end} {again}"))
        growing.singles(1)
        growing.append([1 + (index + again) % 2 for index in range(len(order))])


def _beside(bench: Bench, probe: str, layout: Layout, end: int) -> tuple[Growing, Random]:
    """Four rows, three of which have just not reached, just reached or just passed the length `end`."""
    purpose = f"{probe} {layout.side} beyond {end}"
    growing = Growing(bench, probe, layout)
    growing.begin(bench.material.rows(4, end + 12, purpose), (end - 1, end, 1, end + 1))
    return growing, bench.material.random(purpose)


BLOCK_END_PROBES: tuple[tuple[str, Callable[[Bench, int], None]], ...] = (
    ("single events", _beyond_alone),
    ("chunks of 2, 3 and 5", _beyond_in_chunks),
    ("uneven rows", _beyond_unevenly),
    ("padded left", _beyond_padded),
    ("reordered rows", _beyond_reordered),
)
"""Probes of what changes at the end of a block, for each of those that the decoder names."""
