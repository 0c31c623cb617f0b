"""Rules that a log could suggest, with the sessions that each applies to and holds in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from auditlib.events.log_counts import LogCounts, Numbers
from auditlib.events.order import OrderRule

FEWEST_MEETINGS = 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule with the number of sessions that it says something about, and of those that keep it."""

    rule: OrderRule
    applies: int
    holds: int

    @property
    def support(self) -> float:
        """Share of the sessions that the rule applies to which keep it."""
        return self.holds / self.applies


def candidates(counts: LogCounts, needed: int, min_support: float) -> Iterator[Proposal]:
    """Rules that apply to at least `needed` sessions and hold in a share of at least `min_support` of them."""
    sessions = np.full(len(counts.names), counts.sessions)
    one, other = counts.has[:, None], counts.has[None, :]
    figures: list[tuple[str, Numbers, Numbers, int | None]] = [
        ("init", sessions, counts.begins, None),
        ("end", sessions, counts.ends, None),
        ("exactly", sessions, counts.has_once, 1),
        ("existence", sessions, counts.has, 1),
        ("absence", counts.has, counts.has_once, 2),
        ("succession", one + other - counts.has_both, counts.succeeded, None),
        ("precedence", other, counts.prepared, None),
        ("response", one, counts.answered, None),
        ("chain precedence", other, counts.chained_before, None),
        ("chain response", one, counts.chained_after, None),
        ("not succession", counts.has_both, counts.has_both - counts.in_order, None),
        ("not co-existence", _surprising(counts), np.minimum(one, other) - counts.has_both, None),
    ]
    for template, applies, holds, count in figures:
        applies = np.broadcast_to(applies, holds.shape)
        for place in zip(*np.nonzero((applies >= max(needed, 1)) & (holds >= min_support * applies)), strict=True):
            names = [counts.names[number] for number in place]
            if len(set(names)) == len(names):
                yield Proposal(OrderRule(template, *names, count=count), int(applies[place]), int(holds[place]))


def _surprising(counts: LogCounts) -> Numbers:
    """Sessions with the rarer of two events, where the two would often meet if they had nothing to do with each other.

    Events that are merely rare never meet either, and no rule should be made of that.
    """
    one, other = counts.has[:, None], counts.has[None, :]
    often = one * other >= FEWEST_MEETINGS * max(counts.sessions, 1)
    return np.triu(np.where(often, np.minimum(one, other), 0), 1)
