"""Bounds of percentiles hold exactly as often as they say, whatever lies among the values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from auditlib.errors import InputError
from auditlib.serving.percentiles import CONFIDENCE, bounds, least_count, percentile


def fewer_than(count: int, share: float, most: int) -> float:
    """Chance that at most `most` of `count` observations lie below the percentile, term by term."""
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(most + 1))


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("count", [1, 5, 20, 58, 59, 60, 298, 299, 300, 777])
def test_each_bound_is_the_tightest_that_holds_often_enough(share, count):
    low, high = bounds(count, share)
    if high is None:
        assert fewer_than(count, share, count - 1) < CONFIDENCE  # not even the largest value is above it often enough
    else:
        assert fewer_than(count, share, high - 1) >= CONFIDENCE
        assert high == 1 or fewer_than(count, share, high - 2) < CONFIDENCE
    if low is None:
        assert 1 - fewer_than(count, share, 0) < CONFIDENCE
    else:
        assert 1 - fewer_than(count, share, low - 1) >= CONFIDENCE
        assert 1 - fewer_than(count, share, low) < CONFIDENCE


@pytest.mark.parametrize(("share", "least"), [(0.95, 59), (0.99, 299), (0.5, 5)])
def test_too_few_observations_bound_nothing(share, least):
    assert least_count(share) == least
    assert percentile(list(range(least - 1)), share).high is None
    assert percentile(list(range(least)), share).high == least - 1


def test_bounds_cover_the_percentile_of_a_skewed_distribution_as_often_as_they_say():
    chance = np.random.default_rng(3)
    true = -math.log(0.05)  # 95th percentile of an exponential
    found = [percentile(chance.exponential(size=200).tolist(), 0.95) for _ in range(1000)]
    assert np.mean([one.high >= true for one in found]) >= 0.94
    assert np.mean([one.low <= true for one in found]) >= 0.94
    assert np.mean([one.low <= true <= one.high for one in found]) <= 0.98  # and are not merely endless


def test_a_request_without_an_answer_is_slower_than_every_other_one():
    values = [1.0] * 94 + [math.inf] * 6
    assert percentile(values, 0.95).value == math.inf
    assert percentile([1.0] * 99 + [math.inf], 0.5).high == 1.0
    assert percentile([1.0] * 99 + [math.inf], 0.95).value == 1.0


def test_of_nothing_there_is_no_percentile_and_of_what_is_no_number_none_either():
    assert percentile([], 0.95).value is None
    for values, share in (([math.nan], 0.5), ([1.0], 1.0), ([1.0], 0.0)):
        with pytest.raises(InputError):
            percentile(values, share)


def test_order_of_arrival_does_not_matter():
    values = [float(number) for number in range(100)]
    assert percentile(values, 0.95) == percentile(values[::-1], 0.95)
    assert percentile(values, 0.95).value == 94.0
    assert percentile(values, 0.5).value == 49.0
