"""What a decoder of the library attends to: the weights themselves, which its fast attention never forms.

To switch a model to another attention, even for a moment, would change what others measure with it just then. So a
question is put to a copy of the model: it shares every tensor, and its config, which names the attention, is its own.
Nothing that anybody else uses is written, so no lock is needed.
"""

from __future__ import annotations

import copy
import math
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.column_decoder import ColumnDecoder
from auditlib.decoders.optional import optional
from auditlib.errors import DecoderError

_NAME = "prefixgate_exact"
_MOST_BYTES = 1 << 28
# What other families have the scores altered by; a table without it would be wrong.
_UNKNOWN = ("s_aux", "position_bias")
# A list that the attention of each layer is added to; each thread has its own.
_SHOWN: ContextVar[list[Tensor] | None] = ContextVar("shown attention", default=None)


def exact_attention(
    _: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """What is heard [B, K, H, D], and attention [B, H, K, S] where the bool mask [B, 1, K, S] allows it.

    Softmax of scaled, perhaps soft-capped products (Vaswani et al. 2017, arXiv 1706.03762; Gemma 2, arXiv 2408.00118),
    in at least float32; float64 stays float64. DecoderError for scores that the library would alter in yet another way.
    """
    if foreign := [name for name in _UNKNOWN if more.get(name) is not None]:
        raise DecoderError(f"the model alters its attention by {', '.join(foreign)}, which is not known here")
    real = torch.promote_types(query.dtype, torch.float32)
    # Several heads of queries may share one head of keys and values.
    keys, values = (part.to(real).repeat_interleave(query.shape[1] // part.shape[1], dim=1) for part in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query.to(real) @ keys.transpose(-1, -2) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    shares = scores.masked_fill(~attention_mask, -math.inf).softmax(-1)
    if (shown := _SHOWN.get()) is not None:
        shown.append(shares)
    return (shares @ values).to(query.dtype).transpose(1, 2).contiguous(), shares


def registered() -> str:
    """The name under which the library now knows `exact_attention`."""
    optional("transformers", "transformers").AttentionInterface.register(_NAME, exact_attention)
    return _NAME


class AttentionOfLibrary(ColumnDecoder):
    """The capability `Attentive` for a decoder with a `module` of the library."""

    module: Any

    def attention(self, events: Tensor) -> Tensor:
        """Attention of the full path in one prefix, events [T] → [layers, heads, T, T]: row t over events 0 to t.

        In at least float32. DecoderError for a prefix whose attention would take more than 256 MiB.
        """
        return attended(self, events[None], torch.ones_like(events, dtype=torch.bool)[None])[0][:, 0]


@torch.no_grad()
def attended(decoder: AttentionOfLibrary, events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Attention [layers, B, heads, T, T] of prefixes [B, T], and the logits [B, T, V] that it leads to.

    Rows of real events sum to 1 over real events up to themselves; rows and columns of padding are 0.
    """
    config = decoder.module.config
    size = config.num_hidden_layers * config.num_attention_heads * events.shape[0] * events.shape[-1] ** 2
    if (taken := size * max(decoder.dtype.itemsize, 4)) > _MOST_BYTES:
        raise DecoderError(
            f"the attention of {events.shape[-1]} events in {config.num_hidden_layers} layers takes {taken >> 20} MiB, "
            f"more than the {_MOST_BYTES >> 20} MiB that are shown; choose a shorter prefix"
        )
    shown: list[Tensor] = []
    token = _SHOWN.set(shown)
    try:
        logits = _apart(decoder).full(events, valid)
    finally:
        _SHOWN.reset(token)
    if len(shown) != config.num_hidden_layers:
        raise DecoderError(
            f"{type(decoder.module).__name__} showed attention of {len(shown)} of its {config.num_hidden_layers} "
            "layers: it passes by the library's table of attentions, so there is nothing to draw"
        )
    return torch.stack(shown).masked_fill_(~valid[:, None, :, None], 0.0), logits


def _apart(decoder: AttentionOfLibrary) -> AttentionOfLibrary:
    """The decoder over modules and a config of its own, with the same tensors, that shows its attention."""
    model = decoder.module
    tables = getattr(model.base_model, "rotary_emb", None)  # its cosines and sines can be large and are never written
    shared = [*model.parameters(), *model.buffers(), tables]
    own = copy.copy(decoder)
    own.module = copy.deepcopy(model, {id(part): part for part in shared})
    own.module.config._attn_implementation = registered()  # noqa: SLF001 - the library's documented name of it
    return own
