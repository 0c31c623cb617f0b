"""Next events counted by whole prefix, kept as a tree, so that a long session costs its length and not its square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from auditlib.decoders.rows import Row

Counts = Counter[int]


class PrefixCounts:
    """What follows each prefix of some rows (ids from start to end, with the weight of each distinct row)."""

    def __init__(self, rows: Mapping[Row, int]) -> None:
        self._child: dict[tuple[int, int], int] = {}
        self._parent: list[tuple[int, int]] = [(0, 0)]  # node → its parent and the event between them
        self._counts: list[Counts] = [Counter()]
        for row, weight in rows.items():
            self._add(row, weight)

    def after(self, prefix: Sequence[int]) -> Counts | None:
        """Counts of the events after exactly this prefix, None when it never occurred."""
        node: int | None = 0
        for event in prefix:
            node = None if node is None else self._child.get((node, event))
        return None if node is None else self._counts[node]

    def walk(self, row: Row) -> Iterator[tuple[int, Counts | None]]:
        """(length of prefix, counts after it) for every prefix of `row` with at least one event and a next one."""
        node: int | None = 0
        for size, event in enumerate(row[:-1], start=1):
            node = None if node is None else self._child.get((node, event))
            if size > 1:
                yield size, None if node is None else self._counts[node]

    def each(self) -> Iterator[tuple[int, Counts]]:
        """(node, counts) of every prefix with at least one event and something after it."""
        for node, (parent, _) in enumerate(self._parent):
            if parent and self._counts[node]:
                yield node, self._counts[node]

    def prefix(self, node: int) -> Row:
        """The ids that lead to a node."""
        events: list[int] = []
        while node:
            node, event = self._parent[node]
            events.append(event)
        return tuple(reversed(events))

    def _add(self, row: Row, weight: int) -> None:
        node = 0
        for event, following in pairwise(row):
            parent, node = node, self._child.setdefault((node, event), len(self._counts))
            if node == len(self._counts):
                self._parent.append((parent, event))
                self._counts.append(Counter())
            self._counts[node][following] += weight
