"""Leaks: ways in which logits come to depend on later events, on the full path and within one append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.inner_leaks import SeesEmbeddings, SoftMask, UnreadSlots
from auditlib.audits.faults.needs import (
    alters_keys,
    context_of,
    has_float64,
    has_gradients,
    shows_its_cache,
    two_events,
)
from auditlib.audits.faults.planting import Fault, Plant, World
from auditlib.audits.faults.wrapping import Planted, wrapped

Leak = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Events, valid [B, T] and logits [B, T, V] → what is added to each position's logits [B, T, V or 1]."""

_EXHAUSTIVE, _APPEND = ("exhaustive next event",), ("later events in one append",)
_TRUNCATION = ("truncation in float64", "truncation")


class _Leaky(Planted):
    """A full path with something of later events added to its logits."""

    def __init__(self, inner: Any, leak: Leak, size: float = 0.01) -> None:
        super().__init__(inner)
        self._leak, self._size = leak, size

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] with `size` times the leak added; the cached path stays the decoder's own."""
        logits: Tensor = self.inner.full(events, valid)
        return logits + self._size * self._leak(events, valid, logits)


class _LeakyAppend(Planted):
    """Several events appended at once see one another; single events are right."""

    def __init__(self, inner: Any, size: float = 0.01, least: int = 2, only_first: bool = False) -> None:
        super().__init__(inner)
        self._size, self._least, self._only_first = size, least, only_first

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] with a trace of later events, in appends of `least` events or more; the cache is right."""
        logits, cache = self.inner.extend(events, valid, cache)
        if events.shape[1] < self._least:
            return logits, cache
        told = _told(events) * valid
        later = told.flip(1).cumsum(1).flip(1) - told
        if self._only_first:
            later = torch.where(torch.arange(events.shape[1], device=events.device) == 0, told[:, -1:], 0.0)
        return logits + (self._size * later).to(logits.dtype)[..., None], cache


class _NoNumbers(Planted):
    """Divides zero by zero at some positions: at padding, or at the earliest of a long prompt."""

    def __init__(self, inner: Any, longest: int | None = None) -> None:
        super().__init__(inner)
        self._longest = longest

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits with NaN at padding; given `longest`, only at the first event of rows with more events than that."""
        logits: Tensor = self.inner.full(events, valid)
        wrong = ~valid
        if self._longest is not None:
            wrong = (valid.cumsum(1) == 1) & valid & (valid.sum(1, keepdim=True) > self._longest)
        return logits.masked_fill(wrong[..., None], torch.nan)


def _told(events: Tensor) -> Tensor:
    """A number for each event, so that every other event gives another one."""
    return torch.sin(events.double() * 1.7 + 0.3)


def _next(events: Tensor, valid: Tensor, ahead: int = 1) -> Tensor:
    """What the event `ahead` places on is told as [B, T, 1]; 0 where there is none."""
    told = _told(events) * valid
    moved = torch.cat([told[:, ahead:], torch.zeros_like(told[:, :ahead])], 1)[:, : told.shape[1]]
    return (moved * valid)[..., None]


