"""Prefixes of sessions: padded batches, and the trie that holds every distinct prefix once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from auditlib.errors import InputError

Side = Literal["right", "left", "both"]
Ids = npt.NDArray[np.int64]


def pad(
    rows: Sequence[Sequence[int]], padding: int, side: Side = "right", width: int | None = None
) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Rows as a batch: events int64 [B, T] with `padding` at the invalid places, and valid bool [B, T].

    T is `width`, or the longest row. "both" puts half of a row's padding, rounded down, on its left. InputError for a
    row without events (no decoder can read it) and for one longer than `width`.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    _check_lengths(lengths, width)
    total = int(lengths.max(initial=0)) if width is None else width
    room = total - lengths
    left = {"right": np.zeros_like(room), "left": room, "both": room // 2}.get(side)
    if left is None:
        raise InputError(f"padding stands on the side right, left or both, not {side!r}")
    places = np.arange(total)
    valid = (places >= left[:, None]) & (places < (left + lengths)[:, None])  # [B, T]
    events = np.full(valid.shape, padding, dtype=np.int64)
    events[valid] = _flat(rows, int(lengths.sum()))
    return events, valid


def _flat(rows: Iterable[Sequence[int]], count: int) -> Ids:
    return np.fromiter((event for row in rows for event in row), dtype=np.int64, count=count)


def _check_lengths(lengths: Ids, width: int | None) -> None:
    if (lengths == 0).any():
        raise InputError(f"row {int(np.argmin(lengths))} of a batch has no event; leave it out or begin it with start")
    if width is not None and (lengths > width).any():
        row = int(np.argmax(lengths))
        raise InputError(
            f"row {row} of a batch has {lengths[row]} events, more than the width {width}; widen the batch"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """All distinct prefixes of one length: prefix n is prefix `parent[n]` of the level before, plus `event[n]`.

    parent, event and weight are int64 [N]; weight counts the rows that begin with the prefix. Prefixes are ordered by
    parent, then by event. In level 0 the parent is -1.
    """

    parent: Ids
    event: Ids
    weight: Ids


def _level(parents: Ids, events: Ids, weights: Ids) -> tuple[Level, Ids]:
    """The level whose prefixes are the distinct (parent, event) pairs, and the prefix of each pair."""
    kinds, index = np.unique(np.column_stack([parents, events]), axis=0, return_inverse=True)
    index = index.reshape(-1)
    total = np.zeros(len(kinds), dtype=np.int64)
    np.add.at(total, index, weights)
    return Level(kinds[:, 0].copy(), kinds[:, 1].copy(), total), index


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTrie:
    """Every distinct prefix of some rows once, level by level; level 0 holds the first events (the start)."""

    levels: tuple[Level, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> PrefixTrie:
        """Trie of rows of ids, repeated ones counted each time. InputError for a row without events."""
        return cls.from_counts(Counter(tuple(row) for row in rows))

    @classmethod
    def from_counts(cls, counted: Mapping[tuple[int, ...], int]) -> PrefixTrie:
        """Trie of distinct rows and how often each occurs; the work grows with the distinct rows alone."""
        weights = np.array(list(counted.values()), dtype=np.int64)
        lengths = np.array([len(row) for row in counted], dtype=np.int64)
        _check_lengths(lengths, None)
        flat, begins = _flat(counted, int(lengths.sum())), np.cumsum(lengths) - lengths
        # Level by level over rows laid end to end: one long row among short ones costs no rectangle.
        node, levels = np.full(len(lengths), -1, dtype=np.int64), []
        for depth in range(int(lengths.max(initial=0))):
            here = lengths > depth
            node, weights, begins, lengths = node[here], weights[here], begins[here], lengths[here]
            level, node = _level(node, flat[begins + depth], weights)
            levels.append(level)
        return cls(tuple(levels))

    @property
    def count(self) -> int:
        """Number of distinct prefixes."""
        return sum(len(level.event) for level in self.levels)

    def rows(self, depth: int) -> Ids:
        """All distinct prefixes of depth + 1 events, int64 [N, depth + 1], in the order of the level."""
        columns, node = [], np.arange(len(self.levels[depth].event))
        for level in reversed(self.levels[: depth + 1]):
            columns.append(level.event[node])
            node = level.parent[node]
        return np.column_stack(columns[::-1])

    def prefix(self, depth: int, index: int) -> tuple[int, ...]:
        """Ids of prefix `index` of a level."""
        events: list[int] = []
        for level in reversed(self.levels[: depth + 1]):
            events.append(int(level.event[index]))
            index = int(level.parent[index])
        return tuple(reversed(events))

    def leaves(self) -> list[tuple[int, ...]]:
        """The rows that no other row continues, shortest first; together they hold every prefix."""
        found: list[tuple[int, ...]] = []
        for depth, level in enumerate(self.levels):
            inner = [after.parent for after in self.levels[depth + 1 : depth + 2]]
            last = np.setdiff1d(np.arange(len(level.event)), inner)
            found.extend(map(tuple, self.rows(depth)[last].tolist()))
        return found

    def next_events(self, depth: int, index: int) -> dict[int, int]:
        """How many rows continue prefix `index` of a level with each event; rows that end there are not counted."""
        if depth + 1 >= len(self.levels):
            return {}
        level = self.levels[depth + 1]
        first, last = np.searchsorted(level.parent, [index, index + 1])
        return dict(zip(level.event[first:last].tolist(), level.weight[first:last].tolist(), strict=True))

    def next_counts(self, depth: int, size: int) -> Ids:
        """The same for a whole level as int64 [N, size]: prefix by prefix, id by id."""
        counts = np.zeros((len(self.levels[depth].event), size), dtype=np.int64)
        if depth + 1 < len(self.levels):
            level = self.levels[depth + 1]
            counts[level.parent, level.event] = level.weight
        return counts
