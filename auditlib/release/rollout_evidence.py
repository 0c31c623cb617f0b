"""What a live log shows about a rollout, as counts: by stage and arm, and whatever is wrong with the log itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from auditlib.release.rollout_faults import Sorted, sort_rows
from auditlib.release.rollout_plan import SHADOW, Plan
from auditlib.release.rollout_rows import FALLBACK, NEW, LiveRows
from auditlib.release.rollout_standing import Standing

_Counted = TypeVar("_Counted", "ArmCounts", "StageCounts")
_FEWEST_FOR_A_QUANTILE = 20
_TOO_LARGE = 2**63  # for a column of the log, so no count or moment comes near it


@dataclass(frozen=True, slots=True)
class ArmCounts:
    """Rows of one arm in one stage, and its units (sessions, or requests where these are assigned) that went bad.

    `invalid_requests` and `error_requests` count rows; the other three bad counts count units, each unit once. A unit
    is what both arms had the same chance with: a request whose caller left in the shadow stage is none, and no request
    of the fallback's either.
    """

    requests: int = 0
    whole: int = 0
    units: int = 0
    invalid: int = 0
    error: int = 0
    slow: int = 0
    invalid_requests: int = 0
    error_requests: int = 0


@dataclass(frozen=True, slots=True)
class StageCounts:
    """Both arms of one stage, and what is odd about its rows.

    `ties`: answers that differ where the full path was nearly undecided; all others that differ are `mismatches`.
    `unpaired`: shadow requests that only one arm answered. `late`: rows that arrived
    after the stage was over. `clock`: times that jump back or contradict each other.
    """

    new: ArmCounts
    fallback: ArmCounts
    compared: int = 0
    ties: int = 0
    mismatches: int = 0
    unpaired: int = 0
    late: int = 0
    conflicts: int = 0
    clock: int = 0


@dataclass(frozen=True, slots=True)
class LiveEvidence:
    """All counts of a log at one time. `faults` are things that no sound rollout writes; `notes` are listed only.

    `shadow_slow_us` is the fallback's 95th percentile of whole requests in the shadow stage, None where too few.
    """

    now: int
    newest: int | None
    rows: int
    stages: Mapping[str, StageCounts]
    faults: Mapping[str, int]
    unread: int
    unfinished: int
    notes: Mapping[str, int]
    shadow_slow_us: int | None

    def to_json(self) -> dict[str, Any]:
        """The counts as they are signed."""
        return asdict(self)


def gather(rows: LiveRows, plan: Plan, standing: Standing, now: int) -> LiveEvidence:
    """Counts of a log. `now` is in microseconds since 1970; rows from after it prove nothing."""
    sound = sort_rows(rows, plan, standing, now)
    kept = sound.rows
    slow_us = standing.slow_us
    slow = np.zeros(kept.count, bool) if slow_us is None else (kept.end - kept.arrival > slow_us)
    units = _Units(sound, plan, slow)
    stages = {name: _stage(units, index, standing.tolerance) for index, name in enumerate(plan.names)}
    return LiveEvidence(
        now=now,
        newest=int(kept.arrival.max()) if kept.count else None,
        rows=rows.count,
        stages=stages,
        faults=dict(sound.faults),
        unread=sum(rows.unread.values()),
        unfinished=rows.unfinished,
        notes=sound.notes,
        shadow_slow_us=_percentile(sound, plan.names.index(SHADOW)),
    )


def read_evidence(document: Mapping[str, Any]) -> LiveEvidence:
    """Counts from a signed document; ValueError, TypeError or KeyError where one is missing, none, or contradictory."""
    stages = {}
    for name, stage in document["stages"].items():
        arms = {arm: _counts(ArmCounts, stage[arm]) for arm in ("new", "fallback")}
        for counts in arms.values():
            _require_parts(counts)
        stages[name] = _counts(StageCounts, {**stage, **arms})
    evidence = LiveEvidence(**{**document, "stages": stages})
    counted = (evidence.now, evidence.rows, evidence.unread, evidence.unfinished)
    for value in (*counted, *evidence.faults.values(), *evidence.notes.values()):
        _require_count(value)
    for optional in (evidence.newest, evidence.shadow_slow_us):
        if optional is not None:
            _require_count(optional)
    return evidence


def _counts(kind: type[_Counted], document: Mapping[str, Any]) -> _Counted:
    for name in kind.__slots__:
        value = document[name]
        if not isinstance(value, ArmCounts):
            _require_count(value)
    return kind(**document)


def _require_count(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _TOO_LARGE:
        raise ValueError("a count in the evidence is no whole number from 0")


def _require_parts(arm: ArmCounts) -> None:
    """Raise ValueError where a part is more than its whole: too many errors of one arm would hide the other's."""
    of_requests = max(arm.whole, arm.units, arm.invalid_requests, arm.error_requests)
    if of_requests > arm.requests or max(arm.invalid, arm.error, arm.slow) > arm.units:
        raise ValueError("counts in the evidence contradict each other")