def _blocks(size: int) -> Leak:
    def leak(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
        """Every whole block's mean, given to all of its positions."""
        blocks, whole = events.shape[1] // size, events.shape[1] // size * size
        told = (_told(events) * valid)[:, :whole].reshape(len(events), blocks, size)
        mean = told.mean(2, keepdim=True).expand_as(told).flatten(1, 2)
        return torch.cat([mean, torch.zeros_like(events[:, whole:], dtype=mean.dtype)], 1)[..., None].to(logits.dtype)

    return leak


def _row_mean(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    return (((_told(events) * valid).sum(1) / valid.sum(1))[:, None, None] * valid[..., None]).to(logits.dtype)


def _all_later(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    told = _told(events) * valid
    return (told.flip(1).cumsum(1).flip(1) - told)[..., None].to(logits.dtype)


def _one_ahead(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    return _next(events, valid).to(logits.dtype)


def _far_ahead(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    return _next(events, valid, 8).to(logits.dtype)


def _wraps(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    """A filter that runs round: the first position hears the last."""
    last = (_told(events) * valid)[:, -1:]
    return torch.cat([last, torch.zeros_like(events[:, 1:], dtype=last.dtype)], 1)[..., None].to(logits.dtype)


def _block_ends(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    ends = (torch.arange(events.shape[1], device=events.device) + 1) % 8 == 0
    return (_next(events, valid) * ends[:, None]).to(logits.dtype)


def _only_padded(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    return _next(events, valid).to(logits.dtype) * (~valid).any()


def _before_one_event(world: World) -> World:
    """The newest name of the event map is known one event early, and no other."""
    return wrapped(_Leaky, leak=_before(max(world.subject.event_map.domain)))(world)


def _before_the_end(world: World) -> World:
    """The end is known one event early."""
    return wrapped(_Leaky, leak=_before(world.subject.event_map.end))(world)


def _before(known: int) -> Leak:
    def leak(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
        """1 for every logit at positions whose next event is the known one, else 0."""
        ahead = torch.cat([events[:, 1:] == known, torch.zeros_like(valid[:, :1])], 1)
        return (ahead & valid)[..., None].to(logits.dtype)

    return leak


def _length(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:  # noqa: ARG001
    return logits * valid.sum(1)[:, None, None].to(logits.dtype)


def _width(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:  # noqa: ARG001
    return logits * events.shape[1]


def _batch_of_one(events: Tensor, valid: Tensor, logits: Tensor) -> Tensor:
    return _next(events, valid).to(logits.dtype) * (len(events) == 1)


def _leak(name: str, leak: Leak, report: str = "", *, size: float = 0.01, checks: tuple[str, ...] = _EXHAUSTIVE,
          needs: tuple[Any, ...] = (two_events,)) -> Fault:  # fmt: skip
    return _causal(name, wrapped(_Leaky, leak=leak, size=size), checks, report, needs)


def _causal(name: str, plant: Plant, checks: tuple[str, ...], report: str = "", needs: tuple[Any, ...] = ()) -> Fault:
    return Fault(name, "causality", "causality", checks, plant, report, needs)


_PREFIX_MEAN = "karpathy/nanochat #844"

CAUSAL: tuple[Fault, ...] = (
    _leak("the mask is forgotten", _all_later, "huggingface/transformers #48745"),
    _leak("the mask is off by one", _one_ahead, "keras-team/keras #21284"),
    _leak("a mean over blocks of 4", _blocks(4), _PREFIX_MEAN, needs=(two_events, context_of(4))),
    _leak("a mean over blocks of 16", _blocks(16), _PREFIX_MEAN, needs=(two_events, context_of(16))),
    _leak("a mean over the row", _row_mean, "Shwai-He/MEO #2"),
    _leak("a filter that runs round", _wraps, _PREFIX_MEAN),
    _leak("a leak over eight places only", _far_ahead, "paiml/entrenar #310", needs=(two_events, context_of(9))),
    _leak("a leak at block ends only", _block_ends, needs=(two_events, context_of(9))),
    _leak("a leak in padded batches only", _only_padded),
    _causal("a leak before one event only", _before_one_event, _EXHAUSTIVE, needs=(two_events,)),
    _causal("a leak before the end only", _before_the_end, _EXHAUSTIVE, needs=(two_events,)),
    _leak("a leak of a millionth", _all_later, size=1e-6, checks=_TRUNCATION[:1], needs=(has_float64, two_events)),
    _leak("a leak of a hundred-millionth", _all_later, size=1e-7, checks=_TRUNCATION[:1],
          needs=(has_float64, two_events)),
    _leak("the row's length is felt", _length, size=1e-3, checks=_TRUNCATION),
    _leak("the batch's width is felt", _width, size=1e-3, checks=_TRUNCATION),
    _leak("a leak in a batch of one", _batch_of_one, checks=_TRUNCATION, needs=(two_events,)),
    _causal("one append sees itself", wrapped(_LeakyAppend), _APPEND, "pytorch/pytorch #144858", (two_events,
            context_of(6))),
    _causal("one append of three or more sees itself", wrapped(_LeakyAppend, least=3), _APPEND,
            "huggingface/candle PR 3743", (two_events, context_of(8))),
    _causal("the first of an append sees the last", wrapped(_LeakyAppend, size=1e-4, only_first=True), _APPEND, "",
            (two_events, context_of(6))),
    _causal("no number at padding", wrapped(_NoNumbers), ("not finite logits",), "pytorch/pytorch #103749"),
    _causal("no number before the window", wrapped(_NoNumbers, longest=8), ("not finite logits",),
            "lablup/mlxcel PR 412",
            (context_of(9),)),
    _causal("later embeddings are felt", wrapped(SeesEmbeddings, size=1e-2), ("jacobian",), _PREFIX_MEAN,
            (has_gradients,)),
    _causal("later embeddings are felt faintly", wrapped(SeesEmbeddings, size=1e-5), ("jacobian",), "",
            (has_gradients,)),
    _causal("the mask only adds a large negative number", wrapped(SoftMask), ("finite poison",),
            "pytorch/pytorch #101967",
            (alters_keys, shows_its_cache)),
    _causal("slots are read before they are written", wrapped(UnreadSlots), ("finite poison",),
            "GeeeekExplorer/nano-vllm PR 213", (alters_keys, shows_its_cache, context_of(6))),
)  # fmt: skip
