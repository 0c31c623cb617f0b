"""Faults of padding: counted as events, attended to, or taken into the answer, each only in some layouts."""

# ruff: noqa: ARG002  # each fault overrides one step, with all that the step is told

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import feels_ends, feels_old_events, feels_recent_events
from auditlib.audits.faults.planting import Fault, Need, Plant, World
from auditlib.audits.faults.wrapping import Batch, Planted, Retold, Told, wrapped
from auditlib.audits.held_out import Row

_REMEMBERS: tuple[Need, ...] = (feels_old_events, feels_recent_events)


class _PaddingRead(Retold):
    """Invalid positions count as events on the full path and in prompts, in the layouts that a fault is about."""

    def __init__(self, inner: Any, where: str, padding: int = 0) -> None:
        super().__init__(inner)
        self._where, self._padding = where, padding

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] under a mask that takes padding of the chosen layout for events."""
        return super().full(events, self._taken(events, valid))

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """A prompt with the padding that was taken; behind it what was kept of the prompt, and the newest events."""
        return self._prompt(batch, row) if not batch.past[row] else batch.past[row] + batch.new[row][:count]

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        """The padding is stored as well, and falls out again when the context is full."""
        return self._prompt(batch, row) if not batch.past[row] else batch.past[row] + batch.new[row]

    def _prompt(self, batch: Batch, row: int) -> Row:
        taken = self._taken(torch.tensor(batch.events), torch.tensor(batch.valid))[row].tolist()
        return tuple(event for event, keep in zip(batch.events[row], taken, strict=True) if keep)

    def _taken(self, events: Tensor, valid: Tensor) -> Tensor:
        left, right = valid.int().cumsum(1) == 0, valid.int().flip(1).cumsum(1).flip(1) == 0
        asked = {
            "left": left,
            "both sides": (left | right) & left.any(1, keepdim=True) & right.any(1, keepdim=True),
            "one row": (left if bool(left.any()) else right) & (len(events) == 1),
            "other ids": left & (events != self._padding),
            "little": left & (left.sum(1, keepdim=True) <= 2),
        }[self._where]
        taken = valid | asked
        # A row that would outgrow the context is left as it is: a refusal would hide the fault.
        return torch.where(taken.sum(1, keepdim=True) > self.context_length, valid, taken)


def _mask_by_ids(world: World) -> World:
    return wrapped(_PaddingRead, where="other ids", padding=world.subject.event_map.padding)(world)


class _PaddingLater(Retold):
    """Right padding of the prompt lies in the cache and is attended to from the first step on."""

    def kept(self, batch: Batch, row: int, cache: Told) -> Row:
        """The row followed by its first event, once for each right padding of its prompt, three times at most."""
        whole = batch.past[row] + batch.new[row]
        seen = 0 if batch.past[row] else batch.padded(row, "right")
        return whole + whole[:1] * min(seen, 3)


class _LeftShifts(Retold):
    """The start is lost to rows that stand behind left padding: their places begin at the padding's count."""

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """A prompt's history with its first event twice where left padding stands before it; every other as it is."""
        whole = batch.past[row] + batch.new[row][:count]
        return whole[:1] + whole if not batch.past[row] and batch.padded(row, "left") else whole


class _LastColumn(Planted):
    """A prompt is answered from the batch's last column, whatever stands there."""

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V], for rows that end before the last column those of column 0; the cache is right."""
        logits, cache = super().prefill(events, valid)
        short = ~valid[:, -1]
        if bool(short.any()):
            whole = self.inner.full(events, valid)
            logits = torch.where(short[:, None], whole[:, 0], logits)
        return logits, cache


class _RowsMixed(Planted):
    """Rows of a padded batch come back in another order, on one path."""

    def __init__(self, inner: Any, path: str) -> None:
        super().__init__(inner)
        self._path = path

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits of a padded batch with each row's given to the row after it, where the full path is the one."""
        logits = super().full(events, valid)
        return logits if self._path != "full" or bool(valid.all()) else logits.roll(1, 0)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """The same for prompts; the rows of the cache stay in their places."""
        logits, cache = super().prefill(events, valid)
        return (logits if self._path != "prefill" or bool(valid.all()) else logits.roll(1, 0)), cache


class _EndMasked(Retold):
    """The end has padding's id on the cached path, and is masked with it."""

    def __init__(self, inner: Any, end: int) -> None:
        super().__init__(inner)
        self._end = end

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """A history without its ends."""
        return tuple(event for event in batch.past[row] + batch.new[row][:count] if event != self._end)


def _end_is_padding(world: World) -> World:
    return wrapped(_EndMasked, end=world.subject.event_map.end)(world)


class _Faint(Planted):
    """A row's answer moves a little with how much padding stands beside it, on the full path."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] a thousandth larger for each invalid position of the row."""
        logits = super().full(events, valid)
        return logits * (1 + 1e-3 * (~valid).sum(1).to(logits.dtype))[:, None, None]


class _NotFinite(Planted):
    """An append gives no number at the positions of rows that have nothing new."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] with NaN at invalid positions; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        return logits.masked_fill(~valid[..., None], torch.nan), cache


def _padding(name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = _REMEMBERS) -> Fault:
    return Fault(name, "padding", "cache parity", (check,), plant, report, needs)


PADDING: tuple[Fault, ...] = (
    _padding("left padding is attended to", wrapped(_PaddingRead, where="left"), "padded left",
             "TransformerLensOrg/TransformerLens #1005"),
    _padding("places count left padding", wrapped(_LeftShifts), "padded left", "ndif-team/nnsight PR 673"),
    _padding("the mask is where the ids are not padding", _mask_by_ids, "padded left",
             "huggingface/transformers #8032"),
    _padding("the end is masked as padding", _end_is_padding, "single events", "huggingface/transformers #25790",
             (feels_ends,)),
    _padding("a little padding is attended to", wrapped(_PaddingRead, where="little"), "padded both sides",
             "huggingface/transformers PR 40324"),
    _padding("padding on both sides is attended to", wrapped(_PaddingRead, where="both sides"), "padded both sides",
             "huggingface/transformers #18478"),
    _padding("a padded row alone loses its mask", wrapped(_PaddingRead, where="one row"), "one padded row",
             "unslothai/unsloth PR 9848"),
    _padding("right padding is attended to after the prompt", wrapped(_PaddingLater), "padded right",
             "OpenNMT/OpenNMT-py PR 2532"),
    _padding("a prompt is answered from the last column", wrapped(_LastColumn), "padded right",
             "tenstorrent/tt-xla PR 4190"),
    _padding("rows of a padded batch change places", wrapped(_RowsMixed, path="full"), "padded right",
             "ggml-org/llama.cpp #12253"),
    _padding("rows of a padded prompt change places", wrapped(_RowsMixed, path="prefill"), "padded left"),
    _padding("padding is felt faintly", wrapped(_Faint), "padded right", "facebookresearch/fairseq #3078"),
    _padding("no number where nothing is new", wrapped(_NotFinite), "not finite logits",
             "huggingface/transformers #38690"),
)  # fmt: skip
