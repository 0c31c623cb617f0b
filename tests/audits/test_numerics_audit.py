"""Numerics: ratios that chance explains, ties that are no decisions, and what a dtype can certify."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.audits.decisions import Decisions
from auditlib.audits.numerics import NUMERICS
from auditlib.audits.rounding import Errors, SessionRatio
from auditlib.errors import DecoderError
from tests.doubles import ToyDecoder
from tests.plain import Plain
from tests.planted import FirstKeyOnly
from tests.subjects import MAP, gpt, missing, over_limit, subject_of, values


def toy(dtype):
    return ToyDecoder(vocabulary_size=MAP.size, context_length=20, dtype=dtype)


@pytest.mark.parametrize("make", [toy, gpt], ids=["toy", "event_gpt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_sound_decoder_is_as_exact_as_its_dtype_allows(make, dtype):
    findings = NUMERICS.measure(subject_of(make, dtype))
    assert over_limit(NUMERICS, findings) == set()
    assert missing(NUMERICS, findings) == set()
    assert ("pooled ratio" in values(findings)) == (dtype != torch.float64)


def test_without_float64_only_decisions_are_left():
    def load(dtype):
        raise DecoderError("none")

    findings = NUMERICS.measure(subject_of(lambda dtype: Plain(dtype=dtype), load=load))
    assert {"logic in float64", "sessions above ratio 1.25", "pooled ratio"} == set(findings.not_applicable)
    assert missing(NUMERICS, findings) == set()
    faulty = NUMERICS.measure(subject_of(lambda dtype: FirstKeyOnly(dtype=dtype), load=load))
    assert over_limit(NUMERICS, faulty) == {"decisions that differ"}


def test_the_sessions_table_has_every_distinct_session_with_the_number_that_share_it():
    subject = subject_of(gpt)
    sessions = NUMERICS.measure(subject).tables["sessions"]
    rows = ["-".join(map(str, subject.row(session)[:-1])) for session in subject.held_out]
    assert sorted(sessions["events"]) == sorted(set(rows))
    assert sessions["weight"].sum() == len(rows)


@pytest.mark.parametrize(
    ("cached", "full", "low", "high"),
    [(0.0, 0.0, 1, 1), (1e-6, 1e-6, 0.99, 1.01), (2e-6, 1e-6, 1.9, 2.1), (1e-3, 0.0, 1e3, math.inf)],
)
def test_the_ratio_compares_errors_and_two_exact_paths_are_equal(cached, full, low, high):
    exact = torch.ones(1, 3, 4, dtype=torch.float64)
    errors = Errors(6e-8)
    errors.add([(1, 2, 3)], exact + cached, exact + full, exact)
    pooled, positions = errors.pooled()
    assert low <= pooled <= high
    assert positions == 3


def test_a_ratio_of_something_that_is_no_number_is_infinite():
    exact = torch.ones(1, 2, 4)
    errors = Errors(6e-8)
    errors.add([(1, 2)], exact * math.nan, exact, exact)
    assert errors.pooled()[0] == math.inf
    assert next(errors.of([(1,)])).above(1.25)


@pytest.mark.parametrize(
    ("length", "ratio", "above"),
    [(2, 2.0, False), (2, 5.0, True), (50, 1.4, False), (50, 1.6, True), (9, math.nan, True)],
)
def test_a_short_session_needs_a_larger_ratio_to_count(length, ratio, above):
    assert SessionRatio((1,) * length, ratio, 0.0, length).above(1.25) is above


@pytest.mark.parametrize(("full", "carriers"), [((1e-6, 1e-6, 1e-6, 1e-6), 4), ((1e-4, 0, 0, 0), 1), ((0, 0, 0, 0), 4)])
def test_positions_count_by_how_much_of_the_full_paths_error_they_carry(full, carriers):
    exact = torch.ones(1, 4, 3, dtype=torch.float64)
    errors = Errors(6e-8)
    errors.add([(1, 2, 3, 4)], exact + 1e-6, exact + torch.tensor(full)[None, :, None], exact)
    assert next(errors.of([(1, 2, 3, 4)])).carriers == pytest.approx(carriers, rel=0.01)


def test_a_fault_of_the_cached_path_does_not_widen_what_it_is_held_against():
    exact = torch.ones(1, 4, 3, dtype=torch.float64)
    sound, faulty = Errors(6e-8), Errors(6e-8)
    sound.add([(1, 2, 3, 4)], exact + 1e-6, exact + 1e-6, exact)
    faulty.add([(1, 2, 3, 4)], exact + torch.tensor([0, 0, 0, 1.0])[None, :, None], exact + 1e-6, exact)
    one, other = next(sound.of([(1, 2, 3, 4)])), next(faulty.of([(1, 2, 3, 4)]))
    assert one.carriers == other.carriers
    assert other.above(1.25)
    assert not one.above(1.25)


def test_beginnings_of_a_row_have_the_errors_of_their_own_positions():
    exact = torch.zeros(1, 3, 2, dtype=torch.float64)
    cached, full = exact.clone(), exact + 1.0
    cached[0, 2] = 9.0
    errors = Errors(0.0)
    errors.add([(1, 5, 6)], cached, full, exact)
    short, whole = errors.of([(1, 5), (1, 5, 6)])
    assert short.ratio == 0.0
    assert whole.ratio == pytest.approx(math.sqrt(81 / 3))
    assert (short.gap, whole.gap) == (1.0, 8.0)


@pytest.mark.parametrize(
    ("exact", "cached", "different", "ties"),
    [
        ([3.0, 1.0, 0.0, -1.0, -5.0], [3.0, 1.0, 0.0, -1.0, -5.0], 0, 0),
        ([3.0, 1.0, 0.0, -1.0, -5.0], [1.0, 3.0, 0.0, -1.0, -5.0], 1, 0),
        ([3.0, 1.0, 0.0, -1.0, -5.0], [3.0, 1.0, -1.0, 0.0, -5.0], 1, 0),
        ([3.0, 2.99, 0.0, -1.0, -5.0], [2.99, 3.0, 0.0, -1.0, -5.0], 0, 1),
        ([3.0, 1.0, 0.0, -0.01, -5.0], [3.0, 1.0, -0.01, 0.0, -5.0], 0, 1),
    ],
)
def test_choices_are_compared_where_they_are_no_ties(exact, cached, different, ties):
    decisions = Decisions()
    decisions.add(torch.tensor([cached]), torch.tensor([exact]), margin=0.1)
    assert (decisions.different, decisions.ties, decisions.compared) == (different, ties, 2 - ties)


def test_divergence_is_zero_for_equal_logits_and_infinite_for_nan():
    decisions = Decisions()
    decisions.add(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0]]), 0.0)
    assert decisions.divergence == pytest.approx(0.0, abs=1e-12)
    decisions.add(torch.tensor([[math.nan, 2.0]]), torch.tensor([[1.0, 2.0]]), 0.0)
    assert decisions.divergence == math.inf
