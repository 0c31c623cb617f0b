"""How far two answers to the same questions differ, and how sure that is: exact, or drawn from a fixed seed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_Z = 1.959963984540054  # 97.5 % point of the normal distribution
_RESAMPLES, _SEED, _BLOCK = 2_000, 20_261_201, 100


def mcnemar(worse: int, better: int) -> float:
    """Two-sided exact p-value that flips in both directions are equally likely; 1 where nothing flipped.

    The binomial form of McNemar's test (Psychometrika 12, 1947), which needs no large counts.
    """
    flips, fewer = worse + better, min(worse, better)
    if worse == better:
        return 1.0
    tail = sum(math.comb(flips, count) for count in range(fewer + 1))
    return float(min(1.0, 2 * tail / 2**flips))


def difference_of_shares(before: Flags, after: Flags) -> tuple[float, float, float]:
    """Share of `after` less share of `before` over the same units, with its 95 % interval.

    Newcombe's method 10 for paired proportions (Statistics in Medicine 17, 1998, 2635): the interval has a width also
    where no unit flipped. NaN three times without a unit.
    """
    count = len(before)
    if not count:
        return math.nan, math.nan, math.nan
    first, second = float(after.mean()), float(before.mean())
    (low1, high1), (low2, high2) = _wilson(first, count), _wilson(second, count)
    together = _likeness(before, after)
    below = _root((first - low1), (high2 - second), together)
    above = _root((high1 - first), (second - low2), together)
    return first - second, first - second - below, first - second + above


def difference_of_means(before: Numbers, after: Numbers, groups: npt.NDArray[np.int64]) -> tuple[float, float, float]:
    """Mean of `after` - `before` with its 95 % interval, whole groups (numbered from 0) drawn with replacement.

    The percentile bootstrap of Efron and Tibshirani (1993), 2,000 draws from one fixed seed: what belongs to one
    session is not independent, so sessions are drawn and not their prefixes. NaN three times without a value.
    """
    if not len(before):
        return math.nan, math.nan, math.nan
    apart = after - before
    sums = np.bincount(groups, weights=apart).astype(np.float64)
    counts = np.bincount(groups).astype(np.float64)
    draws = np.random.default_rng(_SEED)
    means = np.concatenate([_means(draws, sums, counts) for _ in range(_RESAMPLES // _BLOCK)])
    low, high = np.percentile(means, [2.5, 97.5])
    return float(apart.mean()), float(low), float(high)


def _means(draws: np.random.Generator, sums: Numbers, counts: Numbers) -> Numbers:
    """Means of some resamples; in blocks, because all of them at once would fill the memory."""
    size = len(sums)
    times = draws.multinomial(size, np.full(size, 1 / size), size=_BLOCK).astype(float)
    return np.asarray((times @ sums) / (times @ counts))


def _wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of one share (Journal of the American Statistical Association 22, 1927)."""
    square = _Z**2
    middle = share + square / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    scale = 1 + square / count
    return (middle - half) / scale, (middle + half) / scale


def _likeness(before: Flags, after: Flags) -> float:
    """Newcombe's correlation of the paired answers, 0 where one side is constant; positive ones are corrected."""
    both, neither = int((before & after).sum()), int((~before & ~after).sum())
    gained, lost = int((~before & after).sum()), int((before & ~after).sum())
    margins = (both + gained) * (lost + neither) * (both + lost) * (gained + neither)
    if not margins:
        return 0.0
    product = both * neither - gained * lost
    corrected = max(product - len(before) / 2, 0) if product > 0 else product
    return corrected / math.sqrt(margins)


def _root(one: float, other: float, together: float) -> float:
    """Length of two errors that go together so far."""
    return math.sqrt(max(one**2 - 2 * together * one * other + other**2, 0.0))
