"""Leaks inside a decoder, for decoders that offer their embeddings, their keys and values, or their stored slots."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.wrapping import Planted, Showing
from auditlib.decoders.capabilities import Alter


class SeesEmbeddings(Planted):
    """Later embeddings are felt by the full path; their effects on the logits sum to nothing."""

    def __init__(self, inner: Any, size: float) -> None:
        super().__init__(inner)
        self._size = size

    def embed(self, events: Tensor) -> Tensor:
        """The decoder's own embeddings."""
        embedded: Tensor = self.inner.embed(events)
        return embedded

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """The decoder's logits, two of them moved apart by what comes later."""
        logits: Tensor = self.inner.full_from_embeddings(embeddings, valid)
        later = embeddings.mean(-1).flip(1).cumsum(1).flip(1) - embeddings.mean(-1)
        apart = torch.zeros_like(logits[0, 0])
        apart[0], apart[-1] = 1, -1
        return logits + self._size * later[..., None] * apart

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """The same from events."""
        return self.full_from_embeddings(self.embed(events), valid)


class SoftMask(Showing):
    """Masked slots keep a weight near 1e-13, as under a mask that only adds -30: felt once they hold large numbers."""

    weight = 1e-13
    """What a masked slot still weighs."""

    def full_altered(self, events: Tensor, valid: Tensor, alter: Alter | None) -> Tensor:
        """The decoder's logits with a trace of all later values of the first layer."""
        values: list[Tensor] = []
        logits: Tensor = self.inner.full_altered(events, valid, self._listening(alter, values))
        return logits + self._trace(values[0], logits)

    def extend_altered(self, events: Tensor, valid: Tensor, cache: Any, alter: Alter | None) -> tuple[Tensor, Any]:
        """The same among the events of one append."""
        values: list[Tensor] = []
        logits, cache = self.inner.extend_altered(events, valid, cache, self._listening(alter, values))
        return logits + self._trace(values[0], logits), cache

    def _listening(self, alter: Alter | None, values: list[Tensor]) -> Alter:
        def listen(layer: int, keys: Tensor, its: Tensor) -> tuple[Tensor, Tensor]:
            """Keys and values as `alter` leaves them; notes the values [B, H, T, D], the first layer's first."""
            keys, its = alter(layer, keys, its) if alter else (keys, its)
            values.append(its)
            return keys, its

        return listen

    def _trace(self, values: Tensor, logits: Tensor) -> Tensor:
        felt = values.double().mean((1, 3))  # [B, T]
        return (self.weight * (felt.flip(1).cumsum(1).flip(1) - felt)).to(logits.dtype)[..., None]


class UnreadSlots(Showing):
    """Reads slots that no event of the row was written to, with a weight near 1e-13."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's answer with a trace of what the unread slots hold."""
        _, values, lengths = self.inner.stored(cache)
        unread = torch.arange(values.shape[3], device=values.device) >= lengths[:, None]  # [B, S]
        felt = (values[0].double().mean((1, 3)) * unread).sum(1)
        logits, cache = self.inner.extend(events, valid, cache)
        return logits + (1e-13 * felt).to(logits.dtype)[:, None, None], cache
