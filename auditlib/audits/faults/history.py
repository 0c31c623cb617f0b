"""Cached paths that lose, double or mix up events: at single steps, in chunks, in uneven batches, at the boundary."""

# ruff: noqa: ARG002  # each fault overrides one step, with all that the step is told

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import context_of, feels_old_events, feels_recent_events, two_events
from auditlib.audits.faults.planting import Fault, Need, Plant
from auditlib.audits.faults.wrapping import Batch, Planted, Retold, Told, wrapped
from auditlib.audits.held_out import Row

_SINGLE, _CHUNKS = "single events", "chunks of 2, 3 and 5"


class _FirstLost(Retold):
    """The oldest event falls out once cached steps begin."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[1:] if batch.past[row] and len(whole) > 2 else whole


class _NewestTwice(Retold):
    """A read-only look appends: each single event is stored twice."""

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row]
        return whole + whole[-1:] if batch.past[row] and batch.new[row] else whole


class _OneHole(Retold):
    """The event before the newest is not attended to: its key is written too late."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[:-2] + whole[-1:] if batch.past[row] and len(whole) > 2 else whole


class _Swapped(Retold):
    """A ring is read out of order: the two oldest events after the start change places."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        if not batch.past[row] or len(whole) < 4:
            return whole
        return (*whole[:1], whole[2], whole[1], *whole[3:])


class _Window(Retold):
    """Only the newest `size` events are seen, from the moment the row is that long."""

    def __init__(self, inner: Any, size: int, early: int = 0) -> None:
        super().__init__(inner)
        self._size, self._early = size, early

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[-self._size :] if batch.past[row] and len(whole) > self._size - self._early else whole


class _FirstAndNewest(Retold):
    """A mask aligned to the wrong corner: the newest event sees the first one only."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[:1] + whole[-1:] if batch.past[row] and len(whole) > 1 else whole


class _OneStepLate(Retold):
    """Answers as of the event before."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[:-1] if batch.past[row] else whole


class _FirstStepWrong(Retold):
    """The first step after a prompt misses the prompt's last event; every later step is right."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        past = batch.past[row]
        return (past[:-1] if cache.steps == 0 and len(past) > 1 else past) + batch.new[row][:count]


class _PlaceRestarts(Retold):
    """After a prompt of one event positions begin again: the prompt is as good as forgotten."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        past = batch.past[row]
        return (past[1:] if past and cache.read[row] - cache.steps == 1 else past) + batch.new[row][:count]


class _ChunkFault(Retold):
    """Several events at once are read wrongly: in the wrong order, with a hole, or as if none stood before another."""

    def __init__(self, inner: Any, how: str, least: int = 2) -> None:
        super().__init__(inner)
        self._how, self._least = how, least

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        past, new = batch.past[row], batch.new[row][:count]
        if not past or len(batch.new[row]) < self._least or count < 2:
            return past + new
        if self._how == "alone":
            return past + new[-1:]
        return past + (new[:-2] + new[-1:] if self._how == "hole" else (*new[-2::-1], new[-1]))

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row]
        lost = self._how == "lost" and batch.past[row] and len(batch.new[row]) >= self._least
        return whole[:-1] if lost else whole


class _Uneven(Retold):
    """Rows that advance unevenly: all by the fewest, all by the most, or the idle ones by one as well."""

    def __init__(self, inner: Any, how: str) -> None:
        super().__init__(inner)
        self._how = how

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        whole, new = batch.past[row] + batch.new[row], batch.new[row]
        if not batch.past[row]:
            return whole
        counts = [len(other) for other in batch.new]
        if self._how == "idle rows advance":
            return whole if new else whole + whole[-1:]
        least, most = min(counts), max(counts)
        if self._how == "by the fewest":
            return batch.past[row] + new[: max(least, 1)]
        return whole + whole[-1:] * (most - len(new))


class _LastPlaceLost(Retold):
    """The event in the last place of the context, or in the last but one, is not stored."""

    def __init__(self, inner: Any, short: int = 0) -> None:
        super().__init__(inner)
        self._short = short

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        at_edge = len(whole) >= self.context_length - self._short and len(whole) > 2
        return whole[:-2] + whole[-1:] if at_edge else whole


class _NoRoomCheck(Planted):
    """Serves events beyond the context by forgetting the oldest: on every verb, or on `extend` alone."""

    def __init__(self, inner: Any, only_extend: bool) -> None:
        super().__init__(inner)
        self._only_extend = only_extend

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        most = self.context_length
        if self._only_extend or int(valid.sum(1).max()) <= most:
            return super().full(events, valid)
        served = super().full(events[:, -most:], valid[:, -most:])
        return torch.cat([served[:, :1].expand(-1, events.shape[1] - most, -1), served], 1)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        most = self.context_length
        if self._only_extend or int(valid.sum(1).max()) <= most:
            return super().prefill(events, valid)
        return super().prefill(events[:, -most:], valid[:, -most:])

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        try:
            return super().extend(events, valid, cache)
        except Exception:  # noqa: BLE001  # whatever the decoder refuses with, this one does not refuse
            empty = torch.zeros(*events.shape, self.vocabulary_size, device=events.device)
            return empty, cache


class _Mixed(Planted):
    """A trace of the batch's other rows in each row's answer, on one verb."""

    def __init__(self, inner: Any, verb: str, size: float = 0.01) -> None:
        super().__init__(inner)
        self._verb, self._size = verb, size

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return self._blend("full", super().full(events, valid))

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = super().extend(events, valid, cache)
        return self._blend("extend", logits), cache

    def _blend(self, verb: str, logits: Tensor) -> Tensor:
        if verb != self._verb:
            return logits
        return logits + self._size * (logits.mean(0, keepdim=True) - logits)


class _AtOneLength(Retold):
    """Wrong at one past length only, as an offset read from the number of heads would be right at one only."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        whole = batch.past[row] + batch.new[row][:count]
        return whole[1:] if batch.past[row] and len(whole) == 5 else whole


