"""Where a list of transitions leads, when each of them was allowed where it stands; knows no keys and no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from auditlib.release.refusals import RefusedError
from auditlib.release.rollout_decision import decide
from auditlib.release.rollout_evidence import LiveEvidence, read_evidence
from auditlib.release.rollout_plan import SHADOW, Plan, parse_plan
from auditlib.release.rollout_standing import FALLBACK_ONLY, REPLAYED, ROLLED_BACK, Standing
from auditlib.release.rollout_transition import Transition, digest_of, transition_bytes

_SKEW_US = 300 * 1_000_000  # between the counting of the log and the move that rests on it
_NEEDED_DOCUMENT = {FALLBACK_ONLY: "replay", REPLAYED: "verdict"}
"""What the move out of each state before the first stage rests on."""


def follow(moves: Sequence[Transition]) -> tuple[Plan, Standing]:
    """The plan, and where the rollout stands after all moves. RefusedError names the first that was not allowed."""
    plan = _plan(moves[0])
    for before, after in pairwise(moves):
        _require_next(before, after)
    standing = opening(moves[0])
    for move in moves[1:]:
        standing = after_move(plan, standing, move)
    return plan, standing


def opening(first: Transition) -> Standing:
    """Where a rollout stands when only its first transition was made."""
    if (first.kind, first.by, first.sequence, first.previous) != ("start", "person", 1, None):
        raise RefusedError("replayed", "a chain begins with the start of a rollout, and this one does not")
    if (first.source, first.to) != ("", FALLBACK_ONLY):
        raise RefusedError("malformed", "transition 1 leads elsewhere than to the fallback")
    about = first.subject
    return Standing(FALLBACK_ONLY, False, about.artifact, about.fallback, about.tolerance, {}, None, {})


def after_move(plan: Plan, standing: Standing, move: Transition) -> Standing:
    """Where one more transition leads; RefusedError when it is not allowed there."""
    where = f"transition {move.sequence}"
    if move.source != standing.state or standing.state == ROLLED_BACK or move.kind == "start":
        raise RefusedError("replayed", f"{where} does not start where the one before it ended")
    evidence = _evidence(move, where)
    if move.by == "person":
        _require_person(standing, move, where)
    elif standing.state in _NEEDED_DOCUMENT:
        _require_document(plan, standing, move, where)
    else:
        _require_allowed(plan, standing, move, evidence, where)
    return _moved(standing, move, evidence)


def _plan(first: Transition) -> Plan:
    try:
        plan = parse_plan(first.plan)
    except ValueError as error:
        raise RefusedError("malformed", f"the plan in transition 1 cannot be used: {error}") from error
    if plan.digest != first.subject.plan:
        raise RefusedError("malformed", "transition 1 names another plan than it holds")
    return plan


def _require_next(before: Transition, after: Transition) -> None:
    where = f"transition {after.sequence}"
    if after.sequence != before.sequence + 1 or after.previous != digest_of(transition_bytes(before)):
        raise RefusedError("replayed", f"{where} does not follow transition {before.sequence}")
    if after.subject != before.subject or after.plan:
        raise RefusedError("replayed", f"{where} is about another rollout, artifact, fallback or plan")
    if after.time < before.time:
        raise RefusedError("replayed", f"{where} is dated before transition {before.sequence}")
    rows = {one["name"]: one["rows"] for one in after.files}
    # A move that read no log, such as a pause by hand, has nothing to fall behind in.
    if after.files and any(rows.get(one["name"], -1) < one["rows"] for one in before.files):
        raise RefusedError("replayed", f"{where} stands on fewer rows than transition {before.sequence}")


def _evidence(move: Transition, where: str) -> LiveEvidence | None:
    if move.counts is None:
        return None
    try:
        evidence = read_evidence(move.counts)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RefusedError("malformed", f"the counts in {where} cannot be used") from error
    if abs(evidence.now - move.microseconds) > _SKEW_US:
        raise RefusedError("stale", f"the counts in {where} are of another time than the move")
    return evidence


def _require_person(standing: Standing, move: Transition, where: str) -> None:
    """A person may stop what runs and let go on what was paused; never may a person promote."""
    if not move.comment.strip():
        raise RefusedError("malformed", f"{where} was made by a person and gives no reason")
    allowed = {
        "pause": not standing.paused and move.to == standing.state,
        "resume": standing.paused and move.to == standing.state,
        "roll back": move.to == ROLLED_BACK,
    }
    if not allowed.get(move.kind, False):
        raise RefusedError("malformed", f"{where} is not for a person to make, or not there")


def _require_document(plan: Plan, standing: Standing, move: Transition, where: str) -> None:
    following = {FALLBACK_ONLY: REPLAYED, REPLAYED: plan.names[0]}[standing.state]
    kinds = [document["kind"] for document in move.documents]
    if standing.paused or (move.kind, move.to) != ("advance", following):
        raise RefusedError("malformed", f"{where} is no move that leads on from there")
    if _NEEDED_DOCUMENT[standing.state] not in kinds:
        raise RefusedError("malformed", f"{where} rests on no {_NEEDED_DOCUMENT[standing.state]}")


def _require_allowed(
    plan: Plan, standing: Standing, move: Transition, evidence: LiveEvidence | None, where: str
) -> None:
    """Decide again from the counts that were signed: a signature alone promotes nothing."""
    if evidence is None or not move.files or set(evidence.stages) != set(plan.names):
        raise RefusedError("malformed", f"{where} names no log, or no counts of every stage")
    decision = decide(plan, standing, evidence)
    kind = {"promote": "advance"}.get(decision.action, decision.action)
    if (kind, decision.to) != (move.kind, move.to):
        raise RefusedError("malformed", f"{where} is not the move that its own counts allow")


def _moved(standing: Standing, move: Transition, evidence: LiveEvidence | None) -> Standing:
    if move.kind == "pause":
        return replace(standing, paused=True)
    if move.kind == "resume":
        accepted = standing.accepted if evidence is None else evidence.faults
        return replace(standing, paused=False, accepted=accepted)
    slow_us = standing.slow_us
    # Set once, by the shadow stage: what later rows are held against must not move along with them.
    if standing.state == SHADOW and evidence is not None:
        slow_us = evidence.shadow_slow_us
    entered = {**standing.entered, move.to: move.microseconds}
    return replace(standing, state=move.to, paused=False, entered=entered, slow_us=slow_us)
