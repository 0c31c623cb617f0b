"""Plays a counterexample on a decoder."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.counterexample import Case, Side, Step, history
from auditlib.audits.gaps import gap
from auditlib.decoders.protocol import Decoder
from auditlib.errors import InputError


def read_case(path: Path) -> Case:
    """The case in a JSON file; InputError when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path} cannot be read ({problem}); name a counterexample that an audit wrote") from problem
    return Case.from_json(text, str(path))


def replay(case: Case, decoder: Decoder, device: str = "cpu") -> float:
    """The gap of `case` on `decoder`, which is to be in the case's dtype; above `case.limit`, the fault is there.

    Raises what the decoder raises, and DecoderError for answers that contract 1 does not allow.
    """
    checked = CheckedDecoder(decoder, device, lambda: None)
    if case.expect == "refused":
        # By the length of this decoder: one that holds more than the one found wanting serves them by right.
        outgrown = max(map(len, history(case.asked.steps))) > decoder.context_length
        return math.inf if outgrown and refusal(lambda: logits_of(case.asked, checked)) is None else 0.0
    asked = logits_of(case.asked, checked)
    if case.expect == "finite" or case.against is None:
        return 0.0 if bool(torch.isfinite(asked).all()) else math.inf
    return float(gap(asked, logits_of(case.against, checked)))


def replayed(case: Case, decoder: Decoder, device: str = "cpu") -> Case:
    """`case` with the gap that `decoder` shows now."""
    return replace(case, gap=replay(case, decoder, device))


def logits_of(side: Side, checked: CheckedDecoder) -> Tensor:
    """Logits [V] at the side's row and column after all of its calls."""
    logits, cache = torch.empty(0), None
    for step in side.steps:
        logits, cache = _call(step, checked, logits, cache)
    return logits[side.row] if side.steps[-1].verb == "prefill" else logits[side.row, side.column]


def _call(step: Step, checked: CheckedDecoder, before: Tensor, cache: Any) -> tuple[Tensor, Any]:
    if step.verb == "reorder":
        return before, checked.reorder(cache, step.parents)
    events = torch.tensor(step.events, dtype=torch.int64, device=checked.device)
    valid = torch.tensor(step.valid, dtype=torch.bool, device=checked.device)
    if step.verb == "full":
        return checked.full(events, valid), None
    return checked.prefill(events, valid) if step.verb == "prefill" else checked.extend(events, valid, cache)
