"""Training: the decoder predicts the next event, padding taught it nothing, and it never saw the held-out sessions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch

from auditlib.audits import loss_probes
from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.changes import moved
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Material, Row, batches, held_out, material
from auditlib.audits.next_events import NextEvents, session_rows
from auditlib.audits.shift import TRUE_SHIFT, ShiftStudy
from auditlib.audits.work import Piece, Watch
from auditlib.decoders.lookup import ceiling, near_ties
from auditlib.decoders.targets import event_loss, shifted_targets
from auditlib.numbers import amount

_FROM_RECORD = {
    "look-up accuracy": ("lookup_accuracy", "share"),
    "look-up nll": ("lookup_nll", "nats"),
    "accuracy without duplicates": ("accuracy_without_duplicates", "share"),
}


@dataclass
class _Training:
    """One measurement of training: its pieces of work, and what they found."""

    subject: Subject
    watch: Watch
    checked: CheckedDecoder
    material: Material
    rows: dict[Row, int]
    predicted: NextEvents
    repeated: int = 0
    logits: int = 0

    def pieces(self) -> Iterator[Piece]:
        """All work."""
        for batch in batches(list(self.rows), self.material.vocabulary, self.subject.most_rows):
            yield "held-out sessions", lambda batch=batch: self._read(batch)  # type: ignore[misc]
        yield "the same input twice", self._repeat

    def _read(self, batch: list[Row]) -> None:
        self.predicted.read(self.checked, {row: self.rows[row] for row in batch})

    def _repeat(self) -> None:
        """Both paths twice with the same input: dropout in any submodule moves something."""
        for row in (*self.material.sample[::4], *self.material.made_up[-3:]):
            events, valid = self.checked.stack([row] * 2)  # noqa: PD013  # no data frame
            self._count(self.checked.full(events, valid), self.checked.full(events, valid))
            self._count(*(self._appended(events, valid) for _ in range(2)))

    def _appended(self, events: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        half = (events.shape[1] + 1) // 2
        last, cache = self.checked.prefill(events[:, :half], valid[:, :half])
        if half == events.shape[1]:
            return last[:, None]
        logits, _ = self.checked.extend(events[:, half:], valid[:, half:], cache)
        return torch.cat([last[:, None], logits], 1)

    def _count(self, left: torch.Tensor, right: torch.Tensor) -> None:
        self.repeated += int(moved(left, right).differ.sum())
        self.logits += left.numel()


def _measure(subject: Subject) -> Findings:
    """Shift, padding and sums of the loss; the decoder's own shift, accuracy and repeatability; leaks of the split."""
    watch = Watch(subject.progress)
    training = _Training(
        subject,
        watch,
        CheckedDecoder(subject.decoder, subject.device, watch.tick),
        material(subject, held_out(subject)),
        session_rows(subject),
        NextEvents(subject.dtype, ShiftStudy()),
    )
    watch.run(training.pieces())
    whole = [row for row, weight in training.rows.items() for _ in range(weight)]
    highest = ceiling(whole) if training.predicted.events else math.nan
    return Findings(
        (*_targets(training, highest), *_split(subject), *_information(training, whole, highest)),
        {"baselines": _table(training, highest)},
        tuple(_notes(training)),
        _not_applicable(subject),
    )


def _targets(training: _Training, highest: float) -> Iterator[Measurement]:
    """Checks of what is trained on, and of what came of it."""
    predicted = training.predicted
    by_loss, positions = loss_probes.shift_error(shifted_targets, event_loss)
    by_decoder, _ = predicted.shifts.wrong_by()
    yield Measurement("target shift", max(by_loss, by_decoder), "nats", positions + predicted.events)
    effect, padded = loss_probes.padding_effect(shifted_targets, event_loss)
    yield Measurement("padding in the loss", effect, "nats", padded)
    error, events = loss_probes.accumulation_error(shifted_targets, event_loss)
    yield Measurement("accumulation", error, "relative", events)
    yield Measurement("repeat with the same input", training.repeated, "changed logits", training.logits)
    if predicted.events:
        above = max(0.0, predicted.clear_accuracy - highest)
        # Counts, not shares: the two are sums of the same observations, and rounding must not fail the honest best.
        above = above if above * predicted.events > 0.5 else 0.0
        yield Measurement("accuracy above the ceiling", above, "share", predicted.events)


