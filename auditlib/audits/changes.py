"""Logits that moved although only later events differed, and where."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from auditlib.audits.base import Measurement
from auditlib.audits.held_out import Row

COLUMNS = ("probe", "path", "events", "position", "value")
_KEPT = 500
_AT_ONCE = 50


class Moved(NamedTuple):
    """How far the logits of each position are apart, and how many of them differ at all; both [B, T]."""

    apart: Tensor
    differ: Tensor


def moved(left: Tensor, right: Tensor) -> Moved:
    """Difference of logits [B, T, V], infinite where it is no number.

    Two NaN count as the same: that they are NaN is counted elsewhere.
    """
    differ = (left != right) & ~(left.isnan() & right.isnan())
    # Two infinities of one sign are the same, and yet their difference is NaN: only what differs is measured.
    apart = torch.where(differ, (left.double() - right.double()).abs(), 0.0).amax(-1)
    return Moved(torch.where(apart.isnan(), math.inf, apart), differ.sum(-1))


@dataclass
class Change:
    """What one probe saw.

    `moved` counts logits that changed, `positions` those compared (each with all its logits), `largest` is the largest
    change, `worst` holds (change, path, position, row).
    """

    moved: int = 0
    positions: int = 0
    largest: float = 0.0
    worst: list[tuple[float, str, int, Row]] = field(default_factory=list)

    def note(self, path: str, found: Moved, still: Tensor, rows: Sequence[Row], first: int = 0) -> None:
        """Add a comparison, in which the positions `still` [B, T] were to stay as they are.

        `rows` are the events as they were changed; column 0 is their position `first`.
        """
        self.positions += int(still.sum())
        differ = torch.where(still, found.differ, 0)
        if not bool(differ.any()):
            return
        self.moved += int(differ.sum())
        # Below every change, so that a place that stayed as it was is never among the largest.
        shown = torch.where(differ > 0, found.apart, -1.0).cpu()
        self.largest = max(self.largest, float(shown.max()))
        for place in shown.flatten().topk(min(_AT_ONCE, int((shown >= 0).sum()))).indices.tolist():
            row, column = divmod(place, shown.shape[1])
            self._keep((float(shown[row, column]), path, first + column, rows[row]))

    def _keep(self, change: tuple[float, str, int, Row]) -> None:
        if len(self.worst) < _KEPT:
            heapq.heappush(self.worst, change)
        else:
            heapq.heappushpop(self.worst, change)

    def count(self, name: str) -> Measurement:
        """The number of changed logits, over the compared positions."""
        return Measurement(name, self.moved, "changed logits", self.positions)

    def size(self, name: str, unit: str, scale: float = 1.0) -> Measurement:
        """The largest change relative to `scale`, over the compared positions."""
        return Measurement(name, self.largest / scale, unit, self.positions)
