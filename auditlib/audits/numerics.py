"""Numerics: a study of this decoder on this device. Logic in float64, numbers in the deployed dtype, and decisions."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch

from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.decisions import Decisions
from auditlib.audits.growing import Bench
from auditlib.audits.held_out import Row, batches, held_out, material, written
from auditlib.audits.parity_probes import battery
from auditlib.audits.precise import load_precise
from auditlib.audits.rounding import Errors, SessionRatio
from auditlib.audits.sweep import Advance, cached_logits
from auditlib.audits.tolerance import FloorStudy, Tolerance
from auditlib.audits.work import Piece, Watch
from auditlib.numbers import number

LOGIC, SESSIONS, POOLED = "logic in float64", "sessions above ratio 1.25", "pooled ratio"
_RATIO = 1.25
_POSITIONS = 1_000
_EVERYDAY = 32


class _Numerics:
    """One measurement of numerics: its pieces of work, and what they found."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.watch = Watch(subject.progress)
        self.held = held_out(subject)
        self.rows = material(subject, self.held)
        precise = load_precise(subject, self.watch)
        self.floor = FloorStudy(subject, self.held, self.rows, precise, self.watch)
        self.own = CheckedDecoder(subject.decoder, subject.device, self.watch.tick)
        self.logic: Bench | None = None
        self.fine: CheckedDecoder | None = None
        if precise.decoder is not None:
            self.logic = Bench(CheckedDecoder(precise.decoder, subject.device, self.watch.tick), self.rows)
            self.fine = None if subject.dtype == torch.float64 else self.logic.checked
        self.errors = Errors(torch.finfo(subject.dtype).eps / 2)
        self.decisions = Decisions()

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance, once the pieces of the floor are done."""
        return self.floor.result()

    def pieces(self) -> Iterator[Piece]:
        """All work; the floor comes first, as decisions are told from ties by it."""
        yield from self.floor.pieces()
        made_up = self.rows.rows(_POSITIONS // _EVERYDAY + 1, _EVERYDAY, "numerics")
        for batch in (*batches(self.held.rows, self.rows.vocabulary, self.subject.most_rows), sorted(set(made_up))):
            yield "both paths against float64", lambda batch=batch: self._compare(batch)  # type: ignore[misc]
        if self.logic is not None:
            for name, probe in battery(self.logic):
                yield f"{name}, in float64", probe

    def _compare(self, batch: list[Row]) -> None:
        """Errors of both paths and the decisions of the cached one; without float64, the full path is the reference."""
        full = self.own.whole(batch)
        exact = full if self.fine is None else self.fine.whole(batch)
        cached, seen = cached_logits(self.own, batch, Advance(1, 1), self.rows.alphabet[0])
        # Two logits may be off by the tolerance towards each other: a lead of less than twice that is a tie.
        self.decisions.add(cached[seen], exact[seen], 2 * self.tolerance.tolerance)
        if self.fine is not None:
            self.errors.add(batch, cached, full, exact)


def _measure(subject: Subject) -> Findings:
    """Logic, ratios and decisions over the held-out prefixes, with the noise floor they are seen against."""
    numerics = _Numerics(subject)
    numerics.watch.run(numerics.pieces())
    ratios = list(numerics.errors.of(list(numerics.held.sessions))) if numerics.fine is not None else []
    return Findings(
        tuple(_measurements(numerics, ratios)),
        {"sessions": _table(numerics, ratios)},
        tuple(_notes(numerics, ratios)),
        _not_applicable(numerics),
    )


def _measurements(numerics: _Numerics, ratios: list[SessionRatio]) -> Iterator[Measurement]:
    if numerics.logic is not None:
        gaps = numerics.logic.gaps
        yield Measurement(LOGIC, gaps.worst() / numerics.tolerance.scale, "relative", gaps.count())
    if ratios:
        weights = numerics.held.weights
        above, sessions = sum(weights[one.row] for one in ratios if one.above(_RATIO)), sum(weights.values())
        yield Measurement(SESSIONS, above / sessions, "share", sessions)
        pooled, positions = numerics.errors.pooled()
        yield Measurement(POOLED, pooled, "ratio", positions)
    decisions = numerics.decisions
    yield Measurement("decisions that differ", decisions.different, "decisions", decisions.compared)
    yield Measurement("largest divergence", decisions.divergence, "nats", decisions.compared + decisions.ties)
    yield from numerics.tolerance.measurements()


def _not_applicable(numerics: _Numerics) -> dict[str, str]:
    reason = numerics.tolerance.precise.reason
    reasons = {} if numerics.logic is not None else {LOGIC: reason}
    if numerics.fine is None:
        why = reason or "the decoder is audited in float64 itself: there is nothing finer to compare with"
        reasons |= {SESSIONS: why, POOLED: why}
    return reasons


def _notes(numerics: _Numerics, ratios: list[SessionRatio]) -> Iterator[str]:
    yield (
        f"The tolerance of {number(numerics.tolerance.tolerance)} logits rests on {numerics.tolerance.basis}. It holds "
        f"for {numerics.subject.dtype} on this device only; a fault that moves logits by less is not seen by value."
    )
    if numerics.tolerance.precise.decoder is None:
        yield f"No float64 path: logic is not certified apart from numbers. {numerics.tolerance.precise.reason}."
    if numerics.decisions.ties:
        yield f"{numerics.decisions.ties} choices are ties: they lead by less than twice the tolerance."
    if ratios:
        yield "A session counts as above the ratio only where chance, for so few positions, does not explain it."


def _table(numerics: _Numerics, ratios: list[SessionRatio]) -> pd.DataFrame:
    sessions, weights = numerics.held.sessions, numerics.held.weights
    rows = [(sessions[one.row], written(one.row), one.ratio, one.gap, weights[one.row]) for one in ratios]
    return pd.DataFrame(rows, columns=["session_id", "events", "ratio", "gap", "weight"])


NUMERICS = Audit("numerics", "Is the cached path as exact as rounding on this device allows, and as decided?", _measure)
