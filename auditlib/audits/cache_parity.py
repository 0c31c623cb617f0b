"""Cache parity: the cached path gives the logits that the full path gives, at every event of every prefix."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch

from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.beyond import accepted_beyond
from auditlib.audits.cache_bytes import PROBE as BYTES
from auditlib.audits.cache_bytes import BytesProbe
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.coverage import held_out_coverage
from auditlib.audits.enumerated_parity import BUDGET, Enumerated, enumerate_prefixes, enumerated_pieces
from auditlib.audits.gaps import COLUMNS, PrefixGaps, gap
from auditlib.audits.growing import Bench
from auditlib.audits.held_out import HeldOut, Row, batches, held_out, material, written
from auditlib.audits.offers import inspectable
from auditlib.audits.parity_probes import CHUNKS, LONG, SINGLE, after_refusals, battery
from auditlib.audits.precise import load_precise
from auditlib.audits.stored import PROBE as STORED
from auditlib.audits.stored import StoredProbe
from auditlib.audits.sweep import Advance, cached_logits
from auditlib.audits.tolerance import FloorStudy, Tolerance
from auditlib.audits.work import Piece, Watch
from auditlib.numbers import amount

IN_FLOAT64 = "single events in float64"


class _Parity:
    """One measurement of cache parity: what it has to do, piece by piece, and what it found."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.watch = Watch(subject.progress)
        self.held: HeldOut = held_out(subject)
        rows = material(subject, self.held)
        self.precise = load_precise(subject, self.watch)
        self.floor = FloorStudy(subject, self.held, rows, self.precise, self.watch)
        self.bench = Bench(CheckedDecoder(subject.decoder, subject.device, self.watch.tick), rows)
        fine = None if subject.dtype == torch.float64 else self.precise.decoder
        self.fine = None if fine is None else CheckedDecoder(fine, subject.device, self.watch.tick)
        self.singles = PrefixGaps(self.held)
        self.singles_in_float64 = PrefixGaps(self.held)
        shown, self.not_shown = inspectable(self.bench.checked, rows.rows(1, 4, "trial")[0])
        self.stored = None if shown is None else StoredProbe(self.bench, shown, self.fine)
        self.bytes = BytesProbe(self.bench.checked, rows, shown)
        # Their gaps count as those of reordered rows, which they are: beside the judged checks nothing hides.
        self.enumerated = Enumerated(enumerate_prefixes(subject, BUDGET), gaps=self.bench.gaps)
        self.accepted: list[str] = []
        self.requests = 0

    def pieces(self) -> Iterator[Piece]:
        """All work; requests beyond the context come last, as they may leave a careless decoder in disorder."""
        yield from self.floor.pieces()
        for batch in batches(self.held.rows, self.bench.material.vocabulary, self.subject.most_rows):
            yield "held-out prefixes, event by event", lambda batch=batch: self._sweep(batch)  # type: ignore[misc]
        yield from battery(self.bench)
        for work in enumerated_pieces(self.enumerated, self.bench.checked):
            yield "every valid prefix up to a depth", work
        if self.stored is not None:
            yield STORED, self.stored.run
        yield BYTES, self.bytes.run
        yield "requests beyond the context", self._beyond

    def _sweep(self, batch: list[Row]) -> None:
        """Every distinct prefix of some held-out rows by single events, in both dtypes, and by chunks."""
        checked, filler = self.bench.checked, self.bench.material.alphabet[0]
        reference = checked.whole(batch)  # [B, T, V], no row padded
        logits, seen = cached_logits(checked, batch, Advance(1, 1), filler)
        self.singles.add(batch, gap(logits, reference), seen)
        whole = max(map(len, batch))
        for probe, size in ((CHUNKS, 2), (CHUNKS, 3), (CHUNKS, 5), (LONG, whole)):
            logits, seen = cached_logits(checked, batch, Advance(1, size), filler)
            self.bench.gaps.add_batch(probe, batch, gap(logits, reference), seen)
        if self.fine is not None:
            logits, seen = cached_logits(self.fine, batch, Advance(1, 1), filler)
            self.singles_in_float64.add(batch, gap(logits, self.fine.whole(batch)), seen)

    def _beyond(self) -> None:
        self.accepted, self.requests = accepted_beyond(self.bench.checked, self.bench.material)
        after_refusals(self.bench)


