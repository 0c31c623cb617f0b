"""What a policy plans to serve: defaults where it is silent, and a refusal of everything that it cannot mean."""

from __future__ import annotations

import json

import pytest

from auditlib.decoding.policies import parse_policy
from auditlib.errors import PolicyError
from auditlib.serving.plan import ServingPlan, serving_plan
from auditlib.serving.served import Bounds
from tests.packed import policy_of


def plan_of(serving):
    return serving_plan(policy_of(serving=serving))


def test_a_policy_without_a_plan_and_one_with_an_empty_plan_take_the_same_defaults():
    assert policy_of().serving is None
    assert policy_of(serving={}).serving == {}
    assert serving_plan(policy_of()) == plan_of({}) == ServingPlan()
    assert ServingPlan().limits == {"invalid sequences": 0.001}


def test_everything_that_is_planned_is_kept():
    limits = {"first event p95": 5, "whole request p95": 40.5, "peak cache bytes": 1 << 30, "invalid sequences": 0}
    plan = plan_of(
        {"setting": "beam", "strategy": "preallocated slots", "max_prefix_events": 12, "slots": 4, "queue": 0,
         "residents": 0, "concurrency": 32, "requests": 5000, "limits": limits}
    )  # fmt: skip
    assert plan == ServingPlan("beam", "preallocated slots", 12, 4, 0, 0, 32, 5000, limits)
    assert plan.bounds(64, 32) == Bounds(12, 32, 4, 0, 0)


def test_who_says_how_many_are_decoded_at_once_is_benched_with_as_many():
    assert plan_of({"slots": 32}).concurrency == 32
    assert plan_of({"slots": 32, "concurrency": 8}).concurrency == 8


def test_a_limit_leaves_the_others_at_their_defaults():
    assert plan_of({"limits": {"first event p95": 5}}).limits == {"first event p95": 5.0, "invalid sequences": 0.001}


def test_without_a_bound_a_prefix_may_fill_the_context():
    assert ServingPlan().bounds(20, 3).max_prefix_events == 19
    with pytest.raises(PolicyError, match="at most 19"):
        ServingPlan(max_prefix_events=20).bounds(20, 3)


@pytest.mark.parametrize(
    ("serving", "said"),
    [
        ([], "serving"),
        (None, "serving"),
        ({"speed": 1}, "speed"),
        ({"setting": "luck"}, "greedy, sampled, beam"),
        ({"setting": ""}, "setting"),
        ({"strategy": "turbo"}, "preallocated slots"),
        ({"strategy": ["cached"]}, "strategy"),
        ({"max_prefix_events": 0}, "max_prefix_events"),
        ({"slots": 0}, "slots"),
        ({"slots": True}, "slots"),
        ({"slots": 1.0}, "slots"),
        ({"slots": 10**30}, "slots"),
        ({"queue": -1}, "queue"),
        ({"requests": "many"}, "requests"),
        ({"limits": []}, "limits"),
        ({"limits": {"p95": 1}}, "p95"),
        ({"limits": {"first event p95": -1}}, "first event p95"),
        ({"limits": {"first event p95": "5 ms"}}, "first event p95"),
        ({"limits": {"first event p95": True}}, "first event p95"),
        ({"limits": {"first event p95": 10**400}}, "first event p95"),
        ({"limits": {"invalid sequences": 1.5}}, "share"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_with_its_place(serving, said):
    with pytest.raises(PolicyError, match=said):
        plan_of(serving)


def test_a_number_too_large_for_json_to_mean_is_refused():
    text = json.dumps({"format": 1, "serving": {"limits": {"first event p95": 1}}}).replace(" 1}}", " 1e999}}")
    with pytest.raises(PolicyError, match="inf"):
        serving_plan(parse_policy(text.encode(), "policy"))
