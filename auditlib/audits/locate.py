"""Where a counterexample's fault sits: the first layer and component that differs between its two sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from auditlib.audits.base import Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.counterexample import Case, Side, last_valid
from auditlib.audits.counterexample_replay import logits_of, replay
from auditlib.decoders.capabilities import Alterable, Inspectable
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.tracing import Traced
from auditlib.errors import CancelledError
from auditlib.numbers import amount

COLUMNS = ("case", "layer", "component", "step", "field", "gap")
NOT_OFFERED = "not offered"
# Two sides of other shapes round differently; a fault is far above this many unit roundoffs of what it moves.
_ROUNDOFFS = 1 << 14
_Vector = tuple[int, str, Tensor]


@dataclass(frozen=True, slots=True)
class Located:
    """The first difference: layer (−1: before the first), component, call of the case, what differs and by how much.

    Without a way to look inside, `component` is "not offered" and the layer −1.
    """

    case: str
    layer: int
    component: str
    step: int
    field: str
    gap: float

    def sentence(self) -> str:
        """The place in one sentence."""
        if self.component == NOT_OFFERED:
            return f"{self.case}: the adapter offers no way to look inside, so the layer is not known ({self.field})."
        where = f"layer {self.layer}, {self.component}" if self.layer >= 0 else self.component
        return f"{self.case}: first differs at {where} by {amount(self.gap)}, in call {self.step} ({self.field})."


def located(subject: Subject, cases: Mapping[str, Case]) -> dict[tuple[str, str], pd.DataFrame]:
    """Tables ("cache parity" | "causality", "located") for the cases of `counterexamples_for`; none without cases."""
    found = {name: locate(subject, name, case) for name, case in cases.items()}
    tables = {}
    for audit in dict.fromkeys(case.audit for case in cases.values()):
        rows = [place for name, place in found.items() if cases[name].audit == audit]
        lines = [(r.case, r.layer, r.component, r.step, r.field, r.gap) for r in rows]
        table = pd.DataFrame(lines, columns=list(COLUMNS))
        table["sentence"] = [place.sentence() for place in rows]
        tables[audit, "located"] = table
    return tables


def locate(subject: Subject, name: str, case: Case) -> Located:
    """Where the two sides of a case part. In float64 where the fault shows there: rounding is then no question."""
    nowhere = Located(name, -1, NOT_OFFERED, len(case.asked.steps) - 1, "no second side", case.gap)
    if case.against is None:
        return nowhere
    try:
        decoder, case = _finest(subject, case)
        return _first_difference(name, case, decoder, subject.device) or replace(
            nowhere, field="it shows no component that differs"
        )
    except CancelledError:
        raise
    except Exception as problem:  # noqa: BLE001 - what a decoder under audit offers may fail in any way
        return replace(nowhere, field=f"{type(problem).__name__}: {problem}")


def _finest(subject: Subject, case: Case) -> tuple[Decoder, Case]:
    own = subject.decoder
    if subject.dtype == torch.float64:
        return own, case
    try:
        fine = subject.load(torch.float64)
        shown = replace(case, dtype="float64", gap=replay(case, fine, subject.device))
    except CancelledError:
        raise
    except Exception:  # noqa: BLE001 - not every adapter has float64
        return own, case
    return (fine, shown) if shown.gap > 1e-9 or case.dtype == "float64" else (own, case)


def _first_difference(name: str, case: Case, decoder: Decoder, device: str) -> Located | None:
    if case.against is None:
        return None
    asked, against = (_trace(decoder, side, device) for side in (case.asked, case.against))
    step = len(case.asked.steps) - 1
    for (layer, component, left), (_, _, right) in zip(asked, against, strict=True):
        apart = float((left - right).abs().max())
        scale = max(1.0, float(torch.nan_to_num(right).abs().max()))
        roundoff = 2.0**-53 if case.dtype == "float64" else 2.0**-24 if case.dtype == "float32" else 2.0**-9
        # Bits are compared where both sides have one shape (limit 0); else what rounding moves is no difference.
        limit = 0.0 if case.limit == 0 else min(1e-2, _ROUNDOFFS * roundoff) * scale
        if not apart <= limit:
            field = _stored_field(case, decoder, device) if component == "attention output" else "output"
            return Located(name, layer, component, step, field, math.inf if math.isnan(apart) else apart)
    return None


def _trace(decoder: Decoder, side: Side, device: str) -> list[_Vector]:
    """What each component gives at the side's row and column, in order of computation; empty where nothing is shown."""
    notes: list[_Vector] = []
    row, column = side.row, side.column

    def note(layer: int, component: str, output: Tensor) -> None:
        """Keep the component's output at the side's row and column, in float64 on the CPU."""
        # A prefill scores the last column only: its logits have no columns.
        place = output[row] if output.dim() == 2 else output[row, column]
        notes.append((layer, component, place.detach().double().cpu()))

    watcher = _watcher(decoder, note)
    if watcher is None:
        return []
    *before, last = side.steps
    telling = CheckedDecoder(watcher, device, lambda: None)
    notes_from = 0
    if before:
        marked = _Marked(watcher, len(side.steps), notes)
        logits_of(side, CheckedDecoder(marked, device, lambda: None))
        notes_from = marked.begins
    else:
        logits_of(replace(side, column=column if last.verb != "prefill" else last_valid(last.valid[row])), telling)
    return notes[notes_from:]


