"""What the native decoder attends to: the weights themselves, which its fast attention never forms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import Weights
from auditlib.decoders.layers import hidden_states
from auditlib.errors import ContextExceededError, DecoderError


class AttentionOfGpt:
    """The capability `Attentive` for a decoder that has `config` and its weights."""

    config: EventGptConfig
    vocabulary_size: int
    context_length: int
    _weights: Weights

    def attention(self, events: Tensor) -> Tensor:
        """Attention of the full path in one prefix, events [T] → [layers, heads, T, T]: row t over events 0 to t.

        ContextExceededError beyond the context, DecoderError for anything but ids of the vocabulary.
        """
        if events.dim() != 1 or events.dtype != torch.int64 or not len(events):
            raise DecoderError(f"one prefix of events is needed, int64 [T], not {events.dtype} {list(events.shape)}")
        if len(events) > self.context_length:
            raise ContextExceededError(
                f"{len(events)} events exceed the context of {self.context_length}; shorten them"
            )
        low, high = (int(bound) for bound in events.aminmax())
        if low < 0 or high >= self.vocabulary_size:
            wrong = low if low < 0 else high
            raise DecoderError(f"event id {wrong} is not below the vocabulary size of {self.vocabulary_size}")
        return attended(self.config, self._weights, events)[0]


@torch.no_grad()
def attended(config: EventGptConfig, weights: Weights, events: Tensor) -> tuple[Tensor, Tensor]:
    """Attention [layers, heads, T, T] of a prefix [T], and the hidden states [T, W] that it leads to.

    Softmax of scaled products over earlier events (Vaswani et al. 2017, arXiv 1706.03762), in at least float32.
    """
    found = []
    later = torch.ones(len(events), len(events), dtype=torch.bool, device=events.device).triu(1)

    def attend(_: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Mixed values [1, H, T, D] in their own dtype; notes the shares [H, T, T] of each layer."""
        real = torch.promote_types(queries.dtype, torch.float32)
        scores = queries.to(real) @ keys.to(real).transpose(-1, -2) / math.sqrt(queries.shape[-1])
        shares = scores.masked_fill(later, -math.inf).softmax(-1)
        found.append(shares[0])
        return (shares @ values.to(real)).to(values.dtype)

    hidden = hidden_states(config, weights, weights.embed[events][None], slice(0, len(events)), attend)
    return torch.stack(found), hidden[0]
