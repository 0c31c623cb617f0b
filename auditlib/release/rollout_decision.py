"""What a rollout's evidence allows next, and why: the one place where that is decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from auditlib.release.rollout_evidence import LiveEvidence, StageCounts
from auditlib.release.rollout_plan import COMPARED_RATES, RELEASED, SHADOW, Plan, Stage
from auditlib.release.rollout_standing import FALLBACK_ONLY, REPLAYED, ROLLED_BACK, Standing
from auditlib.release.sample_size import Sample, more_requests
from auditlib.release.sequential import Coin, log_e_rate, log_e_ratio, log_e_share

Action = Literal["promote", "hold", "pause", "roll back"]

_SECOND = 1_000_000
_HARM = {"invalid": "invalid", "error": "errors", "slow": "slow"}
_OUTSIDE = {
    FALLBACK_ONLY: "only the fallback serves; a passed replay of the artifact is needed next",
    REPLAYED: "the replay passed; the shadow stage is opened next",
    ROLLED_BACK: "rolled back; a new rollout starts a new chain",
}


@dataclass(frozen=True, slots=True)
class Test:
    """One test as it stands: the logarithm of its e-value, and what that must reach to speak."""

    name: str
    log_e: float
    limit: float

    @property
    def speaks(self) -> bool:
        """Whether the evidence is enough to act on; an e-value that is no number is."""
        return not self.log_e < self.limit


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a stage needs so many of before it may be left."""

    what: str
    have: int
    need: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What may be done: "promote" to `to`, "hold", "pause" or "roll back", with reasons in words."""

    action: Action
    to: str
    reasons: tuple[str, ...]
    needed: tuple[Need, ...]
    tests: tuple[Test, ...]

    @property
    def speaks_against(self) -> bool:
        """Whether something is wrong, so that the rollout must not simply go on."""
        return self.action in ("pause", "roll back")


def decide(plan: Plan, standing: Standing, evidence: LiveEvidence) -> Decision:
    """The next decision in a stage. Harm comes first, then doubt about the log, then what is missing.

    Nothing that is missing, and no number that is none, ever leads to "promote".
    """
    tests = tuple(run_tests(plan, evidence))
    doubt = tuple(_doubt(standing, evidence, tests))
    if standing.state not in plan.names:
        # without a stage there is nothing to promote; the new arm answering all the same is still said aloud
        action: Action = "pause" if doubt and standing.state == ROLLED_BACK else "hold"
        return Decision(action, standing.state, (_OUTSIDE[standing.state], *doubt), (), tests)
    needed = tuple(_needed(plan, standing, evidence))
    lacking = tuple(_lacking(plan, standing, evidence, needed))
    harm = tuple(_harm(evidence, tests))
    if harm:
        return Decision("roll back", ROLLED_BACK, (*harm, *doubt), needed, tests)
    if standing.paused:
        return Decision("hold", standing.state, ("paused; a person resumes it or rolls it back", *doubt), needed, tests)
    if doubt:
        return Decision("pause", standing.state, doubt, needed, tests)
    return _onwards(plan, standing, lacking, needed, tests)


def _onwards(
    plan: Plan, standing: Standing, lacking: tuple[str, ...], needed: tuple[Need, ...], tests: tuple[Test, ...]
) -> Decision:
    """The decision where nothing speaks against the new arm: on to the next stage when nothing is missing."""
    if standing.state == RELEASED:
        return Decision("hold", RELEASED, ("nothing speaks against it", *lacking), (), tests)
    if lacking:
        return Decision("hold", standing.state, lacking, needed, tests)
    following = plan.names[plan.names.index(standing.state) + 1]
    return Decision(
        "promote", following, (f"{standing.state} has all it needs, nothing speaks against",), needed, tests
    )


def run_tests(plan: Plan, evidence: LiveEvidence) -> Iterator[Test]:
    """Every test of the plan on the evidence so far."""
    for rate in COMPARED_RATES:
        yield Test(
            f"{rate} against the fallback", log_e_ratio(_coins(plan, evidence, rate), plan.ratio), plan.threshold
        )
    for rate, limit in plan.limits.items():
        bad = sum(getattr(stage.new, f"{rate}_requests") for stage in evidence.stages.values())
        trials = sum(stage.new.requests for stage in evidence.stages.values())
        yield Test(f"{rate} against the limit {limit:g}", log_e_rate(bad, trials, limit), plan.threshold)
    shares = [
        log_e_share(counts.new.units, counts.fallback.units, stage.share)
        for stage, counts in _stages(plan, evidence)
        if stage.name != SHADOW
    ]
    yield Test("assignment to the arms", sum(shares), plan.threshold)


def describe(need: Need) -> str:
    """A need as words."""
    return f"{need.what}: {need.have:,} of {need.need:,}"


def _harm(evidence: LiveEvidence, tests: tuple[Test, ...]) -> Iterator[str]:
    mismatches = sum(stage.mismatches for stage in evidence.stages.values())
    if mismatches:
        yield f"{mismatches:,} answer(s) differ from the full prefix path where that was not nearly undecided"
    for test in tests:
        if test.speaks and not test.name.startswith("assignment"):
            yield f"{test.name}: too high; evidence {_e_value(test.log_e)} where {_e_value(test.limit)} rolls back"


def _doubt(standing: Standing, evidence: LiveEvidence, tests: tuple[Test, ...]) -> Iterator[str]:
    for name, count in evidence.faults.items():
        accepted = standing.accepted.get(name, 0)
        if count > accepted:
            yield f"{name}: {count:,}" + (f" ({accepted:,} were accepted)" if accepted else "")
    for test in tests:
        if test.speaks and test.name.startswith("assignment"):
            found = _e_value(test.log_e)
            yield f"units are not shared out as planned, evidence {found}: rows of one arm may be missing"


def _lacking(plan: Plan, standing: Standing, evidence: LiveEvidence, needed: tuple[Need, ...]) -> Iterator[str]:
    """What the open stage lacks, or has too much of, before it may be left."""
    yield from (f"still needed: {describe(need)}" for need in needed if need.have < need.need)
    if standing.state not in evidence.stages:
        return
    if evidence.newest is None or evidence.now - evidence.newest > plan.whole.stale_seconds * _SECOND:
        yield f"no row is newer than {plan.whole.stale_seconds:g} seconds"
    if evidence.unfinished:
        yield f"{evidence.unfinished:,} file(s) of the log are not written to their end"
    if standing.state == RELEASED:
        return
    counts = evidence.stages[standing.state]
    for name, share, most in _shares(plan, counts, evidence):
        # A share of no rows is NaN, which is tolerated nowhere.
        if not share <= most:
            yield f"{name}: {share:.2%} of the rows, {most:.2%} are tolerated"
    if standing.state == SHADOW and evidence.shadow_slow_us is None:
        yield "the fallback's 95th percentile of latency cannot be told from so few rows"
    if standing.state != SHADOW and standing.slow_us is None:
        yield "the chain holds no limit of latency from the shadow stage"


def _shares(plan: Plan, counts: StageCounts, evidence: LiveEvidence) -> Iterator[tuple[str, float, float]]:
    for name, arm in (("new", counts.new), ("fallback", counts.fallback)):
        yield f"not measured in the {name} arm", 1 - _share(arm.whole, arm.requests), plan.whole.unmeasured
    rows = counts.new.requests + counts.fallback.requests
    yield "answered by one arm only", _share(counts.unpaired, rows), plan.whole.unmeasured
    yield "told in more than one way", _share(counts.conflicts, rows), plan.whole.unmeasured
    yield "clock jumped back", _share(counts.clock, rows), plan.whole.unmeasured
    # nobody knows which arm an unreadable row is of, so at worst all are of the new arm
    yield "unreadable", _share(evidence.unread, counts.new.requests + evidence.unread), plan.whole.unmeasured
    late = sum(stage.late for stage in evidence.stages.values())
    yield "late, of a stage that was over", _share(late, rows), plan.whole.late


def _needed(plan: Plan, standing: Standing, evidence: LiveEvidence) -> Iterator[Need]:
    open_stage = next((stage for stage in plan.stages if stage.name == standing.state), None)
    if open_stage is None:
        return
    counts = evidence.stages[open_stage.name]
    yield Need("whole rows of the new arm", counts.new.whole, open_stage.requests)
    yield Need("whole rows of the fallback arm", counts.fallback.whole, open_stage.requests)
    yield Need("answers compared with the full prefix path", counts.compared, open_stage.compared)
    if open_stage == plan.stages[-1]:
        yield from _power(plan, open_stage, evidence)


def _power(plan: Plan, last: Stage, evidence: LiveEvidence) -> Iterator[Need]:
    """Requests that the last stage needs so that harm worth noticing would have been noticed."""
    have = evidence.stages[last.name].new.requests + evidence.stages[last.name].fallback.requests
    for rate in COMPARED_RATES:
        sample = [
            Sample(stage.share, counts.new.units, counts.fallback.units)
            for stage, counts in _stages(plan, evidence)
            if rate != "slow" or stage.name != SHADOW
        ]
        bad = sum(coin.fallback for coin in _coins(plan, evidence, rate))
        units = sum(one.fallback for one in sample)
        base = max(bad / units if units else 0.0, plan.detect_rate)
        more = more_requests(
            sample, bad / units if units else 0.0, base * plan.detect_ratio, plan.ratio, plan.threshold
        )
        rows = math.ceil(more * have / max(1, sample[-1].new + sample[-1].fallback))
        harm = f"{base * plan.detect_ratio:.2%} of the answers were {_HARM[rate]}"
        yield Need(f"requests to notice it if {harm}", have, have + rows)


def _coins(plan: Plan, evidence: LiveEvidence, rate: str) -> list[Coin]:
    return [
        Coin(stage.share, getattr(counts.new, rate), getattr(counts.fallback, rate))
        for stage, counts in _stages(plan, evidence)
        if rate != "slow" or stage.name != SHADOW
    ]


def _stages(plan: Plan, evidence: LiveEvidence) -> list[tuple[Stage, StageCounts]]:
    return [(stage, evidence.stages[stage.name]) for stage in plan.stages]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _e_value(log_e: float) -> str:
    return f"{math.exp(log_e):,.3g}" if log_e < 30 else f"10^{log_e / math.log(10):.0f}"


def to_json(decision: Decision) -> Mapping[str, Any]:
    """A decision as it is printed for machines and signed."""
    return {
        "action": decision.action,
        "to": decision.to,
        "reasons": list(decision.reasons),
        "needed": [{"what": need.what, "have": need.have, "need": need.need} for need in decision.needed],
        "tests": [{"name": test.name, "log_e": test.log_e, "limit": test.limit} for test in decision.tests],
    }
