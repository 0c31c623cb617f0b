"""How many more requests a test needs so that its silence means something."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from auditlib.release.sequential import Coin, log_e_ratio

_NINE_OF_TEN = 1.2816
"""Standard normal quantile: bad units stay above their mean less so many standard deviations in 9 of 10 cases."""

_MOST = 100_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """Units of one stage by arm, and the share that is assigned to the new arm."""

    share: float
    new: int
    fallback: int


def more_requests(
    stages: Sequence[Sample], fallback_rate: float, new_rate: float, harmless: float, limit: float
) -> int:
    """Units that the last stage still needs before the test would speak in nine of ten cases; 0 when it would now.

    The counts that the two rates lead one to expect, the new arm's lowered to what nine of ten cases reach (normal
    approximation of a Poisson count), are put into the very test that decides. 100,000,000 when even that many do not
    suffice.
    """

    def speaks(more: int) -> bool:
        """Whether the test would decide after `more` units beyond those that the last stage has."""
        *before, last = stages
        grown = Sample(
            last.share, last.new + math.floor(more * last.share), last.fallback + more - math.floor(more * last.share)
        )
        expected = sum(one.new for one in (*before, grown)) * new_rate
        lowered = max(0.0, 1 - _NINE_OF_TEN / math.sqrt(expected)) if expected > 0 else 0.0
        coins = [
            Coin(one.share, one.new * new_rate * lowered, one.fallback * fallback_rate) for one in (*before, grown)
        ]
        return log_e_ratio(coins, harmless) >= limit

    if speaks(0):
        return 0
    low, high = 0, 64
    while high < _MOST and not speaks(high):
        low, high = high, 2 * high
    while high - low > 1 and high < _MOST:
        middle = (low + high) // 2
        low, high = (low, middle) if speaks(middle) else (middle, high)
    return min(high, _MOST)
