"""A cache offered to another request: refused by the field that differs, and the wrong answer measured."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.audits.inspection_reuse import attention_of, try_reuse
from auditlib.errors import DecoderError
from tests.subjects import MAP, gpt

OPENED, CLOSED, ASSIGNED = (MAP.events[name] for name in ("opened", "closed", "assigned"))
HELD = (MAP.start, OPENED, ASSIGNED)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ((MAP.start, OPENED, CLOSED, CLOSED), "events"),
        ((MAP.start, OPENED, ASSIGNED), "length"),
        ((MAP.start, OPENED, ASSIGNED, CLOSED, CLOSED), "length"),
    ],
)
def test_a_request_that_differs_is_refused_by_its_field_and_its_wrong_answer_is_measured(asked, field):
    decoder = gpt()
    found = try_reuse(decoder, MAP, "sha256:o", HELD, asked)
    assert (found.accepted, found.field) == (False, field)
    assert "not for this request" in found.reason
    one = torch.ones(1, 1, dtype=torch.bool)
    _, cache = decoder.prefill(torch.tensor([HELD]), torch.ones(1, 3, dtype=torch.bool))
    wrong = decoder.extend(torch.tensor([[asked[-1]]]), one, cache)[0][0, 0]
    right = decoder.full(torch.tensor([asked]), torch.ones(1, len(asked), dtype=torch.bool))[0, -1]
    assert found.gap == pytest.approx(float((wrong - right).abs().max()))
    assert found.gap > 1e-3
    answers = found.answers.set_index("id")
    assert answers.loc[CLOSED, "right"] == pytest.approx(float(right.double().softmax(-1)[CLOSED]))
    assert answers.loc[CLOSED, "from_cache"] == pytest.approx(float(wrong.double().softmax(-1)[CLOSED]))


def test_the_request_that_the_cache_was_made_for_is_served_and_rightly():
    found = try_reuse(gpt(), MAP, "sha256:o", HELD, (*HELD, CLOSED))
    assert found.accepted
    assert found.reason == ""
    assert found.gap < 1e-5


def test_a_decoder_that_would_not_go_on_by_itself_is_told_in_its_own_words():
    long = (MAP.start, *[ASSIGNED] * 3)
    found = try_reuse(gpt(context_length=4), MAP, "sha256:o", long, (MAP.start, OPENED))
    assert found.field == "length"
    assert "ContextExceededError" in found.problem
    assert math.isnan(found.gap)
    assert found.answers.empty


def test_a_request_without_an_event_is_refused():
    with pytest.raises(DecoderError):
        try_reuse(gpt(), MAP, "sha256:o", HELD, (MAP.start,))


def test_attention_is_given_where_it_is_offered_and_not_where_it_is_not():
    found = attention_of(gpt(), HELD)
    assert found is not None
    assert found.shape[2:] == (3, 3)
    assert attention_of(Plain(), HELD) is None


@pytest.mark.parametrize("spoil", [lambda a: a * 2, lambda a: a.flip(-1), lambda a: a[:, :, :2], lambda a: a[0]])
def test_attention_that_is_no_share_of_earlier_events_is_refused(spoil):
    decoder = Spoilt(spoil)
    with pytest.raises(DecoderError, match="no share of earlier events"):
        attention_of(decoder, HELD)


class Plain:
    """A decoder without the capability."""


class Spoilt:
    """A decoder whose attention is wrong in one way."""

    def __init__(self, spoil):
        self.spoil = spoil

    def attention(self, events):
        return self.spoil(gpt().attention(events))
