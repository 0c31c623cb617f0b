"""A plain transformer by contract 1, in which every step that can go wrong is a method of its own, to be broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.errors import ContextExceededError

Alter = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass
class PlainCache:
    """Every layer's keys and values [B, H, S, D], padding included, which of the slots are events, and their counts."""

    keys: list[Tensor]
    values: list[Tensor]
    kept: Tensor
    lengths: Tensor


class Plain:
    """Learned positions and masks as tensors; the cache grows by concatenation and keeps padding."""

    def __init__(
        self,
        vocabulary_size: int = 8,
        context_length: int = 20,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        width: int = 16,
        layers: int = 2,
        heads: int = 2,
    ) -> None:
        self.vocabulary_size, self.context_length = vocabulary_size, context_length
        self.dtype, self.heads, self.layers = dtype, heads, layers
        self.revision = f"plain-{type(self).__name__}-{seed}"
        generator = torch.Generator().manual_seed(seed)

        def weights(*shape: int, size: float = 1.0) -> Tensor:
            return (torch.randn(*shape, generator=generator) * size).to(dtype)

        self.embedding, self.places = weights(vocabulary_size, width), weights(context_length + 8, width)
        self.attention = [weights(3, width, width, size=1.5 * width**-0.5) for _ in range(layers)]
        self.outward = [weights(width, width, size=width**-0.5) for _ in range(layers)]
        self.inner = [weights(width, width, size=width**-0.5) for _ in range(layers)]
        self.head = weights(width, vocabulary_size, size=width**-0.5)

    # -- contract 1 --------------------------------------------------------------------------------------------------

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.full_with(self.embedding[events], valid, None)

    def full_with(self, embedded: Tensor, valid: Tensor, alter: Alter | None) -> Tensor:
        self.check_room(valid.sum(1))
        hidden = embedded + self.places[self.positions(valid, valid.new_zeros(len(valid), dtype=torch.int64))]

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if alter is not None:
                keys, values = alter(layer, keys, values)
            return self.mixed(queries, keys, values, self.sees_full(valid, layer))

        for layer in range(self.layers):
            hidden = self.block(layer, self.blend(hidden, valid, layer), attend)
        return self.scores(hidden)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, PlainCache]:
        size = self.embedding.shape[1] // self.heads
        nothing = self.embedding.new_zeros(len(events), self.heads, 0, size)
        empty = PlainCache(
            [nothing] * self.layers,
            [nothing] * self.layers,
            valid.new_zeros(len(events), 0),
            valid.new_zeros(len(events), dtype=torch.int64),
        )
        logits, cache = self.extend(events, valid, empty)
        return logits[torch.arange(len(events)), self.last_column(valid)], cache

    def extend(self, events: Tensor, valid: Tensor, cache: PlainCache) -> tuple[Tensor, PlainCache]:
        return self.extend_with(events, valid, cache, None)

    def extend_with(
        self, events: Tensor, valid: Tensor, cache: PlainCache, alter: Alter | None
    ) -> tuple[Tensor, PlainCache]:
        lengths = cache.lengths + valid.sum(1)
        self.check_room(lengths)
        hidden = self.embedding[events] + self.places[self.new_positions(valid, cache)]
        grown = PlainCache([], [], torch.cat([cache.kept, valid], 1), lengths)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if alter is not None:
                keys, values = alter(layer, keys, values)
            grown.keys.append(torch.cat([cache.keys[layer], self.to_store(keys)], 2))
            grown.values.append(torch.cat([cache.values[layer], self.to_store(values)], 2))
            return self.mixed(queries, grown.keys[layer], grown.values[layer], self.sees_new(valid, cache, layer))

        for layer in range(self.layers):
            hidden = self.block(layer, self.blend_new(hidden, valid, layer), attend)
        return self.scores(hidden), self.after_append(grown)

    def reorder(self, cache: PlainCache, parents: Tensor) -> PlainCache:
        return PlainCache(
            [self.moved(layer, "keys", tensor, parents) for layer, tensor in enumerate(cache.keys)],
            [self.moved(layer, "values", tensor, parents) for layer, tensor in enumerate(cache.values)],
            self.moved(-1, "kept", cache.kept, parents),
            self.moved(-1, "lengths", cache.lengths, parents),
        )

    def cache_bytes(self, cache: PlainCache) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (*cache.keys, *cache.values))

    # -- steps to be broken ------------------------------------------------------------------------------------------

    def check_room(self, lengths: Tensor) -> None:
        if int(lengths.max()) > self.context_length:
            raise ContextExceededError(f"{int(lengths.max())} events exceed the context of {self.context_length}")

    def positions(self, valid: Tensor, read: Tensor) -> Tensor:
        return (read[:, None] + valid.cumsum(1) - 1).clamp(0, len(self.places) - 1)

    def new_positions(self, valid: Tensor, cache: PlainCache) -> Tensor:
        return self.positions(valid, cache.lengths)

    def sees_full(self, valid: Tensor, layer: int) -> Tensor:
        size = valid.shape[1]
        return valid[:, None] & torch.ones(size, size, dtype=torch.bool).tril()

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        count = valid.shape[1]
        within = valid[:, None] & torch.ones(count, count, dtype=torch.bool).tril()
        before = cache.kept[:, None].expand(-1, count, -1)
        return torch.cat([before, within], 2)

    def last_column(self, valid: Tensor) -> Tensor:
        return (torch.arange(valid.shape[1]) * valid).amax(1)

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden

    def blend_new(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden

    def to_store(self, tensor: Tensor) -> Tensor:
        return tensor

    def after_append(self, cache: PlainCache) -> PlainCache:
        return cache

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return tensor[parents]

    def weights(self, scores: Tensor, sees: Tensor) -> Tensor:
        # A query that sees nothing is padding: it gets zeros, not a NaN that spreads.
        return torch.nan_to_num(scores.masked_fill(~sees[:, None], -torch.inf).softmax(-1))

    def scores(self, hidden: Tensor) -> Tensor:
        return hidden @ self.head

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def mixed(self, queries: Tensor, keys: Tensor, values: Tensor, sees: Tensor) -> Tensor:
        scores = queries @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
        return self.weights(scores, sees) @ values

    def block(self, layer: int, hidden: Tensor, attend: Callable[[int, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        normal = hidden / hidden.square().mean(-1, keepdim=True).add(1e-6).sqrt()
        parts = [normal @ weight for weight in self.attention[layer]]
        queries, keys, values = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        hidden = hidden + attend(layer, queries, keys, values).transpose(1, 2).flatten(2) @ self.outward[layer]
        return hidden + torch.tanh(hidden @ self.inner[layer])


class Open(Plain):
    """Offers what probes beyond contract 1 ask for: embeddings to differentiate by, keys and values to alter."""

    def embed(self, events: Tensor) -> Tensor:
        return self.embedding[events]

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        return self.full_with(embeddings, valid, None)

    def full_altered(self, events: Tensor, valid: Tensor, alter: Alter | None) -> Tensor:
        return self.full_with(self.embedding[events], valid, alter)

    def extend_altered(
        self, events: Tensor, valid: Tensor, cache: PlainCache, alter: Alter | None
    ) -> tuple[Tensor, PlainCache]:
        return self.extend_with(events, valid, cache, alter)
