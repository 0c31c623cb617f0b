"""Faults of reordering: rows that stay, move in part, share a place, or follow the wrong parent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import (
    alters_keys,
    context_of,
    feels_recent_events,
    shows_its_cache,
    shows_views_of_its_cache,
    two_events,
)
from auditlib.audits.faults.planting import Fault, Need, Plant
from auditlib.audits.faults.wrapping import Batch, Planted, Retold, Showing, Told, wrapped
from auditlib.audits.held_out import Row

_REORDERED, _DROPPED, _STORED = "reordered rows", "dropped rows", "stored keys and values"


class _Moves(Retold):
    """Rows move wrongly when a cache is reordered; `how` names the way."""

    def __init__(self, inner: Any, how: str) -> None:
        super().__init__(inner)
        self._how = how

    def moved(self, cache: Told, parents: list[int]) -> tuple[Row, ...]:
        """Histories after a move in the way that `how` names; right ones where that way has nothing to spoil."""
        old, right = cache.rows, super().moved(cache, parents)
        kept = tuple(old[row % len(old)] for row in range(len(parents)))
        if self._stays(len(parents), len(old), cache.moves):
            return kept
        if self._how == "inverse" and sorted(parents) == list(range(len(old))):
            return tuple(old[parents.index(row)] for row in range(len(old)))
        if self._how == "off by one" and len(parents) < len(old):
            return tuple(old[min(parent + 1, len(old) - 1)] for parent in parents)
        pairs = zip(kept, right, strict=True)
        if self._how == "newest only":
            return tuple((*mine[: len(its) - 1], its[-1]) for mine, its in pairs)
        if self._how == "all but newest":
            return tuple((*its[:-1], mine[-1]) for mine, its in pairs)
        return tuple((its + its[-1:] * 99)[: len(mine)] for mine, its in pairs) if self._how == "lengths" else right

    def _stays(self, count: int, before: int, moves: int) -> bool:
        """Whether every row stays where it is."""
        asked = {"never": True, "same size": count == before, "fewer": count < before, "once": moves > 0}
        return asked.get(self._how, False)


class _Shared(Retold):
    """Copies of one row write into one place: what the last of them reads, all have read."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._twins: dict[int, int] = {}

    def moved(self, cache: Told, parents: list[int]) -> tuple[Row, ...]:
        """The right histories; remembers of each row which is the last copy of the same parent."""
        self._twins = {row: len(parents) - 1 - parents[::-1].index(parent) for row, parent in enumerate(parents)}
        return super().moved(cache, parents)

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        """A row's past with the newest events of its last copy, once rows have moved; else with its own."""
        own, last = batch.past[row] + batch.new[row], self._twins.get(row, row)
        if last >= len(batch.new) or len(batch.new[last]) != len(batch.new[row]) or not cache.moves:
            return own
        return batch.past[row] + batch.new[last]


class _PartMoves(Showing):
    """Keys, values or layers stay behind when rows move. `what`: 0 keys, 1 values; `layers`: a slice of them."""

    def __init__(self, inner: Any, what: tuple[int, ...], layers: slice) -> None:
        super().__init__(inner)
        self._what, self._layers = what, layers

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """The cache after the right move, with the chosen parts of the slots put back as they lay before."""
        before = [tensor.clone() for tensor in self.inner.stored(cache)[:2]]
        moved = self.inner.reorder(cache, parents)
        after = self.inner.stored(moved)
        rows = torch.arange(len(parents), device=parents.device) % before[0].shape[1]
        slots = min(before[0].shape[3], after[0].shape[3])
        for what in self._what:
            kept = before[what][self._layers].index_select(1, rows)
            after[what][self._layers, :, :, :slots] = kept[:, :, :, :slots]
        return moved


