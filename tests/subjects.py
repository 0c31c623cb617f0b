"""Small subjects for audits: a few sessions of five events, and what an audit's numbers exceed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch

from auditlib.audits.base import Audit, Findings, Subject
from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import fresh_tensors, module_from
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder, EventOrder
from auditlib.release.limits import LIMITS
from auditlib.sessions.session import Session

MAP = EventMap.build(["assigned", "closed", "opened", "reopened", "repaired"])
_NAMES = sorted(MAP.events)
SESSIONS = tuple(
    Session(f"s{number}", tuple(_NAMES[(number * 3 + place * place + place // 3) % 5] for place in range(1 + number)))
    for number in (0, 2, 3, 3, 5, 8)
)


@lru_cache(maxsize=1)
def _order() -> CompiledOrder:
    return EventOrder("1").compile(MAP)


def subject_of(
    make: Callable[[torch.dtype], Any],
    dtype: torch.dtype = torch.float32,
    sessions: tuple[Session, ...] = SESSIONS,
    load: Callable[[torch.dtype], Any] | None = None,
    **more: Any,
) -> Subject:
    """A subject whose decoder `make` gives for each dtype; `load` stands in for it where dtypes are asked for later."""
    return Subject("small", "sha256:0", make(dtype), load or make, MAP, _order(), sessions, None, (), 8, dtype, **more)


def gpt(dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any) -> EventGpt:
    """A native decoder with random weights."""
    settings = {"vocabulary_size": MAP.size, "context_length": 20, "width": 16, "layers": 2, "heads": 2, **config}
    whole = EventGptConfig(**settings)
    return EventGpt(module_from(whole, fresh_tensors(whole, seed), "cpu", dtype))


def values(findings: Findings) -> Mapping[str, float]:
    """Measured values by name."""
    return {one.name: one.value for one in findings.measurements}


def over_limit(audit: Audit, findings: Findings) -> set[str]:
    """Checks of an audit that exceed the limits of a release; a number that is none exceeds every limit."""
    measured = values(findings)
    limits = {limit.check: limit.at_most for limit in LIMITS if limit.audit == audit.name and limit.check in measured}
    at_most = {name: measured["tolerance"] if limit == "tolerance" else limit for name, limit in limits.items()}
    return {name for name, limit in at_most.items() if not measured[name] <= limit}


def missing(audit: Audit, findings: Findings) -> set[str]:
    """Required checks that were not measured, or on nothing; what stands in for another is asked for in its absence."""
    counted = {one.name for one in findings.measurements if one.count}
    excused = counted | set(findings.not_applicable)
    return {
        limit.check
        for limit in LIMITS
        if limit.audit == audit.name
        and limit.check not in (counted if limit.required else excused)
        and (limit.stand_in_for is None or limit.stand_in_for not in counted)
    }
