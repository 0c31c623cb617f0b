"""Faults of numbers: a cached path that is coarser than the full one, a little or a lot, in its store or its logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import alters_keys, has_float64, is_coarser, shows_its_cache
from auditlib.audits.faults.planting import Fault, Need, Plant, World
from auditlib.audits.faults.wrapping import Planted, Showing, wrapped
from auditlib.decoders.protocol import Decoder


class _CoarseStore(Showing):
    """Keys and values of prompt and steps are kept in 16 bits (8 of them significant)."""

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """The right logits, and a cache whose stored keys and values were rounded to bfloat16 in place."""
        logits, cache = super().prefill(events, valid)
        for stored in self.inner.stored(cache)[:2]:
            stored.copy_(stored.to(torch.bfloat16).to(stored.dtype))
        return logits, cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits and cache from new keys and values that were rounded to bfloat16 before anything attended to them."""

        def coarse(_: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            """Keys and values with the precision of bfloat16, in the dtype that they came in."""
            return keys.to(torch.bfloat16).to(keys.dtype), values.to(torch.bfloat16).to(values.dtype)

        logits, cache = self.inner.extend_altered(events, valid, cache, coarse)
        return logits, cache


class _Off(Planted):
    """Cached logits are off by a share of themselves, of another sign for every other event."""

    def __init__(self, inner: Any, share: float) -> None:
        super().__init__(inner)
        self._share = share

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] off by `share` of the largest at each position; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        signs = 1 - 2 * (torch.arange(logits.shape[-1], device=logits.device) % 2).to(logits.dtype)
        return logits + self._share * logits.abs().amax(-1, keepdim=True) * signs, cache


def _off_by(roundoffs: float) -> Plant:
    """Plants logits that are off by so many roundoffs of the dtype that the decoder computes in.

    Not of the dtype that it answers in: many decoders compute in 16 bits and answer in 32.
    """

    def kind(decoder: Decoder, dtype: torch.dtype) -> Decoder:
        """The decoder off by so many roundoffs of `dtype`, whatever it answers in."""
        return _Off(decoder, roundoffs * torch.finfo(dtype).eps)

    def plant(world: World) -> World:
        """The world with each load off by roundoffs of its own dtype; a float64 one only by those of float64."""
        subject = world.subject
        decoder = kind(subject.decoder, subject.dtype)
        faulty = replace(subject, decoder=decoder, load=lambda dtype: kind(subject.load(dtype), dtype))
        fine = world.fine and (decoder if world.fine is subject.decoder else kind(world.fine, torch.float64))
        return replace(world, subject=faulty, fine=fine)

    return plant


class _Coarse(Planted):
    """Cached logits pass through another dtype on their way out."""

    def __init__(self, inner: Any, dtype: torch.dtype, least: torch.dtype | None = None) -> None:
        super().__init__(inner)
        self._dtype, self._least = dtype, least

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits rounded to the other dtype and given in their own; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        return logits.to(self._dtype).to(logits.dtype), cache


class _OtherChoice(Planted):
    """The two likeliest events change places on the cached path."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] in which the two largest have been exchanged; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        best = logits.topk(2)
        return logits.scatter(-1, best.indices, best.values.flip(-1)), cache


def _numbers(
    name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = (), audit: str = "numerics"
) -> Fault:
    return Fault(name, "numerics", audit, (check,), plant, report, needs)


_STORE = (shows_its_cache, alters_keys)
_BF16 = "oarriaga/paz PR 415"

ROUNDING: tuple[Fault, ...] = (
    _numbers("the cache is kept in 16 bits", wrapped(_CoarseStore), "logic in float64", _BF16, (has_float64, *_STORE)),
    _numbers("float64 is computed in float32", wrapped(_Coarse, dtype=torch.float32), "logic in float64", _BF16,
             (has_float64,)),
    _numbers("cached logits are off by a ten-millionth", wrapped(_Off, share=1e-7), "logic in float64",
             "huggingface/transformers #25420", (has_float64,)),
    _numbers("cached logits are off by a hundred-millionth", wrapped(_Off, share=1e-8), "single events in float64",
             "huggingface/transformers #25420", (has_float64,), "cache parity"),
    _numbers("cached logits are off by sixteen roundoffs", _off_by(16), "pooled ratio",
             "NVIDIA/TensorRT-LLM #15503", (is_coarser,)),
    _numbers("each session is off by sixteen roundoffs", _off_by(16),
             "sessions above ratio 1.25",
             "vllm-project/vllm #51187", (is_coarser,)),
    _numbers("cached logits come out in 8 bits", wrapped(_Coarse, dtype=torch.float8_e4m3fn), "pooled ratio",
             "vllm-project/vllm PR 54338", (is_coarser,)),
    _numbers("the two likeliest change places", wrapped(_OtherChoice), "decisions that differ",
             "vllm-project/vllm #51187"),
    Fault("cached logits pass through float64", "numerics", "cache parity", ("single events",),
          wrapped(_Coarse, dtype=torch.float64), equivalent="float64 holds every number of a coarser dtype exactly"),
    Fault("cached logits are off by less than a roundoff", "numerics", "cache parity", ("single events",),
          _off_by(0.1), equivalent="less than what writing down a logit in its dtype costs"),
)  # fmt: skip