class _Marked:
    """A decoder that remembers how many notes there were before its last call."""

    def __init__(self, inner: Decoder, calls: int, notes: list[_Vector]) -> None:
        self.revision, self.vocabulary_size = inner.revision, inner.vocabulary_size
        self.context_length = inner.context_length
        self._inner, self._left, self._notes = inner, calls, notes
        self.begins = 0

    def _called(self) -> None:
        # Earlier calls may lack the row or column that is looked at; nothing of them is kept.
        self._left -= 1
        if not self._left:
            self.begins = len(self._notes)

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """As the decoder's."""
        self._called()
        return self._inner.full(events, valid)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """As the decoder's."""
        self._called()
        return self._inner.prefill(events, valid)

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """As the decoder's."""
        self._called()
        return self._inner.extend(events, valid, cache)

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """As the decoder's."""
        self._called()
        return self._inner.reorder(cache, parents)

    def cache_bytes(self, cache: Any) -> int:
        """As the decoder's."""
        return self._inner.cache_bytes(cache)


def _watcher(decoder: Decoder, note: Callable[[int, str, Tensor], None]) -> Decoder | None:
    """The decoder telling `note` what passes: as it offers itself, or by its keys and values; None without either."""

    def lenient(layer: int, component: str, output: Tensor) -> None:
        """Tell `note`, unless the call lacks the row or column that is looked at."""
        try:
            note(layer, component, output)
        except IndexError:
            return  # an earlier call without this row or column

    if isinstance(decoder, Traced):
        return decoder.traced(lenient)
    return _ByAlteration(decoder, lenient) if isinstance(decoder, Alterable) else None


class _ByAlteration(_Marked):
    """Tells keys and values of each layer through the decoder's own way to alter them, and the logits."""

    def __init__(self, inner: Alterable, note: Callable[[int, str, Tensor], None]) -> None:
        super().__init__(inner, 0, [])  # type: ignore[arg-type]
        self._altered, self._note = inner, note

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """As the decoder's, told."""
        return self._told(self._altered.full_altered(events, valid, self._alter))

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """As the decoder's, told."""
        logits, cache = self._altered.extend_altered(events, valid, cache, self._alter)
        return self._told(logits), cache

    def _alter(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self._note(layer, "keys", keys.transpose(1, 2))
        self._note(layer, "values", values.transpose(1, 2))
        return keys, values

    def _told(self, logits: Tensor) -> Tensor:
        self._note(-1, "logits", logits)
        return logits


def _stored_field(case: Case, decoder: Decoder, device: str) -> str:
    """Which part of the cache differs, before the failing call, from what the row alone would have stored."""
    *before, last = case.asked.steps
    if not before or last.verb != "extend" or not isinstance(decoder, Inspectable):
        return "what attention reads"
    cache = _cache_after(before, decoder, device)
    keys, values, lengths = decoder.stored(cache)
    prefix = case.asked.prefix()
    row = case.asked.row
    read = len(prefix) - sum(last.valid[row][: case.asked.column + 1])
    if int(lengths[row]) != read:
        return f"stored length {int(lengths[row])} where {read} events were read"
    events = torch.tensor([prefix[:read]], device=device)
    _, own = decoder.prefill(events, torch.ones_like(events, dtype=torch.bool))
    for name, stored, wanted in zip(("keys", "values"), (keys, values), decoder.stored(own)[:2], strict=True):
        apart = (stored[:, row, :, :read] - wanted[:, 0, :, :read]).abs().amax((1, 3))  # [layers, slots]
        wrong = (~(apart <= 1e-6 * max(1.0, float(wanted.abs().max())))).nonzero()
        if len(wrong):
            layer, slot = wrong[0].tolist()
            return f"stored {name} of layer {layer}, event {slot}"
    return "what attention reads; the stored keys and values are right"


def _cache_after(steps: list[Any], decoder: Decoder, device: str) -> Any:
    cache: Any = None
    checked = CheckedDecoder(decoder, device, lambda: None)
    for step in steps:
        if step.verb == "reorder":
            cache = checked.reorder(cache, step.parents)
            continue
        events, valid = (torch.tensor(part, device=device) for part in (step.events, step.valid))
        _, cache = checked.prefill(events, valid) if cache is None else checked.extend(events, valid, cache)
    return cache
