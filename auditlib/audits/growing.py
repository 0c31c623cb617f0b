"""Rows that grow through the cached path, each compared at every event with itself alone on the full path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from auditlib.audits.checked import Alone, CheckedDecoder
from auditlib.audits.gaps import Gaps, gap
from auditlib.audits.held_out import Material, Row
from auditlib.errors import DecoderError

Side = Literal["left", "right", "both"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where padding stands in a batch, and what stands in its place.

    `spare` columns are added to the longest row, so that it is padded as well. "both" gives neighbours different
    shares. With `garbage`, invalid positions hold any ids of the vocabulary in place of the padding id.
    """

    side: Side = "right"
    spare: int = 0
    garbage: bool = False

    def lay(
        self, pieces: Sequence[Row], material: Material, chance: Random
    ) -> tuple[list[list[int]], list[list[bool]]]:
        """Ids and validity of `pieces`, one a row; a piece may be empty."""
        width = max(1, *(len(piece) for piece in pieces)) + self.spare
        events, valid = [], []
        for index, piece in enumerate(pieces):
            free = width - len(piece)
            left = {"left": free, "right": 0, "both": min(free, (free + 1) // 2 + index % 2)}[self.side]
            fill = [chance.randrange(material.vocabulary) if self.garbage else material.padding for _ in range(free)]
            events.append([*fill[:left], *piece, *fill[left:]])
            valid.append([False] * left + [True] * len(piece) + [False] * (free - left))
        return events, valid


@dataclass
class Bench:
    """What probes of the cached path stand on."""

    checked: CheckedDecoder
    material: Material
    gaps: Gaps = field(default_factory=Gaps)
    alone: Alone = field(init=False)

    def __post_init__(self) -> None:
        self.alone = Alone(self.checked)


class Growing:
    """A batch of rows, read event by event under one layout. Counts beyond a row's end are cut."""

    def __init__(self, bench: Bench, probe: str, layout: Layout) -> None:
        self._bench, self._probe, self._layout = bench, probe, layout
        self._chance = bench.material.random(probe)
        self.cache: Any = None
        self.rows: list[Row] = []
        self.read: list[int] = []

    def begin(self, rows: Sequence[Row], counts: Sequence[int]) -> None:
        """Prefill the first `counts` events of each row (at least one)."""
        self.rows = list(rows)
        self.read = [max(1, min(count, len(row))) for row, count in zip(rows, counts, strict=True)]
        events, valid = self._laid([row[:read] for row, read in zip(self.rows, self.read, strict=True)])
        logits, self.cache = self._bench.checked.prefill(events, valid)
        for row, read, found in zip(self.rows, self.read, logits, strict=True):
            self._compare(row, read, found[None])

    def append(self, counts: Sequence[int]) -> None:
        """Extend each row by its count; nothing happens when no row has any event left."""
        begins = list(self.read)
        pieces = [row[read : read + count] for row, read, count in zip(self.rows, begins, counts, strict=True)]
        # All rows are over: a call of padding alone would measure nothing.
        if not any(pieces):
            return
        events, valid = self._laid(pieces)
        logits, self.cache = self._bench.checked.extend(events, valid, self.cache)
        self.read = [read + len(piece) for read, piece in zip(begins, pieces, strict=True)]
        for row, begin, keep, found in zip(self.rows, begins, valid, logits, strict=True):
            self._compare(row, begin + 1, found[keep])

    def singles(self, steps: int) -> None:
        """Extend every row by one event, `steps` times."""
        for _ in range(steps):
            self.append([1] * len(self.rows))

    def take(self, parents: Sequence[int], rows: Sequence[Row]) -> None:
        """Reorder: row i continues `parents[i]`, from now on as `rows[i]`, which begins as its parent does."""
        for parent, row in zip(parents, rows, strict=True):
            if row[: self.read[parent]] != self.rows[parent][: self.read[parent]]:
                raise DecoderError(f"row {row} does not continue its parent {parent}")
        self.cache = self._bench.checked.reorder(self.cache, parents)
        self.read = [self.read[parent] for parent in parents]
        self.rows = list(rows)

    def offspring(self, parents: Sequence[int], purpose: str, more: int = 8) -> list[Row]:
        """New rows that continue `parents` by `more` events, neighbours differently."""
        chance = self._bench.material.random(purpose)
        begun = [self.rows[parent][: self.read[parent]] for parent in parents]
        rows = [self._bench.material.grown(row, len(row) + more, index, chance) for index, row in enumerate(begun)]
        self._bench.alone.ready(rows)
        return rows

    def full(self) -> None:
        """Compare every event of the rows as far as read, laid out as a batch on the full path."""
        events, valid = self._laid([row[:read] for row, read in zip(self.rows, self.read, strict=True)])
        logits = self._bench.checked.full(events, valid)
        for row, keep, found in zip(self.rows, valid, logits, strict=True):
            self._compare(row, 1, found[keep])

    def _laid(self, pieces: Sequence[Row]) -> tuple[Tensor, Tensor]:
        events, valid = self._layout.lay(pieces, self._bench.material, self._chance)
        device = self._bench.checked.device
        return torch.tensor(events, device=device), torch.tensor(valid, device=device)

    def _compare(self, row: Row, first_step: int, found: Tensor) -> None:
        if len(found):
            wanted = self._bench.alone(row)[first_step - 1 : first_step - 1 + len(found)]
            self._bench.gaps.add(self._probe, row, first_step, gap(found, wanted))


def feed(bench: Bench, probe: str, rows: Sequence[Row], first: int, size: int) -> None:
    """Read rows together: `first` events at once, then `size` at a time to the end of the longest."""
    growing = Growing(bench, probe, Layout())
    growing.begin(rows, [first] * len(rows))
    for _ in range(first, max(len(row) for row in rows), size):
        growing.append([size] * len(rows))
