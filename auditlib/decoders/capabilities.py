"""What a decoder may offer beyond contract 1, so that more probes can run. Ask with `isinstance`.

Shapes: B rows, T or K positions, W channels, V vocabulary size, H heads, D channels a head, S slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

Alter = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(layer, keys, values) of the events at hand, each [B, H, T, D] → what the layer is to use in their place."""


@runtime_checkable
class Described(Protocol):
    """Says under which conventions it computes; a cache belongs to these too."""

    dtype: torch.dtype
    device: torch.device
    positions: str
    """How positions are told to the model, such as "rotary" or "learned"."""


@runtime_checkable
class Fingerprinted(Protocol):
    """Can name its weights anew, which tells whether they were changed in place since it was loaded."""

    def fingerprint(self) -> str:
        """`sha256:<hex>` of config and weights as they are now; equals `revision` while nothing was changed."""


@runtime_checkable
class Differentiable(Protocol):
    """Can run the full path from embeddings, and be differentiated by them."""

    def embed(self, events: Tensor) -> Tensor:
        """Embeddings [B, T, W] of events [B, T]."""

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] from embeddings [B, T, W]."""


@runtime_checkable
class Inspectable(Protocol):
    """Shows the keys and values that a cache holds, compactly: a row's slot s belongs to its event s."""

    def stored(self, cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [layers, B, H, S, D] and lengths [B]; slots from a row's length on are not its own.

        The tensors are views: writing into them changes the cache.
        """


@runtime_checkable
class Reserving(Protocol):
    """Can set slots of a cache aside once, so that neither appending nor reordering changes its size."""

    def reserve(self, cache: Any, events: int) -> Any:
        """A cache of the same rows with room for `events` events each; `cache` is spent."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a cache is made of; with heads of keys and values, which may be fewer than heads of queries."""

    layers: int
    rows: int
    slots: int
    heads: int
    head_size: int
    itemsize: int

    @property
    def bytes(self) -> int:
        """2 (keys and values) · layers · rows · slots · heads · head size · bytes of one number."""
        return 2 * self.layers * self.rows * self.slots * self.heads * self.head_size * self.itemsize


@runtime_checkable
class CacheShaped(Protocol):
    """Says what a cache is made of, from its config, so that the bytes that it allocates can be told beforehand."""

    def cache_shape(self, cache: Any) -> CacheShape:
        """Layers, heads, head size and item size as configured; rows, and the slots set aside for each of them."""


@runtime_checkable
class BlockEnds(Protocol):
    """Names the row lengths at which something about its cached path changes, so that probes go one beyond each."""

    block_ends: tuple[int, ...]
    """Lengths in events, such as that of an attention window; empty where nothing changes below the context."""


@runtime_checkable
class Alterable(Protocol):
    """Lets every layer's keys and values be altered on their way, on either path, without changing the decoder."""

    def full_altered(self, events: Tensor, valid: Tensor, alter: Alter | None) -> Tensor:
        """As `full`, with keys and values passed through `alter`; invalid positions included."""

    def extend_altered(self, events: Tensor, valid: Tensor, cache: Any, alter: Alter | None) -> tuple[Tensor, Any]:
        """As `extend`, with the new keys and values passed through `alter` before they are stored."""


@runtime_checkable
class Attentive(Protocol):
    """Shows which earlier events each event of a prefix attended to on the full path."""

    def attention(self, events: Tensor) -> Tensor:
        """Attention weights of one prefix, events int64 [T] → [layers, heads, T, T]; row t sums to 1 over 0 to t."""
