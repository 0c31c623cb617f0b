"""Layers of the `event_gpt` as plain functions of their weights.

How a layer attends is handed in, so that the full and the cached path share every other line.
Shapes: B rows, T positions, H heads, D channels a head, W = H·D channels in all, V events.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import BlockWeights, Weights

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values), each [B, H, T, D] → mixed values [B, H, T, D]."""

Drop = Callable[[Tensor], Tensor]
"""What is done to each residual branch while training; nothing else ever drops anything."""

_ROTARY_BASE = 10_000.0
_EPSILON = 1e-6


@lru_cache(maxsize=32)
def rotary_table(context: int, head_size: int, device: torch.device, real: torch.dtype) -> Tensor:
    """Unit complex numbers [context, D/2] by which position p turns channel pair i (Su et al. 2021, arXiv 2104.09864).

    Angles are computed from whole positions in float64: a bfloat16 position would already be wrong beyond 256.
    """
    pairs = torch.arange(head_size // 2, dtype=torch.float64)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), _ROTARY_BASE ** (-2 * pairs / head_size))
    turns = torch.polar(torch.ones_like(angles), angles)
    return turns.to(device=device, dtype=torch.complex128 if real == torch.float64 else torch.complex64)


def rotate(vectors: Tensor, turns: Tensor) -> Tensor:
    """`vectors` [..., D] with neighbouring channels turned as pairs; computed in at least float32."""
    shape, dtype = vectors.shape, vectors.dtype
    if dtype == torch.bfloat16:
        vectors = vectors.float()
    pairs = torch.view_as_complex(vectors.view(*shape[:-1], shape[-1] // 2, 2))
    return torch.view_as_real(pairs * turns).view(shape).to(dtype)


def hidden_states(
    config: EventGptConfig,
    weights: Weights,
    embedded: Tensor,
    positions: slice | Tensor,
    attend: Attend,
    drop: Drop | None = None,
) -> Tensor:
    """Embedded events [B, T, W] → hidden states [B, T, W] before the head.

    `positions` number the events of each row from 0: a slice where all rows agree, else int64 [B, T].
    """
    turns = None
    if weights.place is None:
        real = torch.float64 if embedded.dtype == torch.float64 else torch.float32
        table = rotary_table(config.context_length, config.head_size, embedded.device, real)
        turns = table[positions][..., None, None, :]  # [T or B, T, 1, 1, D/2], over queries and keys of every head
    else:
        embedded = embedded + weights.place[positions]
    hidden = embedded if drop is None else drop(embedded)
    for layer, block in enumerate(weights.blocks):
        hidden = hidden + _attention(config, block, layer, hidden, turns, attend, drop)
        hidden = hidden + _feed(config, block, hidden, drop)
    return hidden


def score(config: EventGptConfig, weights: Weights, hidden: Tensor) -> Tensor:
    """Logits [..., V] in at least float32: half-precision logits would tie events that the model tells apart."""
    return F.linear(_normalise(config, hidden, weights.final_norm).to(weights.head.dtype), weights.head)


def _attention(
    config: EventGptConfig,
    block: BlockWeights,
    layer: int,
    hidden: Tensor,
    turns: Tensor | None,
    attend: Attend,
    drop: Drop | None,
) -> Tensor:
    rows, size = hidden.shape[:2]
    mixed = F.linear(_normalise(config, hidden, block.attention_norm), block.queries_keys_values)
    mixed = mixed.view(rows, size, 3, config.heads, config.head_size)
    turned = mixed[:, :, :2] if turns is None else rotate(mixed[:, :, :2], turns)
    queries, keys, values = turned[:, :, 0], turned[:, :, 1], mixed[:, :, 2]  # [B, T, H, D]
    heard = attend(layer, queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
    branch = F.linear(heard.transpose(1, 2).reshape(rows, size, config.width), block.attention_out)
    return branch if drop is None else drop(branch)


def _feed(config: EventGptConfig, block: BlockWeights, hidden: Tensor, drop: Drop | None) -> Tensor:
    inner = F.linear(_normalise(config, hidden, block.feed_norm), block.feed_in, block.feed_in_bias)
    branch = F.linear(F.gelu(inner, approximate="tanh"), block.feed_out, block.feed_out_bias)
    return branch if drop is None else drop(branch)


def _normalise(config: EventGptConfig, hidden: Tensor, gain: Tensor) -> Tensor:
    if config.normalisation == "rms":
        return F.rms_norm(hidden, gain.shape, gain, _EPSILON)
    return F.layer_norm(hidden, gain.shape, gain, None, _EPSILON)