def _measure(subject: Subject) -> Findings:
    """Gaps of every held-out prefix and of the battery's rows, with the tolerance that they are held against."""
    parity = _Parity(subject)
    parity.watch.run(parity.pieces())
    tolerance = parity.floor.result()
    return Findings(
        tuple(_measurements(parity, tolerance)),
        {"gaps": _table(parity), "steps": parity.singles.steps()},
        tuple(_notes(parity, tolerance)),
        _not_applicable(parity),
    )


def _measurements(parity: _Parity, tolerance: Tolerance) -> Iterator[Measurement]:
    everywhere, by_probe = parity.singles.observed(), parity.bench.gaps
    for found in by_probe.measurements():
        # The battery and the sweep of all held-out prefixes are one check: the worse of them counts.
        if found.name == SINGLE:
            largest, count = max(found.value, everywhere.worst), found.count + everywhere.count
            yield Measurement(SINGLE, largest, found.unit, count)
        else:
            yield found
    if parity.stored is not None:
        yield parity.stored.measurement(tolerance, parity.subject.dtype)
    if parity.bytes.looked:
        yield parity.bytes.measurement()
    fine = everywhere if parity.subject.dtype == torch.float64 else parity.singles_in_float64.observed()
    if fine.count and parity.precise.decoder is not None:
        yield Measurement(IN_FLOAT64, fine.worst / tolerance.scale, "relative", fine.count)
    yield Measurement("accepted beyond the context", len(parity.accepted), "requests", parity.requests)
    yield Measurement("not finite logits", parity.bench.checked.not_finite, "logits", parity.bench.checked.logits)
    yield from held_out_coverage(parity.subject, parity.held, parity.singles).measurements()
    yield from parity.enumerated.measurements()
    yield from tolerance.measurements()


def _table(parity: _Parity) -> pd.DataFrame:
    rows = [*parity.singles.rows(SINGLE), *parity.bench.gaps.rows(parity.held, SINGLE)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _notes(parity: _Parity, tolerance: Tolerance) -> Iterator[str]:
    yield f"The noise floor rests on {tolerance.basis}; the tolerance is four times the floor, on this device only."
    if parity.precise.decoder is None:
        yield f"No float64 path, so parity rests on values alone: {parity.precise.reason}."
    first = parity.singles.shortest_above(tolerance.tolerance)
    if first is not None:
        row, session, apart = first
        yield (
            f"Shortest held-out prefix over the tolerance: {written(row)} ({len(row)} events with the start, session "
            f"{session}), gap {amount(apart)}."
        )
    for words in parity.bytes.lies[:1]:
        yield f"Said of a cache, {words}."
    for words in parity.accepted:
        yield f"Served beyond the context: {words}."
    yield from held_out_coverage(parity.subject, parity.held, parity.singles).notes()
    yield from parity.enumerated.notes()
    if parity.held.shortened:
        yield f"{parity.held.shortened} sessions are longer than the context; their prefixes were read up to it."


def _not_applicable(parity: _Parity) -> dict[str, str]:
    reasons = {}
    if parity.stored is None:
        reasons[STORED] = parity.not_shown
    if not parity.bytes.looked:
        reasons[BYTES] = parity.bytes.reason
    if parity.precise.decoder is None:
        reasons[IN_FLOAT64] = parity.precise.reason
    return reasons


CACHE_PARITY = Audit("cache parity", "Does the cached path give the logits of the full path, at every event?", _measure)
