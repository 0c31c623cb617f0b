"""Evaluation computes each distinct row once; the figures are those of going prefix by prefix."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.decoders.evaluation import evaluate
from auditlib.errors import ContextExceededError, DecoderError
from tests.doubles import ToyDecoder
from tests.small_gpt import CONTEXT, everywhere, small_gpt, some_rows


def prefix_by_prefix(decoder, rows) -> tuple[float, float, int]:
    losses, right = [], []
    for row in rows:
        for size in range(2, len(row)):
            prefix = torch.tensor([row[:size]])
            logits = decoder.full(prefix, everywhere(prefix))[0, -1].double()
            losses.append(-float(logits.log_softmax(-1)[row[size]]))
            right.append(int(logits.argmax()) == row[size])
    return sum(losses) / len(losses), sum(right) / len(right), len(losses)


def test_figures_are_those_of_every_prefix_by_itself():
    decoder = small_gpt(torch.float64)
    rows = some_rows(25, seed=4) + some_rows(10, seed=4) + [(1, 2)]
    found = evaluate(decoder, rows)
    nll, accuracy, events = prefix_by_prefix(decoder, rows)
    assert (found.accuracy, found.events) == (accuracy, events)
    assert found.nll == pytest.approx(nll, abs=1e-10)


def test_a_row_that_just_fits_is_evaluated_and_a_longer_one_refused():
    decoder = small_gpt()
    fits = (1, *[3] * (CONTEXT - 1), 2)  # its end is predicted, never read
    assert evaluate(decoder, [fits]).events == CONTEXT - 1 + 1 - 1
    with pytest.raises(ContextExceededError):
        evaluate(decoder, [(1, *[3] * CONTEXT, 2)])


def test_a_large_vocabulary_makes_smaller_batches_and_the_same_figures():
    asked = []

    class Wide(ToyDecoder):
        def full(self, events, valid):
            asked.append(events.numel())
            return super().full(events, valid)

    rows = some_rows(80)
    found = evaluate(Wide(1 << 16, CONTEXT, logits=lambda row: [0.0] * (1 << 16)), rows)
    assert max(asked) <= (1 << 22) >> 16
    assert found.nll == pytest.approx(16 * math.log(2))
    assert found.events == sum(len(row) - 2 for row in rows)


@pytest.mark.parametrize("rows", [[], [(1, 2)]])
def test_nothing_to_predict_is_an_error_and_not_a_perfect_score(rows):
    with pytest.raises(DecoderError, match="no held-out session"):
        evaluate(small_gpt(), rows)
