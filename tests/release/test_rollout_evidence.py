"""What a log shows, what is wrong with it, and that nothing which is missing or doubtful ever promotes."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest

from auditlib.release.rollout_decision import decide
from auditlib.release.rollout_evidence import gather, read_evidence
from auditlib.serving.log_row import LogRow
from tests.release.rollout_world import (
    NEW,
    OLD,
    SECOND,
    STARTS,
    canary,
    live,
    now_after,
    plan,
    row,
    shadow,
    shown,
    stages,
    standing,
    us,
)  # fmt: skip

ALL = ("shadow", "canary 5", "canary 50")


def edited(rows, which, **changed):
    """The rows, with those changed for which `which` is true."""
    return [replace(one, **changed) if which(one) else one for one in rows]


def of(stage, arm="new", part=1):
    """Rows of a stage and arm, every `part`-th of them."""
    return lambda one: one.stage == stage and one.arm == arm and (number_of(one) + 1) % part == 0


def number_of(one):
    return int(one.request_id.rsplit("-", 1)[1])


@pytest.mark.parametrize("stage", ALL)
def test_a_sound_stage_is_promoted_to_the_next(stage):
    evidence, decision = shown(stages(stage), stage)
    assert decision.action == "promote"
    assert decision.to == plan().names[plan().names.index(stage) + 1]
    assert evidence.faults == {}


def test_after_the_release_nothing_more_is_promoted():
    assert shown(stages("released"), "released")[1].action == "hold"


@pytest.mark.parametrize("stage", ALL)
def test_the_order_of_rows_changes_nothing(stage):
    rows = stages(stage) + shadow(5)  # repeated rows too
    there = shown(rows, stage, now=now_after(rows))
    for seed in range(5):
        # shuffled in time order of writing apart: the clock check looks at the order within a file, so leave it out
        mixed = random.Random(seed).sample(rows, len(rows))
        tolerant = plan(whole={"clock_seconds": 1e6})
        assert shown(mixed, stage, tolerant, now_after(rows))[0] == shown(rows, stage, tolerant, now_after(rows))[0]
    assert there[1].action == "promote"


_BREAKS = {
    "request_id": "", "arrival": None, "start": None, "first_event": None, "end": None, "session": None, "arm": None,
    "stage": None, "artifact": None, "cache": None, "decoding": None, "prefix_length": None, "output_length": None,
    "batch_size": None, "stop": None, "valid": None, "mask_empty": None, "events_digest": None, "cache_bytes": None,
}  # fmt: skip
_OPTIONAL = {"rule", "shadow_events_digest", "first_differing_step", "margin", "largest_logit_gap", "fallback", "error"}


def test_every_column_is_either_broken_below_or_may_be_empty():
    assert set(_BREAKS) | _OPTIONAL == {field.name for field in fields(LogRow)}


@pytest.mark.parametrize("stage", ["shadow", "canary 5"])
@pytest.mark.parametrize("column", sorted(set(_BREAKS) - {"request_id"}))
@pytest.mark.parametrize("part", [1, 7])
def test_a_column_without_values_in_the_new_arm_never_promotes(stage, column, part):
    rows = stages(stage)
    assert (
        shown(edited(rows, of(stage, part=part), **{column: None}), stage, now=now_after(rows))[1].action != "promote"
    )


@pytest.mark.parametrize("stage", ALL)
def test_requests_without_an_id_never_promote(stage):
    rows = edited(stages(stage), of(stage), request_id="")
    assert shown(rows, stage)[1].action != "promote"


@pytest.mark.parametrize("stage", ALL)
@pytest.mark.parametrize("arm", ["new", "fallback"])
def test_a_missing_arm_never_promotes(stage, arm):
    rows = [one for one in stages(stage) if not (one.stage == stage and one.arm == arm)]
    assert shown(rows, stage)[1].action != "promote"


@pytest.mark.parametrize("stage", ALL)
def test_an_empty_log_never_promotes(stage):
    _, decision = shown([row(1, stage, "new", STARTS[stage])], stage)
    assert decision.action != "promote"
    empty = gather(live([]), plan(), standing(stage), us(10_000))
    assert empty.newest is None


@pytest.mark.parametrize(
    ("name", "rows", "state", "action", "said"),
    [
        ("too few", shadow(30), "shadow", "hold", "30 of 40"),
        ("never compared", edited(shadow(), of("shadow"), shadow_events_digest=None), "shadow", "hold", "compared"),
        ("other version", edited(stages("canary 5"), of("canary 5"), artifact=OLD), "canary 5", "pause", "old version"),
        ("unknown version", edited(stages("canary 5"), of("canary 5", part=5), artifact="sha256:x"), "canary 5",
         "pause", "unknown artifact"),
        ("unknown fallback", edited(stages("canary 5"), of("canary 5", "fallback", 5), artifact="sha256:x"), "canary 5",
         "pause", "unknown artifact"),
        ("ahead", stages("canary 50"), "canary 5", "pause", "outside what the chain allows"),
        ("before its stage", [*stages("canary 5"), row(1, "canary 5", "new", 690)], "canary 5", "pause", "outside"),
        ("no such stage", [*stages("canary 5"), row(1, "canary 99", "new", 1400)], "canary 5", "pause", "outside"),
        ("one request in both arms", [*stages("canary 5"), replace(row(3, "canary 5", "new", 1003), artifact=NEW)],
         "canary 5", "pause", "both arms"),
        ("all to the new arm", [*stages("canary 5"), *(row(n, "canary 5", "new", 1500) for n in range(900, 1100))],
         "canary 5", "pause", "not shared out"),
        ("rows of the fallback lost", [one for one in stages("canary 50")
                                       if not of("canary 50", "fallback", 3)(one)], "canary 50", "pause", "not shared"),
        ("half of the pairs lost", [one for one in shadow(120) if not of("shadow", "fallback", 2)(one)], "shadow",
         "hold", "one arm only"),
        ("errors", edited(stages("canary 50"), of("canary 50", part=9), error="none"), "canary 50", "roll back",
         "error against"),
        ("fallen back", edited(stages("canary 50"), of("canary 50", part=9), fallback="rejected cache"), "canary 50",
         "roll back", "error against"),
        ("answered by another", edited(stages("canary 50"), of("canary 50", part=9), fallback="down", artifact=OLD),
         "canary 50", "roll back", "error against"),
        ("broken rules", edited(stages("canary 50"), of("canary 50", part=9), valid=False, rule="init"), "canary 50",
         "roll back", "invalid against"),
        ("empty masks", edited(stages("canary 50"), of("canary 50", part=9), mask_empty=True), "canary 50", "roll back",
         "invalid against"),
        ("slow", edited(stages("canary 50"), of("canary 50", part=9), end=us(3900)), "canary 50", "roll back", "slow"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else None,
)  # fmt: skip
def test_each_fault_has_its_decision_and_its_words(name, rows, state, action, said):
    _, decision = shown(rows, state)
    assert decision.action == action, name
    assert any(said in reason for reason in decision.reasons), decision.reasons


@pytest.mark.parametrize(
    ("margin", "action"), [(0.0, "promote"), (0.002, "promote"), (0.0021, "roll back"), (-1.0, "roll back"),
                           (None, "roll back"), (float("nan"), "roll back"), (float("inf"), "roll back")],
)  # fmt: skip
def test_one_answer_that_differs_is_a_tie_up_to_twice_the_tolerance_and_else_the_end(margin, action):
    rows = stages("canary 5")
    difference = {"first_differing_step": 1, "margin": margin, "largest_logit_gap": 1e-4}
    rows[1] = replace(rows[1], shadow_events_digest="sha256:other", **difference)
    assert rows[1].arm == "new"
    evidence, decision = shown(rows, "canary 5")
    assert decision.action == action
    assert evidence.stages["shadow"].ties == (action == "promote")


@pytest.mark.parametrize("also", [{"fallback": None}, {"fallback": "x"}, {"shadow_events_digest": None}])
def test_telling_a_wrong_answer_again_as_a_right_one_does_not_hide_it(also):
    rows = stages("canary 5")
    wrong = replace(rows[1], shadow_events_digest="sha256:o", first_differing_step=0, margin=1.0, largest_logit_gap=1.0)
    for told in ([wrong, replace(rows[1], **also)], [replace(rows[1], **also), wrong]):
        assert shown([rows[0], *told, *rows[2:]], "canary 5")[1].action == "roll back"


def test_a_wrong_answer_is_not_hidden_by_a_clock_or_a_stage_that_is_wrong_too():
    rows = stages("canary 5")
    wrong = {"shadow_events_digest": "sha256:o", "first_differing_step": 0, "margin": 1.0, "largest_logit_gap": 1.0}
    for also in ({"arrival": us(1e7), "end": us(1e7)}, {"stage": "canary 50"}):
        assert shown([*rows[:1], replace(rows[1], **wrong, **also), *rows[2:]], "canary 5")[1].action != "promote"


def test_silence_about_an_answer_counts_as_an_error_of_its_arm():
    rows = edited(stages("canary 50"), of("canary 50", part=10), valid=None)
    evidence, decision = shown(rows, "canary 50")
    new = evidence.stages["canary 50"].new
    assert new.error == new.requests - new.whole > 0
    assert decision.action == "roll back"


def without_answer(rows, which, error):
    """The rows, with those changed for which `which` is true into ones without an answer."""
    empty = dict.fromkeys(("start", "first_event", "stop", "valid", "events_digest", "shadow_events_digest"))
    rest = {"cache": False, "cache_bytes": None, "batch_size": 0, "output_length": 0}
    return edited(rows, which, error=error, **empty, **rest)


@pytest.mark.parametrize("leaving", [0, 6, 12, 30])
def test_callers_who_leave_in_shadow_hide_no_error_of_the_new_arm(leaving):
    def within(first, last, arm):
        return lambda one: one.arm == arm and first <= number_of(one) % 100 < last

    sound = without_answer(shadow(600), within(100 - leaving, 100, "fallback"), "caller left")
    evidence, decision = shown(sound, "shadow")
    assert decision.action == "promote"
    counts, units = evidence.stages["shadow"], 600 - 6 * leaving
    assert (counts.new.units, counts.fallback.units) == (units, units)
    assert (counts.new.requests, counts.fallback.requests, counts.fallback.whole) == (600, units, units)
    assert (counts.new.error, counts.fallback.error, counts.unpaired) == (0, 0, 0)
    evidence, decision = shown(without_answer(sound, within(0, 6, "new"), "no answer"), "shadow")
    assert evidence.stages["shadow"].new.error == 36
    assert decision.action == "roll back"


def test_a_shadow_stage_whose_callers_all_leave_never_promotes():
    assert shown(without_answer(shadow(600), of("shadow", "fallback"), "caller left"), "shadow")[1].action == "hold"
    most = without_answer(shadow(100), lambda one: one.arm == "fallback" and number_of(one) >= 30, "caller left")
    assert "whole rows of the fallback arm: 30 of 40" in " ".join(shown(most, "shadow")[1].reasons)


def test_a_wrong_answer_counts_although_its_caller_left_in_shadow():
    rows = without_answer(shadow(), of("shadow", "fallback", 7), "caller left")
    wrong = {"shadow_events_digest": "sha256:o", "first_differing_step": 0, "margin": 1.0, "largest_logit_gap": 1.0}
    decision = shown(edited(rows, lambda one: one.arm == "new" and number_of(one) == 6, **wrong), "shadow")[1]
    assert decision.action == "roll back"


def test_an_arm_whose_callers_leave_in_a_canary_stage_is_the_worse_one():
    rows = without_answer(stages("canary 50"), of("canary 50", part=9), "caller left")
    evidence, decision = shown(rows, "canary 50")
    assert evidence.stages["canary 50"].new.error > 0
    assert decision.action == "roll back"


def test_rows_told_twice_count_once():
    rows = stages("canary 5")
    once, twice = shown(rows, "canary 5"), shown([*rows, *rows], "canary 5", plan(whole={"clock_seconds": 1e6}))
    assert once[0].stages == twice[0].stages
    assert twice[0].notes == {"repeated rows": len(rows)}
    assert twice[1].action == "promote"


def test_rows_told_in_two_ways_hold_the_stage_and_the_worse_telling_counts():
    rows = shadow()
    again = edited(rows, of("shadow"), valid=False, rule="init")
    evidence, decision = shown([*rows, *again], "shadow", plan(whole={"clock_seconds": 1e6}))
    assert evidence.stages["shadow"].conflicts == 60
    assert evidence.stages["shadow"].new.invalid == 60
    assert decision.action == "roll back"
    told = edited(rows[:20], of("shadow"), end=us(50))
    assert "more than one way" in " ".join(
        shown([*rows, *told], "shadow", plan(whole={"clock_seconds": 1e6}))[1].reasons
    )


def test_a_clock_that_jumps_back_holds_the_stage():
    rows = canary("canary 5", 25, 475)
    back = 600 * SECOND
    times = ("arrival", "start", "first_event", "end")
    jumped = [replace(one, **{name: getattr(one, name) - back for name in times}) for one in rows[300:]]
    jumped = [*rows[:300], *jumped]
    evidence, _ = shown([*shadow(), *jumped], "canary 5")
    assert evidence.stages["canary 5"].clock == 1
    within = edited(rows, of("canary 5", part=3), end=us(0))
    evidence, decision = shown([*shadow(), *within], "canary 5")
    assert evidence.stages["canary 5"].clock > 1
    assert decision.action != "promote"


def test_rows_from_the_future_prove_nothing():
    rows = stages("canary 5")
    later = edited(rows, of("canary 5", part=2), arrival=us(2e6), start=None, first_event=None, end=us(2e6))
    evidence, decision = shown(later, "canary 5")
    assert evidence.faults["row from the future"] > 0
    assert decision.action == "pause"


def test_rows_of_a_stage_that_is_over_are_late_and_hold_when_there_are_many():
    late = [row(n, "canary 5", "fallback", 3400 + n, artifact=OLD) for n in range(1000, 1100)]
    evidence, decision = shown([*stages("canary 50"), *late], "canary 50")
    assert evidence.stages["canary 5"].late == 100
    assert decision.action != "promote"


def test_an_old_log_does_not_promote():
    rows = stages("canary 5")
    _, decision = shown(rows, "canary 5", now=now_after(rows) + 3601 * SECOND)
    assert decision.action == "hold"
    assert "newer" in " ".join(decision.reasons)


def test_a_gap_in_the_log_is_doubted_until_a_person_accepts_it():
    rows = stages("canary 5")
    short = plan(whole={"longest_gap_seconds": 30})
    gap = [one for one in rows if not 1200 < (one.arrival - us(0)) / SECOND < 1260]
    evidence, decision = shown(gap, "canary 5", short)
    assert evidence.faults == {"gap in the log of canary 5": 1}
    assert decision.action == "pause"
    assert shown(gap, "canary 5", short, accepted=evidence.faults)[1].action == "promote"


def test_a_gap_that_was_accepted_in_one_stage_excuses_none_in_the_next():
    short = plan(whole={"longest_gap_seconds": 30})
    early = [one for one in shadow(120) if not us(50) < one.arrival < us(90)]
    accepted = shown(early, "shadow", short)[0].faults
    assert list(accepted.values()) == [1]
    assert shown(early, "shadow", short, accepted=accepted)[1].action == "promote"
    later = [*early, *canary("canary 5", 25, 475)]
    assert shown(later, "canary 5", short, accepted=accepted)[1].action == "promote"
    again = [one for one in later if not us(1200) < one.arrival < us(1260)]
    evidence, decision = shown(again, "canary 5", short, accepted=accepted)
    assert decision.action == "pause"
    # What was signed before gaps bore the name of their stage is decided again as it was then.
    signed = read_evidence({**evidence.to_json(), "faults": {"gap in the log": 1}})
    then = standing("canary 5", accepted={"gap in the log": 1})
    assert decide(short, then, signed).action == "promote"


def test_a_log_with_a_file_that_is_not_finished_does_not_promote():
    rows = replace(live(stages("canary 5")), unfinished=1)
    evidence = gather(rows, plan(), standing("canary 5"), now_after(stages("canary 5")))
    decision = decide(plan(), standing("canary 5"), evidence)
    assert decision.action == "hold"
    assert "not written to their end" in " ".join(decision.reasons)


def test_where_the_fallback_is_the_full_prefix_its_rows_are_told_by_their_cache():
    rows = [replace(one, artifact=NEW) for one in stages("canary 5")]
    assert shown(rows, "canary 5", fallback="full-prefix")[1].action == "promote"
    cached = edited(rows, of("canary 5", "fallback", 9), cache=True, cache_bytes=1)
    assert shown(cached, "canary 5", fallback="full-prefix")[1].action == "pause"


def test_after_a_roll_back_an_answer_of_the_new_arm_is_said_aloud():
    entered = {**standing("canary 5").entered, "rolled back": us(1600)}
    rows = stages("canary 5")
    assert shown(rows, "rolled back", entered=entered)[1].action == "hold"
    after = [*rows, row(9000, "canary 5", "new", 2000)]
    _, decision = shown(after, "rolled back", entered=entered)
    assert decision.action == "pause"
    assert "outside what the chain allows" in " ".join(decision.reasons)


def test_sessions_that_meet_a_second_stage_are_counted_in_the_first_alone():
    by_session = plan(assignment="session")
    rows = stages("canary 50")
    evidence, _ = shown(rows, "canary 50", by_session)
    # sessions s0 to s499 were met at 5 % already
    assert evidence.stages["canary 50"].new.units + evidence.stages["canary 50"].fallback.units == 300
    assert evidence.stages["canary 50"].new.requests + evidence.stages["canary 50"].fallback.requests == 800


def test_evidence_reads_back_as_it_was_written_and_refuses_what_is_no_count():
    evidence, _ = shown(stages("canary 5"), "canary 5")
    document = evidence.to_json()
    assert read_evidence(document) == evidence
    for name in ("now", "rows", "unread", "unfinished"):
        for value in (-1, 1.5, None, True, "1", 10**400):
            with pytest.raises(ValueError, match="whole number"):
                read_evidence({**document, name: value})
    with pytest.raises((ValueError, TypeError, KeyError)):
        read_evidence({name: value for name, value in document.items() if name != "faults"})
