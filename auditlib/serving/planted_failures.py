"""Engines that fail while they serve, one for each way in which an artifact may fail."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.serving.engine import Engine, Finished
from auditlib.serving.served import Served

_SOUND_STEPS = 2  # before a planted failure shows, so that it meets a batch under way


class FailingEngine(Engine):
    """An engine that is sound for a few steps. `shown` collects the steps at which it was not."""

    released: threading.Event
    shown: list[int]
    _steps = 0

    def step(self) -> list[Finished]:
        """What the engine gives; from the third step on, what a failing one gives."""
        self._steps += 1
        if self._steps <= _SOUND_STEPS:
            return super().step()
        self.shown.append(self._steps)
        return self.fail()

    def fail(self) -> list[Finished]:
        """One step gone wrong."""
        return super().step()


class _Raising(FailingEngine):
    def fail(self) -> list[Finished]:
        """Nothing: raises RuntimeError in the middle of a batch."""
        raise RuntimeError("planted by a rehearsal")


class _Hanging(FailingEngine):
    def fail(self) -> list[Finished]:
        """Nothing: blocks the engine's thread until `released` is set, then raises RuntimeError."""
        # Not a sleep: whoever planted it lets its thread go when the trial is over.
        self.released.wait()
        raise RuntimeError("planted by a rehearsal")


class _WithoutNumbers(FailingEngine):
    """Its decoder gives logits that are not numbers."""

    def __init__(self, served: Served, *, cached: bool | None = None) -> None:
        super().__init__(replace(served, decoder=_spoilt(served.decoder, self)), cached=cached)

    @property
    def fails(self) -> bool:
        """Whether the decoder's logits are spoilt by now."""
        return self._steps > _SOUND_STEPS


class _OutOfOrder(FailingEngine):
    """Its answers begin with padding, which no order allows."""

    def fail(self) -> list[Finished]:
        """The engine's answers, each with padding before its events."""
        padding = self.served.event_map.padding
        given = super().fail()
        return [replace(one, best=replace(one.best, events=(padding, *one.best.events))) for one in given]


class _CacheOfOthers(FailingEngine):
    """Its weights get another name under the caches that it holds, as if they had been changed in place."""

    def fail(self) -> list[Finished]:
        """What the engine gives once its guard no longer knows the weights."""
        # The guard itself must find out; raising its error here would rehearse only the way out of it.
        self._weights = "planted by a rehearsal"
        return super().fail()


FAILURES: Mapping[str, type[FailingEngine]] = {
    "engine raises": _Raising,
    "engine hangs": _Hanging,
    "logits are not numbers": _WithoutNumbers,
    "answer breaks the order": _OutOfOrder,
    "cache is rejected": _CacheOfOthers,
}
"""Failures that are planted, with the engine that shows them."""


def planted(failure: str, released: threading.Event, shown: list[int]) -> type[FailingEngine]:
    """The engine of a failure of `FAILURES`, for one trial: a hanging one ends when `released` is set.

    `shown` collects the numbers of the steps that went wrong.
    """
    # A class of its own for each trial: what a hanging one shares must not reach into the next.
    return type("Planted", (FAILURES[failure],), {"released": released, "shown": shown})


def _spoilt(decoder: Decoder, engine: _WithoutNumbers) -> Decoder:
    """A copy of the decoder, over the same weights, whose logits are no numbers while the engine says so."""
    found: Any = copy.copy(decoder)  # a copy keeps what else the decoder can do, as a wrapper would not

    def soiled(logits: Tensor) -> Tensor:
        """NaN for every logit once the engine fails; before that the logits as they are."""
        return logits * float("nan") if engine.fails else logits

    def full(events: Tensor, valid: Tensor) -> Tensor:
        """The decoder's own logits, soiled."""
        return soiled(decoder.full(events, valid))

    def prefill(events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """The decoder's own logits, soiled, and its cache, which stays sound."""
        logits, cache = decoder.prefill(events, valid)
        return soiled(logits), cache

    def extend(events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's own logits, soiled, and its grown cache."""
        logits, cache = decoder.extend(events, valid, cache)
        return soiled(logits), cache

    found.full, found.prefill, found.extend = full, prefill, extend
    spoilt: Decoder = found
    return spoilt
