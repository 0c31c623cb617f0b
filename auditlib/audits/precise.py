"""The same revision in float64, where rounding is far below every fault; or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from auditlib.audits.base import Subject
from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.held_out import Row
from auditlib.audits.work import Watch
from auditlib.decoders.protocol import Decoder
from auditlib.errors import InputError


@dataclass(frozen=True, slots=True)
class Precise:
    """A float64 decoder, or None and why."""

    decoder: Decoder | None
    reason: str = ""


def load_precise(subject: Subject, watch: Watch) -> Precise:
    """The subject's decoder in float64. None where both paths do not run in it, or only pretend to."""
    if subject.dtype == torch.float64:
        return Precise(subject.decoder)
    try:
        decoder = subject.load(torch.float64)
    except InputError as problem:
        return Precise(None, f"the decoder does not load in float64: {problem}")
    row = _trial_row(subject)
    checked = CheckedDecoder(decoder, subject.device, watch.tick)
    refused = refusal(lambda: _both_paths(checked, row))
    if refused is not None:
        return Precise(None, f"the decoder does not run in float64: {refused}")
    logits = checked.full(*checked.stack([row]))
    if logits.dtype != torch.float64:
        return Precise(None, f"asked for float64, the decoder answers in {logits.dtype}")
    # One such number is chance; where all are, a coarser result was widened at the end.
    if bool((logits.float().double() == logits).all()):
        return Precise(None, "the float64 logits are all float32 numbers: it seems to compute in a coarser dtype")
    return Precise(decoder)


def _trial_row(subject: Subject) -> Row:
    """Start and up to three events."""
    events = (*subject.event_map.domain, subject.event_map.start)[:3]
    return (subject.event_map.start, *events)[: subject.decoder.context_length]


def _both_paths(checked: CheckedDecoder, row: Row) -> None:
    events, valid = checked.stack([row])
    checked.full(events, valid)
    _, cache = checked.prefill(events[:, :1], valid[:, :1])
    if len(row) > 1:
        checked.extend(events[:, 1:], valid[:, 1:], checked.reorder(cache, [0]))
