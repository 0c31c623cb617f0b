"""E-values: never expected to grow under their null hypothesis, quick to grow under harm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import InputError
from auditlib.release.sample_size import Sample, more_requests
from auditlib.release.sequential import Coin, log_e_rate, log_e_ratio, log_e_share


def binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
@pytest.mark.parametrize("harmless", [1.0, 1.5])
@pytest.mark.parametrize("n", [1, 7, 40])
def test_at_the_border_of_harm_the_expected_e_value_is_exactly_one(share, harmless, n):
    fair = share * harmless / (share * harmless + 1 - share)
    mean = sum(binomial(n, k, fair) * math.exp(log_e_ratio([Coin(share, k, n - k)], harmless)) for k in range(n + 1))
    assert mean == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("better", [0.0, 0.3, 0.9])
def test_a_new_arm_that_is_better_is_never_expected_to_look_worse(better):
    p = 0.25 * better
    mean = sum(binomial(30, k, p) * math.exp(log_e_ratio([Coin(0.25, k, 30 - k)])) for k in range(31))
    assert mean <= 1 + 1e-12


def test_two_stages_are_one_process_whose_expectation_stays_one():
    mean = sum(
        binomial(12, a, 0.05)
        * binomial(9, b, 0.5)
        * math.exp(log_e_ratio([Coin(0.05, a, 12 - a), Coin(0.5, b, 9 - b)]))
        for a in range(13)
        for b in range(10)
    )
    assert mean == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("both", [0.0, 0.02, 0.05])
def test_answers_of_both_arms_to_one_request_may_depend_on_each_other(both):
    """A request gives (new bad, fallback bad) with equal rates of 5 %; `both` is how often they are bad together."""
    one = 0.05 - both
    cells = {(1, 1): both, (1, 0): one, (0, 1): one, (0, 0): 1 - both - 2 * one}
    means = {(0, 0): 1.0}
    for _ in range(4):
        grown: dict[tuple[int, int], float] = {}
        for (a, b), weight in means.items():
            for (x, y), chance in cells.items():
                grown[a + x, b + y] = grown.get((a + x, b + y), 0.0) + weight * chance
        means = grown
    assert sum(w * math.exp(log_e_ratio([Coin(0.5, a, b)])) for (a, b), w in means.items()) <= 1 + 1e-12


@pytest.mark.parametrize(("limit", "rate", "exactly"), [(0.1, 0.1, True), (0.1, 0.02, False), (0.5, 0.5, True)])
def test_a_rate_at_or_below_its_limit_is_never_expected_to_look_higher(limit, rate, exactly):
    mean = sum(binomial(25, k, rate) * math.exp(log_e_rate(k, 25, limit)) for k in range(26))
    assert mean <= 1 + 1e-9
    assert not exactly or mean == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_check_of_the_assignment_is_expected_to_stay_at_one(share):
    mean = sum(binomial(30, k, share) * math.exp(log_e_share(k, 30 - k, share)) for k in range(31))
    assert mean == pytest.approx(1.0, rel=1e-9)


def test_looking_after_every_bad_row_raises_false_alarms_no_higher_than_alpha():
    draw, alarms, runs = np.random.default_rng(7), 0, 150
    for _ in range(runs):
        new = np.cumsum(draw.random(200) < 0.25)
        looks = [log_e_ratio([Coin(0.25, int(a), k + 1 - int(a))]) for k, a in enumerate(new)]
        alarms += max(looks) >= math.log(20)
    assert alarms <= 0.05 * runs + 3 * math.sqrt(0.05 * 0.95 * runs)


@given(st.integers(0, 200), st.integers(0, 200), st.sampled_from([0.05, 0.25, 0.5]))
@settings(max_examples=60, deadline=None)
def test_one_more_bad_row_of_the_new_arm_raises_the_evidence_and_one_of_the_fallback_lowers_it(new, old, share):
    now = log_e_ratio([Coin(share, new, old)])
    assert log_e_ratio([Coin(share, new + 1, old)]) > now > log_e_ratio([Coin(share, new, old + 1)])


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (log_e_ratio([Coin(0.5, 100, 50)]), "twice the rate, both arms on every request"),
        (log_e_ratio([Coin(0.25, 80, 120)]), "twice the rate at a quarter"),
        (log_e_rate(40, 10_000, 0.001), "four times the limit"),
        (log_e_share(700, 1300, 0.25), "35 % where 25 % were planned"),
        (log_e_share(100, 900, 0.25), "10 % where 25 % were planned"),
    ],
)
def test_harm_of_a_size_that_matters_speaks(seen, what):
    assert seen > math.log(20), what


def test_no_rows_are_no_evidence():
    assert log_e_ratio([]) == pytest.approx(0.0, abs=1e-12)
    assert log_e_ratio([Coin(0.5, 0, 0)]) == pytest.approx(0.0, abs=1e-12)
    assert log_e_rate(0, 0, 0.1) == pytest.approx(0.0, abs=1e-12)
    assert log_e_share(0, 0, 0.1) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: log_e_ratio([Coin(1.0, 1, 1)]),
        lambda: log_e_ratio([Coin(0.5, math.nan, 1)]),
        lambda: log_e_ratio([Coin(0.5, 1, -1)]),
        lambda: log_e_rate(3, 2, 0.1),
        lambda: log_e_rate(1, 2, math.nan),
        lambda: log_e_share(-1, 2, 0.5),
    ],
)
def test_counts_that_make_no_sense_are_refused_and_not_turned_into_evidence(nonsense):
    with pytest.raises(InputError):
        nonsense()


def test_the_sample_size_is_the_smallest_at_which_the_test_would_speak():
    sample = [Sample(0.5, 500, 500)]
    more = more_requests(sample, 0.01, 0.02, 1.0, math.log(80))
    assert more > 0
    grown = [Sample(0.5, 500 + more // 2, 500 + more - more // 2)]
    assert more_requests(grown, 0.01, 0.02, 1.0, math.log(80)) <= 2
    less = [Sample(0.5, 500 + more // 4, 500 + more // 4)]
    assert more_requests(less, 0.01, 0.02, 1.0, math.log(80)) > 2


def test_that_many_requests_do_notice_the_harm_in_about_nine_of_ten_cases():
    more = more_requests([Sample(0.5, 0, 0)], 0.02, 0.04, 1.0, math.log(80))
    draw, half = np.random.default_rng(3), more // 2
    counts = draw.binomial(half, [0.04, 0.02], size=(400, 2))
    seen = sum(log_e_ratio([Coin(0.5, int(a), int(b))]) >= math.log(80) for a, b in counts)
    assert 0.75 * 400 <= seen <= 0.99 * 400


def test_a_harm_that_no_sample_shows_is_said_to_need_the_most():
    assert more_requests([Sample(0.5, 10, 10)], 0.01, 0.01, 1.0, math.log(80)) == 100_000_000
