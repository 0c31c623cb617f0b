"""A decoder of one's own, written from contract 1 alone: the next event by how often it followed the last one.

Make a revision of it from a store, then audit it (in the project's folder, so that this module can be imported):

    python -m examples.markov STORE RULES FOLDER
    python -m auditlib audit --store STORE --revision FOLDER --allow-code
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from auditlib.decoders.revision import write_revision
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.sessions.store import SessionStore


@dataclass
class Cache:
    """All that this decoder remembers of a row: its last event and how many there were, each [B]."""

    last: Tensor
    lengths: Tensor


class Markov:
    """Contract 1 over a table of logits [V, V]: row `a` holds the logits of what follows event `a`."""

    def __init__(self, table: Tensor, context_length: int, revision: str) -> None:
        self.table = table
        self.vocabulary_size = table.shape[0]
        self.context_length = context_length
        self.revision = revision

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        self._check(valid.sum(1))
        return self.table[torch.where(valid, events, 0)]

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Cache]:
        """Logits [B, V] after each row's last valid event, and the cache."""
        empty = Cache(torch.zeros(len(events), dtype=torch.int64), torch.zeros(len(events), dtype=torch.int64))
        _, cache = self.extend(events, valid, empty)
        return self.table[cache.last], cache

    def extend(self, events: Tensor, valid: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Logits [B, K, V] and the new cache."""
        lengths = cache.lengths + valid.sum(1)
        self._check(lengths)
        newest = (valid * torch.arange(1, valid.shape[1] + 1)).argmax(1)  # the last valid position of each row
        last = torch.where(valid.any(1), events[torch.arange(len(events)), newest], cache.last)
        return self.table[torch.where(valid, events, 0)], Cache(last, lengths)

    def reorder(self, cache: Cache, parents: Tensor) -> Cache:
        """Cache whose row i continues old row `parents[i]`."""
        return Cache(cache.last[parents], cache.lengths[parents])

    def cache_bytes(self, cache: Cache) -> int:
        """Bytes held."""
        return cache.last.nbytes + cache.lengths.nbytes

    def _check(self, lengths: Tensor) -> None:
        if int(lengths.max()) > self.context_length:
            raise ValueError(f"{int(lengths.max())} events do not fit the context length of {self.context_length}")


def factory(folder: Path, device: str, dtype: torch.dtype) -> Markov:
    """What `revision.json` names as `examples.markov:factory`."""
    table = load_file(folder / "table.safetensors", device)["table"].to(dtype)
    return Markov(table, context_length=128, revision=f"markov of {folder.name}")


def main(store_file: Path, rules: Path, folder: Path) -> None:
    """Count the training side of the latest snapshot and write the counts as a revision."""
    with SessionStore.open(store_file) as store:
        event_map = EventMap.build(store.event_names())
        counts = torch.full((event_map.size, event_map.size), 0.1, dtype=torch.float64)
        for session in store.sessions(store.snapshot(), "training"):
            row = torch.tensor([event_map.start, *event_map.encode(session.events), event_map.end])
            counts.index_put_((row[:-1], row[1:]), torch.ones(len(row) - 1, dtype=torch.float64), accumulate=True)
    table = (counts / counts.sum(1, keepdim=True)).log()
    write_revision(
        folder,
        name=folder.name,
        decoder="examples.markov:factory",
        config={},
        event_map=event_map,
        event_order=EventOrder.read(rules),
        files={"table.safetensors": save({"table": table})},
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
