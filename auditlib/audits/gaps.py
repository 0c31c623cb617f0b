"""Gaps between logits that should be the same, and which prefixes show the largest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from auditlib.audits.base import Measurement
from auditlib.audits.held_out import HeldOut, Row, written

COLUMNS = ("probe", "session_id", "events", "step", "gap", "weight")
_KEPT = 500


def gap(left: Tensor, right: Tensor) -> Tensor:
    """Largest absolute difference over the vocabulary, float64 on the CPU; infinite where it is not a number.

    Infinity survives every later maximum; a NaN would be lost in most of them, and with it the fault.
    """
    apart = (left.detach().double() - right.detach().double()).abs().amax(-1)
    return torch.where(apart.isnan(), math.inf, apart).cpu()


def changed(left: Tensor, right: Tensor) -> Tensor:
    """Which logits are not the same bits' worth, as bool; two NaN count as the same."""
    return (left != right) & ~(left.isnan() & right.isnan())


def worst(gaps: Iterable[float]) -> float:
    """Largest of `gaps`, 0 when there is none; gaps hold no NaN."""
    return max(gaps, default=0.0)


@dataclass
class Observed:
    """What one probe saw: how many prefixes, the largest gap, and the worst prefixes as (gap, step, row)."""

    count: int = 0
    worst: float = 0.0
    largest: list[tuple[float, int, Row]] = field(default_factory=list)

    def keep(self, found: float, step: int, row: Row) -> None:
        """Remember the gap after `step` events of `row` while it is among the largest."""
        push = heapq.heappush if len(self.largest) < _KEPT else heapq.heappushpop
        push(self.largest, (found, step, row[:step]))


class Gaps:
    """Gaps of several probes by name."""

    def __init__(self) -> None:
        self.probes: dict[str, Observed] = {}

    def add(self, probe: str, row: Row, first_step: int, gaps: Tensor) -> None:
        """Note `gaps` [K] of the prefixes of `row` with `first_step`, `first_step` + 1, … events."""
        seen = self.probes.setdefault(probe, Observed())
        for step, found in enumerate(gaps.tolist(), start=first_step):
            seen.count += 1
            seen.worst = max(seen.worst, found)
            seen.keep(found, step, row)

    def add_batch(self, probe: str, rows: Sequence[Row], gaps: Tensor, looked: Tensor) -> None:
        """Note `gaps` [B, T] of the beginnings of `rows`, where `looked` [B, T]: column t has t + 1 events."""
        seen = self.probes.setdefault(probe, Observed())
        seen.count += int(looked.sum())
        # Gaps are never negative: at -1 a place that was not looked at is never the worst.
        shown = torch.where(looked, gaps, -1.0)
        seen.worst = max(seen.worst, float(shown.max()))
        for place in shown.flatten().topk(min(_KEPT, int(looked.sum()))).indices.tolist():
            row, column = divmod(place, gaps.shape[1])
            seen.keep(float(gaps[row, column]), column + 1, rows[row])

    def worst(self) -> float:
        """Largest gap of all probes."""
        return worst(seen.worst for seen in self.probes.values())

    def count(self) -> int:
        """How many prefixes all probes compared."""
        return sum(seen.count for seen in self.probes.values())

    def measurements(self) -> list[Measurement]:
        """One measurement a probe."""
        return [Measurement(name, seen.worst, "logit", seen.count) for name, seen in self.probes.items() if seen.count]

    def rows(self, held: HeldOut, leave_out: str) -> list[tuple[str, str, str, int, float, int]]:
        """Rows of the table "gaps", the worst prefixes of each probe but `leave_out`, largest first."""
        return [
            (name, held.sessions.get(row, ""), written(row), step, found, held.weights.get(row, 0))
            for name, seen in self.probes.items()
            if name != leave_out
            for found, step, row in sorted(seen.largest, reverse=True)
        ]


class PrefixGaps:
    """The largest gap of every distinct held-out prefix."""

    def __init__(self, held: HeldOut) -> None:
        self._held = held
        levels = held.trie.levels
        self._index = [
            {pair: index for index, pair in enumerate(zip(level.parent.tolist(), level.event.tolist(), strict=True))}
            for level in levels
        ]
        # Gaps are never negative: -1 marks what no pass has reached.
        self.worst = [torch.full((len(level.event),), -1.0, dtype=torch.float64) for level in levels]
        self._session = [[""] * len(level.event) for level in levels]

    def _nodes(self, row: Row) -> list[int]:
        """Index of each beginning of `row` in its level of the trie."""
        found, node = [], -1
        for depth, event in enumerate(row):
            node = self._index[depth][node, event]
            found.append(node)
        return found

    def add(self, rows: Sequence[Row], gaps: Tensor, seen: Tensor) -> None:
        """Note `gaps` [B, T] of every beginning of `rows`, where `seen` [B, T]."""
        for row, line, looked in zip(rows, gaps.tolist(), seen.tolist(), strict=True):
            for depth, node in enumerate(self._nodes(row)):
                if looked[depth]:
                    self.worst[depth][node] = max(float(self.worst[depth][node]), line[depth])
                    self._session[depth][node] = self._session[depth][node] or self._held.sessions[row]

    def observed(self) -> Observed:
        """Count and largest gap over all distinct prefixes."""
        found = [level[level >= 0] for level in self.worst]
        return Observed(sum(len(level) for level in found), worst(float(v.max()) for v in found if len(v)))

    def shortest_above(self, tolerance: float) -> tuple[Row, str, float] | None:
        """The shortest prefix whose gap exceeds `tolerance` (the worst of that length), its session and its gap."""
        for depth, level in enumerate(self.worst):
            if len(level) and float(level.max()) > tolerance:
                node = int(level.argmax())
                return tuple(self._held.trie.prefix(depth, node)), self._session[depth][node], float(level[node])
        return None

    def rows(self, probe: str) -> list[tuple[str, str, str, int, float, int]]:
        """Rows of the table "gaps" for every distinct prefix that was seen."""
        table = []
        for depth, level in enumerate(self._held.trie.levels):
            prefixes = self._held.trie.rows(depth).tolist()
            found = zip(prefixes, self._session[depth], self.worst[depth].tolist(), level.weight.tolist(), strict=True)
            table += [(probe, who, written(row), depth + 1, value, w) for row, who, value, w in found if value >= 0]
        return table

    def steps(self) -> pd.DataFrame:
        """Worst, 95th percentile and median gap over the distinct prefixes of each number of events."""
        lines = []
        for depth, level in enumerate(self.worst):
            seen = level[level >= 0]
            if len(seen):
                # A gap that was measured, and not a mean of two.
                middle, high = (float(torch.quantile(seen, q, interpolation="higher")) for q in (0.5, 0.95))
                lines.append((depth + 1, float(seen.max()), high, middle, len(seen)))
        return pd.DataFrame(lines, columns=["step", "worst", "p95", "median", "prefixes"])
