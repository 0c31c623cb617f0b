"""The attention that is shown is the one that the decoder computes with."""

from __future__ import annotations

import pytest
import torch

from auditlib.decoders.attention import attended
from auditlib.decoders.capabilities import Attentive
from auditlib.decoders.layers import score
from auditlib.errors import ContextExceededError, DecoderError
from tests.small_gpt import CONTEXT, everywhere, small_gpt, some_events


@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}, {"heads": 4, "layers": 3}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_each_row_is_a_share_of_earlier_events_of_every_layer_and_head(changes, dtype):
    decoder = small_gpt(dtype, **changes)
    events = some_events(1, 7)
    found = decoder.attention(events[0])
    assert isinstance(decoder, Attentive)
    assert found.shape == (decoder.config.layers, decoder.config.heads, 7, 7)
    assert torch.allclose(found.sum(-1), torch.ones((), dtype=found.dtype), atol=1e-5)
    assert not found.triu(1).any()


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize(
    ("events", "error", "says"),
    [
        ([1] + [3] * CONTEXT, ContextExceededError, "21 events exceed the context of 20"),
        ([1, -1], DecoderError, "id -1"),
        ([1, 99], DecoderError, "id 99"),
        ([[1, 3]], DecoderError, "one prefix"),
        ([1.0, 3.0], DecoderError, "one prefix"),
        ([], DecoderError, "one prefix"),
    ],
)
def test_a_prefix_that_the_decoder_would_not_read_is_refused(events, error, says, positions):
    with pytest.raises(error, match=says):
        small_gpt(positions=positions).attention(torch.tensor(events))


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_mixing_values_by_these_weights_gives_the_logits_of_the_full_path(positions):
    decoder = small_gpt(torch.float64, positions=positions)
    events = some_events(1, 9)
    _, hidden = attended(decoder.config, decoder._weights, events[0])
    full = decoder.full(events, everywhere(events))[0]
    assert torch.allclose(score(decoder.config, decoder._weights, hidden), full, atol=1e-12)
    # weights of another prefix give other logits: the comparison can fail
    _, other = attended(decoder.config, decoder._weights, some_events(1, 9, seed=5)[0])
    assert not torch.allclose(score(decoder.config, decoder._weights, other), full, atol=1e-3)
