"""What a plain table of prefixes predicts, and the most that any decoder of events alone can reach.

Every published deep model should be held against these: on public logs the table often equals them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from auditlib.decoders.evaluation import Evaluation
from auditlib.decoders.prefix_counts import Counts, PrefixCounts
from auditlib.decoders.rows import Row, distinct
from auditlib.errors import DecoderError

_LAST = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class NearTies:
    """How much of an accuracy hangs on coin flips.

    `share` of the predictions stand after prefixes whose two commonest next events are almost equally common;
    `largest` is the share of the heaviest such prefix, and `prefix` its ids.
    """

    share: float
    largest: float
    prefix: Row
    prefixes: int


class LookupTable:
    """Next events counted by whole prefix and by the last 3, 2 and 1 events; the longest known context decides.

    Rows are ids from start to end. Ties go to the smallest id. DecoderError for rows without any event to predict.
    """

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        counted = distinct(rows)
        self._tree = PrefixCounts(counted)
        self._last: dict[Row, Counts] = defaultdict(Counter)
        for row, weight in counted.items():
            self._count_last(row, weight)
        self._events = sorted({event for counts in self._last.values() for event in counts})
        if not self._events:
            raise DecoderError("no session has an event to learn from; give sessions with at least one event")

    def predict(self, prefix: Sequence[int]) -> int:
        """The commonest next event after the longest known context of `prefix`."""
        return _commonest(self._contexts(tuple(prefix), self._tree.after(prefix))[-1])

    def evaluate(self, rows: Sequence[Sequence[int]]) -> Evaluation:
        """Accuracy and smoothed NLL of the table on `rows`, by the metric of `evaluation`."""
        right = total = 0
        nll = 0.0
        for row, weight in distinct(rows).items():
            for size, whole in self._tree.walk(row):
                contexts = self._contexts(row[:size], whole)
                right += weight * (_commonest(contexts[-1]) == row[size])
                nll -= weight * math.log(self._chance(contexts, row[size]))
                total += weight
        if not total:
            raise DecoderError("no session has an event to predict; give sessions with at least one event")
        return Evaluation(nll / total, right / total, total)

    def _count_last(self, row: Row, weight: int) -> None:
        for size in range(2, len(row)):
            for count in _shorter_than(size):
                self._last[row[size - count : size]][row[size]] += weight

    def _contexts(self, prefix: Row, whole: Counts | None) -> list[Counts]:
        """Counts after the known contexts of a prefix, the shortest first."""
        ends = [prefix[-count:] for count in _shorter_than(len(prefix))]
        known = [self._last[end] for end in ends if end in self._last]
        known += [whole] if whole else []
        return known or [Counter(self._events)]

    def _chance(self, contexts: list[Counts], event: int) -> float:
        """Chance of `event`, each context mixed with the shorter ones (Witten and Bell 1991, method C)."""
        chance = 1.0 / (len(self._events) + 1)  # one more for the event never seen
        for counts in contexts:
            seen, kinds = counts.total(), len(counts)
            chance = (counts[event] + kinds * chance) / (seen + kinds)
        return chance


def ceiling(rows: Sequence[Sequence[int]]) -> float:
    """The best accuracy on `rows` that any function of the prefix's events can reach; more proves a leak."""
    counts = [each for _, each in PrefixCounts(distinct(rows)).each()]
    total = sum(each.total() for each in counts)
    if not total:
        raise DecoderError("no session has an event to predict; give sessions with at least one event")
    return sum(max(each.values()) for each in counts) / total


def near_ties(
    rows: Sequence[Sequence[int]], held_out: Sequence[Sequence[int]] | None = None, margin: float = 0.1
) -> NearTies:
    """Prefixes whose two commonest next events in `rows` differ by at most `margin` of all that follow there.

    Their shares are those of the predictions on `held_out`, or on `rows` themselves when it is not given.
    """
    learnt = PrefixCounts(distinct(rows))
    met = learnt if held_out is None else PrefixCounts(distinct(held_out))
    total = sum(counts.total() for _, counts in met.each())
    found: dict[Row, int] = {}
    for node, counts in learnt.each():
        if _nearly_tied(counts, margin):
            prefix = learnt.prefix(node)
            found[prefix] = (met.after(prefix) or Counter()).total()
    heaviest = max(found, key=lambda prefix: (found[prefix], prefix), default=())
    whole = max(1, total)
    return NearTies(sum(found.values()) / whole, found.get(heaviest, 0) / whole, heaviest, len(found))


def _shorter_than(size: int) -> list[int]:
    """How many last events of a prefix make a context of its own; all of them are the whole prefix, counted there."""
    return [count for count in _LAST if count < size]


def _nearly_tied(counts: Counts, margin: float) -> bool:
    first, second = [*sorted(counts.values(), reverse=True), 0][:2]
    return first - second <= margin * counts.total()


def _commonest(counts: Counts) -> int:
    return min(counts, key=lambda event: (-counts[event], event))
