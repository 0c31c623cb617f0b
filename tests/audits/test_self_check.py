"""The gate checks itself: every fault it can plant is caught, nothing else alarms, and a miss refuses the release."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
import torch

from auditlib.audits.base import AuditResult, Findings, Measurement
from auditlib.audits.faults.catalogue import FAULTS, NAMED_EQUIVALENT
from auditlib.audits.faults.planting import Fault
from auditlib.audits.self_check import Planting, plant_all, small_world
from auditlib.audits.tolerance import study
from auditlib.decoding.policies import DEFAULT_SETTINGS
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.release.checks import Measured
from auditlib.release.judge import judge
from auditlib.release.limits import LIMITS, PLANTED_FAULTS_MISSED, limits_from
from auditlib.runs import self_check
from auditlib.runs.self_check import Judged, SelfCheck, run_self_check, with_self_check
from auditlib.sessions.split import LeakageReport
from tests.doubles import ToyDecoder
from tests.subjects import MAP, gpt, subject_of

torch.set_num_threads(1)

AUDITS = tuple(dict.fromkeys(limit.audit for limit in LIMITS))
ORDER = EventOrder.from_json(
    '{"format": 1, "version": "1", "reopening": null, "rules": '
    '[{"template": "not succession", "first": "closed", "then": "assigned"}, {"template": "init", "event": "opened"}]}'
)
SPLIT = LeakageReport(("session",), 10, 6, 0, 0, 0, 0, 0, 0, 0, 0)
LIMIT_ROWS = limits_from(self_check=True)


def subject(make=gpt, dtype=torch.float32):
    sound = subject_of(make, dtype)
    return replace(sound, order=ORDER.compile(MAP), leakage=SPLIT, settings=DEFAULT_SETTINGS)


def measured(audit: str, *, tolerance: float = 1e-4) -> AuditResult:
    return AuditResult(audit, Findings((Measurement("tolerance", tolerance, "logit", 9),)), 0.0)


RESULTS = tuple(measured(audit) for audit in AUDITS)


@cache
def checked(make) -> SelfCheck:
    return run_self_check(subject(make), RESULTS, LIMIT_ROWS)


def toy(dtype: torch.dtype) -> ToyDecoder:
    return ToyDecoder(dtype=dtype)


def last_event_only(dtype: torch.dtype) -> ToyDecoder:
    return ToyDecoder(dtype=dtype, logits=lambda row: [((row[-1] + 2) * (event + 3)) % 7 * 0.5 for event in range(8)])


def outcomes(found: SelfCheck) -> Counter[str]:
    return Counter(one.outcome for one in found.judged)


@pytest.mark.parametrize("make", [gpt, toy, last_event_only], ids=["event_gpt", "contract 1 only", "no memory"])
def test_every_fault_that_can_be_planted_is_caught_and_nothing_else_alarms(make):
    found = checked(make)
    assert found.problem is None
    alarming = [one for one in found.judged if one.outcome in ("missed", "false alarm")]
    wrong = [(one.planting.fault.name, one.outcome, one.reason) for one in alarming]
    assert wrong == []


SCATTERED = EventMap("1", 6, 4, 8, {"opened": 0, "closed": 2, "assigned": 3, "repaired": 5, "reopened": 9}, None)


@pytest.mark.slow
def test_faults_are_planted_and_caught_whatever_ids_padding_start_and_end_have():
    known = subject(lambda dtype: gpt(dtype, vocabulary_size=SCATTERED.size + 1))
    found = run_self_check(replace(known, event_map=SCATTERED, order=ORDER.compile(SCATTERED)), RESULTS, LIMIT_ROWS)
    assert found.problem is None
    assert [one.planting.fault.name for one in found.judged if one.outcome in ("missed", "false alarm")] == []
    same = {one.planting.fault.name: one.outcome for one in checked(gpt).judged}
    assert {one.planting.fault.name: one.outcome for one in found.judged} == same


def test_at_least_sixty_faults_over_all_kinds_are_planted_in_a_decoder_that_offers_everything():
    found = checked(gpt)
    caught = [one for one in found.judged if one.outcome == "caught"]
    assert len(caught) >= 120
    assert {one.planting.fault.kind for one in caught} == {fault.kind for fault in FAULTS}
    assert {one.planting.fault.audit for one in caught} == set(AUDITS)


def test_faults_that_a_decoder_cannot_carry_are_named_with_the_reason():
    reasons = checked(toy).to_report()["not_applicable"]
    assert "does not show its stored keys" in reasons["keys stay behind"]
    assert "embeddings" in reasons["later embeddings are felt"]
    assert outcomes(checked(toy))["caught"] >= 60


def test_a_decoder_without_memory_is_not_refused_for_faults_that_change_none_of_its_answers():
    reasons = checked(last_event_only).to_report()["not_applicable"]
    assert "newest event only" in reasons["the oldest event falls out"]
    assert outcomes(checked(last_event_only))["caught"] >= 30


def test_every_check_of_every_audit_has_a_fault_that_claims_it():
    claimed = {(fault.audit, check) for fault in FAULTS for check in fault.checks}
    assert {(limit.audit, limit.check) for limit in LIMITS} - claimed == set()


def test_every_claimed_check_has_a_limit_and_no_name_is_given_twice():
    claimed = {(fault.audit, check) for fault in FAULTS for check in fault.checks}
    assert claimed <= {(limit.audit, limit.check) for limit in LIMITS}
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []


def test_equivalent_mutants_are_named_and_seen_by_no_check():
    report = checked(gpt).to_report()
    assert set(NAMED_EQUIVALENT) < set(report["equivalent"])
    assert {"rows are copied twice", "the cached path recomputes everything"} <= set(report["equivalent"])
    assert report["false_alarms"] == []


def test_the_table_holds_a_line_for_every_fault_with_its_margin():
    table = checked(gpt).table()
    assert len(table) == len(FAULTS)
    caught = table[table["outcome"] == "caught"]
    assert (caught["margin"] > 0).sum() >= len(caught) - 5  # what is infinite has no margin
    assert (caught["value"].isna() | (caught["value"] > caught["limit"])).all()


NOTHING = Fault("changes nothing", "cache parity", "cache parity", ("single events",), lambda world: world)
BREAKS = replace(NOTHING, name="breaks the probe", plant=lambda world: replace(world, subject=None))
HARMLESS = replace(NOTHING, name="harmless", equivalent="it changes nothing")


def judged(fault: Fault, *, clean: float = 0.0, value: float = 0.0, own: float | None = None) -> Judged:
    own_check = () if own is None else (Measurement("single events", own, "logit", 5),)
    found = Measured((Measurement("tolerance", 1e-4, "logit", 9), *own_check))
    return self_check._judged(Planting(fault, "single events", value, 5, clean, 5), found, LIMIT_ROWS)


def test_a_fault_that_is_claimed_and_not_seen_is_missed():
    (one,) = plant_all(subject(), [NOTHING])
    found = self_check._judged(one, Measured((Measurement("tolerance", 1e-4, "logit", 9),)), LIMIT_ROWS)
    assert found.outcome == "missed"


def test_a_probe_that_breaks_on_the_planted_decoder_has_missed_it():
    (one,) = plant_all(subject(), [BREAKS])
    assert one.problem
    found = self_check._judged(one, Measured((Measurement("tolerance", 1e-4, "logit", 9),)), LIMIT_ROWS)
    assert (found.outcome, found.margin) == ("missed", None)


@pytest.mark.parametrize(
    ("fault", "numbers", "outcome"),
    [
        (NOTHING, {"value": 1.0}, "caught"),
        (NOTHING, {"value": float("nan")}, "caught"),
        (NOTHING, {"value": 1e-5}, "missed"),
        (NOTHING, {"value": 1.0, "clean": 1.0}, "false alarm"),
        (NOTHING, {"value": 1.0, "clean": 1.0, "own": 1.0}, "not applicable"),
        (HARMLESS, {"value": 1e-5}, "equivalent"),
        (HARMLESS, {"value": 1.0}, "false alarm"),
    ],
)
def test_what_became_of_a_fault_follows_from_two_values_and_a_limit(fault, numbers, outcome):
    assert judged(fault, **numbers).outcome == outcome


def test_a_dtype_whose_tolerance_is_wide_certifies_no_small_fault_by_value():
    wide = Measured((Measurement("tolerance", 0.2, "logit", 9),))
    coarse = limits_from({"largest_tolerance": 0.5}, self_check=True)
    small, large = (
        self_check._judged(Planting(NOTHING, "single events", value, 5, 0.0, 5), wide, coarse) for value in (0.01, 1.0)
    )
    assert (small.outcome, small.reason) == ("not applicable", self_check.TOO_WIDE)
    assert large.outcome == "caught"


SCORES = Fault("scores are off", "decoding", "decoding policy", ("beam score error",), lambda world: world)


@pytest.mark.parametrize(("coarse", "outcome"), [(False, "missed"), (True, "not applicable")])
def test_a_beams_score_rests_on_rounding_only_where_the_dtype_is_coarse(coarse, outcome):
    wide = limits_from({"decoding policy: beam score error": 0.5}, self_check=True)
    planting = Planting(SCORES, "beam score error", 0.02, 5, 0.0, 5)
    assert self_check._judged(planting, Measured(()), wide, coarse).outcome == outcome


@pytest.mark.slow
def test_in_16_bits_every_fault_that_rounding_does_not_drown_is_caught_too():
    """A sound decoder in bfloat16 must not be refused for what its own self-check cannot see."""
    coarse = subject(gpt, torch.bfloat16)
    noise = study(coarse).tolerance
    results = tuple(measured(audit, tolerance=noise) for audit in AUDITS)
    limits = limits_from({"largest_tolerance": 0.5, "decoding policy: beam score error": 0.5}, self_check=True)
    found = run_self_check(coarse, results, limits)
    assert [one.planting.fault.name for one in found.judged if one.outcome in ("missed", "false alarm")] == []
    assert outcomes(found)["caught"] >= 135
    reasons = {one.planting.fault.name: one.reason for one in found.judged if one.outcome == "not applicable"}
    assert "off by sixteen roundoffs" not in " ".join(reasons)
    assert all("does not depend" not in reason for reason in reasons.values())


def report_of(check: SelfCheck, audit: str) -> tuple[str, list[str], str]:
    results = with_self_check([measured(audit)], check)
    found = {one.audit: Measured(one.findings.measurements, dict(one.findings.not_applicable)) for one in results}
    only = replace(LIMIT_ROWS, rows=tuple(r for r in LIMIT_ROWS.rows if r.audit == audit and "planted" in r.check))
    judgement = judge(found, {"greedy": "greedy"}, {}, only)
    return judgement.to_report()["audits"][audit]["status"], judgement.failures, judgement.not_measured


def test_a_missed_fault_fails_the_audit_that_claimed_it_and_no_other():
    missed = SelfCheck((judged(NOTHING, value=0.0), judged(NOTHING, value=1.0)))
    status, failures, _ = report_of(missed, "cache parity")
    assert (status, failures) == ("failed", ["cache parity"])
    assert missed.measured("causality") == ((), {PLANTED_FAULTS_MISSED: self_check.NONE_PLANTED})


def test_a_false_alarm_counts_as_a_miss():
    (found,), _ = SelfCheck((judged(NOTHING, value=1.0, clean=1.0),)).measured("cache parity")
    assert (found.value, found.count) == (1, 1)


def test_a_self_check_that_breaks_leaves_every_audit_unmeasured():
    def broken(_: torch.dtype):
        raise RuntimeError("the device ran away")

    whole = subject()
    found = run_self_check(replace(whole, load=broken, decoder=None), RESULTS, LIMIT_ROWS)
    assert found.problem
    assert report_of(found, "cache parity")[0] == "not measured"
    assert found.to_report()["problem"] == found.problem


def test_a_run_without_self_check_says_so_and_is_judged_as_before():
    left_out = SelfCheck(ran=False)
    assert left_out.measured("numerics") == ((), {PLANTED_FAULTS_MISSED: self_check.LEFT_OUT})
    assert left_out.to_report()["ran"] is False


def test_faults_of_an_audit_that_did_not_measure_are_not_planted():
    stopped = AuditResult("causality", Findings(), 0.0, "stopped")
    found = run_self_check(subject(toy), [stopped, measured("event grammar")], LIMIT_ROWS)
    assert {one.planting.fault.audit for one in found.judged} == {"event grammar"}


def test_the_world_of_the_self_check_is_small_and_leaves_the_subject_alone():
    whole = subject()
    world = small_world(whole, tolerance=0.25)
    assert world.tolerance.tolerance == 0.25
    assert len(world.rows.sample) <= 4
    assert world.subject.load(torch.float32) is not world.subject.load(torch.float32)
    assert whole.max_new_events == subject().max_new_events
