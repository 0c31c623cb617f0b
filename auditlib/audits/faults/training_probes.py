"""The checks of training, each run alone over a small world."""

from __future__ import annotations

from auditlib.audits import loss_probes
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.faults.path_probes import Probe
from auditlib.audits.faults.planting import World
from auditlib.audits.next_events import NextEvents, session_rows
from auditlib.audits.shift import ShiftStudy
from auditlib.audits.work import Watch
from auditlib.decoders.lookup import ceiling


def _target_shift(world: World) -> tuple[float, int]:
    by_loss, positions = loss_probes.shift_error(world.shift, world.loss)
    predicted = _predicted(world)
    return max(by_loss, predicted.shifts.wrong_by()[0]), positions + predicted.events


def _predicted(world: World) -> NextEvents:
    predicted = NextEvents(world.subject.dtype, ShiftStudy())
    checked = CheckedDecoder(world.subject.decoder, world.subject.device, Watch(world.subject.progress).tick)
    predicted.read(checked, session_rows(world.subject))
    return predicted


def _above_ceiling(world: World) -> tuple[float, int]:
    predicted = _predicted(world)
    whole = [row for row, weight in session_rows(world.subject).items() for _ in range(weight)]
    above = predicted.clear_accuracy - ceiling(whole) if predicted.events else 0.0
    return (above if above * predicted.events > 0.5 else 0.0), predicted.events


def _repeats(world: World) -> tuple[float, int]:
    checked = CheckedDecoder(world.subject.decoder, world.subject.device, Watch(world.subject.progress).tick)
    moved, logits = 0, 0
    for row in world.rows.rows(3, 6, "planted twice"):
        events, valid = checked.stack([row] * 2)  # no data frame
        answers = [checked.full(events, valid) for _ in range(2)]
        if len(row) > 1:
            caches = [checked.prefill(events[:, :1], valid[:, :1])[1] for _ in range(2)]
            answers += [checked.extend(events[:, 1:], valid[:, 1:], cache)[0] for cache in caches]
        for one, other in zip(answers[::2], answers[1::2], strict=True):
            moved += int(((one != other) & ~(one.isnan() & other.isnan())).sum())
            logits += one.numel()
    return moved, logits


def _split(crossing: bool) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Keys that cross the split, or sessions on both sides, over the held-out sessions; (0, 0) without a report."""
        report = world.subject.leakage
        if report is None:
            return 0.0, 0
        found = sum(report.crossing_keys.values()) if crossing else report.shared_sessions
        return found, report.held_out_sessions

    return probe


TRAINING_PROBES: dict[tuple[str, str], Probe] = {
    ("training", "target shift"): _target_shift,
    ("training", "padding in the loss"): lambda world: loss_probes.padding_effect(world.shift, world.loss),
    ("training", "accumulation"): lambda world: loss_probes.accumulation_error(world.shift, world.loss),
    ("training", "repeat with the same input"): _repeats,
    ("training", "accuracy above the ceiling"): _above_ceiling,
    ("training", "sessions on both sides"): _split(crossing=False),
    ("training", "keys crossing the split"): _split(crossing=True),
}
"""Probes of training, by audit and check."""
