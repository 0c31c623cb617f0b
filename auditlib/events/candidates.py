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
    for template, count, applies, holds in _figures(counts):
        enough = (applies >= max(needed, 1)) & (holds >= min_support * applies)
        for place in np.argwhere(enough).tolist():
            if len(set(place)) == len(place):  # no rule says anything of an event and itself
                first, *then = (counts.names[number] for number in place)
                at = tuple(place)
                rule = OrderRule(template, first, then[0] if then else None, count)
                yield Proposal(rule, int(applies[at]), int(holds[at]))


def _figures(counts: LogCounts) -> Iterator[tuple[str, int | None, Numbers, Numbers]]:
    """Template, count, and for each event or pair the sessions it applies to and holds in; simple templates first."""
    sessions = np.full(len(counts.names), counts.sessions)
    one, other = (np.broadcast_to(has, counts.has_both.shape) for has in (counts.has[:, None], counts.has[None, :]))
    # Where two rules out as much, the one that comes first here is proposed.
    yield "init", None, sessions, counts.begins
    yield "end", None, sessions, counts.ends
    yield "exactly", 1, sessions, counts.has_once
    yield "existence", 1, sessions, counts.has
    yield "absence", 2, counts.has, counts.has_once
    yield "succession", None, one + other - counts.has_both, counts.succeeded
    yield "precedence", None, other, counts.prepared
    yield "response", None, one, counts.answered
    yield "chain precedence", None, other, counts.chained_before
    yield "chain response", None, one, counts.chained_after
    yield "not succession", None, counts.has_both, counts.has_both - counts.in_order
    yield "not co-existence", None, _surprising(counts), np.minimum(one, other) - counts.has_both


def _surprising(counts: LogCounts) -> Numbers:
    """Sessions with the rarer of two events, where the two would often meet if they had nothing to do with each other.

    Events that are merely rare never meet either, and no rule should be made of that.
    """
    one, other = counts.has[:, None], counts.has[None, :]
    often = one * other >= FEWEST_MEETINGS * max(counts.sessions, 1)
    return np.triu(np.where(often, np.minimum(one, other), 0), 1)
