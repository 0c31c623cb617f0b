"""How many bytes of keys and values serving takes, from plain numbers: what a planner asks before it buys a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from auditlib.decoders.capabilities import CacheShape, CacheShaped
from auditlib.decoding.paths import tensors
from auditlib.serving.served import Served

GROWN, RESERVED = "cached", "preallocated slots"
_SMALLEST = 16


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What is served: events a row may hold, the decoder's shape, requests at once, hypotheses each, kept prefixes.

    `copies`: caches that exist at once when rows move; 2, because the new one is made before the old one goes.
    """

    context: int
    layers: int
    heads: int
    head_size: int
    itemsize: int
    concurrency: int
    width: int = 1
    residents: int = 8
    strategy: str = GROWN
    copies: int = 2

    @property
    def rows(self) -> int:
        """Rows of the batch: every hypothesis of every request, the kept prefixes, and the root."""
        return self.concurrency * self.width + self.residents + 1

    @property
    def slots(self) -> int:
        """Events that each row has room for; a cache that grows by doubling may have up to twice what it needs."""
        if self.strategy == RESERVED:
            return self.context
        return max(min(_SMALLEST, self.context), 1 << (self.context - 1).bit_length())

    @property
    def shape(self) -> CacheShape:
        """The largest cache of this plan."""
        return CacheShape(self.layers, self.rows, self.slots, self.heads, self.head_size, self.itemsize)

    @property
    def held(self) -> int:
        """Bytes of one cache: 2 · layers · rows · slots · heads · head size · bytes of one number."""
        return self.shape.bytes

    @property
    def peak(self) -> int:
        """Bytes at the moment when rows move."""
        return self.held * self.copies

    def most_at_once(self, limit: int) -> int:
        """The most requests at once whose peak stays within `limit` bytes; 0 where not even one does."""
        one_row = replace(self, concurrency=1, width=1, residents=0).held // 2  # its own row and the root
        rows = limit // max(1, one_row * self.copies)
        return max(0, int((rows - self.residents - 1) // self.width))


@torch.no_grad()
def shape_of(served: Served) -> CacheShape | None:
    """The shape of a cache that holds the start token alone; None where the decoder does not tell."""
    decoder = served.decoder
    if not isinstance(decoder, CacheShaped):
        return None
    events, valid = tensors([(served.event_map.start,)], served.event_map.padding, served.device)
    return decoder.cache_shape(decoder.prefill(events, valid)[1])
