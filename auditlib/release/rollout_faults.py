"""Rows of a live log sorted into those that count and those that do not, with everything that is wrong named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from auditlib.release.rollout_plan import Plan
from auditlib.release.rollout_rows import FALLBACK, NEW, LiveRows
from auditlib.release.rollout_standing import ROLLED_BACK, Standing

_SECOND = 1_000_000
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows that count, one a request and arm, with flags of the same length; `stage` is each one's place in the plan.

    `carried`: its unit was met in an earlier canary stage already. `left`: of a request in the shadow stage whose
    caller did not wait for the fallback, so that one arm alone was cut short.
    """

    rows: LiveRows
    stage: NDArray[np.int64]
    late: _Flags
    conflict: _Flags
    clock: _Flags
    unpaired: _Flags
    carried: _Flags
    left: _Flags
    faults: Mapping[str, int]
    notes: Mapping[str, int]


def sort_rows(rows: LiveRows, plan: Plan, standing: Standing, now: int) -> Sorted:
    """The rows that count. A row is left out, and counted by name, when it is not what its stage and arm stand for."""
    faults: Counter[str] = Counter()
    rows = _told_apart(rows)
    stage = _places(rows, plan)
    clock = _clock_faults(rows, plan)
    strange = _strange(rows, plan, standing, stage, now, faults)
    places = np.flatnonzero(~strange & (stage >= 0))
    # which of two rows with one id came first is told by their times, so that the order in a file changes nothing
    order = np.lexsort((rows.end[places], rows.arrival[places], rows.arm[places], rows.request[places]))
    places = places[order]
    taken = rows.take(places)
    group = (taken.request * 2 + taken.arm) if taken.count else np.zeros(0, np.int64)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    kept, conflict = _merged(taken, starts)
    stage, clock = stage[places][starts], _any(clock[places], starts)
    kept = replace(kept, whole=kept.whole & ~clock)
    _count_faults(kept, stage, plan, standing, faults)
    left = _left(kept, stage)
    notes = {
        "shadow rows of callers who left": int(left.sum()),
        "repeated rows": taken.count - kept.count,
        "rows outside the stages": rows.count - taken.count - int(strange.sum()),
    }
    return Sorted(
        rows=kept,
        stage=stage,
        late=_late(kept, stage, plan, standing),
        conflict=conflict,
        clock=clock,
        unpaired=_unpaired(kept, stage),
        carried=_carried(kept, stage, plan),
        left=left,
        faults=_positive(faults),
        notes=_positive(notes),
    )


def _count_faults(
    kept: LiveRows, stage: NDArray[np.int64], plan: Plan, standing: Standing, faults: Counter[str]
) -> None:
    """Count what is wrong with rows that count: only beside others is it seen."""
    faults["request in both arms"] += _both_arms(kept.request, kept.arm, stage)
    if plan.assignment == "session":
        faults["session in both arms of a stage"] += _both_arms(kept.session * len(plan.names) + stage, kept.arm, stage)
    # Under the stage's own name: whoever accepts a gap has looked at this one, and not at those of later stages.
    faults[f"gap in the log of {standing.state}"] += _gaps(kept, stage, plan, standing)


def _told_apart(rows: LiveRows) -> LiveRows:
    """Rows whose flags are final: silence about an answer is an error, and so is an answer that another had to give."""
    compared = rows.compared & ~rows.fell_back
    error = rows.error | ~rows.whole | (rows.fell_back & (rows.arm == NEW))
    return replace(rows, error=error, compared=compared, differs=rows.differs & compared)


def _places(rows: LiveRows, plan: Plan) -> NDArray[np.int64]:
    """Each row's stage as its place in the plan, -1 for other words [N]."""
    known = {name: index for index, name in enumerate(plan.names)}
    return np.array([*(known.get(name, -1) for name in rows.stages), -1], np.int64)[rows.stage]


def _strange(
    rows: LiveRows, plan: Plan, standing: Standing, stage: NDArray[np.int64], now: int, faults: Counter[str]
) -> _Flags:
    """Rows that are not evidence of what they are filed under [N]; the faults are counted on the way."""
    new = rows.arm == NEW
    own, other = _is(rows, standing.artifact), _is(rows, standing.fallback)
    if standing.fallback == "full-prefix":
        other = own & ~rows.cached
    reached = max((plan.names.index(name) for name in standing.entered if name in plan.names), default=-1)
    future = rows.arrival > now + plan.whole.future_seconds * _SECOND
    begun = np.array([*(standing.entered.get(name, 0) for name in plan.names), 0], np.int64)[stage]
    early = rows.arrival < begun - plan.whole.late_seconds * _SECOND
    ahead = new & ((stage > reached) | (stage < 0) | early)
    old_served = new & ~own & other & ~rows.fell_back
    foreign = ~future & ~old_served & np.where(new, ~own & ~(other & rows.fell_back), ~other) & (stage >= 0)
    if standing.state == ROLLED_BACK:
        ahead |= new & (rows.arrival > standing.entered[ROLLED_BACK] + plan.whole.late_seconds * _SECOND)
    faults["row from the future"] += int(future.sum())
    faults["new arm outside what the chain allows"] += int((ahead & ~future).sum())
    faults["old version served in the new arm"] += int(old_served.sum())
    faults["answered by an unknown artifact"] += int(foreign.sum())
    return np.asarray(future | ahead | old_served | foreign | (stage > reached))


