"""Limits of serving: what a policy states, what holds for everyone, and what is missing passes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

from auditlib.errors import PolicyError
from auditlib.release.checks import Measured
from auditlib.release.serving_limits import REPLAY_LIMITS, bench_limits, judge_serving


@dataclass(frozen=True)
class Number:
    name: str
    value: float
    unit: str = "requests"
    count: int = 3000


def sound(limits, **values):
    named = {limit.check: 0.0 for limit in limits} | {"tolerance": 1e-5} | values
    return Measured(tuple(Number(name, value) for name, value in named.items()))


BENCH = bench_limits({"first event p95": 20.0, "invalid sequences": 0.001, "peak cache bytes": 10})


@pytest.mark.parametrize("limits", [REPLAY_LIMITS, BENCH])
def test_all_within_the_limits_passes_and_each_number_over_its_own_fails(limits):
    assert judge_serving(limits, sound(limits)).status == "passed"
    for limit in limits:
        over = judge_serving(limits, sound(limits, **{limit.check: 21.0}))
        assert [one.name for one in over.checks if one.status == "failed"] == [limit.check]
        assert over.status == "failed"
        endless = judge_serving(limits, sound(limits, **{limit.check: math.inf}))
        assert endless.status == "failed"
        assert next(one for one in endless.to_json()["checks"] if one["name"] == limit.check)["value"] is None


@pytest.mark.parametrize("limits", [REPLAY_LIMITS, BENCH])
def test_what_was_not_measured_or_rests_on_too_little_passes_nothing(limits):
    whole = sound(limits)
    for limit in limits:
        lacking = Measured(tuple(one for one in whole.measurements if one.name != limit.check))
        assert judge_serving(limits, lacking).status == "not measured"
        few = tuple(replace(one, count=0) if one.name == limit.check else one for one in whole.measurements)
        assert judge_serving(limits, Measured(few)).status == "not measured"
    assert judge_serving(limits, Measured()).status == "not measured"
    assert judge_serving((), whole).status == "not measured"


def test_only_what_may_be_missing_is_let_off_and_only_with_a_reason():
    whole = sound(BENCH).measurements
    for name in [limit.check for limit in BENCH]:
        lacking = Measured(tuple(one for one in whole if one.name != name), {name: "cannot be told"})
        passes = judge_serving(BENCH, lacking).status == "passed"
        assert passes == (name == "cache bytes beside the formula")


@pytest.mark.parametrize(("share", "count"), [(0.001, 2995), (0.01, 299), (0.05, 59), (1.0, 1)])
def test_a_share_asks_for_as_many_requests_as_can_bound_it(share, count):
    limit = next(one for one in bench_limits({"invalid sequences": share}) if one.check == "invalid sequences")
    assert limit.min_count == count
    assert limit.at_most == share


@pytest.mark.parametrize("name", ["first event p95", "whole request p95"])
def test_a_percentile_asks_for_59_requests(name):
    limits = bench_limits({name: 1.0})
    for count, status in ((58, "not measured"), (59, "passed")):
        found = tuple(replace(one, count=count) for one in sound(limits).measurements)
        assert judge_serving(limits, Measured(found)).status == status


@pytest.mark.parametrize("stated", [{"p95": 1.0}, {"first event p95": math.nan}, {"first event p95": -1.0}])
def test_a_limit_that_makes_no_sense_is_refused(stated):
    with pytest.raises(PolicyError):
        bench_limits(stated)


def test_an_audit_names_its_checks_in_the_evidence():
    told = judge_serving(REPLAY_LIMITS, sound(REPLAY_LIMITS)).to_json()
    assert told["status"] == "passed"
    for one in told["checks"]:
        assert set(one) == {"audit", "name", "value", "limit", "unit", "count", "status", "reason"}
        assert one["audit"] == "replay"
