"""Stored keys and values: what a cache holds must be what one prompt of the same events would have stored.

Random weights hide some faults in the logits (values of one layer left behind, say); the stored numbers show them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.base import Measurement
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.growing import Bench, Growing, Layout
from auditlib.audits.held_out import Row
from auditlib.audits.offers import inspectable
from auditlib.audits.tolerance import Tolerance
from auditlib.decoders.capabilities import Inspectable

PROBE = "stored keys and values"
_MIXED = (3, 7, 1, 5)
# Unit roundoffs of the largest stored number below which their floor is not believed: with a float64 decoder that shows
# its cache, without one, and for a float64 decoder itself. As for logits, but stored numbers pass through fewer layers.
_LEAST_MEASURED, _LEAST_UNMEASURED, _LEAST_IN_FLOAT64 = 4, 16, 256


class StoredProbe:
    """Compares the stored keys and values of rows grown in several ways with those of each row's own prefill."""

    def __init__(self, bench: Bench, shown: Inspectable, fine: CheckedDecoder | None) -> None:
        self._bench, self._shown = bench, shown
        self._fine = fine
        self._fine_shown = None if fine is None else inspectable(fine, bench.material.rows(1, 4, "trial")[0])[0]
        self._own: dict[Row, Tensor] = {}
        self._worst, self._floor, self._largest, self._count = 0.0, 0.0, 0.0, 0

    def run(self) -> None:
        """Grow rows in every way, and note how far the stored numbers are from the rows' own."""
        for growing in self._grown():
            found = _contents(self._shown, growing.cache)
            for row, read, (stored, length) in zip(growing.rows, growing.read, found, strict=True):
                wanted = self._alone(row[:read])
                # Contents of another length have no difference: a wrong length is wrong by itself.
                fits = length == read and stored.shape == wanted.shape
                self._worst = max(self._worst, _apart(stored, wanted) if fits else math.inf)
                self._count += 1

    def measurement(self, tolerance: Tolerance, dtype: torch.dtype) -> Measurement:
        """The largest difference, scaled so that the tolerance of logits is four times the rounding of stored numbers.

        Keys and values have another size than logits: their own rounding (prefill against prefill in float64) says
        how much is noise.
        """
        roundoffs = _LEAST_UNMEASURED if self._fine_shown is None else _LEAST_MEASURED
        if dtype == torch.float64:
            roundoffs = _LEAST_IN_FLOAT64
        floor = max(self._floor, roundoffs * torch.finfo(dtype).eps / 2 * self._largest)
        scaled = self._worst * tolerance.floor / floor if floor else self._worst
        return Measurement(PROBE, scaled, "logit", self._count)

    def _grown(self) -> Iterator[Growing]:
        """Batches in the states that matter: appended singly, in chunks, padded, uneven, reordered and continued."""
        cases = (((4, 4, 4, 4), Layout()), (_MIXED, Layout("left", 1, garbage=True)), (_MIXED, Layout("right")))
        for lengths, layout in cases:
            growing = Growing(self._bench, "reordered rows", layout)
            growing.begin(self._bench.material.rows(4, 12, f"stored {layout}"), lengths)
            growing.singles(2)
            yield growing
            growing.append([3, 0, 2, 1] if layout.spare else [3, 3, 3, 3])
            yield growing
            parents = (2, 0, 0, 3, 1)
            growing.take(parents, [growing.rows[parent] for parent in parents])
            yield growing
            growing.singles(2)
            yield growing

    def _alone(self, row: Row) -> Tensor:
        """What a prefill of `row` in a batch of its own stores; widens floor and size of numbers as it goes."""
        if row not in self._own:
            own = self._own[row] = _prefilled(self._bench.checked, self._shown, row)
            self._largest = max(self._largest, float(own.abs().max()))
            if self._fine is not None and self._fine_shown is not None:
                self._floor = max(self._floor, _apart(own, _prefilled(self._fine, self._fine_shown, row)))
        return self._own[row]


def _prefilled(checked: CheckedDecoder, shown: Inspectable, row: Row) -> Tensor:
    _, cache = checked.prefill(*checked.stack([row]))
    return _contents(shown, cache)[0][0]


def _contents(shown: Inspectable, cache: Any) -> list[tuple[Tensor, int]]:
    """Keys and values [2, layers, H, length, D] of each row as float64 on the CPU, and the row's stated length."""
    keys, values, lengths = shown.stored(cache)
    both = torch.stack([keys, values]).detach().double().cpu()  # [2, layers, B, H, S, D]
    return [(both[:, :, row, :, :length], length) for row, length in enumerate(lengths.tolist())]


def _apart(left: Tensor, right: Tensor) -> float:
    """Largest absolute difference; infinite where it is not a number."""
    apart = float((left - right).abs().max())
    return math.inf if math.isnan(apart) else apart