def _is(rows: LiveRows, digest: str) -> _Flags:
    return np.array([*(name == digest for name in rows.artifacts), False], bool)[rows.artifact]


def _clock_faults(rows: LiveRows, plan: Plan) -> _Flags:
    """Rows whose times contradict each other, or that end well before the row written before them [N]."""
    back = np.zeros(rows.count, bool)
    if rows.count:
        same_file = np.diff(rows.file) == 0
        back[1:] = same_file & (np.diff(rows.end) < -plan.whole.clock_seconds * _SECOND)
    return back | (rows.end < rows.arrival)


def _merged(taken: LiveRows, starts: NDArray[np.int64]) -> tuple[LiveRows, _Flags]:
    """One row a group, and which of them were told in more than one way: bad in one telling is bad, whole needs all."""
    kept = taken.take(starts)
    if len(starts) == taken.count:
        return kept, np.zeros(kept.count, bool)
    bad = {
        name: _any(getattr(taken, name), starts)
        for name in ("invalid", "error", "fell_back", "left", "differs", "compared")
    }
    whole = ~_any(~taken.whole, starts)
    # the largest margin of those that differ; a NaN among them, which is no tie, wins
    margin = np.maximum.reduceat(np.where(taken.differs, taken.margin, -np.inf), starts)
    first = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, taken.count)))
    told = ("arrival", "end", "stage", "artifact", "session", "invalid", "error", "differs", "whole")
    other = [getattr(taken, name) != getattr(kept, name)[first] for name in told]
    merged = replace(kept, whole=whole, margin=margin, **bad)  # type: ignore[arg-type]  # names are those of columns
    return merged, _any(np.logical_or.reduce(other), starts)


def _any(flags: _Flags, starts: NDArray[np.int64]) -> _Flags:
    return np.logical_or.reduceat(flags, starts) if len(starts) else np.zeros(0, bool)


def _both_arms(key: NDArray[np.int64], arm: NDArray[np.int8], stage: NDArray[np.int64]) -> int:
    """Number of keys that both arms answered outside the shadow stage."""
    canary = stage > 0
    # Each key once an arm: a key that follows itself was answered by both.
    found = np.unique(key[canary] * 2 + arm[canary]) // 2
    return int((np.diff(found) == 0).sum())


def _unpaired(kept: LiveRows, stage: NDArray[np.int64]) -> _Flags:
    """Shadow rows whose request the other arm did not answer [N]; rows are sorted by request."""
    same = np.diff(kept.request, append=-1) == 0
    paired = same | np.concatenate([[False], same[:-1]]) if kept.count else same
    return np.asarray((stage == 0) & ~paired)


def _left(kept: LiveRows, stage: NDArray[np.int64]) -> _Flags:
    """Shadow rows, of both arms, whose caller did not wait for the fallback's answer [N].

    Nobody waits for the new arm there, so hanging up tells of the fallback alone: counted as its errors it would hide
    as many of the new arm's. In a canary stage each arm has callers of its own, and one that makes them leave is worse.
    """
    gone = kept.request[(stage == 0) & (kept.arm == FALLBACK) & kept.left]
    return np.asarray((stage == 0) & np.isin(kept.request, gone))


def _late(kept: LiveRows, stage: NDArray[np.int64], plan: Plan, standing: Standing) -> _Flags:
    """Rows of a stage that arrived when the next one had begun [N]: somebody still serves by the old assignment."""
    grace = int(plan.whole.late_seconds * _SECOND)
    never = np.iinfo(np.int64).max
    # The grace is taken off first: added to the largest integer it would wrap round to long ago.
    over = [standing.entered.get(name, never - grace) + grace for name in plan.names[1:]]
    return np.asarray(kept.arrival > np.array([*over, never], np.int64)[stage])


def _carried(kept: LiveRows, stage: NDArray[np.int64], plan: Plan) -> _Flags:
    """Rows of units whose first canary stage was an earlier one [N]."""
    unit = kept.session if plan.assignment == "session" else kept.request
    canary = stage > 0
    if not canary.any():
        return np.zeros(kept.count, bool)
    first = np.full(int(unit.max()) + 1, len(plan.names))
    np.minimum.at(first, unit[canary], stage[canary])
    return canary & (stage > first[unit])


def _gaps(kept: LiveRows, stage: NDArray[np.int64], plan: Plan, standing: Standing) -> int:
    """How often nothing arrived for longer than the plan allows, in the stage that is open."""
    if standing.state not in plan.names:
        return 0
    times = np.sort(kept.arrival[stage == plan.names.index(standing.state)])
    return int((np.diff(times) > plan.whole.longest_gap_seconds * _SECOND).sum())


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: int(count) for name, count in sorted(counts.items()) if count}
