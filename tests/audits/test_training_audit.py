"""The training audit: broken losses, decoders that learnt another shift, dropout, and leaking splits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from auditlib.audits import loss_probes
from auditlib.audits.shift import ShiftStudy
from auditlib.audits.training import TRAINING
from auditlib.decoders.targets import event_loss, shifted_targets
from auditlib.sessions.session import Session
from auditlib.sessions.split import LeakageReport
from tests.doubles import ToyDecoder
from tests.plain import Plain
from tests.subjects import MAP, gpt, over_limit, subject_of, values

CLEAN = LeakageReport(("session", "customer"), 20, 6, 0, 0, 0, 0, 0, 3, 0, 0, {"customer": 0}, (4, 2))


def toy(dtype):
    return ToyDecoder(vocabulary_size=MAP.size, context_length=20, dtype=dtype)


# -- the loss --------------------------------------------------------------------------------------------


def unshifted(events, valid):
    return events, valid


def shifted_twice(events, valid):
    targets, scored = shifted_targets(events, valid)
    again, scored_again = shifted_targets(targets, scored)
    return again, scored_again


def shifted_across_rows(events, valid):
    """Flattened before the shift: a row's last event is scored against its neighbour's first."""
    flat = torch.cat([events.flatten()[1:], events.flatten()[:1]])
    return flat.view_as(events), valid


def shifted_into_padding(events, valid):
    targets, _ = shifted_targets(events, torch.ones_like(valid))
    return torch.where(valid.roll(-1, 1), events.roll(-1, 1), targets), torch.ones_like(valid)


def mean_of_its_own(logits, targets, weight, *, denominator=None):
    """Each part of an accumulation divides by its own weight; short rows count more."""
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    return (losses * weight).sum() / weight.sum() / 2


def counts_everything(logits, targets, weight, *, denominator=None):
    """Padding is scored as if it were the event 0."""
    return event_loss(logits, targets, torch.ones_like(weight), denominator=denominator)


def touches_padding(logits, targets, weight, *, denominator=None):
    """Right but for a regulariser over all logits, padding included."""
    return event_loss(logits, targets, weight, denominator=denominator) + 1e-9 * logits.square().mean()


@pytest.mark.parametrize(
    ("shift", "loss"),
    [
        (unshifted, event_loss),
        (shifted_twice, event_loss),
        (shifted_across_rows, event_loss),
        (shifted_into_padding, event_loss),
        (shifted_targets, counts_everything),
    ],
    ids=lambda function: function.__name__,
)
def test_a_loss_that_scores_the_wrong_events_is_seen(shift, loss):
    assert loss_probes.shift_error(shift, loss)[0] > 1e-3


@pytest.mark.parametrize(
    ("shift", "loss"),
    [(shifted_targets, counts_everything), (shifted_targets, touches_padding), (shifted_into_padding, event_loss)],
    ids=lambda function: function.__name__,
)
def test_a_loss_that_feels_padding_is_seen(shift, loss):
    assert loss_probes.padding_effect(shift, loss)[0] > 0


def test_a_mean_of_means_is_seen_in_an_accumulation():
    assert loss_probes.accumulation_error(shifted_targets, mean_of_its_own)[0] > 0.1


def test_the_loss_that_decoders_are_trained_with_passes_each_probe():
    assert loss_probes.shift_error(shifted_targets, event_loss)[0] == 0
    assert loss_probes.padding_effect(shifted_targets, event_loss)[0] == 0
    assert loss_probes.accumulation_error(shifted_targets, event_loss)[0] < 1e-9


@pytest.mark.parametrize(
    ("name", "shift", "loss", "check"),
    [
        ("shifted_targets", shifted_twice, event_loss, "target shift"),
        ("event_loss", shifted_targets, touches_padding, "padding in the loss"),
        ("event_loss", shifted_targets, mean_of_its_own, "accumulation"),
    ],
)
def test_the_audit_refuses_a_broken_loss_under_its_right_name(monkeypatch, name, shift, loss, check):
    monkeypatch.setattr("auditlib.audits.training." + name, shift if name == "shifted_targets" else loss)
    assert check in over_limit(TRAINING, TRAINING.measure(subject_of(toy)))


# -- the decoder -----------------------------------------------------------------------------------------


def predicted(row, shift, certainty):
    """Logits [T, 8] that give the event `shift` places on `certainty` above the rest."""
    told = [row[min(place + shift, len(row) - 1)] for place in range(len(row) - 1)]
    return certainty * F.one_hot(torch.tensor(told), 8).double()


def chain(stay, rows=60, seed=0):
    """Rows of a sticky Markov chain over events 3 to 7, and its transition matrix."""
    generator = torch.Generator().manual_seed(seed)
    moves = torch.full((5, 5), 0.0) + torch.eye(5).roll(1, 1) * (1 - stay) * 0.8 + (1 - stay) * 0.2 / 5
    moves += torch.eye(5) * (1 - moves.sum(1, keepdim=True))
    found = []
    for _ in range(rows):
        row = [1, 3 + int(torch.randint(5, (1,), generator=generator))]
        while len(row) < 12:
            row.append(3 + int(torch.multinomial(moves[row[-1] - 3], 1, generator=generator)))
        found.append((*row, 2))
    return found, moves


@pytest.mark.parametrize("stay", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("sharpness", [0.1, 0.5, 1.0, 3.0])
def test_a_decoder_of_the_true_chances_is_never_said_to_be_shifted_however_sharp_or_shy(stay, sharpness):
    """In sticky logs the current event is told better than the next one, by sound decoders too."""
    study = ShiftStudy()
    rows, moves = chain(stay)
    for row in rows:
        chances = [moves[event - 3].clamp(min=1e-4) if event > 2 else torch.full((5,), 0.2) for event in row[:-1]]
        logits = torch.full((len(row) - 1, 8), -9.0)
        logits[:, 3:] = torch.stack(chances).log()
        logits[-1, 2] = 5.0
        study.add(sharpness * logits, row, 1)
    assert study.wrong_by() == (0.0, 1)


@pytest.mark.parametrize("stay", [0.0, 0.5])
@pytest.mark.parametrize("shift", [0, 2, 3])
def test_a_decoder_that_learnt_another_shift_is_seen_with_the_shift(stay, shift):
    study = ShiftStudy()
    for row in chain(stay)[0]:
        study.add(predicted(row, shift, 6.0), row, 1)
    by, found = study.wrong_by()
    assert found == shift
    assert by > 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_random_logits_are_no_shift(seed):
    study = ShiftStudy()
    generator = torch.Generator().manual_seed(seed)
    for row in chain(0.3, rows=8, seed=seed)[0]:
        study.add(2 * torch.randn(len(row) - 1, 8, generator=generator), row, 1)
    assert study.wrong_by() == (0.0, 1)


@pytest.mark.parametrize("make", [toy, gpt, lambda dtype: Plain(dtype=dtype)], ids=["toy", "event_gpt", "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_sound_decoder_on_a_clean_split_stays_within_every_limit(make, dtype):
    findings = TRAINING.measure(subject_of(make, dtype))
    assert over_limit(TRAINING, findings) == set()


def test_a_table_of_the_held_out_sessions_reaches_the_ceiling_and_not_beyond():
    """The best that prefixes allow is honest; ties may fall either way."""
    subject = subject_of(toy)
    rows = [subject.row(session) for session in subject.held_out]

    def counts(prefix):
        found = [0.0] * MAP.size
        for row in rows:
            if row[: len(prefix)] == prefix and len(row) > len(prefix):
                found[row[len(prefix)]] += 1.0
        return found

    findings = TRAINING.measure(subject_of(lambda dtype: ToyDecoder(MAP.size, 20, dtype, logits=counts)))
    assert values(findings)["held-out accuracy"] == pytest.approx(values(findings)["ceiling"])
    assert over_limit(TRAINING, findings) == set()


# -- the split -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("report", "over"),
    [
        (CLEAN, set()),
        (replace(CLEAN, shared_sessions=1), {"sessions on both sides"}),
        (replace(CLEAN, crossing_keys={"customer": 2, "asset": 1}), {"keys crossing the split"}),
        (replace(CLEAN, duplicate_sequences=6, shared_customers=6), set()),
    ],
)
def test_what_crosses_the_split_is_counted_and_repetition_is_not_leakage(report, over):
    subject = replace(subject_of(toy), leakage=report)
    assert over_limit(TRAINING, TRAINING.measure(subject)) == over


def test_a_split_nobody_reported_on_is_not_measured():
    found = values(TRAINING.measure(subject_of(toy)))
    assert {"sessions on both sides", "keys crossing the split"}.isdisjoint(found)


def test_figures_that_the_revision_states_are_shown_and_absent_ones_are_said_to_be_absent():
    record = {"lookup_accuracy": 0.7, "lookup_nll": math.nan, "accuracy_without_duplicates": "high"}
    findings = TRAINING.measure(replace(subject_of(toy), training_record=record))
    assert values(findings)["look-up accuracy"] == 0.7
    assert {"look-up nll", "accuracy without duplicates"} == set(findings.not_applicable)
    assert "look-up table" in set(findings.tables["baselines"]["name"])


def test_sessions_without_events_leave_nothing_to_predict_and_no_false_figure():
    findings = TRAINING.measure(subject_of(toy, sessions=(Session("empty", ()),)))
    assert "held-out accuracy" not in values(findings)
    assert "accuracy above the ceiling" not in values(findings)
