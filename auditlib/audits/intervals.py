"""Exact upper bounds of a rate that was counted."""

from __future__ import annotations

import math

import numpy as np

from auditlib.errors import InputError


def upper_bound(failures: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson bound: the largest rate under which so few failures are not too rare.

    The rate p at which at most `failures` of `trials` independent trials fail with probability 1 - `confidence`
    (Clopper and Pearson 1934, Biometrika 26). 1 where nothing was tried: nothing is known then.
    """
    if not 0 <= failures <= trials or not 0 < confidence < 1:
        raise InputError(
            f"{failures} failures of {trials} trials at confidence {confidence}: counts or level make no sense"
        )
    if failures == trials:
        return 1.0
    # The tail falls as the rate grows, so bisection finds where it crosses; in logarithms, lest large counts overflow.
    counts = np.arange(failures + 1)
    ways = np.array([_log_ways(trials, int(count)) for count in counts])
    low, high = failures / trials, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        tail = np.exp(ways + counts * math.log(middle) + (trials - counts) * math.log1p(-middle)).sum()
        low, high = (middle, high) if tail > 1 - confidence else (low, middle)
    return high


def _log_ways(trials: int, count: int) -> float:
    """Logarithm of the number of ways to choose `count` of `trials`."""
    return math.lgamma(trials + 1) - math.lgamma(count + 1) - math.lgamma(trials - count + 1)
