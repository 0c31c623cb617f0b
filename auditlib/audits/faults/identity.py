"""Faults of identity: answers that belong to another request, and guards that let the wrong cache through."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from auditlib.audits.faults.needs import (
    feels_old_events,
    feels_recent_events,
    names_weights,
    shows_its_cache,
    two_events,
)
from auditlib.audits.faults.planting import Fault, Need, Plant, World, in_decoder
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.audits.held_out import Row
from auditlib.decoders.protocol import Decoder
from auditlib.decoding.cache_guard import CacheIdentity, GuardedCache, GuardedDecoder

_ANSWER, _ALTERED = "answer after another session", "altered requests accepted"
Key = Callable[[Row], Hashable]
_FELT: tuple[Need, ...] = (two_events, feels_recent_events, feels_old_events)


class _Remembers(Planted):
    """A prefix cache of its own whose key is too small: who asks first answers for all who look alike."""

    def __init__(self, inner: Any, key: Key, memory: dict[Hashable, Tensor] | None = None) -> None:
        super().__init__(inner)
        self._key, self._memory = key, {} if memory is None else memory

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = super().prefill(events, valid)
        answers = []
        for row, keep, own in zip(events, valid, logits, strict=True):
            # The dtype is part of the key: an answer in another would be refused for its shape, not its owner.
            key = (self._key(tuple(row[keep].tolist())), own.dtype)
            answers.append(self._memory.setdefault(key, own.clone()))
        return torch.stack(answers), cache


class _OverRevisions(_Remembers):
    """Memory that all decoders of a process share, and that does not know whose weights it came from."""

    @property
    def module(self) -> nn.Module:
        """The decoder's weights, for whoever changes them."""
        found: nn.Module = self.inner.module
        return found


