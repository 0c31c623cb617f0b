"""What an audit is given, and what it gives back. An audit measures; it knows no limit and no verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd
import torch

from auditlib.decoders.protocol import Decoder
from auditlib.decoding.policies import Setting
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder
from auditlib.progress import Progress, silent
from auditlib.sessions.session import Session
from auditlib.sessions.split import LeakageReport


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number with its unit and how many observations it rests on."""

    name: str
    value: float
    unit: str
    count: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What one audit measured.

    `tables` hold one row per observation for plots and drill-down; `not_applicable` maps a probe that this decoder
    cannot serve to the reason, and is neither a pass nor a failure.
    """

    measurements: tuple[Measurement, ...] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    not_applicable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Findings of a named audit, or the `problem` that kept it from measuring."""

    audit: str
    findings: Findings
    seconds: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """One decoder with the held-out sessions and the settings it is audited under.

    `load(dtype)` gives a fresh decoder of the same revision in another dtype; it raises DecoderError where the adapter
    has none. `decoder` is in `dtype` on `device`. `trained_on` counts held-out sessions that stand on the training side
    of the snapshot which the revision's own training record names; None when it has no such record, or this store does
    not hold that snapshot. `most_rows` is how many rows are read together at most, on either path: no
    result of a sound decoder depends on it.
    """

    name: str
    revision: str
    decoder: Decoder
    load: Callable[[torch.dtype], Decoder]
    event_map: EventMap
    order: CompiledOrder
    held_out: tuple[Session, ...]
    leakage: LeakageReport | None
    settings: tuple[Setting, ...]
    max_new_events: int
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    seed: int = 0
    training_record: Mapping[str, object] | None = None
    trained_on: int | None = None
    most_rows: int = 256
    progress: Progress = silent

    def row(self, session: Session) -> tuple[int, ...]:
        """Ids of a whole session: start, its events, end."""
        return (self.event_map.start, *self.event_map.encode(session.events), self.event_map.end)


@dataclass(frozen=True, slots=True)
class Audit:
    """A named question and the function that answers it with measurements."""

    name: str
    question: str
    measure: Callable[[Subject], Findings]