def _split(subject: Subject) -> Iterator[Measurement]:
    report = subject.leakage
    if report is None:
        return
    count = report.held_out_sessions
    seen = report.shared_sessions + (subject.trained_on or 0)
    yield Measurement("sessions on both sides", seen, "sessions", count)
    yield Measurement("keys crossing the split", sum(report.crossing_keys.values()), "keys", count)
    yield Measurement("duplicate sequences", report.duplicate_sequences, "sessions", count)


def _information(training: _Training, whole: list[Row], highest: float) -> Iterator[Measurement]:
    predicted = training.predicted
    if predicted.events:
        yield Measurement("held-out accuracy", predicted.accuracy, "share", predicted.events)
        yield Measurement("held-out nll", predicted.nll, "nats", predicted.events)
        yield Measurement("ceiling", highest, "share", predicted.events)
        yield Measurement("near ties", near_ties(whole).share, "share", predicted.events)
    for name, (key, unit) in _FROM_RECORD.items():
        value = _recorded(training.subject.training_record, key)
        if value is not None:
            yield Measurement(name, value, unit, predicted.events)


def _recorded(record: Mapping[str, object] | None, key: str) -> float | None:
    """A number that the revision states about its own training; it is shown, never judged."""
    value = (record or {}).get(key)
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(float(value)) else None  # type: ignore[arg-type]


def _notes(training: _Training) -> Iterator[str]:
    by, shift = training.predicted.shifts.wrong_by()
    if shift != TRUE_SHIFT:
        yield f"The decoder predicts the event {shift} places on better than the next one, by {amount(by)} nats."
    yield (
        "The loss that is probed is that of `auditlib.decoders.targets`; another trainer is judged by its decoder only."
    )
    if training.subject.trained_on is None:
        yield (
            "NOT CHECKED: which sessions the revision was trained on; it names no training snapshot that this store "
            "holds, so only the split of this snapshot was looked at."
        )
    elif training.subject.trained_on:
        yield (
            f"The revision was trained on {training.subject.trained_on} of these held-out sessions, under another "
            "split; audit it on the snapshot that it was trained on."
        )
    report = training.subject.leakage
    if report is not None and report.prefix_in_training:
        yield f"{report.prefix_in_training} held-out sessions continue or begin a session of the same id in training."
    if report is not None and report.duplicate_sequences:
        yield (
            f"{report.duplicate_sequences} of {report.held_out_sessions} held-out sessions went exactly the way of a "
            "training session: repetition, not leakage."
        )


def _not_applicable(subject: Subject) -> dict[str, str]:
    reason = "the revision has no record of its training that states it"
    missing = [name for name, (key, _) in _FROM_RECORD.items() if _recorded(subject.training_record, key) is None]
    return dict.fromkeys(missing, reason)


def _table(training: _Training, highest: float) -> pd.DataFrame:
    """Accuracy and nats beside what simpler predictors and the best conceivable one reach."""
    predicted, record = training.predicted, training.subject.training_record
    rows = [
        ("decoder", predicted.accuracy, predicted.nll),
        ("look-up table", _recorded(record, "lookup_accuracy"), _recorded(record, "lookup_nll")),
        ("commonest event", predicted.commonest, None),
        ("ceiling", highest, None),
    ]
    table = pd.DataFrame(rows, columns=["name", "accuracy", "nll"]).astype({"accuracy": float, "nll": float})
    return table[table["accuracy"].notna()].reset_index(drop=True)


TRAINING = Audit(
    "training", "Was the decoder trained to predict the next event, on other sessions than the held-out ones?", _measure
)
