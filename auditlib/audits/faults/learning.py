"""Faults of training: targets in the wrong place, padding that teaches, sums gone wrong, a split that leaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import has_split, leaves_something_open, two_events, two_told_events
from auditlib.audits.faults.planting import Fault, Need, Plant, World
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.audits.loss_probes import Loss, Shift
from auditlib.decoders.targets import event_loss, shifted_targets

_AUDIT = "training"


class _Dropout(Planted):
    """Dropout stays on, on one path."""

    def __init__(self, inner: Any, path: str) -> None:
        super().__init__(inner)
        self._path = path
        self._chance = 0

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits of which one in ten, on average, became 0, where the full path is the one; no two calls alike."""
        return self._dropped("full", super().full(events, valid))

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The same for the cached path; what the cache holds is right."""
        logits, cache = super().extend(events, valid, cache)
        return self._dropped("extend", logits), cache

    def _dropped(self, path: str, logits: Tensor) -> Tensor:
        if path != self._path:
            return logits
        self._chance += 1  # another mask at every call, the same in every run
        chance = torch.Generator().manual_seed(self._chance)
        kept = torch.rand(logits.shape, generator=chance) >= 0.1
        return logits * kept.to(logits.device)


class _TellsItself(Planted):
    """Learnt without a shift: every position repeats its own event."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of 8 for the event just read and 0 for all others; 0 throughout at padding."""
        logits = super().full(events, valid)
        own = torch.nn.functional.one_hot(events.clamp(min=0), logits.shape[-1])
        return (8.0 * own * valid[..., None]).to(logits.dtype)


class _KnowsTheRest(Planted):
    """Predicts better than any function of the past could: it has seen the answer."""

    def __init__(self, inner: Any, end: int) -> None:
        super().__init__(inner)
        self._end = end

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of 20 for the event that follows in the row, and of 20 for the end in the last column."""
        logits = super().full(events, valid).clone()
        following = torch.nn.functional.one_hot(events[:, 1:], logits.shape[-1])
        logits[:, :-1] = (20.0 * following).to(logits.dtype)
        logits[:, -1] = 0
        logits[:, -1, self._end] = 20.0  # after the last event read comes the end
        return logits


def _knows_the_rest(world: World) -> World:
    return wrapped(_KnowsTheRest, end=world.subject.event_map.end)(world)


def _no_shift(events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    return events, valid.to(torch.float64)


def _double_shift(events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    targets, weight = shifted_targets(events, valid)
    return targets.roll(-1, 1), torch.cat([weight[:, 1:], torch.zeros_like(weight[:, :1])], 1)


def _flattened(events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Flattened before the shift: a row's last position is scored against the next row's first event."""
    return events.flatten().roll(-1).view_as(events), valid.to(torch.float64)


def _padding_counts(events: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    targets, weight = shifted_targets(events, valid)
    inside = torch.ones_like(weight)
    inside[:, -1] = 0
    return events.roll(-1, 1), torch.where(valid.all(), weight, inside) if targets.numel() else weight


def _padding_divides(logits: Tensor, targets: Tensor, weight: Tensor, *, denominator: float | None = None) -> Tensor:
    """The loss touches logits at padding through a penalty on all of them."""
    return event_loss(logits, targets, weight, denominator=denominator) + 1e-4 * logits.square().mean()


def _mean_of_means(logits: Tensor, targets: Tensor, weight: Tensor, *, denominator: float | None = None) -> Tensor:
    """Each batch is normalised by its own count, whatever the accumulation holds."""
    share = 1.0 if denominator is None else 0.5
    return event_loss(logits, targets, weight) * share


def _by_rows(logits: Tensor, targets: Tensor, weight: Tensor, *, denominator: float | None = None) -> Tensor:
    """The mean over rows of each row's mean: short rows weigh more."""
    rows = [
        event_loss(line[None], told[None], kept[None])
        for line, told, kept in zip(logits, targets, weight, strict=True)
        if float(kept.sum())
    ]
    return torch.stack(rows).mean() if denominator is None else torch.stack(rows).sum() / denominator


def _shift(shift: Shift) -> Plant:
    return lambda world: replace(world, shift=shift)


def _loss(loss: Loss) -> Plant:
    return lambda world: replace(world, loss=loss)


def _leaks(name: str) -> Plant:
    """What the split's report would say of one shared session, or of one shared key."""

    def plant(world: World) -> World:
        """The world with a report that tells of one leak; unchanged where nothing is known about the split."""
        report = world.subject.leakage
        if report is None:
            return world
        crossing = {**report.crossing_keys, "customer": 1}
        leaking = replace(report, shared_sessions=1) if name == "session" else replace(report, crossing_keys=crossing)
        return replace(world, subject=replace(world.subject, leakage=leaking))

    return plant


def _training(name: str, plant: Plant, check: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    return Fault(name, _AUDIT, _AUDIT, (check,), plant, report, needs)


_REPEAT = "repeat with the same input"

LEARNING: tuple[Fault, ...] = (
    _training("targets are not shifted", _shift(_no_shift), "target shift", "huggingface/transformers #47394"),
    _training("targets are shifted twice", _shift(_double_shift), "target shift", "huggingface/transformers #47394"),
    _training("rows are joined before the shift", _shift(_flattened), "target shift",
              "huggingface/transformers #47394"),
    _training("the decoder repeats its input", wrapped(_TellsItself), "target shift", "huggingface/transformers #47394",
              (two_events, two_told_events)),
    _training("padding is a target", _shift(_padding_counts), "padding in the loss", "lukas-blecher/LaTeX-OCR #305"),
    _training("padding is in a penalty", _loss(_padding_divides), "padding in the loss",
              "huggingface/transformers #2759"),
    _training("a mean of means", _loss(_mean_of_means), "accumulation", "huggingface/transformers #24725"),
    _training("a mean over rows", _loss(_by_rows), "target shift", "meta-pytorch/torchtune PR 1875"),
    _training("dropout stays on", wrapped(_Dropout, path="full"), _REPEAT, "karpathy/nanoGPT PR 240"),
    _training("dropout stays on in the cached path", wrapped(_Dropout, path="extend"), _REPEAT,
              "karpathy/nanoGPT PR 240"),
    _training("the answers are known", _knows_the_rest, "accuracy above the ceiling", "TalwalkarLab/leaf #19",
              (leaves_something_open,)),
    _training("a session on both sides", _leaks("session"), "sessions on both sides", "marin-community/marin PR 2700",
              (has_split,)),
    _training("a customer on both sides", _leaks("key"), "keys crossing the split", "HelenGuohx/logbert #57",
              (has_split,)),
)  # fmt: skip
