"""The judge: fails closed, blames what is to blame, and blocks no more and no less than that."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.release.checks import Measured
from auditlib.release.judge import FAILURES, REQUIRED_AUDITS, approved, judge
from auditlib.release.limits import limits_from
from tests.release.cases import COMPARISONS, ROWS, SETTINGS, Number, changed, judged, names_of, sound

STATUSES = {"passed", "failed", "not measured"}
MEASURED = [(limit, name) for limit in ROWS if limit.stand_in_for is None for name in names_of(limit)]
BROKEN = [
    ("NaN", {"value": math.nan}), ("infinity", {"value": math.inf}), ("minus infinity", {"value": -math.inf}),
    ("None", {"value": None}), ("text", {"value": "0"}), ("a truth value", {"value": False}),
    ("a number beyond floats", {"value": 10**400}), ("no observation", {"count": 0}),
    ("a negative count", {"count": -3}), ("half an observation", {"count": 0.5}), ("a NaN count", {"count": math.nan}),
    ("no count", {"count": None}), ("absent", {}),
]  # fmt: skip


def status(report, audit, name):
    (found,) = [one["status"] for one in report["audits"][audit]["checks"] if one["name"] == name]
    return found


def blocked(report):
    answers = {"cache": report["decision"]["cache_acceleration"], **report["decision"]["decoding"]}
    return {name for name, answer in answers.items() if answer != "allowed"} - set(COMPARISONS)


def test_a_sound_decoder_is_let_through():
    report = judged(sound())
    assert approved(report)
    assert (report["failures"], report["not_measured"], blocked(report)) == ([], [], set())
    assert report["gate"]["failures"] == []


@pytest.mark.parametrize(("how", "fields"), BROKEN, ids=[how for how, _ in BROKEN])
def test_any_measurement_that_is_missing_or_no_number_refuses_the_release(how, fields):
    for limit, name in MEASURED:
        report = judged(changed(sound(), limit.audit, name, **fields))
        assert not approved(report), (how, name)
        assert status(report, limit.audit, name) in {"failed", "not measured"}
        assert report["failures"] or report["not_measured"]
        assert blocked(report)
        json.dumps(report, allow_nan=False)


@pytest.mark.parametrize(("how", "fields"), BROKEN, ids=[how for how, _ in BROKEN])
@pytest.mark.parametrize("audit", ["cache parity", "cache identity"])
def test_without_a_tolerance_what_is_held_against_it_is_not_measured(audit, how, fields):
    report = judged(changed(sound(), audit, "tolerance", **fields))
    assert not approved(report)
    against = [limit for limit in ROWS if limit.audit == audit and limit.at_most == "tolerance"]
    assert against
    assert all(status(report, audit, limit.check) == "not measured" for limit in against)
    assert (report["failures"], report["not_measured"]) == ([], [audit])


@given(st.lists(st.tuples(st.sampled_from(MEASURED), st.sampled_from(BROKEN)), min_size=1, max_size=4))
@settings(deadline=None)
def test_several_broken_measurements_never_cancel_out(mutations):
    measured = sound()
    for (limit, name), (_, fields) in mutations:
        measured = changed(measured, limit.audit, name, **fields)
    assert not approved(judged(measured))


@pytest.mark.parametrize(("limit", "name"), MEASURED, ids=[f"{limit.audit}: {name}" for limit, name in MEASURED])
def test_a_value_over_its_limit_fails_under_its_name_and_blocks_what_it_concerns(limit, name):
    over = 1.0 if limit.at_most == "tolerance" else limit.at_most + 1
    report = judged(changed(sound(), limit.audit, name, value=over))
    concerned = {
        "release": {"cache", *SETTINGS},
        "cache": {"cache"},
        "decoding": set(SETTINGS),
        "setting": {name.partition(":")[0]},
    }[limit.blocks]
    assert (report["failures"], report["not_measured"]) == ([limit.failure], [])
    assert blocked(report) == concerned
    assert report["audits"][limit.audit]["status"] == status(report, limit.audit, name) == "failed"
    assert {audit for audit, one in report["audits"].items() if one["status"] != "passed"} == {limit.audit}


@pytest.mark.parametrize(
    ("audit", "stopped"), [(name, kind) for name in REQUIRED_AUDITS for kind in ("left out", "stopped")]
)
def test_an_audit_left_out_or_stopped_is_not_measured_and_names_no_failure(audit, stopped):
    measured = sound()
    if stopped == "stopped":
        measured[audit] = replace(measured[audit], problem="RuntimeError: out of memory")
    else:
        del measured[audit]
    report = judged(measured)
    assert (report["failures"], report["not_measured"]) == ([], [audit])
    assert report["audits"][audit]["status"] == "not measured"
    assert blocked(report) >= ({"cache"} if audit in {"cache parity", "cache identity", "numerics"} else set(SETTINGS))


def test_nothing_measured_is_a_no_to_everything():
    report = judged({})
    assert not approved(report)
    assert report["not_measured"] == list(REQUIRED_AUDITS)
    assert blocked(report) == {"cache", *SETTINGS}
    assert report["gate"] is None


def test_no_proposed_setting_is_a_no():
    report = judged(sound(), settings={})
    assert not approved(report)
    assert "decoding policy" in report["not_measured"]


def test_an_audit_without_limits_cannot_pass():
    report = judged({**sound(), "horoscope": Measured((Number("stars", 0.0),))})
    assert not approved(report)
    assert report["not_measured"] == ["horoscope"]


def test_failures_stand_once_and_in_the_fixed_order():
    measured = sound()
    for limit, name in MEASURED:
        measured = changed(measured, limit.audit, name, value=math.inf)
    assert judged(measured)["failures"] == [name for name in FAILURES if name != "serving limits"]


def test_a_measurement_that_stands_twice_is_not_measured():
    measured = sound()
    parity = measured["cache parity"]
    measured["cache parity"] = replace(parity, measurements=(*parity.measurements, Number("single events", 0.0)))
    report = judged(measured)
    assert status(report, "cache parity", "single events") == "not measured"
    assert not approved(report)


@pytest.mark.parametrize("limit", [one for one in ROWS if one.stand_in_for is None], ids=lambda one: one.check)
def test_only_optional_probes_may_be_declared_not_applicable(limit):
    measured = sound()
    for name in names_of(limit):
        measured = changed(measured, limit.audit, name)
    old = measured[limit.audit]
    reasons = dict.fromkeys(names_of(limit), "this decoder has no gradients")
    report = judged({**measured, limit.audit: replace(old, not_applicable=reasons)})
    allowed = not limit.required and limit.check != "truncation in float64"
    assert approved(report) == allowed
    assert report["audits"][limit.audit]["not_applicable"] == reasons
    without_a_reason = replace(old, not_applicable=dict.fromkeys(reasons, ""))
    assert not approved(judged({**measured, limit.audit: without_a_reason}))


@pytest.mark.parametrize(("value", "tolerance", "yes"), [(1e-5, 4e-5, True), (1e-3, 4e-5, False), (1e-5, None, False)])
def test_truncation_in_the_own_dtype_stands_in_where_there_is_no_float64(value, tolerance, yes):
    measured = changed(sound(), "causality", "truncation in float64")
    old = measured["causality"]
    more = [Number("truncation", value, "logit"), *([Number("tolerance", tolerance)] if tolerance else [])]
    measured["causality"] = replace(
        old,
        measurements=(*old.measurements, *more),
        not_applicable={"truncation in float64": "the adapter has no float64"},
    )
    assert approved(judged(measured)) == yes


@pytest.mark.parametrize(
    ("tolerance", "largest", "gap", "yes"),
    [(4e-5, None, 4e-5, True), (0.5, None, 0.01, False), (0.5, 0.5, 0.01, True), (4e-5, 1e-6, 1e-5, False)],
)
def test_a_measured_tolerance_is_capped_by_the_policy(tolerance, largest, gap, yes):
    measured = changed(sound(), "cache parity", "tolerance", value=tolerance)
    measured = changed(measured, "cache parity", "padded left", value=gap)
    report = judged(measured, {} if largest is None else {"largest_tolerance": largest})
    assert approved(report) == yes
    assert report["failures"] == ([] if yes else ["cache parity"])


@pytest.mark.parametrize(
    ("how", "fields"), [one for one in BROKEN if one[0] != "absent"], ids=lambda one: str(one)[:20]
)
def test_what_no_limit_holds_is_shown_and_never_breaks_the_json(how, fields):
    report = judged(changed(sound(), "training", "held-out accuracy", **fields))
    (shown,) = report["audits"]["training"]["information"]
    assert shown["name"] == "held-out accuracy"
    assert "value" not in fields or shown["value"] is None
    assert shown["count"] >= 0
    json.dumps(report, allow_nan=False)


def test_numbers_of_numpy_are_judged_like_any_other():
    measured = changed(sound(), "cache parity", "padded left", value=np.float32(1e-5), count=np.int64(9))
    report = judged(changed(measured, "training", "held-out accuracy", value=np.float64(0.7), count=np.int32(4)))
    assert approved(report)
    json.dumps(report, allow_nan=False)


def test_too_few_observations_are_not_measured():
    report = judged(sound(), {"cache parity: single events": {"min_count": 41}})
    assert status(report, "cache parity", "single events") == "not measured"
    assert not approved(report)


@pytest.mark.parametrize("value", [1.0, math.nan])
def test_a_comparison_is_blocked_by_its_own_checks_and_counts_for_nothing_else(value):
    name = "greedy without order mask"
    report = judged(changed(sound(), "decoding policy", f"{name}: invalid sequences", value=value))
    assert approved(report)
    assert report["failures"] == report["not_measured"] == []
    assert report["decision"]["decoding"][name] == "blocked"
    assert report["decision"]["decoding"]["greedy"] == "allowed"
    assert report["decision"]["because"]["decoding"][name]


def test_the_fallback_is_the_policys():
    assert judged(sound())["decision"]["fallback"] == "full-prefix"


def test_the_headline_gives_the_public_gates_five_facts():
    measured = changed(sound(), "decoding policy", "beam: invalid sequences", value=2)
    measured = changed(measured, "decoding policy", "greedy: invalid sequences", value=1)
    measured = changed(measured, "cache parity", "uneven rows", value=3e-5)
    gate = judged(measured)["gate"]
    assert gate == {
        "matching_prefix": True, "maximum_logit_gap": 3e-5, "emitted_padding": 0, "invalid_event_orders": 3,
        "capped_sequences": 0, "allowed_gap": 4e-5, "allowed_capped": 0, "failures": ["event grammar"],
    }  # fmt: skip


def test_a_gap_that_is_no_number_is_null_in_json_and_a_cache_parity_failure():
    report = judged(changed(sound(), "cache parity", "exact boundary", value=math.nan))
    assert report["failures"] == report["gate"]["failures"] == ["cache parity"]
    assert report["gate"]["maximum_logit_gap"] is None


@pytest.mark.parametrize(
    ("check", "failure"),
    [
        ("padding emitted", "padding emission"),
        ("invalid sequences", "event grammar"),
        ("capped sequences", "end-token coverage"),
    ],
)
def test_a_count_that_is_no_number_is_a_failure_in_the_headline_too(check, failure):
    report = judged(changed(sound(), "decoding policy", f"beam: {check}", value=math.nan))
    assert report["failures"] == report["gate"]["failures"] == [failure]


@pytest.mark.parametrize(("field", "value"), [("value", 1.0), ("count", 0), ("limit", -1.0), ("status", "failed")])
def test_a_report_whose_checks_say_otherwise_than_their_status_is_no_approval(field, value):
    report = judged(sound())
    report["audits"]["numerics"]["checks"][0][field] = value
    assert not approved(report)


def _places(document, path=()):
    """Every place in a report that says something about a check, an audit or the decision."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield (*path, name)
            yield from _places(value, (*path, name))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield (*path, number)
            yield from _places(value, (*path, number))


