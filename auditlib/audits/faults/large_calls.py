"""Faults that only large calls show: many events at once, many rows, long prompts, and a bound that one row is held to.

Kernels and page tables have sizes of their own, and a loop over "the first few" is right in every small test.
"""

# ruff: noqa: ARG002  # each fault overrides one step, with all that the step is told

from __future__ import annotations

from typing import Any

from auditlib.audits.faults.needs import context_of, feels_old_events, feels_recent_events, two_events
from auditlib.audits.faults.planting import Fault, Need, Plant
from auditlib.audits.faults.wrapping import Batch, Retold, Told, wrapped
from auditlib.audits.held_out import Row

_MANY_EVENTS, _MANY_ROWS, _LONG_PROMPT = 7, 17, 16
_LONG_ROW, _SEVERAL = 24, 5
_REMEMBERS: tuple[Need, ...] = (feels_old_events, feels_recent_events)


class _ManyEvents(Retold):
    """An append of many events loses its last, or reads those behind the first few in the wrong order."""

    def __init__(self, inner: Any, lost: bool) -> None:
        super().__init__(inner)
        self._lost = lost

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """The right history; where the order is wrong, one whose newest events but the last are turned round."""
        past, new = batch.past[row], batch.new[row][:count]
        if self._lost or not past or count < _MANY_EVENTS:
            return past + new
        return (*past, *new[:2], *new[-2:1:-1], new[-1])

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        """All but the last event of a large append, where that is what is lost."""
        whole = batch.past[row] + batch.new[row]
        return whole[:-1] if self._lost and batch.past[row] and len(batch.new[row]) >= _MANY_EVENTS else whole


class _ManyRows(Retold):
    """Of many rows only the first sixteen are moved; the others stay where they are."""

    def moved(self, cache: Told, parents: list[int]) -> tuple[Row, ...]:
        """The right histories of the first rows, and behind them what stood there before."""
        right = super().moved(cache, parents)
        if len(parents) < _MANY_ROWS:
            return right
        kept = tuple(cache.rows[row % len(cache.rows)] for row in range(len(parents)))
        return right[: _MANY_ROWS - 1] + kept[_MANY_ROWS - 1 :]


class _LongPadded(Retold):
    """A long prompt behind left padding loses its first event: the padding is taken from a table that is too short."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """The history without its second event, in prompts that are both long and behind left padding."""
        whole = batch.past[row] + batch.new[row][:count]
        spoilt = not batch.past[row] and batch.padded(row, "left") and len(batch.new[row]) >= _LONG_PROMPT
        return whole[:1] + whole[2:] if spoilt else whole


class _LongRowsStay(Retold):
    """Rows that have outgrown a tile of keys stay where they are when others move."""

    def moved(self, cache: Told, parents: list[int]) -> tuple[Row, ...]:
        """The right histories of short rows; for a long one, that of the row which stood in its new place."""
        right = super().moved(cache, parents)
        stood = [cache.rows[place] if place < len(cache.rows) else row for place, row in enumerate(right)]
        return tuple(old if len(row) > _LONG_ROW else row for row, old in zip(right, stood, strict=True))


class _ManyAfterAMove(Retold):
    """Several events at once are read without the first of them, once rows have moved."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """The right history, but for appends of several events after a move."""
        past, new = batch.past[row], batch.new[row][:count]
        return past + new[1:] if cache.moves and count >= _SEVERAL else past + new


class _FirstRowsRoom(Retold):
    """Whether there is room is asked of the first row alone; other rows forget their oldest events."""

    def too_long(self, read: tuple[int, ...]) -> bool:
        """Whether the first row is too long."""
        return read[0] > self.context_length


def _large(name: str, plant: Plant, check: str, kind: str, needs: tuple[Need, ...] = (), report: str = "") -> Fault:
    return Fault(name, kind, "cache parity", (check,), plant, report, needs)


LARGE_CALLS: tuple[Fault, ...] = (
    _large("an append of seven or more loses its last", wrapped(_ManyEvents, lost=True), "long chunks", "cache parity",
           (context_of(10), *_REMEMBERS), "lablup/mlxcel #994"),
    _large("an append of seven or more is read in the wrong order", wrapped(_ManyEvents, lost=False), "long chunks",
           "cache parity", (two_events, context_of(10), *_REMEMBERS)),
    _large("only the first sixteen rows are moved", wrapped(_ManyRows), "reordered rows", "reorder",
           (two_events, context_of(6), *_REMEMBERS)),
    _large("a long prompt behind left padding loses an event", wrapped(_LongPadded), "padded left", "padding",
           (context_of(_LONG_PROMPT + 20), *_REMEMBERS)),
    _large("rows of more than 24 events stay when others move", wrapped(_LongRowsStay), "reordered rows", "reorder",
           (two_events, context_of(_LONG_ROW + 40), *_REMEMBERS)),
    _large("five events at once lose their first after a move", wrapped(_ManyAfterAMove), "reordered rows", "reorder",
           (context_of(12), *_REMEMBERS)),
    _large("room is asked of the first row alone", wrapped(_FirstRowsRoom), "accepted beyond the context", "boundary",
           (context_of(2),), "Nehanth/swarmllm #31"),
)  # fmt: skip
