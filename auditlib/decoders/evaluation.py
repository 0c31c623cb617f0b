"""How well next events are predicted: from a session's first event on, its end included, over every prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.decoders.rows import Row, distinct, in_batches, padded
from auditlib.decoders.targets import shifted_targets
from auditlib.errors import DecoderError

_POSITIONS = 16_384
_LOGITS = 1 << 22  # numbers at once, several times over while they are worked on

Predict = Callable[[Tensor, Tensor], Tensor]
"""(events [B, T], valid [B, T]) → logits [B, T, V]."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean negative log-likelihood in nats and share of right predictions, over `events` predictions."""

    nll: float
    accuracy: float
    events: int


def evaluate(decoder: Decoder, rows: Sequence[Sequence[int]]) -> Evaluation:
    """How well `decoder` predicts the events of `rows` (ids from start to end); each distinct row is computed once.

    ContextExceededError when a row does not fit the context.
    """
    device = getattr(decoder, "device", torch.device("cpu"))

    def predict(events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] on the CPU, whatever the decoder's device."""
        return decoder.full(events.to(device), valid.to(device)).cpu()

    return evaluate_distinct(predict, distinct(rows), decoder.vocabulary_size)


def evaluate_distinct(predict: Predict, counted: dict[Row, int], vocabulary: int) -> Evaluation:
    """As `evaluate`, of distinct rows with their weights; batches are smaller where the vocabulary is large."""
    sums = torch.zeros(3, dtype=torch.float64)
    predictable = {row: weight for row, weight in counted.items() if len(row) > 2}
    for batch in in_batches(predictable, min(_POSITIONS, _LOGITS // vocabulary)):
        weight = torch.tensor([counted[row] for row in batch], dtype=torch.float64)
        sums += _sums(predict, batch, weight)
    if not sums[2]:
        raise DecoderError("no held-out session has an event to predict; evaluate on sessions with at least one event")
    return Evaluation(float(sums[0] / sums[2]), float(sums[1] / sums[2]), int(sums[2]))


def _sums(predict: Predict, batch: list[Row], weight: Tensor) -> Tensor:
    """Weighted sums over a batch's predictions: negative log-likelihood, right ones, their number."""
    events, valid = padded(batch)
    targets, scored = shifted_targets(events, valid)
    scored[:, 0] = False  # what follows the start token alone is not part of the metric
    # Rows are padded on the right: shifted by one, `valid` leaves out each row's end, which is predicted, never read.
    logits = predict(events[:, :-1], valid[:, 1:]).double()[scored[:, :-1]]  # [M, V]
    wanted = targets[scored]
    weights = weight[:, None].expand(events.shape)[scored]
    chances = logits.log_softmax(-1).gather(-1, wanted[:, None])[:, 0]
    right = (logits.argmax(-1) == wanted).double()
    return torch.stack([-(chances * weights).sum(), (right * weights).sum(), weights.sum()])
