"""Percentiles of latencies with exact intervals: whatever the distribution, and with infinite values among them.

How many of n observations lie below a percentile is binomial, so a pair of order statistics holds it with a
probability that can be counted out (Hahn and Meeker 1991, Statistical Intervals, section 5.2). Observations are taken
as independent; requests that queue behind each other are so only roughly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from auditlib.errors import InputError

CONFIDENCE = 0.95
"""Of each bound by itself: the upper one is too low in at most one case of twenty."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """The value below which a share of the observations lies, with one-sided bounds.

    `low` and `high` are None where so few observations bound nothing; a value is infinite where it fell on a request
    that got no answer.
    """

    share: float
    value: float | None
    low: float | None
    high: float | None
    count: int


def percentile(values: Sequence[float], share: float) -> Percentile:
    """The percentile of `values` at `share` (0 to 1), infinite ones included; InputError for one that is no number."""
    if not 0 < share < 1 or any(math.isnan(value) for value in values):
        raise InputError(f"a percentile needs a share between 0 and 1, and numbers; got {share}")
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return Percentile(share, None, None, None, 0)
    low, high = bounds(count, share)
    # Rounded first: as floats 0.07 times 100 is a little more than 7, and would give the rank 8.
    value = ordered[min(count, math.ceil(round(share * count, 9))) - 1]
    return Percentile(
        share, value, None if low is None else ordered[low - 1], None if high is None else ordered[high - 1], count
    )


@lru_cache(maxsize=4096)
def bounds(count: int, share: float, confidence: float = CONFIDENCE) -> tuple[int | None, int | None]:
    """Ranks (from 1) of the order statistics that bound a percentile from below and above; None where none does.

    The rank above is the smallest whose value exceeds the percentile with at least `confidence`; below likewise.
    """
    fewer = _below(count, share)  # [count + 1], probability that at most k observations lie below the percentile
    upper = int(np.searchsorted(fewer, confidence - 1e-12)) + 1
    lower = int(np.searchsorted(fewer, 1 - confidence + 1e-12, side="right"))
    return (lower if lower >= 1 else None), (upper if upper <= count else None)


def least_count(share: float, confidence: float = CONFIDENCE) -> int:
    """Fewest observations that bound a percentile from above: 59 for the 95th, 299 for the 99th."""
    return math.ceil(math.log(1 - confidence) / math.log(share))


def _below(count: int, share: float) -> np.ndarray:
    """Distribution function [count + 1] of a binomial with `count` trials of probability `share`."""
    numbers = np.arange(1, count + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log(count - numbers + 1) - np.log(numbers))])
    tried = np.arange(count + 1)
    return np.cumsum(np.exp(ways + tried * math.log(share) + (count - tried) * math.log1p(-share)))
