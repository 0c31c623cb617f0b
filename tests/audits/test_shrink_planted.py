"""Every planted fault of parity and causality shrinks to at most two rows and the least length at which it shows."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from auditlib.audits.counterexample import Case, Side, Step, alone
from auditlib.audits.counterexample_replay import replay
from auditlib.audits.counterexamples import counterexamples_for
from auditlib.audits.shrink import Shrinker, cost
from auditlib.audits.shrink_moves import Plain as Plainest
from auditlib.audits.shrink_moves import moves
from tests import planted
from tests.plain import Plain
from tests.subjects import SESSIONS, subject_of

torch.set_num_threads(1)
PLAIN = Plainest(0, 1, (3, 4))

# (fault, audit, check): rows and places (events and padding of a row), by reading the fault.
LEAST = {
    ("NoMask", "causality", "truncation in float64"): (1, 2),
    ("LastLayerNoMask", "causality", "exhaustive next event"): (1, 2),
    ("RowMean", "causality", "truncation in float64"): (1, 2),
    ("LengthScaled", "causality", "truncation in float64"): (1, 2),
    ("WidthScaled", "causality", "truncation in float64"): (1, 2),
    ("OneAhead", "causality", "exhaustive next event"): (1, 2),
    ("BlockMean", "causality", "exhaustive next event"): (1, 4),
    ("LongBlockMean", "causality", "exhaustive next event"): (1, 16),
    ("CircularFilter", "causality", "exhaustive next event"): (1, 2),
    ("KnowsOneEvent", "causality", "exhaustive next event"): (1, 2),
    ("KnowsTheEnd", "causality", "exhaustive next event"): (1, 2),
    ("SeesLaterFaintly", "causality", "exhaustive next event"): (1, 2),
    ("AppendNoMask", "causality", "later events in one append"): (1, 3),
    ("NotANumber", "causality", "not finite logits"): (1, 2),
    ("StaleKey", "cache parity", "single events"): (1, 3),
    ("PlaceRestarts", "cache parity", "one-event prefill"): (1, 2),
    ("PlaceFromHeads", "cache parity", "single events"): (1, 2),
    ("FirstKeyOnly", "cache parity", "single events"): (1, 2),
    ("WindowTooEarly", "cache parity", "single events"): (1, 12),
    ("EndIsTheMask", "cache parity", "single events"): (1, 2),
    ("EndIsTheMask", "cache parity", "chunks of 2, 3 and 5"): (1, 2),
    ("ChunkWrongCorner", "cache parity", "chunks of 2, 3 and 5"): (1, 3),
    ("AppendNoMask", "cache parity", "chunks of 2, 3 and 5"): (1, 3),
    ("LongChunkWrongCorner", "cache parity", "long chunks"): (1, 8),
    ("UniformAdvance", "cache parity", "uneven rows"): (2, 3),
    ("PadsCount", "cache parity", "padded left"): (1, 2),
    ("PadsSeen", "cache parity", "padded left"): (1, 2),
    ("PadsSeenLater", "cache parity", "padded right"): (1, 3),
    ("RowsMix", "cache parity", "padded left"): (2, 2),
    ("LastColumn", "cache parity", "padded right"): (1, 2),
    ("PadIdIsTheMask", "cache parity", "padded both sides"): (1, 2),
    ("OneRowDropsMask", "cache parity", "one padded row"): (1, 2),
    ("LastSlotLost", "cache parity", "exact boundary"): (1, 20),
    ("PlaceStops", "cache parity", "exact boundary"): (1, 11),
    ("NoRoomCheck", "cache parity", "accepted beyond the context"): (1, 21),
    ("OneTooMany", "cache parity", "accepted beyond the context"): (1, 21),
    ("ChecksShortest", "cache parity", "accepted beyond the context"): (2, 21),
    ("ChecksFirst", "cache parity", "accepted beyond the context"): (2, 21),
    ("DropKeepsFirst", "cache parity", "dropped rows"): (2, 3),
    ("NeverMoves", "cache parity", "dropped rows"): (2, 3),
    ("FirstLayerMoves", "cache parity", "reordered rows"): (2, 3),
    ("KeysMove", "cache parity", "reordered rows"): (2, 3),
    ("LengthsStay", "cache parity", "reordered rows"): (2, 3),
    ("MasksStay", "cache parity", "reordered rows"): (2, 3),
    ("CopiesShareSlots", "cache parity", "reordered rows"): (2, 3),
    ("NotANumber", "cache parity", "not finite logits"): (1, 2),
    ("Coarse", "cache parity", "single events in float64"): (1, 1),
    ("SlightlyOff", "cache parity", "single events in float64"): (1, 1),
}
# An additive mask is beaten only by keys and values that no event has: no call of contract 1 shows it.
NOT_SHOWN = {"SeesLater"}


def failed(audit: str, check: str) -> dict:
    """A report in which one check failed, under limits near those of these small decoders."""
    if check.endswith("float64"):
        limit, unit = (1e-9 if audit == "cache parity" else 1e-10), "relative"
    else:
        limit, unit = (2e-5, "logit") if audit == "cache parity" else (0.0, "changed logits")
    return {"audits": {audit: {"checks": [{"name": check, "status": "failed", "limit": limit, "unit": unit}]}}}


@pytest.mark.parametrize(("fault", "audit", "check"), sorted(LEAST), ids="-".join)
def test_a_planted_fault_shrinks_to_the_least_length_at_which_it_shows(fault, audit, check):
    kind = getattr(planted, fault)
    cases = counterexamples_for(subject_of(lambda dtype: kind(dtype=dtype)), failed(audit, check), seconds=120)
    (case,) = cases.values()
    assert (case.asked.rows, case.asked.places) == LEAST[fault, audit, check]
    dtype = getattr(torch, case.dtype)
    assert replay(case, kind(dtype=dtype)) == case.gap > case.limit
    assert not replay(case, Plain(dtype=dtype)) > case.limit or case.limit == 0


def test_every_planted_fault_of_the_two_audits_has_a_least_length():
    wanted = {(fault.__name__, audit) for audit, _, fault in planted.FAULTS if audit in ("causality", "cache parity")}
    listed = {(fault, audit) for fault, audit, _ in LEAST} | {(fault, "causality") for fault in NOT_SHOWN}
    assert {pair for pair in wanted if getattr(planted, pair[0]).__module__ == "tests.planted"} <= listed


@pytest.mark.slow
@pytest.mark.parametrize("audit", ["causality", "cache parity"])
def test_a_sound_decoder_has_no_counterexample_whatever_the_report_says(audit):
    checks = [check for _, where, check in LEAST if where == audit]
    for check in sorted(set(checks)):
        subject = subject_of(lambda dtype: Plain(dtype=dtype), sessions=SESSIONS[:1])
        assert counterexamples_for(subject, failed(audit, check), seconds=120) == {}


def _long_case() -> tuple[Case, Plain]:
    row, decoder = (1, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 3, 4, 5), planted.StaleKey()
    steps = (Step("prefill", (row[:2],), ((True, True),)), *(Step("extend", ((e,),), ((True,),)) for e in row[2:]))
    side = Side(steps, 0, 0)
    case = Case("cache parity", "single events", "x", "float32", "same", side, alone(side), 0.0, 2e-5)
    return dataclasses.replace(case, gap=replay(case, decoder)), decoder


def test_shrinking_the_same_case_twice_gives_the_same_case():
    case, decoder = _long_case()
    assert Shrinker(decoder, PLAIN).shrink(case) == Shrinker(decoder, PLAIN).shrink(case)


@pytest.mark.parametrize("limits", [{"seconds": 3.0}, {"replays": 3}], ids=["time", "trials"])
def test_when_time_or_trials_are_up_the_smallest_failing_case_so_far_is_given(limits):
    case, decoder = _long_case()
    ticks = iter(range(1_000_000))
    shrinker = Shrinker(decoder, PLAIN, clock=lambda: float(next(ticks)), **{"seconds": 1e9, **limits})
    small = shrinker.shrink(case)
    assert not shrinker.finished
    assert small.fails
    assert cost(small.asked, PLAIN) <= cost(case.asked, PLAIN)
    assert replay(small, decoder) == small.gap


def test_no_move_of_a_shrunk_case_fails_and_costs_less():
    case, decoder = _long_case()
    small = Shrinker(decoder, PLAIN).shrink(case)
    for move in moves(small.asked, PLAIN):
        side = move(small.asked)
        if side is not None and cost(side, PLAIN) < cost(small.asked, PLAIN) and side.prefix()[:1] == (1,):
            assert not replay(dataclasses.replace(small, asked=side, against=alone(side)), decoder) > small.limit
