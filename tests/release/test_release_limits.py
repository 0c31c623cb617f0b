"""Limits are data: complete, finite, and moved by a policy file only in ways that it says out loud."""

from __future__ import annotations

import math

import pytest

from auditlib.errors import PolicyError
from auditlib.release.judge import FAILURES, REQUIRED_AUDITS, approved
from auditlib.release.limits import LARGEST_TOLERANCE, LIMITS, finite, limits_from
from tests.release.cases import changed, judged, sound


def moved(overrides, audit, check):
    (found,) = [one for one in limits_from(overrides).rows if (one.audit, one.check) == (audit, check)]
    return found


def test_every_limit_is_finite_named_once_and_blames_a_known_failure():
    rows = limits_from(None).rows
    names = [(limit.audit, limit.check) for limit in rows]
    assert len(set(names)) == len(names)
    assert all(limit.at_most == "tolerance" or math.isfinite(limit.at_most) for limit in rows)
    assert {limit.failure for limit in rows} == set(FAILURES) - {"serving limits"}
    assert all(limit.min_count >= 1 for limit in rows)


def test_every_audit_of_the_command_line_is_required():
    assert REQUIRED_AUDITS == (
        "causality", "cache parity", "cache identity", "training", "decoding policy", "event grammar", "numerics",
    )  # fmt: skip


def test_without_a_policy_the_limits_are_the_tables():
    assert limits_from(None).rows == limits_from({}).rows
    assert set(LIMITS) <= set(limits_from({}).rows)
    assert limits_from({}).largest_tolerance == LARGEST_TOLERANCE


@pytest.mark.parametrize(
    ("overrides", "audit", "check", "at_most", "min_count"),
    [
        ({"allowed_capped": 3}, "decoding policy", "capped sequences", 3, 1),
        ({"decoding policy: capped sequences": 3}, "decoding policy", "capped sequences", 3, 1),
        ({"numerics: pooled ratio": 1.5}, "numerics", "pooled ratio", 1.5, 1),
        ({"cache parity: single events": {"at_most": 1e-4, "min_count": 9}}, "cache parity", "single events", 1e-4, 9),
        ({"cache parity: single events": {"min_count": 9}}, "cache parity", "single events", "tolerance", 9),
    ],
)
def test_a_policy_moves_the_limit_it_names(overrides, audit, check, at_most, min_count):
    limit = moved(overrides, audit, check)
    assert (limit.at_most, limit.min_count) == (at_most, min_count)
    assert sum(one not in limits_from({}).rows for one in limits_from(overrides).rows) == 1


@pytest.mark.parametrize(
    "overrides",
    [
        {"cache parity": 1}, {"cache parity: no such probe": 1}, {"allowed_capped": math.nan},
        {"allowed_capped": math.inf}, {"allowed_capped": -1}, {"allowed_capped": True}, {"allowed_capped": "3"},
        {"allowed_capped": None}, {"largest_tolerance": math.nan}, {"largest_tolerance": "1e-3"},
        {"largest_tolerance": 10**400}, {"numerics: pooled ratio": {}}, {"numerics: pooled ratio": {"required": 0}},
        {"numerics: pooled ratio": {"min_count": 0}}, {"numerics: pooled ratio": {"min_count": 1.0}},
        {"numerics: pooled ratio": {"at_most": [1]}}, {"decoding policy: padding emitted": 1},
        {"decoding policy: invalid sequences": {"min_count": 2}},
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_says_nothing_sensible_is_refused(overrides):
    with pytest.raises(PolicyError, match="limits: "):
        limits_from(overrides)


@pytest.mark.parametrize(("allowed", "yes"), [(2, False), (3, True)])
def test_allowed_capped_decides_about_capped_sequences(allowed, yes):
    measured = changed(sound(), "decoding policy", "greedy: capped sequences", value=3)
    report = judged(measured, {"allowed_capped": allowed})
    assert approved(report) == yes
    assert report["gate"]["failures"] == ([] if yes else ["end-token coverage"])


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (True, None),
        ("1", None),
        (None, None),
        (math.nan, None),
        (-math.inf, None),
        (10**400, None),
    ],
)
def test_a_finite_number_is_told_from_everything_else(value, number):
    assert finite(value) == number
