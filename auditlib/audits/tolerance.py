"""How far rounding alone moves logits on this device: the noise floor, and the tolerance that follows from it.

Only the full path takes part, so that a fault of the cache cannot widen the limit that it is held against.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from auditlib.audits.base import Measurement, Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.gaps import gap
from auditlib.audits.held_out import HeldOut, Material, Row, batches, held_out, material, spread
from auditlib.audits.precise import Precise, load_precise
from auditlib.audits.work import Piece, Watch

FACTOR = 4
# Unit roundoffs of the largest logit below which a floor is not believed. With float64 at hand the floor is measured,
# and one roundoff (what writing down the result costs) only guards tables that round nowhere. Batch shapes alone can
# agree by luck where the cached path, with other shapes in every layer, does not: small decoders were seen to differ by
# 1 to 10 roundoffs. A float64 subject has no finer reference, and a fault of logic is a million times above this.
_LEAST_MEASURED, _LEAST_BY_SHAPES, _LEAST_IN_FLOAT64 = 1, 16, 256
_COPIES = (2, 3, 8, 17)
_ROWS_BY_SHAPES = 24
# A largest value grows with the number of observations it is taken over. Where few sessions are held out, made-up rows
# bring the floor up to as many as the probes of cache parity look at; otherwise rounding alone could exceed it.
_LEAST_PREFIXES, _EVERYDAY = 4096, 12


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Noise floor and tolerance in logits, the largest |logit|, what the floor rests on, and the float64 decoder."""

    floor: float
    tolerance: float
    largest_logit: float
    prefixes: int
    basis: str
    precise: Precise

    @property
    def scale(self) -> float:
        """What gaps in float64 are relative to: the largest |logit|, at least 1."""
        return max(1.0, self.largest_logit)

    def measurements(self) -> tuple[Measurement, Measurement]:
        """Tolerance and floor as information beside an audit's checks."""
        return (
            Measurement("tolerance", self.tolerance, "logit", self.prefixes),
            Measurement("noise floor", self.floor, "logit", self.prefixes),
        )


def study(subject: Subject) -> Tolerance:
    """Tolerance of the subject's decoder in its dtype on its device."""
    held = held_out(subject)
    watch = Watch(subject.progress)
    floor = FloorStudy(subject, held, material(subject, held), load_precise(subject, watch), watch)
    watch.run(floor.pieces())
    return floor.result()


class FloorStudy:
    """Measures the noise floor piece by piece, over every held-out prefix and the made-up rows."""

    def __init__(self, subject: Subject, held: HeldOut, rows: Material, precise: Precise, watch: Watch) -> None:
        self._subject, self._precise = subject, precise
        self._own = CheckedDecoder(subject.decoder, subject.device, watch.tick)
        self._fine = None if precise.decoder is None else CheckedDecoder(precise.decoder, subject.device, watch.tick)
        lacking = max(0, _LEAST_PREFIXES - sum(map(len, held.rows)))
        length = min(_EVERYDAY, rows.context)
        everyday = rows.rows(-(-lacking // length), length, "noise floor") if lacking else ()
        extra = [row for row in {*rows.made_up, *rows.boundary, *everyday} if row not in held.sessions]
        self._rows = [*held.rows, *sorted(extra, key=lambda row: (len(row), row))]
        self._vocabulary = rows.vocabulary
        self._floor, self._largest, self._prefixes = 0.0, 0.0, 0

    def pieces(self) -> Iterator[Piece]:
        """The work, to be run before `result`."""
        rows = self._rows if self._fine is not None else spread(self._rows, _ROWS_BY_SHAPES)
        for batch in batches(rows, self._vocabulary, self._subject.most_rows):
            yield "noise floor of the full path", lambda batch=batch: self._measure(batch)  # type: ignore[misc]

    def result(self) -> Tolerance:
        """Floor and tolerance; a floor below what rounding must cost is raised to that."""
        roundoffs, basis = self._least()
        least = roundoffs * torch.finfo(self._subject.dtype).eps / 2 * self._largest
        floor = max(self._floor, least)
        return Tolerance(floor, FACTOR * floor, self._largest, self._prefixes, basis, self._precise)

    def _least(self) -> tuple[int, str]:
        if self._subject.dtype == torch.float64:
            return _LEAST_IN_FLOAT64, "the full path is float64 itself: the floor is set from its unit roundoff"
        if self._fine is None:
            return _LEAST_BY_SHAPES, "the full path over batch shapes and thread counts, as there is no float64"
        return _LEAST_MEASURED, "the full path against the full path in float64"

    def _measure(self, batch: Sequence[Row]) -> None:
        logits = self._own.whole(batch)
        self._largest = max(self._largest, float(torch.nan_to_num(logits).abs().max()))
        self._prefixes += sum(len(row) for row in batch)
        if self._fine is not None:
            self._note(float(gap(logits, self._fine.whole(batch)).max()))
            return
        for row in batch:
            self._vary(row)

    def _vary(self, row: Row) -> None:
        """One row in batches of copies of itself, so that only shapes differ, and with other thread counts."""
        alone = self._own.full(*self._own.stack([row]))
        for copies in _COPIES:
            self._note(float(gap(self._own.full(*self._own.stack([row] * copies)), alone).max()))
        before = torch.get_num_threads()
        try:
            for threads in {1, 2, before}:
                torch.set_num_threads(threads)
                self._note(float(gap(self._own.full(*self._own.stack([row] * 8)), alone).max()))
        finally:
            torch.set_num_threads(before)

    def _note(self, apart: float) -> None:
        self._floor = max(self._floor, apart)
