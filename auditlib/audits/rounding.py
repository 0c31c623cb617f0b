"""Errors of both paths against float64, row by row: whether the cached path is noisier than rounding explains."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.audits.gaps import gap
from auditlib.audits.held_out import Row

# The ratio of two rms errors over few positions strays from 1 by chance: its logarithm was seen to have a standard
# deviation of at most 0.43 / √carriers on clean decoders of several kinds and sizes, in float32 and bfloat16. Nearly
# three of those. It reached 0.75 / √positions where a decoder amplifies rounding: there a few positions carry nearly
# all of the error, and their number is what chance depends on.
_CHANCE = 1.2
_GUARD = 0.1


@dataclass(frozen=True, slots=True)
class SessionRatio:
    """One distinct session row: rms error of the cached path over that of the full path, and the largest logit gap.

    `carriers` is how many positions carry the full path's error: all of them where it is spread evenly, 1 where one
    position has it all. A fault of the cached path has no part in it.
    """

    row: Row
    ratio: float
    gap: float
    carriers: float

    def above(self, limit: float) -> bool:
        """Whether the ratio exceeds `limit` by more than chance explains for so many carriers."""
        return not self.ratio <= limit * math.exp(_CHANCE / self.carriers**0.5)


class Errors:
    """Squared errors of both paths at every position of some rows, and what follows from them."""

    def __init__(self, unit_roundoff: float) -> None:
        self._roundoff = unit_roundoff
        self._largest = 0.0
        self._lines: dict[Row, Tensor] = {}  # cached error, full error, gap, number of logits; [4, T]

    def add(self, rows: Sequence[Row], cached: Tensor, full: Tensor, exact: Tensor) -> None:
        """Note logits [B, T, V] of both paths and in float64."""
        exact = exact.double()
        errors = torch.stack([(path.double() - exact).square().sum(-1).cpu() for path in (cached, full)])
        apart = gap(cached, full)
        self._largest = max(self._largest, float(torch.nan_to_num(exact).abs().max()))
        for index, row in enumerate(rows):
            used = slice(0, len(row))
            logits = torch.full((len(row),), float(exact.shape[-1]), dtype=torch.float64)
            self._lines[row] = torch.stack([errors[0, index, used], errors[1, index, used], apart[index, used], logits])

    def pooled(self) -> tuple[float, int]:
        """The ratio over all rows together, and the number of positions."""
        if not self._lines:
            return math.nan, 0
        sums = torch.cat(list(self._lines.values()), 1)
        return self._ratio(sums), sums.shape[1]

    def of(self, rows: Sequence[Row]) -> Iterator[SessionRatio]:
        """Ratio and gap of each of `rows`, every one of which begins a row that was added."""
        added = sorted(self._lines)
        for row in rows:
            line = self._lines[added[bisect_left(added, row)]][:, : len(row)]
            yield SessionRatio(row, self._ratio(line), float(line[2].max()), self._carriers(line))

    def _ratio(self, line: Tensor) -> float:
        """Ratio of rms errors; a share of a roundoff is added to both, so that two exact paths give 1 and not 0/0."""
        guard = self._guard() * float(line[3].sum())
        cached, full = float(line[0].sum()) + guard, float(line[1].sum()) + guard
        if math.isnan(cached) or math.isnan(full):
            return math.inf
        return math.sqrt(cached / full) if full else 1.0

    def _carriers(self, line: Tensor) -> float:
        """Squared sum of the full path's squared errors over the sum of their squares: from 1 to all positions."""
        full = line[1] + self._guard() * line[3]
        squares = float(full.square().sum())
        return float(full.sum()) ** 2 / squares if 0 < squares < math.inf else float(line.shape[1])

    def _guard(self) -> float:
        return (_GUARD * self._roundoff * self._largest) ** 2
