"""Shifted targets and the loss over them: each position is scored against the event after it, and padding never.

Shapes: B rows, T positions, V events.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def shifted_targets(events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Targets int64 [B, T] and where there is one, bool [B, T].

    Position t has the target `events[:, t + 1]` when both are valid; each row's last valid event has none. Shifting
    happens here and nowhere else, before any flattening, so no row's first event becomes its neighbour's target.
    """
    targets = torch.zeros_like(events)
    scored = torch.zeros_like(valid)
    scored[:, :-1] = valid[:, :-1] & valid[:, 1:]
    targets[:, :-1] = events[:, 1:].where(scored[:, :-1], 0)
    return targets, scored


def event_loss(logits: Tensor, targets: Tensor, weight: Tensor, *, denominator: float | None = None) -> Tensor:
    """Cross entropy in nats of logits [B, T, V], weighted by `weight` [B, T] and divided by the whole weight.

    Give the weight of a whole accumulation as `denominator`, so that its parts add up to the loss of one big batch:
    a mean of their means would count an event of a short row more. Logits where the weight is 0 are never read.
    """
    scored = weight > 0
    losses = F.cross_entropy(logits[scored].double(), targets[scored], reduction="none")
    whole = weight.sum().double() if denominator is None else denominator
    return (losses * weight[scored]).sum() / whole