DESCRIPTIVE = {
    "information",
    "not_applicable",
    "problem",
    "because",
    "fallback",
    "gate",
    "unit",
    "reason",
    "name",
    "failure",
}


def _matters(path, report):
    if set(path) & DESCRIPTIVE or any(str(part) in COMPARISONS for part in path):
        return False
    if "checks" in path and len(path) > 3:
        return not report["audits"][path[1]]["checks"][path[3]].get("comparison")
    return True


@pytest.mark.parametrize("broken", [None, math.nan, "absent", [], "maybe"], ids=str)
def test_a_report_with_any_part_broken_or_cut_out_is_no_approval(broken):
    whole = judged(sound())
    for path in _places(whole):
        if not _matters(path, whole) or (broken == [] and path[-1] in ("failures", "not_measured")):
            continue
        report = copy.deepcopy(whole)
        inner = report
        for part in path[:-1]:
            inner = inner[part]
        if broken == "absent" and isinstance(inner, list):
            continue  # one check fewer is seen by the judge, which knows the names; see the tests above
        if broken == "absent":
            del inner[path[-1]]
        else:
            inner[path[-1]] = broken
        assert not approved(report), path


def test_what_other_evidence_has_to_answer_is_not_measured_and_nothing_is_approved_before():
    report = judge(sound(), SETTINGS, COMPARISONS, limits_from(), awaited=["serving limits"]).to_report()
    assert report["not_measured"] == ["serving limits"]
    assert not approved(report)
    without = judge(sound(), SETTINGS, COMPARISONS, limits_from()).to_report()
    assert approved(without)
    assert {**report, "not_measured": []} == without
