"""Revisions whose adapter brings a fault, each made of the demo's sound decoder: what a gate meets in the field.

`revision.json` names them as `tests.faulty:NAME`; they keep contract 1 and break one thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.decoders.revision import open_revision
from auditlib.demo.places import SHIPPED, SOUND


class Wrapped:
    """The demo's decoder, passed through; what a subclass overrides is its fault."""

    def __init__(self, inner: Decoder) -> None:
        self.inner = inner
        self.revision = f"{type(self).__name__} of {inner.revision}"
        self.vocabulary_size = inner.vocabulary_size
        self.context_length = inner.context_length

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.inner.full(events, valid)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        return self.inner.prefill(events, valid)

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        return self.inner.extend(events, valid, cache)

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        return self.inner.reorder(cache, parents)

    def cache_bytes(self, cache: Any) -> int:
        return self.inner.cache_bytes(cache)


class FutureLeak(Wrapped):
    """A hundredth of whether the session ends later on seeps into every earlier logit of the end."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        logits = self.inner.full(events, valid).clone()
        later = (events * valid).flip(1).cumsum(1).flip(1) - events * valid
        logits[..., 2] += 0.01 * later
        return logits


@dataclass
class Late:
    inner: Any
    logits: Tensor


class StaleCache(Wrapped):
    """Answers with the logits of the step before: the newest key is written after it was needed."""

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Late]:
        logits, cache = self.inner.prefill(events, valid)
        return logits, Late(cache, logits)

    def extend(self, events: Tensor, valid: Tensor, cache: Late) -> tuple[Tensor, Late]:
        logits, inner = self.inner.extend(events, valid, cache.inner)
        return torch.cat([cache.logits[:, None], logits[:, :-1]], dim=1), Late(inner, logits[:, -1])

    def reorder(self, cache: Late, parents: Tensor) -> Late:
        return Late(self.inner.reorder(cache.inner, parents), cache.logits[parents])

    def cache_bytes(self, cache: Late) -> int:
        return self.inner.cache_bytes(cache.inner)


class PaddingSeen(Wrapped):
    """Takes padding for events once a row has any on its left."""

    def _all(self, valid: Tensor) -> Tensor:
        return valid | (valid.int().cumsum(1) == 0)

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.inner.full(events, self._all(valid))

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        return self.inner.prefill(events, self._all(valid))


class LayerForgotten(Wrapped):
    """Beams change parents, and the keys of the first layer stay where they were."""

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        before, _, _ = self.inner.stored(cache)
        rows = torch.arange(len(parents)).clamp(max=before.shape[1] - 1)
        kept = before[0].index_select(0, rows).clone()
        moved = self.inner.reorder(cache, parents)
        keys, _, _ = self.inner.stored(moved)
        slots = min(keys.shape[3], kept.shape[2])
        keys[0, :, :, :slots] = kept[:, :, :slots]
        return moved


class SharedPrefix(Wrapped):
    """Keeps its prefix cache by length and last event: another session's prefix gets the first one's answer."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner)
        self.seen: dict[tuple[int, int], Tensor] = {}

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        answers = []
        for row, keep, own in zip(events, valid, logits, strict=True):
            answers.append(self.seen.setdefault((int(keep.sum()), int(row[keep][-1])), own))
        return torch.stack(answers), cache


class Reassigns(Wrapped):
    """Proposes "assigned" after "closed", with certainty, on both paths alike."""

    closed, assigned = 5, 3  # ids of the demo's event map, checked by the test that uses them

    def _biased(self, logits: Tensor, events: Tensor) -> Tensor:
        raised = logits.clone()
        raised[..., self.assigned] += 50 * (events == self.closed)
        return raised

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self._biased(self.inner.full(events, valid), events)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        places = (valid * torch.arange(1, valid.shape[1] + 1)).argmax(1)
        return self._biased(logits, events[torch.arange(len(events)), places]), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return self._biased(logits, events), cache


class NeverEnds(Wrapped):
    """Never proposes the end."""

    def _endless(self, logits: Tensor) -> Tensor:
        lowered = logits.clone()
        lowered[..., 2] = -1e4
        return lowered

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self._endless(self.inner.full(events, valid))

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        return self._endless(logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return self._endless(logits), cache


class Pads(Wrapped):
    """Likes padding best, everywhere."""

    def _padded(self, logits: Tensor) -> Tensor:
        raised = logits.clone()
        raised[..., 0] += 50
        return raised

    full = lambda self, events, valid: self._padded(self.inner.full(events, valid))  # noqa: E731

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        return self._padded(logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return self._padded(logits), cache


class Raises(Wrapped):
    """Breaks in the middle of the work."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        raise RuntimeError("the device ran away")


def _inner(device: str, dtype: torch.dtype) -> Decoder:
    return open_revision(SHIPPED / "revisions" / SOUND).decoder(device=device, dtype=dtype)


def _factory(kind: type[Wrapped]):
    def make(_: Path, device: str, dtype: torch.dtype) -> Wrapped:
        return kind(_inner(device, dtype))

    return make


sound = _factory(Wrapped)
future_leak = _factory(FutureLeak)
stale_cache = _factory(StaleCache)
padding_seen = _factory(PaddingSeen)
layer_forgotten = _factory(LayerForgotten)
shared_prefix = _factory(SharedPrefix)
reassigns = _factory(Reassigns)
never_ends = _factory(NeverEnds)
pads = _factory(Pads)
raises = _factory(Raises)


def refuses_dtype(_: Path, device: str, dtype: torch.dtype) -> Decoder:
    raise TypeError(f"no kernel for {dtype}")
