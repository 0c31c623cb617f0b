"""Causality: no logit depends on an event after it, on the full path or within one append."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import torch

from auditlib.audits import causal_hooks, causal_probes
from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.causal_probes import Laid, cases
from auditlib.audits.changes import COLUMNS, Change
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Material, Row, batches, held_out, material, written
from auditlib.audits.offers import alterable, differentiable, inspectable, shows_views
from auditlib.audits.precise import load_precise
from auditlib.audits.tolerance import FloorStudy
from auditlib.audits.work import Piece, Watch
from auditlib.numbers import amount

IN_FLOAT64, IN_OWN_DTYPE = "truncation in float64", "truncation"
EXHAUSTIVE, APPEND = "exhaustive next event", "later events in one append"
JACOBIAN, POISON = "jacobian", "finite poison"
_APPENDS = ((1, 4), (2, 2), (5, 3), (5, 5), (1, 9), (3, 17))
_ROUNDING = 1e-12  # of float64, relative to the largest logit: near 1e-15 on clean decoders


class _Causality:
    """One measurement of causality: its pieces of work, and what they saw."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.watch = Watch(subject.progress)
        held = held_out(subject)
        self.rows = material(subject, held)
        # In alphabetical order, rows that share beginnings share a batch, and each beginning is read once in it.
        self.held_out = sorted(held.rows)
        self.precise = load_precise(subject, self.watch)
        self.own = CheckedDecoder(subject.decoder, subject.device, self.watch.tick)
        self.fine = self.own
        if self.precise.decoder is not None and subject.dtype != torch.float64:
            self.fine = CheckedDecoder(self.precise.decoder, subject.device, self.watch.tick)
        self.floor = FloorStudy(subject, held, self.rows, self.precise, self.watch)
        self.truncation = IN_OWN_DTYPE if self.precise.decoder is None else IN_FLOAT64
        self.seen = {name: Change() for name in (self.truncation, EXHAUSTIVE, APPEND, JACOBIAN, POISON)}
        # Changes are relative to the largest logit, but to no less: small logits must not make them look large.
        self.largest = 1.0
        trial = self.rows.rows(1, 4, "trial")[0]
        self.gradients, self.no_gradients = differentiable(self.fine, trial)
        self.altered, self.not_altered = alterable(self.own, trial)
        shown, _ = inspectable(self.own, trial)
        self.shown = shown if shown is not None and shows_views(self.own, shown, trial) else None

    def pieces(self) -> Iterator[Piece]:
        """All work. What is compared bit by bit runs in the deployed dtype, and in float64, which rounds less away."""
        if self.precise.decoder is None:
            yield from self.floor.pieces()
        for batch in (*batches(self.held_out, self.rows.vocabulary, self.subject.most_rows), list(self.rows.made_up)):
            yield self.truncation, lambda batch=batch: self._truncate(batch)  # type: ignore[misc]
        yield self.truncation, self._truncate_long
        # Once where both are the same decoder: in float64, or without a float64 path.
        for checked in dict.fromkeys((self.own, self.fine)):
            for laid in cases(self.rows):
                yield EXHAUSTIVE, lambda checked=checked, laid=laid: self._exhaust(checked, laid)  # type: ignore[misc]
            yield APPEND, lambda checked=checked: self._append(checked)  # type: ignore[misc]
        yield JACOBIAN, self._jacobian
        yield POISON, self._poison

    def _truncate(self, batch: list[Row]) -> None:
        self.largest = max(self.largest, causal_probes.truncation(self.fine, batch, self.seen[self.truncation]))

    def _truncate_long(self) -> None:
        seen = self.seen[self.truncation]
        for row in self.rows.boundary:
            causal_probes.truncation_at_cuts(self.fine, row, seen)
        for row in (*self.rows.made_up[:4], *self.rows.sample[:4]):
            causal_probes.wider_batch(self.fine, self.rows, row, seen)

    def _exhaust(self, checked: CheckedDecoder, laid: Laid) -> None:
        causal_probes.exhaustive_next_event(checked, self.rows, laid, self.seen[EXHAUSTIVE])

    def _append(self, checked: CheckedDecoder) -> None:
        seen = self.seen[APPEND]
        for prompt, size in _APPENDS:
            made_up = self.rows.rows(1, prompt + size, f"append {prompt} {size}")
            for row in (*made_up, *(row[: prompt + size] for row in self.rows.sample[-3:])):
                causal_probes.later_in_one_append(checked, self.rows, row, prompt, seen)
        for row in self.rows.boundary:
            causal_probes.later_in_one_append(checked, self.rows, row, max(1, len(row) - 4), seen)

    def _jacobian(self) -> None:
        if self.gradients is not None:
            for laid in _short_cases(self.rows):
                causal_hooks.jacobian(self.gradients, self.rows, laid, self.subject.device, self.seen[JACOBIAN])

    def _poison(self) -> None:
        seen = self.seen[POISON]
        if self.altered is not None:
            for laid in _short_cases(self.rows):
                causal_hooks.poison_full(self.altered, self.rows, laid, self.subject.device, seen)
            for prompt, size in _APPENDS:
                row = self.rows.rows(1, prompt + size, f"poisoned append {prompt} {size}")[0]
                if len(row) > prompt:
                    causal_hooks.poison_append(self.altered, self.own, row, prompt, seen)
        if self.shown is not None:
            causal_hooks.poison_unread_slots(self.shown, self.own, self.rows, seen)


