"""Probes of the loss that decoders are trained with: its shift, its padding, and its sums over an accumulation.

They take the functions that they probe, so that a broken one can be put in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Shift = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Events and valid [B, T] → targets and weights [B, T]."""

_EVENTS = 7
_LENGTHS = (2, 6, 3, 9, 1)  # the last row has nothing to predict: a mean over rows divides by zero there
_ROUNDING = 1e-12  # nats in float64: two orders of one sum differ by less


class Loss(Protocol):
    """Cross entropy in nats per event."""

    def __call__(self, logits: Tensor, targets: Tensor, weight: Tensor, *, denominator: float | None = None) -> Tensor:
        """Loss of logits [B, T, V]."""


def shift_error(shift: Shift, loss: Loss) -> tuple[float, int]:
    """How far the loss (nats) is from one written down by hand, in which position t is scored against event t + 1.

    A double shift, no shift, or a row's first event as its neighbour's last target each move it. Rounding counts as 0.
    """
    worst, count = 0.0, 0
    for side in ("right", "left"):
        events, valid, logits = _batch(side)
        apart = abs(float(loss(logits, *shift(events, valid))) - _by_hand(events, valid, logits))
        worst = max(worst, math.inf if math.isnan(apart) else apart)
        count += int(valid.sum())
    return (worst if worst > _ROUNDING else 0.0), count


def padding_effect(shift: Shift, loss: Loss) -> tuple[float, int]:
    """Largest change of loss or gradient (nats) when padding changes, in its logits and in the ids that stand there."""
    worst, count = 0.0, 0
    for side in ("right", "left"):
        events, valid, logits = _batch(side)
        other_logits = torch.where(valid[..., None], logits, logits.flip(-1) * 5 + 1)
        other_events = torch.where(valid, events, (events + 3) % _EVENTS)
        base = _loss_and_gradient(shift, loss, events, valid, logits)
        for changed in ((events, other_logits), (other_events, logits)):
            found = _loss_and_gradient(shift, loss, changed[0], valid, changed[1])
            worst = max([worst, *(_apart(one, other) for one, other in zip(base, found, strict=True))])
            count += int((~valid).sum())
        # A gradient that is NaN made the differences above infinite already: `max` loses nothing here.
        worst = max(worst, float(base[1][~valid].abs().max()))
    return worst, count


def accumulation_error(shift: Shift, loss: Loss) -> tuple[float, int]:
    """Relative difference of gradients: rows of 11 and 101 events in one batch, and accumulated one by one."""
    generator = torch.Generator().manual_seed(11)
    # So unlike in length that a mean of two means is far from the mean of all events.
    rows = [torch.randint(_EVENTS, (1, length), generator=generator) for length in (11, 101)]
    whole = torch.zeros(2, 101, dtype=torch.int64)
    valid = torch.zeros(2, 101, dtype=torch.bool)
    for index, row in enumerate(rows):
        whole[index, : row.shape[1]], valid[index, : row.shape[1]] = row[0], True
    weights = torch.randn(_EVENTS, _EVENTS, generator=generator, dtype=torch.float64)
    together = _gradient(shift, loss, weights, [(whole, valid)])
    apart = _gradient(shift, loss, weights, [(row, torch.ones_like(row, dtype=torch.bool)) for row in rows])
    return _apart(together, apart) / float(together.abs().max()), int(valid.sum())


def _gradient(shift: Shift, loss: Loss, weights: Tensor, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Gradient of a bigram model's weights [V, V] over an accumulation of batches."""
    weights = weights.clone().requires_grad_()
    targets = [shift(events, valid) for events, valid in parts]
    denominator = float(sum(weight.sum() for _, weight in targets))
    for (events, _), (wanted, weight) in zip(parts, targets, strict=True):
        loss(weights[events], wanted, weight, denominator=denominator).backward()  # type: ignore[no-untyped-call]
    return weights.grad if weights.grad is not None else torch.full_like(weights, torch.nan)


def _loss_and_gradient(
    shift: Shift, loss: Loss, events: Tensor, valid: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss, and its gradient by the logits of valid positions."""
    logits = logits.clone().requires_grad_()
    value = loss(logits, *shift(events, valid))
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


def _batch(side: str) -> tuple[Tensor, Tensor, Tensor]:
    """Random events, validity and float64 logits of rows of mixed lengths, padded on one side."""
    generator = torch.Generator().manual_seed(7)
    width = max(_LENGTHS)
    places, lengths = torch.arange(width), torch.tensor(_LENGTHS)[:, None]
    valid = places < lengths if side == "right" else places >= width - lengths
    events = torch.randint(_EVENTS, valid.shape, generator=generator)
    logits = torch.randn(*valid.shape, _EVENTS, generator=generator, dtype=torch.float64)
    return events, valid, logits


def _by_hand(events: Tensor, valid: Tensor, logits: Tensor) -> float:
    losses = []
    for row, keep, scores in zip(events, valid, logits, strict=True):
        own, guesses = row[keep], F.log_softmax(scores[keep], -1)
        losses += [-float(guesses[place, own[place + 1]]) for place in range(len(own) - 1)]
    return sum(losses) / len(losses)


def _apart(left: Tensor, right: Tensor) -> float:
    apart = float((left - right).abs().max())
    return math.inf if math.isnan(apart) else apart
