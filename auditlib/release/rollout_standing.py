"""Where a rollout stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FALLBACK_ONLY = "fallback"
REPLAYED = "replay passed"
ROLLED_BACK = "rolled back"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a rollout stands, as its chain of transitions says. Times are microseconds since 1970.

    `entered`: when each stage was entered, "released" included. `slow_us`: whole requests longer than this are slow,
    None before the shadow stage was left. `accepted`: faults of the log that a person looked at and resumed in spite
    of, by how many there were. `fallback`: digest of an artifact, or "full-prefix": the new artifact without its cache.
    """

    state: str
    paused: bool
    artifact: str
    fallback: str
    tolerance: float
    entered: Mapping[str, int]
    slow_us: int | None
    accepted: Mapping[str, int]