def _parity(
    name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = (), kind: str = "cache parity"
) -> Fault:
    return Fault(name, kind, "cache parity", (check,), plant, report, (*needs, feels_recent_events, feels_old_events))


def _plain(
    name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = (), kind: str = "cache parity"
) -> Fault:
    return Fault(name, kind, "cache parity", (check,), plant, report, needs)


HISTORY: tuple[Fault, ...] = (
    _parity("the oldest event falls out", wrapped(_FirstLost), _SINGLE, "ggml-org/llama.cpp #4097"),
    _parity("each new event is stored twice", wrapped(_NewestTwice), _SINGLE, "huggingface/transformers #37078"),
    _parity("the newest key comes a step late", wrapped(_OneHole), _SINGLE, "lucidrains/x-transformers #219"),
    _parity("two old events change places", wrapped(_Swapped), _SINGLE, "huggingface/transformers PR 47708",
            (two_events, context_of(5))),
    _parity("the window closes one event early", wrapped(_Window, size=4, early=1), _SINGLE,
            "huggingface/transformers #37574", (context_of(5),)),
    _parity("only the newest eight are seen", wrapped(_Window, size=8), _SINGLE, "rajveer43/VeloxQuant-MLX #389",
            (context_of(9),)),
    _parity("the newest sees the first only", wrapped(_FirstAndNewest), _SINGLE, "pytorch/pytorch #103082"),
    _parity("answers come one step late", wrapped(_OneStepLate), _SINGLE, "google/flax #5591"),
    _parity("wrong at one past length", wrapped(_AtOneLength), _SINGLE, "dmlc/gluon-nlp #1015", (context_of(5),)),
    _parity("the first step after a prompt is wrong", wrapped(_FirstStepWrong), _SINGLE, "OpenNMT/OpenNMT-py PR 2532"),
    _parity("places restart after one event", wrapped(_PlaceRestarts), "one-event prefill", "ml-explore/mlx-lm PR 93"),
    _parity("a chunk is read backwards", wrapped(_ChunkFault, how="backwards", least=3), _CHUNKS, "", (two_events,)),
    _parity("a chunk has a hole", wrapped(_ChunkFault, how="hole"), _CHUNKS, "huggingface/candle PR 3743"),
    _parity("events of a chunk do not see each other", wrapped(_ChunkFault, how="alone"), _CHUNKS,
            "pytorch/pytorch #144858"),
    _parity("a chunk of five loses its last", wrapped(_ChunkFault, how="lost", least=5), _CHUNKS,
            "lablup/mlxcel #994", (context_of(9),)),
    _parity("uneven rows advance by the fewest", wrapped(_Uneven, how="by the fewest"), "uneven rows",
            "Blaizzy/mlx-vlm PR 1155", (context_of(8),), "uneven rows"),
    _parity("uneven rows advance by the most", wrapped(_Uneven, how="by the most"), "uneven rows",
            "tenstorrent/tt-xla PR 4190", (context_of(8),), "uneven rows"),
    _parity("idle rows advance", wrapped(_Uneven, how="idle rows advance"), "uneven rows", "", (context_of(8),),
            "uneven rows"),
    _plain("rows of an append mix", wrapped(_Mixed, verb="extend"), "uneven rows", "NVIDIA/TensorRT-LLM #8813", (),
            "uneven rows"),
    _plain("rows of a batch mix faintly", wrapped(_Mixed, verb="full", size=1e-3), "padded right",
            "vllm-project/vllm #11778", (), "padding"),
    _parity("the last place is lost", wrapped(_LastPlaceLost), "exact boundary", "Nehanth/swarmllm #31",
            (context_of(4),),
            "boundary"),
    _parity("the last two places are lost", wrapped(_LastPlaceLost, short=1), "exact boundary", "", (context_of(4),),
            "boundary"),
    _plain("no request is too long", wrapped(_NoRoomCheck, only_extend=False), "accepted beyond the context",
            "Nehanth/swarmllm #31", (), "boundary"),
    _plain("no append is too long", wrapped(_NoRoomCheck, only_extend=True), "accepted beyond the context", "", (),
            "boundary"),
)  # fmt: skip
