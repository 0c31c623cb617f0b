"""Shifted targets and the loss: each event is scored once, by the position before it, and padding never."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from auditlib.decoders.targets import event_loss, shifted_targets

EVENTS = torch.tensor([[1, 3, 4, 2, 0, 0], [0, 1, 5, 2, 0, 0], [0, 0, 1, 6, 6, 2]])
VALID = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]).bool()


def logits_for(seed: int = 0, shape: tuple[int, ...] = (3, 6, 7)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_each_position_is_scored_against_the_event_after_it():
    targets, scored = shifted_targets(EVENTS, VALID)
    assert targets[scored].tolist() == [3, 4, 2, 5, 2, 6, 6, 2]
    assert scored.tolist() == [[1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0]]
    assert targets[~scored].sum() == 0


def test_a_row_without_padding_does_not_run_into_the_next_one():
    events = torch.tensor([[1, 3, 2], [1, 4, 2]])
    targets, scored = shifted_targets(events, torch.ones_like(events).bool())
    assert targets[scored].tolist() == [3, 2, 4, 2]


def right_shift(events, valid):
    return shifted_targets(events, valid)


def no_shift(events, valid):
    return events, valid


def double_shift(events, valid):
    targets, scored = shifted_targets(events, valid)
    return shifted_targets(targets, scored)


@pytest.mark.parametrize(("shift", "good"), [(right_shift, True), (no_shift, False), (double_shift, False)])
def test_only_the_right_shift_gives_a_perfect_predictor_no_loss(shift, good):
    targets, _ = shifted_targets(EVENTS, VALID)
    perfect = F.one_hot(targets, 7).double() * 50
    assert (float(event_loss(perfect, *shift(EVENTS, VALID))) < 1e-6) == good


def test_the_loss_is_the_mean_over_events():
    logits = logits_for()
    targets, scored = shifted_targets(EVENTS, VALID)
    one_by_one = [-logits[b, t].log_softmax(-1)[targets[b, t]] for b, t in scored.nonzero().tolist()]
    assert event_loss(logits, targets, scored).item() == pytest.approx(torch.stack(one_by_one).mean().item(), abs=1e-12)


@pytest.mark.parametrize("rubbish", [1e9, -3.0, float("nan"), float("inf")])
def test_logits_at_padding_change_neither_loss_nor_gradient_by_a_bit(rubbish):
    targets, scored = shifted_targets(EVENTS, VALID)
    found = []
    for spoil in (False, True):
        logits = logits_for()
        logits[~scored] = rubbish if spoil else 0.0
        logits.requires_grad_()
        loss = event_loss(logits, targets, scored)
        loss.backward()
        found.append((loss.detach(), logits.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][1][~scored].abs().sum() == 0


def gradient_of(parts: list[slice], denominator: float | None) -> torch.Tensor:
    """Gradient of rows of 11 and 101 events, computed in parts."""
    events = torch.randint(3, 7, (2, 101), generator=torch.Generator().manual_seed(3))
    valid = torch.arange(101) < torch.tensor([[11], [101]])
    weights = logits_for(1, (7, 7)).requires_grad_()
    for rows in parts:
        logits = F.one_hot(events[rows], 7).double() @ weights
        loss = event_loss(logits, *shifted_targets(events[rows], valid[rows]), denominator=denominator)
        (loss if denominator else loss / len(parts)).backward()
    return weights.grad


def test_accumulated_parts_have_the_gradient_of_one_batch_and_a_mean_of_means_has_not():
    whole = gradient_of([slice(0, 2)], None)
    parts = [slice(0, 1), slice(1, 2)]
    assert torch.allclose(gradient_of(parts, 110.0), whole, rtol=0, atol=1e-14)
    assert not torch.allclose(gradient_of(parts, None), whole, rtol=0, atol=1e-4)


def test_a_weighted_row_counts_like_that_many_rows():
    logits, (targets, scored) = logits_for(), shifted_targets(EVENTS, VALID)
    weighted = event_loss(logits, targets, scored * torch.tensor([[3.0], [1.0], [2.0]]))
    rows = torch.tensor([0, 0, 0, 1, 2, 2])
    assert weighted.item() == pytest.approx(event_loss(logits[rows], targets[rows], scored[rows]).item(), abs=1e-12)
