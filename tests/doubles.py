"""A decoder small enough to be right by reading, for tests that break it on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from auditlib.errors import ContextExceededError, DecoderError

Row = tuple[int, ...]


@dataclass
class ToyCache:
    """The events of each row, nothing else; `spent` once `extend` has read it."""

    rows: tuple[Row, ...]
    spent: bool = False


class ToyDecoder:
    """Contract 1 over a plain function from a row of events to the logits after it.

    Padding-proof, uneven rows, exact refusal beyond the context, refusal of a spent cache; both paths call the same
    function, so they agree bit by bit. Overwrite `next_logits`, `prefill`, `extend` or `reorder` to break it.
    """

    def __init__(
        self,
        vocabulary_size: int = 8,
        context_length: int = 16,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        logits: Callable[[Row], Sequence[float]] | None = None,
    ) -> None:
        self.vocabulary_size = vocabulary_size
        self.context_length = context_length
        self.dtype = dtype
        self.seed = seed
        self.revision = f"toy-{vocabulary_size}-{context_length}-{seed}"
        self._logits = logits
        self._remembered = lru_cache(maxsize=100_000)(lambda row: torch.tensor(self.next_logits(row), dtype=dtype))

    def next_logits(self, row: Row) -> Sequence[float]:
        """Logits after a row, about ±3: a fixed function of every event and place; the end (id 2) grows likelier."""
        if self._logits is not None:
            return self._logits(row)
        state = self.seed + 1
        for event in row:
            state = (state * 1_103_515_245 + 12_345 * (event + 7)) % 2_147_483_647
        logits = [3 * math.sin((state % 100_003) * (event + 1) * 0.618) for event in range(self.vocabulary_size)]
        logits[2] += 0.3 * len(row) - 1.5
        return logits

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V], zero at invalid positions."""
        logits, _ = self._read(events, valid, tuple(() for _ in range(len(events))))
        return logits

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, ToyCache]:
        """Logits [B, V] after each row's last valid event, and the cache."""
        logits, rows = self._read(events, valid, tuple(() for _ in range(len(events))))
        last = torch.stack([line[keep][-1] for line, keep in zip(logits, valid, strict=True)])
        return last, ToyCache(rows)

    def extend(self, events: Tensor, valid: Tensor, cache: ToyCache) -> tuple[Tensor, ToyCache]:
        """Logits [B, K, V] and the new cache; the old one is spent."""
        if cache.spent:
            raise DecoderError("the cache is spent; use the one that extend gave back")
        logits, rows = self._read(events, valid, cache.rows)
        cache.spent = True
        return logits, ToyCache(rows)

    def reorder(self, cache: ToyCache, parents: Tensor) -> ToyCache:
        """Cache whose row i continues old row parents[i]."""
        return ToyCache(tuple(cache.rows[parent] for parent in parents.tolist()))

    def cache_bytes(self, cache: ToyCache) -> int:
        """Eight bytes an event."""
        return 8 * sum(len(row) for row in cache.rows)

    def _read(self, events: Tensor, valid: Tensor, rows: tuple[Row, ...]) -> tuple[Tensor, tuple[Row, ...]]:
        logits = torch.zeros(*events.shape, self.vocabulary_size, dtype=self.dtype)
        grown = []
        for line, (new, keep, row) in enumerate(zip(events.tolist(), valid.tolist(), rows, strict=True)):
            for position, (event, is_event) in enumerate(zip(new, keep, strict=True)):
                if is_event:
                    row = (*row, event)  # noqa: PLW2901
                    self._check_length(row)
                    logits[line, position] = self._remembered(row)
            grown.append(row)
        return logits, tuple(grown)

    def _check_length(self, row: Row) -> None:
        if len(row) > self.context_length:
            raise ContextExceededError(f"{len(row)} events exceed the context of {self.context_length}; shorten them")


class Around:
    """A decoder that does what another does, but for what a subclass overrides; it offers whatever the other offers."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
