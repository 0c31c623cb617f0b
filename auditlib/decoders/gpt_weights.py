"""Weights of an `event_gpt`: their names, shapes and first values.

Shapes: W channels, V events, C context length.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from auditlib.decoders.gpt_config import EventGptConfig


class BlockWeights(NamedTuple):
    """Weights of one layer."""

    attention_norm: Tensor  # [W]
    queries_keys_values: Tensor  # [3·W, W]
    attention_out: Tensor  # [W, W]
    feed_norm: Tensor  # [W]
    feed_in: Tensor  # [4·W, W]
    feed_in_bias: Tensor  # [4·W]
    feed_out: Tensor  # [W, 4·W]
    feed_out_bias: Tensor  # [W]


class Weights(NamedTuple):
    """All weights, gathered once: looking them up in modules would cost a cached step a third of its time."""

    embed: Tensor  # [V, W]
    place: Tensor | None  # [C, W] with learned positions
    blocks: tuple[BlockWeights, ...]
    final_norm: Tensor  # [W]
    head: Tensor  # [V, W]


class Block(nn.Module):
    """Holder of one layer's weights."""

    def __init__(self, config: EventGptConfig) -> None:
        super().__init__()
        width = config.width
        shapes = BlockWeights._make(
            (
                (width,),
                (3 * width, width),
                (width, width),
                (width,),
                (4 * width, width),
                (4 * width,),
                (width, 4 * width),
                (width,),
            )
        )
        for name, shape in shapes._asdict().items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))


class EventTransformer(nn.Module):
    """Holder of all weights; its state dict is what a revision's safetensors file contains."""

    def __init__(self, config: EventGptConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.empty(config.vocabulary_size, config.width))
        learned = config.positions == "learned"
        self.place = nn.Parameter(torch.empty(config.context_length, config.width)) if learned else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.Parameter(torch.empty(config.width))
        self.head = nn.Parameter(torch.empty(config.vocabulary_size, config.width))

    def weights(self) -> Weights:
        """The weights as they stand, shared with this module, not copied."""
        blocks = tuple(BlockWeights._make(block.parameters()) for block in self.blocks)
        return Weights(self.embed, self.place, blocks, self.final_norm, self.head)


def expected_shapes(config: EventGptConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a revision with this config must have; allocates nothing."""
    with torch.device("meta"):
        state = EventTransformer(config).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def module_from(
    config: EventGptConfig, tensors: dict[str, Tensor], device: str, dtype: torch.dtype
) -> EventTransformer:
    """Module with the given weights on `device` in `dtype`; the head stays in float32 under bfloat16 (see `score`)."""
    with torch.device("meta"):
        module = EventTransformer(config)
    module.load_state_dict(tensors, assign=True)
    module = module.to(device=device, dtype=dtype)
    if dtype == torch.bfloat16:
        module.head.data = tensors["head"].to(device=device, dtype=torch.float32)
    return module


def fresh_tensors(config: EventGptConfig, seed: int) -> dict[str, Tensor]:
    """Random first weights in float32, the same for the same seed, whatever else the process draws.

    Layers that end a residual branch start smaller by the root of their number (Radford et al. 2019, section 2.3).
    """
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            tensors[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
            continue
        spread = 0.5 if name in {"embed", "place"} else float(shape[1]) ** -0.5
        if name.endswith(("attention_out", "feed_out")):
            spread /= (2 * config.layers) ** 0.5
        tensors[name] = torch.empty(shape).normal_(0.0, spread, generator=generator)
    return tensors
