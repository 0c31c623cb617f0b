"""A decoder that passes everything through, and one whose cached path is told another history: bodies for faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from auditlib.audits.faults.planting import Plant, in_decoder
from auditlib.audits.held_out import Row
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CacheRejectedError, ContextExceededError


class Planted:
    """Contract 1 around a decoder, under its own name: a fault rarely says that it is there."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.revision: str = inner.revision
        self.vocabulary_size: int = inner.vocabulary_size
        self.context_length: int = inner.context_length

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """The decoder's own, as are all verbs that a fault leaves alone."""
        logits: Tensor = self.inner.full(events, valid)
        return logits

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """The decoder's own."""
        logits, cache = self.inner.prefill(events, valid)
        return logits, cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's own."""
        logits, cache = self.inner.extend(events, valid, cache)
        return logits, cache

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """The decoder's own."""
        return self.inner.reorder(cache, parents)

    def cache_bytes(self, cache: Any) -> int:
        """The decoder's own."""
        return int(self.inner.cache_bytes(cache))


class Showing(Planted):
    """A wrapper that still shows what the decoder's caches store."""

    def stored(self, cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and lengths, as the decoder shows them."""
        keys, values, lengths = self.inner.stored(cache)
        return keys, values, lengths


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of the cached path: what the cache tells of each row, and what is new, as it was laid out."""

    past: tuple[Row, ...]
    new: tuple[Row, ...]
    events: list[list[int]]
    valid: list[list[bool]]

    def padded(self, row: int, side: str) -> int:
        """How many invalid positions a row has on its "left" or "right"; all are on the left where nothing is new."""
        line = self.valid[row] if side == "left" else self.valid[row][::-1]
        return line.index(True) if True in line else len(line)


@dataclass
class Told:
    """A cache that keeps what each row is taken to have read, how much it really read, and how often it was asked."""

    rows: tuple[Row, ...]
    read: tuple[int, ...]
    steps: int = 0
    moves: int = 0
    spent: bool = False


class Retold(Planted):
    """A decoder whose cached path answers by the full path, from what a fault makes of each row's history.

    Any loss, doubling or mixing of cached events looks from outside like a decoder that was told another history.
    Override `seen` (from which history an answer is given) or `kept` (what the cache is left with).
    """

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:  # noqa: ARG002  # for overriding
        """History behind the logits after the first `count` new events of a row."""
        return batch.past[row] + batch.new[row][:count]

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:  # noqa: ARG002
        """What the cache holds of a row after a call."""
        return batch.past[row] + batch.new[row]

    def moved(self, cache: Told, parents: list[int]) -> tuple[Row, ...]:
        """What the cache holds of each row after a reorder."""
        return tuple(cache.rows[parent] for parent in parents)

    def too_long(self, read: tuple[int, ...]) -> bool:
        """Whether rows that have read so many events are more than the context holds."""
        return max(read) > self.context_length

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Told]:
        """Logits [B, V] after each row's last event, and a cache."""
        logits, cache = self._read(events, valid, Told(((),) * len(events), (0,) * len(events), -1))
        columns = torch.arange(valid.shape[1], device=valid.device)
        return logits[torch.arange(len(logits), device=valid.device), (columns * valid).amax(1)], cache

    def extend(self, events: Tensor, valid: Tensor, cache: Told) -> tuple[Tensor, Told]:
        """Logits [B, K, V] and the new cache; the old one is spent."""
        if cache.spent:
            raise CacheRejectedError("spent", "this cache was already continued")
        return self._read(events, valid, cache)

    def reorder(self, cache: Told, parents: Tensor) -> Told:
        """Cache whose row i continues old row `parents[i]`, as far as the fault lets it."""
        order = parents.tolist()
        read = tuple(cache.read[parent] for parent in order)
        return Told(self.moved(cache, order), read, cache.steps, cache.moves + 1)

    def cache_bytes(self, cache: Told) -> int:
        """Eight bytes an event."""
        return 8 * sum(map(len, cache.rows))

    def _read(self, events: Tensor, valid: Tensor, cache: Told) -> tuple[Tensor, Told]:
        lines, keeps = events.tolist(), valid.tolist()
        new = tuple(
            tuple(event for event, keep in zip(line, kept, strict=True) if keep)
            for line, kept in zip(lines, keeps, strict=True)
        )
        read = tuple(before + len(more) for before, more in zip(cache.read, new, strict=True))
        if self.too_long(read):
            raise ContextExceededError(f"{max(read)} events exceed the context of {self.context_length}")
        batch = Batch(cache.rows, new, lines, keeps)
        logits = self._answered(batch, cache, valid)
        cache.spent = True
        kept = tuple(self.kept(batch, row, cache) for row in range(len(new)))
        return logits, Told(kept, read, cache.steps + 1, cache.moves)

    def _answered(self, batch: Batch, cache: Told, valid: Tensor) -> Tensor:
        """Logits [B, K, V]: the full path's, of all histories in one batch; zero where nothing is new."""
        first = cache.steps < 0  # a prefill answers for the last event only
        asked = [
            (row, count)
            for row, more in enumerate(batch.new)
            for count in range(len(more) if first else 1, len(more) + 1)
        ]
        stories = [self.seen(batch, row, count, cache)[-self.context_length :] for row, count in asked]
        found = last_logits(self.inner, stories, valid.device)
        logits = found.new_zeros(*valid.shape, found.shape[-1])
        for (row, count), answer in zip(asked, found, strict=True):
            columns = valid[row].nonzero()[:, 0]
            logits[row, columns[count - 1]] = answer
        return logits


def last_logits(decoder: Decoder, rows: Sequence[Row], device: torch.device | str) -> Tensor:
    """Logits [N, V] of the full path after each of `rows`, which must not be empty."""
    width = max(map(len, rows))
    events = torch.tensor([[*row, *row[:1] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    valid = torch.arange(width, device=device) < lengths[:, None]
    return decoder.full(events, valid)[torch.arange(len(rows), device=device), lengths - 1]


_Kind = TypeVar("_Kind", bound=Planted)


def wrapped(kind: Callable[..., _Kind], **settings: Any) -> Plant:
    """Plants a wrapper, with its settings, around the decoder."""
    return in_decoder(partial(kind, **settings) if settings else kind)
