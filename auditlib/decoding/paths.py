"""The two ways to get the logits after each row: read it whole again, or read its newest event against a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.errors import PrefixgateError
from auditlib.events.prefixes import pad

Row = tuple[int, ...]
Rows = Sequence[Row]


class LogitPath(Protocol):
    """Gives the logits [N, V] after each of its rows, on the CPU."""

    def join(self, prefixes: Rows, copies: int) -> Tensor:
        """Logits [P·copies, V] after the prefixes, each of which becomes `copies` rows behind those that are there."""

    def append(self, parents: Tensor, events: Tensor) -> Tensor:
        """Logits [M, V] of rows of which row i is old row `parents[i]` and `events[i]` (both int64 [M])."""

    def clear(self) -> None:
        """Let all rows go."""


@runtime_checkable
class JoiningPath(LogitPath, Protocol):
    """A path on which rows may join in the same call in which the others advance.

    Worth it where a call for the joining rows alone would carry all others along, as a cache does.
    """

    def append_joining(self, parents: Tensor, events: Tensor, prefixes: Rows, copies: int) -> Tensor:
        """Logits [M + P·copies, V]: of the rows that `append` gives, and behind them of those that `join` gives."""


class FullPath:
    """Logits from the full-prefix path: every row is read whole at every step."""

    def __init__(self, decoder: Decoder, padding: int, device: str) -> None:
        self._decoder, self._padding, self._device = decoder, padding, device
        self._rows: Rows = ()

    def join(self, prefixes: Rows, copies: int) -> Tensor:
        """See LogitPath."""
        new = [prefix for prefix in prefixes for _ in range(copies)]
        self._rows = [*self._rows, *new]
        return self._logits(new)

    def append(self, parents: Tensor, events: Tensor) -> Tensor:
        """See LogitPath."""
        grown = zip(parents.tolist(), events.tolist(), strict=True)
        self._rows = [(*self._rows[parent], event) for parent, event in grown]
        return self._logits(self._rows)

    def clear(self) -> None:
        """See LogitPath."""
        self._rows = ()

    def _logits(self, rows: Rows) -> Tensor:
        events, valid = tensors(rows, self._padding, self._device)
        lines = torch.arange(len(events), device=events.device)
        return self._decoder.full(events, valid)[lines, valid.sum(1) - 1].cpu()


class CachedPath:
    """Logits from the cached path: each row's newest event is read, and the cache follows the rows.

    Its rows start together, by one prefill; who has rows join later needs another path (see serving).
    """

    def __init__(self, decoder: Decoder, padding: int, device: str) -> None:
        self._decoder, self._padding, self._device = decoder, padding, device
        self._cache: Any = None
        self._count = 0

    def join(self, prefixes: Rows, copies: int) -> Tensor:
        """See LogitPath; PrefixgateError when there are rows already."""
        if self._cache is not None:
            raise PrefixgateError("rows cannot join a prefilled cache; this is a fault of the caller")
        events, valid = tensors(prefixes, self._padding, self._device)
        logits, self._cache = self._decoder.prefill(events, valid)
        self._count = len(prefixes)
        rows = torch.arange(len(prefixes)).repeat_interleave(copies)
        self._follow(rows)
        return logits.cpu()[rows]

    def append(self, parents: Tensor, events: Tensor) -> Tensor:
        """See LogitPath."""
        self._follow(parents)
        new = events.to(self._device)[:, None]  # only live rows are in the cache, so every row has its new event
        logits, self._cache = self._decoder.extend(new, torch.ones_like(new, dtype=torch.bool), self._cache)
        return logits[:, 0].cpu()

    def clear(self) -> None:
        """See LogitPath."""
        self._cache, self._count = None, 0

    def _follow(self, parents: Tensor) -> None:
        """Let the cache's rows follow; where no row moves, nothing is copied."""
        if len(parents) != self._count or not torch.equal(parents, torch.arange(self._count)):
            self._cache = self._decoder.reorder(self._cache, parents.to(self._device))
            self._count = len(parents)


def tensors(rows: Rows, padding: int, device: str) -> tuple[Tensor, Tensor]:
    """Events int64 [B, T] and valid bool [B, T] of rows, padded on the right."""
    events, valid = pad(rows, padding)
    return torch.from_numpy(np.ascontiguousarray(events)).to(device), torch.from_numpy(valid).to(device)