class _Carries(Planted):
    """Something of the request before is left in the next: on every prompt, or after a request that broke off."""

    def __init__(self, inner: Any, when: str) -> None:
        super().__init__(inner)
        self._when, self._open = when, 0
        self._last: Tensor | None = None

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        logits, cache = super().prefill(events, valid)
        left = self._last
        if left is None or left.dtype != logits.dtype:
            left = torch.zeros_like(logits[:1])
        self._last, broken = logits[:1].clone(), self._open > 0
        self._open += 1
        moves = self._when == "always" or broken
        return (logits + 0.01 * left if moves else logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = super().extend(events, valid, cache)
        self._open = 0
        return logits, cache


class _Drifts(Planted):
    """Every call changes something that is kept: a probe that only reads moves the next answer."""

    def __init__(self, inner: Any, verb: str) -> None:
        super().__init__(inner)
        self._verb, self._calls = verb, 0

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self._moved("full", super().full(events, valid))

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = super().extend(events, valid, cache)
        return self._moved("extend", logits), cache

    def _moved(self, verb: str, logits: Tensor) -> Tensor:
        self._calls += verb == self._verb
        return logits * (1 + 1e-3 * self._calls) if verb == self._verb else logits


class _OneName(Planted):
    """Names its weights once and for all: a change in place goes unnoticed."""

    def __init__(self, inner: Any, stable: bool = True) -> None:
        super().__init__(inner)
        self._stable, self._asked = stable, 0

    @property
    def module(self) -> nn.Module:
        """The decoder's weights."""
        found: nn.Module = self.inner.module
        return found

    def fingerprint(self) -> str:
        """The name given at the start, or another one at every question."""
        self._asked += 1
        return self.revision if self._stable else f"{self.revision} {self._asked}"


class _AnyField(GuardedDecoder):
    """A guard that does not compare some fields of a request."""

    ignored: tuple[str, ...] = ()

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Compare what is asked after the ignored fields were made equal."""
        if isinstance(cache, GuardedCache):
            asked = replace(asked, **{name: getattr(cache.identity, name) for name in self.ignored})
        return super().require(cache, asked)


class _LengthsOnly(GuardedDecoder):
    """A guard that compares the lengths of rows, not their events."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Let every row of the right length through."""
        mine = cache.identity.rows if isinstance(cache, GuardedCache) else ()
        if [len(row) for row in mine] == [len(row) for row in asked.rows]:
            asked = replace(asked, rows=mine)
        return super().require(cache, asked)


class _LongerServes(GuardedDecoder):
    """A guard that takes a cache of more events for one of fewer: the rest stays visible."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Let every cache through whose rows begin as asked."""
        mine = cache.identity.rows if isinstance(cache, GuardedCache) else ()
        begins = len(mine) == len(asked.rows) and all(a == b[: len(a)] for a, b in zip(asked.rows, mine, strict=True))
        return super().require(cache, replace(asked, rows=mine) if begins else asked)


class _SpentServes(GuardedDecoder):
    """A guard that lets a cache be continued twice."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Renew what was spent."""
        fresh = GuardedCache(cache.inner, cache.identity) if isinstance(cache, GuardedCache) and cache.spent else cache
        return super().require(fresh, asked)


class _RunTogether(CacheIdentity):
    """An identity whose key runs its fields together, without names and lengths between them."""

    @property
    def key(self) -> str:
        """All values one after another."""
        terms = (self.dtype, self.device, self.positions, self.revision, self.weights)
        return (
            "".join(sorted([self.event_map, self.event_order]))
            + "".join(sorted(terms))
            + str([event for row in self.rows for event in row])
        )


class _WeakKeys(GuardedDecoder):
    """A guard that gives identities with weak keys."""

    def identity(self, rows: Any) -> CacheIdentity:
        """Identity of a request."""
        own = super().identity(rows)
        return _RunTogether(**{name: getattr(own, name) for name in CacheIdentity.__dataclass_fields__})


class _StayingRecord(GuardedDecoder):
    """A guard whose record does not follow when rows move."""

    def reorder(self, cache: GuardedCache, parents: Tensor) -> GuardedCache:
        """The decoder's reorder under the old record's first row."""
        moved = super().reorder(cache, parents)
        rows = cache.identity.rows
        return GuardedCache(moved.inner, replace(moved.identity, rows=(rows * len(parents))[: len(parents)]))


def _guard(kind: type[GuardedDecoder], *ignored: str) -> Plant:
    made = type(kind.__name__, (kind,), {"ignored": ignored}) if ignored else kind

    def plant(world: World) -> World:
        return replace(world, guard=made)

    return plant


def _shared_memory(world: World) -> World:
    """One memory for all decoders of this world."""
    memory: dict[Hashable, Tensor] = {}

    def kind(decoder: Decoder) -> Decoder:
        return _OverRevisions(decoder, key=lambda row: row, memory=memory)

    return in_decoder(kind)(world)


class _Reusable(Planted):
    """Leaves the old cache as it was: nothing of the decoder's own would refuse a second use."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        rows = torch.arange(len(events), device=events.device)
        logits, grown = self.inner.extend(events, valid, self.inner.reorder(cache, rows))
        return logits, grown


def _spent_serves(world: World) -> World:
    return replace(wrapped(_Reusable)(world), guard=_SpentServes)


def _identity(name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    return Fault(name, "cache identity", "cache identity", (check,), plant, report, needs)


def _keyed(name: str, key: Key, report: str = "") -> Fault:
    return _identity(f"a prefix cache keyed by {name}", wrapped(_Remembers, key=key), _ANSWER, report, _FELT)


IDENTITY: tuple[Fault, ...] = (
    _keyed("length", len, "ggml-org/llama.cpp #1585"),
    _keyed("the last event", lambda row: row[-1]),
    _keyed("length and last event", lambda row: (len(row), row[-1]), "waybarrios/vllm-mlx #384"),
    _keyed("its events in any order", lambda row: tuple(sorted(row)), "vllm-project/vllm PR 12621"),
    _keyed("the first events", lambda row: row[: max(1, len(row) - 1)], "Blaizzy/mlx-vlm #1715"),
    _identity("a prefix cache that ignores the revision", _shared_memory, _ANSWER, "vllm-project/vllm #3264",
              (names_weights,)),
    _identity("something of the last request is left", wrapped(_Carries, when="always"), _ANSWER,
              "huggingface/transformers PR 48809"),
    _identity("a request that broke off is felt", wrapped(_Carries, when="broken off"), _ANSWER,
              "sgl-project/sglang #23392"),
    _identity("every full pass changes the next", wrapped(_Drifts, verb="full"), "repeated answer",
              "huggingface/transformers #37078"),
    _identity("every step changes the next", wrapped(_Drifts, verb="extend"), "repeated answer",
              "ml-explore/mlx-lm PR 1109"),
    _identity("a changed weight keeps its name", wrapped(_OneName), _ALTERED, "InternLM/lmdeploy #4917",
              (names_weights,)),
    _identity("a decoder never gives its weights the same name", wrapped(_OneName, stable=False),
              "own requests rejected", "",
              (names_weights,)),
    _identity("the guard ignores the revision", _guard(_AnyField, "revision"), _ALTERED, "vllm-project/vllm #30931"),
    _identity("the guard ignores the weights", _guard(_AnyField, "weights"), _ALTERED, "NovaSky-AI/SkyRL #2246"),
    _identity("the guard ignores the event map", _guard(_AnyField, "event_map"), _ALTERED, "sillsdev/silnlp PR 1053"),
    _identity("the guard ignores the dtype", _guard(_AnyField, "dtype"), _ALTERED, "vllm-project/vllm #44250"),
    _identity("the guard compares lengths only", _guard(_LengthsOnly), _ALTERED, "lucidrains/x-transformers #311",
              (two_events,)),
    _identity("the guard serves a prefix from a longer cache", _guard(_LongerServes), _ALTERED,
              "ggml-org/llama.cpp #1585"),
    _identity("the guard serves a spent cache", _spent_serves, _ALTERED, "sgl-project/mini-sglang PR 142"),
    _identity("the guard's key runs fields together", _guard(_WeakKeys), _ALTERED, "vllm-project/vllm #44701"),
    _identity("the guard's record stays when rows move", _guard(_StayingRecord), "own requests rejected", "",
              (shows_its_cache,)),
)  # fmt: skip
