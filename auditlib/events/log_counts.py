"""What the sessions of a log have in common: how often each event occurs, and in what order they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ABSENT = np.int64(2**40)


@dataclass(frozen=True, eq=False)
class LogCounts:
    """Sessions of a log, counted over its N distinct sequences and its E event names.

    `events` and `rows` say, place by place over all sequences, which event stands there in which sequence; `weight`
    [N] says how many sessions have the sequence. Figures over pairs are [E, E]: the first event, then the other one.
    """

    names: tuple[str, ...]
    weight: Numbers
    events: Numbers
    rows: Numbers

    @classmethod
    def of(cls, sequences: Sequence[Sequence[str]]) -> LogCounts:
        """Counts of a log; sessions with the same sequence are counted together, those without events left out."""
        # Public logs repeat themselves: 25,000 sessions may have 2,000 sequences.
        variants = Counter(tuple(sequence) for sequence in sequences if sequence)
        names = tuple(sorted({name for variant in variants for name in variant}))
        number = {name: place for place, name in enumerate(names)}
        lengths = np.fromiter(map(len, variants), dtype=np.int64, count=len(variants))
        flat = (number[name] for variant in variants for name in variant)
        events = np.fromiter(flat, dtype=np.int64, count=int(lengths.sum()))
        weight = np.fromiter(variants.values(), dtype=np.int64, count=len(variants))
        return cls(names, weight, events, np.repeat(np.arange(len(variants)), lengths))

    @property
    def sessions(self) -> int:
        """Number of sessions that have an event."""
        return int(self.weight.sum())

    @cached_property
    def begins(self) -> Numbers:
        """Sessions [E] that begin with an event."""
        return self._weighed(np.diff(self.rows, prepend=-1) > 0)

    @cached_property
    def ends(self) -> Numbers:
        """Sessions [E] that end with an event."""
        return self._weighed(np.diff(self.rows, append=len(self.weight)) > 0)

    @cached_property
    def has(self) -> Numbers:
        """Sessions [E] that have an event."""
        return self._sessions_with(self._has)

    @cached_property
    def has_once(self) -> Numbers:
        """Sessions [E] that have an event exactly once."""
        return self._sessions_with(self._count == 1)

    @cached_property
    def has_both(self) -> Numbers:
        """Sessions [E, E] that have both events."""
        return self._by_first(lambda a: self._has[:, [a]] & self._has)

    @cached_property
    def answered(self) -> Numbers:
        """Sessions [E, E] with the first event in which the other one follows each of them."""
        return self._by_first(lambda a: self._has[:, [a]] & (self._last > self._last[:, [a]]))

    @cached_property
    def prepared(self) -> Numbers:
        """Sessions [E, E] with the other event in which the first one stands before each of them."""
        return self._by_first(lambda a: self._has & (self._first > self._first[:, [a]]))

    @cached_property
    def succeeded(self) -> Numbers:
        """Sessions [E, E] with either event in which both of the above hold."""
        return self._by_first(
            lambda a: (
                (self._has[:, [a]] & (self._last > self._last[:, [a]]))
                & (self._has & (self._first > self._first[:, [a]]))
            )
        )

    @cached_property
    def in_order(self) -> Numbers:
        """Sessions [E, E] in which the first event stands anywhere before the other one."""
        return self._by_first(lambda a: self._last > self._first[:, [a]])

    @cached_property
    def chained_after(self) -> Numbers:
        """Sessions [E, E] with the first event in which the other one stands right after each of them."""
        return self._chained(of_first=True)

    @cached_property
    def chained_before(self) -> Numbers:
        """Sessions [E, E] with the other event in which the first one stands right before each of them."""
        return self._chained(of_first=False)

    def _weighed(self, places: Flags) -> Numbers:
        total = np.zeros(len(self.names), dtype=np.int64)
        np.add.at(total, self.events[places], self.weight[self.rows[places]])
        return total

    def _by_first(self, holds: Callable[[int], Flags]) -> Numbers:
        """Row by row, so that no more than [N, E] is held at a time."""
        names = range(len(self.names))
        rows = [self._sessions_with(holds(a)) for a in names]
        return np.array(rows, dtype=np.int64).reshape(len(names), len(names))

    def _sessions_with(self, holds: Flags) -> Numbers:
        return np.asarray(self.weight @ holds, dtype=np.int64)

    def _chained(self, *, of_first: bool) -> Numbers:
        size = len(self.names)
        # A neighbourhood is whole when it occurs as often as the event that demands it.
        inside = self.rows[1:] == self.rows[:-1]
        step = (self.rows[1:] * size + self.events[:-1]) * size + self.events[1:]
        steps, times = np.unique(step[inside], return_counts=True)
        rows, first, then = steps // size**2, steps // size % size, steps % size
        whole = times == self._count[rows, first if of_first else then]
        total = np.zeros((size, size), dtype=np.int64)
        np.add.at(total, (first[whole], then[whole]), self.weight[rows[whole]])
        return total

    @cached_property
    def _count(self) -> Numbers:
        count = np.zeros((len(self.weight), len(self.names)), dtype=np.int64)
        np.add.at(count, (self.rows, self.events), 1)
        return count

    @cached_property
    def _has(self) -> Flags:
        return self._count > 0

    @cached_property
    def _first(self) -> Numbers:
        """Place of the first such event in all sequences put end to end; beyond them where there is none."""
        first = np.full((len(self.weight), len(self.names)), _ABSENT)
        # Not by plain assignment: which of several values written to one place stays is numpy's own affair.
        np.minimum.at(first, (self.rows, self.events), np.arange(len(self.rows)))
        return first

    @cached_property
    def _last(self) -> Numbers:
        last = np.full((len(self.weight), len(self.names)), np.int64(-1))
        np.maximum.at(last, (self.rows, self.events), np.arange(len(self.rows)))
        return last
