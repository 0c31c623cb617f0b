"""Faults of identity: answers that belong to another request, and the list of them with those of guards."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from auditlib.audits.faults.guards import (
    AnyField,
    LengthsOnly,
    LongerServes,
    StayingRecord,
    WeakKeys,
    guarded_by,
    spent_serves,
)
from auditlib.audits.faults.needs import (
    feels_old_events,
    feels_recent_events,
    names_weights,
    shows_its_cache,
    swaps_in_a_twin,
    two_events,
)
from auditlib.audits.faults.planting import Fault, Need, Plant, World, in_decoder
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.audits.held_out import Row
from auditlib.decoders.protocol import Decoder

_ANSWER, _ALTERED = "answer after another session", "altered requests accepted"
Key = Callable[[Row], Hashable]
_FELT: tuple[Need, ...] = (two_events, feels_recent_events, feels_old_events)


class _Remembers(Planted):
    """A prefix cache of its own whose key is too small: who asks first answers for all who look alike."""

    def __init__(self, inner: Any, key: Key, memory: dict[Hashable, Tensor] | None = None) -> None:
        super().__init__(inner)
        self._key, self._memory = key, {} if memory is None else memory

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V] of whoever asked first under a row's key, and the cache of the request itself."""
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
        """Logits with a hundredth of those of the first row of the prompt before, and the cache untouched."""
        logits, cache = super().prefill(events, valid)
        left = self._last
        if left is None or left.dtype != logits.dtype:
            left = torch.zeros_like(logits[:1])
        self._last, broken = logits[:1].clone(), self._open > 0
        self._open += 1
        moves = self._when == "always" or broken
        return (logits + 0.01 * left if moves else logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's own; the prompt before it no longer counts as broken off."""
        logits, cache = super().extend(events, valid, cache)
        self._open = 0
        return logits, cache


class _Drifts(Planted):
    """Every call changes something that is kept: a probe that only reads moves the next answer."""

    def __init__(self, inner: Any, verb: str) -> None:
        super().__init__(inner)
        self._verb, self._calls = verb, 0

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits a thousandth larger for each full pass so far, where that is the verb."""
        return self._moved("full", super().full(events, valid))

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits a thousandth larger for each step so far, where that is the verb; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        return self._moved("extend", logits), cache

    def _moved(self, verb: str, logits: Tensor) -> Tensor:
        self._calls += verb == self._verb
        return logits * (1 + 1e-3 * self._calls) if verb == self._verb else logits


class _Ring(Planted):
    """Caches are places in a ring of eight: the ninth prompt takes the place of a session that still goes on."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._ring: list[Any] = [None] * 8
        self._next = 0

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V] of the decoder, and the number of a place."""
        logits, cache = super().prefill(events, valid)
        return logits, self._placed(cache)

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] from whatever lies in the place."""
        logits, self._ring[cache] = super().extend(events, valid, self._ring[cache])
        return logits, cache

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """The number of a new place."""
        return self._placed(super().reorder(self._ring[cache], parents))

    def cache_bytes(self, cache: Any) -> int:
        """Bytes of what lies in the place."""
        return super().cache_bytes(self._ring[cache])

    def _placed(self, cache: Any) -> int:
        place, self._next = self._next, (self._next + 1) % len(self._ring)
        self._ring[place] = cache
        return place


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


def _shared_memory(world: World) -> World:
    """One memory for all decoders of this world."""
    memory: dict[Hashable, Tensor] = {}

    def kind(decoder: Decoder) -> Decoder:
        """The decoder in front of the shared memory, which knows a row by its events alone."""
        return _OverRevisions(decoder, key=lambda row: row, memory=memory)

    return in_decoder(kind)(world)


def _identity(name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    return Fault(name, "cache identity", "cache identity", (check,), plant, report, needs)


def _keyed(name: str, key: Key, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    kept = wrapped(_Remembers, key=key)
    return _identity(f"a prefix cache keyed by {name}", kept, _ANSWER, report, (*needs, *_FELT))


IDENTITY: tuple[Fault, ...] = (
    _keyed("length", len, "ggml-org/llama.cpp #1585"),
    _keyed("the last event", lambda row: row[-1]),
    _keyed("length and last event", lambda row: (len(row), row[-1]), "waybarrios/vllm-mlx #384"),
    _keyed("its events in any order", lambda row: tuple(sorted(row)), "vllm-project/vllm PR 12621", (swaps_in_a_twin,)),
    _keyed("the first events", lambda row: row[: max(1, len(row) - 1)], "Blaizzy/mlx-vlm #1715"),
    _identity("a prefix cache that ignores the revision", _shared_memory, _ANSWER, "vllm-project/vllm #3264",
              (names_weights,)),
    _identity("something of the last request is left", wrapped(_Carries, when="always"), _ANSWER,
              "huggingface/transformers PR 48809"),
    _identity("a request that broke off is felt", wrapped(_Carries, when="broken off"), _ANSWER,
              "sgl-project/sglang #23392"),
    _identity("caches are places in a ring of eight", wrapped(_Ring), _ANSWER, "", _FELT),
    _identity("every full pass changes the next", wrapped(_Drifts, verb="full"), "repeated answer",
              "huggingface/transformers #37078"),
    _identity("every step changes the next", wrapped(_Drifts, verb="extend"), "repeated answer",
              "ml-explore/mlx-lm PR 1109"),
    _identity("a changed weight keeps its name", wrapped(_OneName), _ALTERED, "InternLM/lmdeploy #4917",
              (names_weights,)),
    _identity("a decoder never gives its weights the same name", wrapped(_OneName, stable=False),
              "own requests rejected", "",
              (names_weights,)),
    _identity("the guard ignores the revision", guarded_by(AnyField, "revision"), _ALTERED, "vllm-project/vllm #30931"),
    _identity("the guard ignores the weights", guarded_by(AnyField, "weights"), _ALTERED, "NovaSky-AI/SkyRL #2246"),
    _identity("the guard ignores the event map", guarded_by(AnyField, "event_map"), _ALTERED,
              "sillsdev/silnlp PR 1053"),
    _identity("the guard ignores the dtype", guarded_by(AnyField, "dtype"), _ALTERED, "vllm-project/vllm #44250"),
    _identity("the guard compares lengths only", guarded_by(LengthsOnly), _ALTERED, "lucidrains/x-transformers #311",
              (two_events,)),
    _identity("the guard serves a prefix from a longer cache", guarded_by(LongerServes), _ALTERED,
              "ggml-org/llama.cpp #1585"),
    _identity("the guard serves a spent cache", spent_serves, _ALTERED, "sgl-project/mini-sglang PR 142"),
    _identity("the guard's key runs fields together", guarded_by(WeakKeys), _ALTERED, "vllm-project/vllm #44701"),
    _identity("the guard's record stays when rows move", guarded_by(StayingRecord), "own requests rejected", "",
              (shows_its_cache,)),
)  # fmt: skip