def _short_cases(rows: Material) -> Iterator[Laid]:
    """The padded cases, a one-event prefix, and the longest everyday row that stays cheap with one line a logit."""
    yield Laid(rows.rows(1, 1, "one event")[0])
    yield from (laid for laid in cases(rows) if laid.left or laid.right)
    yield from (Laid(row) for row in rows.made_up if len(row) in (2, 5, 8, 17))
    yield from (Laid(row) for row in rows.sample[:2] if len(row) <= 17)


def _measure(subject: Subject) -> Findings:
    """Changes of earlier logits by later events, over held-out and made-up rows."""
    causality = _Causality(subject)
    causality.watch.run(causality.pieces())
    return Findings(
        tuple(_measurements(causality)),
        {"probes": _table(causality)},
        tuple(_notes(causality)),
        _not_applicable(causality),
    )


def _measurements(causality: _Causality) -> Iterator[Measurement]:
    seen, precise = causality.seen, causality.precise.decoder is not None
    if precise:
        yield seen[IN_FLOAT64].size(IN_FLOAT64, "relative", causality.largest)
    else:
        yield seen[IN_OWN_DTYPE].size(IN_OWN_DTYPE, "logit")
        yield from causality.floor.result().measurements()
    yield seen[EXHAUSTIVE].count(EXHAUSTIVE)
    yield seen[APPEND].count(APPEND)
    missing = _not_applicable(causality)
    if JACOBIAN not in missing:
        yield seen[JACOBIAN].size(JACOBIAN, "gradient")
    if POISON not in missing:
        yield seen[POISON].count(POISON)
    read = {causality.own, causality.fine}
    not_finite, logits = sum(one.not_finite for one in read), sum(one.logits for one in read)
    yield Measurement("not finite logits", not_finite, "logits", logits)


def _not_applicable(causality: _Causality) -> dict[str, str]:
    reasons = {}
    if causality.precise.decoder is None:
        reasons[IN_FLOAT64] = causality.precise.reason
    if causality.gradients is None:
        reasons[JACOBIAN] = causality.no_gradients
    if causality.altered is None and causality.shown is None:
        reasons[POISON] = causality.not_altered
    return reasons


def _notes(causality: _Causality) -> Iterator[str]:
    for name, change in causality.seen.items():
        if change.moved and name != causality.truncation:
            size, path, position, row = max(change.worst)
            yield f"{name}: on the {path} path, position {position} of {written(row)} moved by {amount(size)}."
    part = sum(not laid.takes_every_event(causality.rows) for laid in cases(causality.rows))
    if part:
        yield f"{EXHAUSTIVE}: in {part} long rows three events were tried at each place, in all others every event."
    if causality.precise.decoder is None:
        yield f"No float64 path, so rounding hides leaks below it: {causality.precise.reason}."


def _table(causality: _Causality) -> pd.DataFrame:
    """The largest changes of each probe. Truncation is judged by size: what is no more than rounding is left out."""
    rounding = _ROUNDING * causality.largest if causality.precise.decoder else causality.floor.result().floor
    rows = [
        (name, path, written(row), position, size)
        for name, change in causality.seen.items()
        for size, path, position, row in sorted(change.worst, reverse=True)
        if name != causality.truncation or size > rounding
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


CAUSALITY = Audit("causality", "Does any logit depend on an event that comes after it?", _measure)
