"""Revisions whose adapter answers badly rather than wrongly: raises, lies, mutates, or gives no logits at all.

`revision.json` names them as `tests.bad_decoders:NAME`; each is made of the demo's sound decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from tests.faulty import Wrapped, _inner


class RaisesInTheMiddle(Wrapped):
    """Works for fifty calls of extend, then the device is gone."""

    calls = 0

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        type(self).calls += 1
        if type(self).calls > 50:
            raise RuntimeError("the device ran away")
        return self.inner.extend(events, valid, cache)


class ShortLogits(Wrapped):
    """One logit too few."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return logits[..., :-1], cache


class WholeNumbers(Wrapped):
    """Logits as whole numbers."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.inner.full(events, valid).long()

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        return logits.long(), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return logits.long(), cache


class NoLogits(Wrapped):
    """No answer on the full path."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return None  # type: ignore[return-value]


class NanInTheCache(Wrapped):
    """Not a number, on the cached path only."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.inner.extend(events, valid, cache)
        return logits * float("nan"), cache


class NanEverywhere(NanInTheCache):
    """Weights that are no numbers: neither path has any."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.inner.full(events, valid) * float("nan")

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = self.inner.prefill(events, valid)
        return logits * float("nan"), cache


class BytesLie(Wrapped):
    """Says that its cache costs nothing."""

    def cache_bytes(self, cache: Any) -> int:
        return 0


class BytesRaise(Wrapped):
    """Does not know what its cache costs."""

    def cache_bytes(self, cache: Any) -> int:
        raise NotImplementedError("ask the vendor")


class Mutates(Wrapped):
    """Writes into the events that it is given, after reading them."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        answer = self.inner.extend(events, valid, cache)
        events.fill_(0)
        return answer


class MutatesFull(Wrapped):
    """The same on the full path."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        answer = self.inner.full(events, valid)
        events.fill_(3)
        return answer


class MutatesValid(Wrapped):
    """Takes all positions for valid once it has read them."""

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        answer = self.inner.prefill(events, valid)
        valid.fill_(True)
        return answer


class SmallVocabulary(Wrapped):
    """Fewer logits than the event map has events."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner)
        self.vocabulary_size = 4


class ShortContext(Wrapped):
    """A context that no session fits."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner)
        self.context_length = 3


class Nonsense(Wrapped):
    """Attributes that are no numbers."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner)
        self.vocabulary_size = "many"  # type: ignore[assignment]


class NoContext(Wrapped):
    """Says nothing of its context length."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__(inner)
        del self.context_length


class NoReorder(Wrapped):
    """Lacks a verb of contract 1."""

    reorder = None  # type: ignore[assignment]


class Exits(Wrapped):
    """Ends the process, as careless scripts do."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        raise SystemExit(0)


class Recurses(Wrapped):
    """Never comes back by itself."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self.full(events, valid)


def _factory(kind: type[Wrapped]) -> Callable[[Path, str, torch.dtype], Wrapped]:
    return lambda _, device, dtype: kind(_inner(device, dtype))


raises_in_the_middle = _factory(RaisesInTheMiddle)
short_logits = _factory(ShortLogits)
whole_numbers = _factory(WholeNumbers)
no_logits = _factory(NoLogits)
nan_in_the_cache = _factory(NanInTheCache)
nan_everywhere = _factory(NanEverywhere)
bytes_lie = _factory(BytesLie)
bytes_raise = _factory(BytesRaise)
mutates = _factory(Mutates)
mutates_full = _factory(MutatesFull)
mutates_valid = _factory(MutatesValid)
small_vocabulary = _factory(SmallVocabulary)
short_context = _factory(ShortContext)
nonsense = _factory(Nonsense)
no_context = _factory(NoContext)
no_reorder = _factory(NoReorder)
exits = _factory(Exits)
recurses = _factory(Recurses)


def exits_at_once(_: Path, device: str, dtype: torch.dtype) -> Decoder:
    raise SystemExit(0)


def gives_nothing(_: Path, device: str, dtype: torch.dtype) -> Decoder:
    return None  # type: ignore[return-value]