class _Units:
    """Rows grouped by stage, arm and unit; a unit is bad when one of its rows is, so that it counts once."""

    def __init__(self, sound: Sorted, plan: Plan, slow: NDArray[np.bool_]) -> None:
        self.sound, self.rows = sound, sound.rows
        rows = sound.rows
        unit = rows.session if plan.assignment == "session" else rows.request
        # what a unit met in an earlier stage was assigned there: later rows of it are no new throw of the coin
        counted = ~(sound.carried | sound.left)
        stages = len(plan.names)
        key = ((unit * stages + sound.stage) * 2 + rows.arm)[counted]
        order = np.argsort(key, kind="stable")
        # No key is negative, so the first row always begins a group.
        starts = np.flatnonzero(np.diff(key[order], prepend=-1))
        group = key[order][starts]
        self.arm, self.stage = group % 2, (group // 2) % stages
        measured = {"invalid": rows.invalid, "error": rows.error, "slow": slow}
        self.bad = {
            name: np.logical_or.reduceat(flags[counted][order], starts) if len(starts) else np.zeros(0, bool)
            for name, flags in measured.items()
        }

    def arm_counts(self, stage: int, arm: int) -> ArmCounts:
        """Counts of one arm in one stage."""
        rows = self.rows
        here = (self.sound.stage == stage) & (rows.arm == arm)
        if arm == FALLBACK:
            here &= ~self.sound.left  # it was not let finish, which is no sign of what it can do
        units = (self.stage == stage) & (self.arm == arm)
        return ArmCounts(
            requests=int(here.sum()),
            whole=int((here & rows.whole).sum()),
            units=int(units.sum()),
            **{name: int((flags & units).sum()) for name, flags in self.bad.items()},
            invalid_requests=int((here & rows.invalid).sum()),
            error_requests=int((here & rows.error).sum()),
        )


def _stage(units: _Units, stage: int, tolerance: float) -> StageCounts:
    sound, rows = units.sound, units.rows
    here = sound.stage == stage
    compared = here & (rows.arm == NEW) & rows.compared
    differs = compared & rows.differs
    with np.errstate(invalid="ignore"):
        tie = differs & (rows.margin >= 0) & (rows.margin <= 2 * tolerance)  # an unknown margin is no tie
    return StageCounts(
        new=units.arm_counts(stage, NEW),
        fallback=units.arm_counts(stage, FALLBACK),
        compared=int(compared.sum()),
        ties=int(tie.sum()),
        mismatches=int((differs & ~tie).sum()),
        unpaired=int((here & sound.unpaired).sum()),
        late=int((here & sound.late).sum()),
        conflicts=int((here & sound.conflict).sum()),
        clock=int((here & sound.clock).sum()),
    )


def _percentile(sound: Sorted, shadow: int) -> int | None:
    """The fallback's 95th percentile: the smallest observed time that 95 % of its shadow rows do not exceed."""
    rows = sound.rows
    here = (sound.stage == shadow) & (rows.arm == FALLBACK) & rows.whole & ~rows.error
    times = (rows.end - rows.arrival)[here]
    if len(times) < _FEWEST_FOR_A_QUANTILE:
        return None
    return int(np.quantile(times, 0.95, method="inverted_cdf"))