class _Altered(Showing):
    """Keys or values of new events are changed on their way into the cache; prompts are stored right."""

    def __init__(self, inner: Any, how: str) -> None:
        super().__init__(inner)
        self._how = how

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's answer under altered keys or values, and the cache that has kept them so."""
        logits, cache = self.inner.extend_altered(events, valid, cache, self._alter)
        return logits, cache

    def _alter(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self._how == "turned":  # as if rotated for another place
            return keys.roll(1, -1), values
        if self._how == "heads":
            return keys, values.roll(1, -1)
        if self._how == "first layer":
            return (keys * 1.01, values) if layer == 0 else (keys, values)
        return keys, values + 1e-3


class _Overwrites(Showing):
    """The next append spoils the oldest stored value of one layer."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The right answer, and a cache whose oldest value in the last layer has grown by a hundredth."""
        logits, cache = self.inner.extend(events, valid, cache)
        self.inner.stored(cache)[1][-1, :, :, 0] *= 1.01
        return logits, cache


class _Unused(Planted):
    """Not a fault: rows that stay in place are copied all the same."""

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """The cache after the move that was asked for, and after one that moves nothing."""
        count = torch.arange(len(parents), device=parents.device)
        return self.inner.reorder(self.inner.reorder(cache, parents), count)


def _moving(name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    needs = (two_events, context_of(6), *needs, feels_recent_events)
    return Fault(name, "reorder", "cache parity", (check,), plant, report, needs)


def _how(how: str) -> Plant:
    return wrapped(_Moves, how=how)


_SHOWN, _ALTER = (shows_views_of_its_cache,), (shows_its_cache, alters_keys)
_ONE_KEY = "huggingface/transformers #46612"

MOVING: tuple[Fault, ...] = (
    _moving("rows never move", _how("never"), _REORDERED, _ONE_KEY),
    _moving("rows move only when their number changes", _how("same size"), _REORDERED, _ONE_KEY),
    _moving("rows move the other way round", _how("inverse"), _REORDERED, "OpenNMT/CTranslate PR 42"),
    _moving("only the newest event moves", _how("newest only"), _REORDERED, "pytorch/translate PR 353"),
    _moving("the newest event stays behind", _how("all but newest"), _REORDERED, "pytorch/translate PR 353"),
    _moving("lengths stay behind", _how("lengths"), _REORDERED, "mini-sglang PR 142"),
    _moving("rows move once only", _how("once"), _REORDERED),
    _moving("copies of a row share a place", wrapped(_Shared), _REORDERED, "tenstorrent/tt-xla PR 4190"),
    _moving("rows that leave take the wrong ones along", _how("fewer"), _DROPPED, "ggml-org/llama.cpp #12253"),
    _moving("rows close up one too far", _how("off by one"), _DROPPED, "ggml-org/llama.cpp #12253"),
    _moving("keys stay behind", wrapped(_PartMoves, what=(0,), layers=slice(None)), _STORED, _ONE_KEY, _SHOWN),
    _moving("values stay behind", wrapped(_PartMoves, what=(1,), layers=slice(None)), _STORED, _ONE_KEY, _SHOWN),
    _moving("the first layer stays behind", wrapped(_PartMoves, what=(0, 1), layers=slice(0, 1)), _STORED,
            "pytorch/translate PR 353", _SHOWN),
    _moving("the last layer stays behind", wrapped(_PartMoves, what=(0, 1), layers=slice(-1, None)), _STORED,
            "pytorch/translate PR 353", _SHOWN),
    _moving("the last layer's values stay behind", wrapped(_PartMoves, what=(1,), layers=slice(-1, None)), _REORDERED,
            _ONE_KEY, _SHOWN),
    _moving("keys are turned for another place", wrapped(_Altered, how="turned"), "single events",
            "rajveer43/VeloxQuant-MLX #389", _ALTER),
    _moving("values are read across heads", wrapped(_Altered, how="heads"), "single events", "dmlc/gluon-nlp #1015",
            _ALTER),
    _moving("the first layer stores larger keys", wrapped(_Altered, how="first layer"), _STORED,
            "vllm-project/vllm PR 54338", _ALTER),
    _moving("stored values are off by a thousandth", wrapped(_Altered, how="offset"), _STORED, "", _ALTER),
    _moving("an old value is overwritten", wrapped(_Overwrites), _STORED, "sgl-project/sglang #23392", _SHOWN),
    Fault("rows are copied twice", "reorder", "cache parity", (_REORDERED,), wrapped(_Unused),
          equivalent="a second copy in the same order holds the same numbers"),
    Fault("the cached path recomputes everything", "cache parity", "cache parity", ("single events",), wrapped(Retold),
          "facebookresearch/fairseq #1686", equivalent="slow, and right: the full path's own answers"),
)  # fmt: skip
