"""Caches that roll wrongly where an attention window ends: at the decoder's own window, or at eight events."""

# ruff: noqa: ARG002  # each fault overrides one step, with all that the step is told

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditlib.audits.faults.needs import feels_old_events, feels_recent_events, two_events
from auditlib.audits.faults.planting import Fault, World
from auditlib.audits.faults.wrapping import Batch, Retold, Told, wrapped
from auditlib.audits.held_out import LONGEST_EVERYDAY, Row
from auditlib.decoders.capabilities import BlockEnds
from auditlib.decoders.protocol import Decoder

_ELSE = 8


def window_of(decoder: Decoder) -> int:
    """The first window that the decoder names and that its rows can pass; 8 where there is none."""
    named = decoder.block_ends if isinstance(decoder, BlockEnds) else ()
    most = min(decoder.context_length, LONGEST_EVERYDAY + 1)
    return min((end for end in named if 2 < end < most), default=_ELSE)


def passes_its_window(world: World) -> str | None:
    """Rows may be two events longer than the window that the fault is about."""
    decoder = world.subject.decoder
    longest, needed = decoder.context_length, window_of(decoder) + 2
    return None if longest >= needed else f"the context holds {longest} events, the fault shows from {needed}"


class _RollsEarly(Retold):
    """Rolled one step too early: when a row is as long as the window, or one longer, an event too many is gone."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._window = window_of(inner)

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """History without its oldest events while the row is as long as the window or one longer; else the true one."""
        whole = batch.past[row] + batch.new[row][:count]
        early = batch.past[row] and 0 <= len(whole) - self._window <= 1
        return whole[-(self._window - 1) :] if early else whole


class _OutOfOrder(Retold):
    """Once the ring has wrapped it is read from its first slot on, so that old events stand behind newer ones."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._window = window_of(inner)

    def seen(self, batch: Batch, row: int, count: int, cache: Told) -> Row:
        """History in which the ring's part stands in the order of its slots, and the newest event still last."""
        whole = batch.past[row] + batch.new[row][:count]
        if not batch.past[row] or len(whole) <= self._window:
            return whole
        held, slots = whole[-self._window : -1], self._window - 1
        first = (len(whole) - self._window) % slots  # the slot of the oldest that is still held
        return (*whole[: -self._window], *held[slots - first :], *held[: slots - first], whole[-1])


def _window(name: str, kind: Callable[[Any], Retold], report: str, check: str = "single events") -> Fault:
    needs = (two_events, passes_its_window, feels_recent_events, feels_old_events)
    return Fault(name, "sliding window", "cache parity", (check,), wrapped(kind), report, needs)


_EARLY, _ORDER = "huggingface/transformers #37574", "huggingface/transformers PR 47708"

WINDOWS: tuple[Fault, ...] = (
    _window("a window rolls one step early", _RollsEarly, _EARLY),
    _window("a window that rolls early is seen in chunks", _RollsEarly, _EARLY, "chunks of 2, 3 and 5"),
    _window("a wrapped ring is read out of order", _OutOfOrder, _ORDER),
    _window("a wrapped ring is out of order for uneven rows", _OutOfOrder, _ORDER, "uneven rows"),
)
