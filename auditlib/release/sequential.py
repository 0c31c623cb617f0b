"""Evidence that may be looked at after every row: e-values against "the new arm is no worse", in natural logarithms.

An e-process is a non-negative process that starts at 1 and, while its null hypothesis holds, is expected never to grow.
The chance that it ever reaches 1/alpha is then at most alpha (Ville 1939), however often and whenever somebody looks.
All three below are likelihood ratios against fixed alternatives, averaged over them (Robbins 1970, Annals of
Mathematical Statistics 41; Ramdas, Grünwald, Vovk and Shafer 2023, Statistical Science 38). They depend on counts only,
so rows may come in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auditlib.errors import InputError

# Alternatives: how many times worse than harmless. Small rises get most of the weight; they are the hard ones to see.
_LOG_TIMES = np.linspace(math.log(1.05), math.log(100.0), 64)
_LOG_WEIGHT = -_LOG_TIMES - np.log(np.exp(-_LOG_TIMES).sum())


@dataclass(frozen=True, slots=True)
class Coin:
    """Bad units of one stage by arm, and the share of units that was assigned to the new arm, 0 < share < 1.

    In a stage where both arms answer every unit the share is 0.5.
    """

    share: float
    new: float
    fallback: float


def log_e_ratio(coins: Iterable[Coin], harmless: float = 1.0) -> float:
    """Evidence that the new arm's bad rate is more than `harmless` times the fallback's, over stages of any shares.

    Under random assignment a bad unit lies in the new arm with chance s·r / (s·r + 1 − s), where s is the share
    assigned and r the ratio of the two bad rates: a coin. For each larger ratio the likelihood ratios of all stages are
    multiplied, and these products are averaged, so the price of not knowing the ratio is paid once and not per stage.
    Where both arms answer a unit and both are bad, it counts once for each: the factor (q/p)(1−q)/(1−p) stays below
    what the mean of the others leaves room for, so the bound holds although the two answers are not independent.
    """
    total = _LOG_WEIGHT.copy()
    for coin in coins:
        _require(0 < coin.share < 1 and coin.new >= 0 and coin.fallback >= 0, f"{coin}")
        odds = math.log(harmless * coin.share / (1 - coin.share))
        total += _log_likelihood_ratio(odds, coin.new, coin.fallback)
    return _log_sum(total)


def log_e_rate(bad: float, trials: float, limit: float) -> float:
    """Evidence that a rate is above `limit`, 0 < limit < 1, from `bad` of `trials`."""
    _require(0 < limit < 1 and 0 <= bad <= trials, f"{bad} bad of {trials} against the limit {limit}")
    return _log_sum(_LOG_WEIGHT + _log_likelihood_ratio(math.log(limit / (1 - limit)), bad, trials - bad))


def log_e_share(new: int, fallback: int, share: float) -> float:
    """Evidence that units are not assigned to the new arm with chance `share`, in either direction.

    A Beta(1/2, 1/2) mixture of binomial likelihood ratios (Lindon and Malek 2022, "Anytime-valid inference for
    multinomial count data", NeurIPS 35, with two categories).
    """
    _require(0 < share < 1 and new >= 0 and fallback >= 0, f"{new} and {fallback} at the share {share}")
    mixed = _log_beta(new + 0.5, fallback + 0.5) - _log_beta(0.5, 0.5)
    return mixed - new * math.log(share) - fallback * math.log1p(-share)


def _log_likelihood_ratio(log_odds: float, yes: float, no: float) -> NDArray[np.float64]:
    """Per alternative: log-likelihood of the counts with the odds raised so many times, less that with the odds."""
    raised = log_odds + _LOG_TIMES
    log_no = np.logaddexp(0.0, log_odds) - np.logaddexp(0.0, raised)
    ratio: NDArray[np.float64] = yes * (_LOG_TIMES + log_no) + no * log_no
    return ratio


def _log_sum(logs: NDArray[np.float64]) -> float:
    # Around the largest: the sums themselves are too large, or too small, for a float.
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _require(sound: bool, what: str) -> None:
    if not sound:  # NaN compares as unsound
        raise InputError(f"{what}: counts or rates that make no sense; no evidence follows from them")
