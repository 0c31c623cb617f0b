"""The gate checks itself: planted faults held against the limits of a run, and what that says about each audit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from auditlib.audits.base import AuditResult, Measurement, Subject
from auditlib.audits.faults.catalogue import FAULTS, NAMED_EQUIVALENT
from auditlib.audits.self_check import Planting, plant_all
from auditlib.errors import CancelledError
from auditlib.release.checks import Measured, tolerance
from auditlib.release.limits import LARGEST_TOLERANCE, PLANTED_FAULTS_MISSED, Limits, finite

COLUMNS = (
    "fault", "kind", "audit", "check", "value", "limit", "count", "clean", "margin", "outcome", "reason", "report",
)  # fmt: skip
LEFT_OUT = "the self-check was left out of this run"
NONE_PLANTED = "no fault can be planted that this audit would tell from the decoder's own"
# A coarse dtype moves logits by as much as a small fault does: there, logic is certified in float64 alone.
TOO_WIDE = "the tolerance of this dtype is too wide to certify by value against a fault of this size"
ITSELF = "the decoder itself fails this check"
_NUMBERS = ("value", "limit", "clean", "margin")


@dataclass(frozen=True, slots=True)
class Judged:
    """One planted fault held against the limit of the check that claims to see it.

    `outcome`: "caught", "missed", "equivalent" (no check may see it, and none does), "false alarm" (one does), or
    "not applicable" with the `reason`.
    """

    planting: Planting
    limit: float | None
    outcome: str
    reason: str = ""

    @property
    def margin(self) -> float | None:
        """How far the value is over its limit: their ratio, or the count itself where the limit is 0."""
        if self.outcome not in ("caught", "missed") or self.planting.problem or self.limit is None:
            return None
        value = self.planting.value
        ratio = value / self.limit if self.limit else value
        return ratio if math.isfinite(ratio) else None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """All planted faults of a run, judged; `problem` says what kept it from running though it was to run."""

    judged: tuple[Judged, ...] = ()
    problem: str | None = None
    ran: bool = True

    def measured(self, audit: str) -> tuple[tuple[Measurement, ...], dict[str, str]]:
        """What an audit's result gains: the measurement of missed faults, or why there is none.

        Neither, where the self-check was to run and could not: then the check counts as not measured.
        """
        if not self.ran:
            return (), {PLANTED_FAULTS_MISSED: LEFT_OUT}
        if self.problem is not None:
            return (), {}
        mine = [one for one in self.judged if one.planting.fault.audit == audit]
        planted = sum(one.outcome in ("caught", "missed", "equivalent", "false alarm") for one in mine)
        if not planted:
            return (), {PLANTED_FAULTS_MISSED: NONE_PLANTED}
        missed = sum(one.outcome in ("missed", "false alarm") for one in mine)
        return (Measurement(PLANTED_FAULTS_MISSED, missed, "faults", planted),), {}

    def to_report(self) -> dict[str, Any]:
        """JSON values for a run's report."""
        count = Counter(one.outcome for one in self.judged)
        alike = {one.planting.fault.name: one.reason for one in self.judged if one.outcome == "equivalent"}
        return {
            "ran": self.ran,
            "planted": count["caught"] + count["missed"],
            "caught": count["caught"],
            "missed": self._names("missed"),
            "false_alarms": self._names("false alarm"),
            "equivalent": {**alike, **NAMED_EQUIVALENT} if self.ran else {},
            "not_applicable": {
                one.planting.fault.name: one.reason for one in self.judged if one.outcome == "not applicable"
            },
            "problem": self.problem,
            "faults": [_row(one) for one in self.judged],
        }

    def table(self) -> pd.DataFrame:
        """One row a fault."""
        rows = [_line(one) for one in self.judged]
        return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(_NUMBERS, float))

    def _names(self, outcome: str) -> list[str]:
        return [one.planting.fault.name for one in self.judged if one.outcome == outcome]


def run_self_check(subject: Subject, results: Sequence[AuditResult], limits: Limits) -> SelfCheck:
    """Plant every fault whose audit measured, and judge what the claimed checks make of it.

    Whatever the decoder raises before any fault is planted becomes the `problem`.
    """
    measured = {one.audit: one for one in results if one.problem is None}
    faults = [fault for fault in FAULTS if fault.audit in measured]
    found = {name: Measured(one.findings.measurements) for name, one in measured.items()}
    own = next((value for one in found.values() if (value := tolerance(one)) is not None), None)
    try:
        plantings = plant_all(subject, faults, own) if faults else ()
    except CancelledError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # a decoder under audit may raise anything
        return SelfCheck(problem=f"{type(problem).__name__}: {problem}")
    coarse = own is not None and own > LARGEST_TOLERANCE
    return SelfCheck(tuple(_judged(one, found[one.fault.audit], limits, coarse) for one in plantings))


def with_self_check(results: Sequence[AuditResult], checked: SelfCheck) -> tuple[AuditResult, ...]:
    """Results with the number of missed faults among their measurements, or the reason why there is none."""
    grown = []
    for result in results:
        measurements, missing = checked.measured(result.audit)
        findings = replace(
            result.findings,
            measurements=(*result.findings.measurements, *measurements),
            not_applicable={**result.findings.not_applicable, **missing},
        )
        grown.append(replace(result, findings=findings) if result.problem is None else result)
    return tuple(grown)


def _judged(planting: Planting, found: Measured, limits: Limits, coarse: bool = False) -> Judged:
    limit = _limit(planting, found, limits)
    by_value = _by_value(planting, limits, coarse)
    return Judged(planting, limit, *_outcome(planting, found, limit, by_value))


def _outcome(planting: Planting, found: Measured, limit: float | None, by_value: bool) -> tuple[str, str]:
    """What became of a fault, and why. Whatever is not known for certain counts as missed."""
    if planting.reason:
        return "not applicable", planting.reason
    if limit is None or planting.problem:
        return "missed", planting.problem or "the limit of its check was not measured"
    if planting.clean_count == 0:
        return "not applicable", "the probe finds nothing to look at in this decoder"
    if _over(planting.clean, limit):
        itself = _fails_anyway(planting, found, limit)
        return ("not applicable", ITSELF) if itself else ("false alarm", "the probe alarms without any fault")
    seen = _over(planting.value, limit)
    if planting.fault.equivalent:
        return ("false alarm" if seen else "equivalent"), planting.fault.equivalent
    too_wide = not seen and by_value and limit > LARGEST_TOLERANCE
    missed = ("not applicable", TOO_WIDE) if too_wide else ("missed", "")
    return ("caught", "") if seen and planting.count else missed


def _by_value(planting: Planting, limits: Limits, coarse: bool) -> bool:
    """Whether the check is held against what a dtype rounds, and not against a number of its own.

    A beam's score is a sum of rounded log-probabilities: its limit is one of rounding where the dtype is `coarse`.
    """
    key = planting.fault.audit, planting.check
    mine = [one for one in limits.rows if (one.audit, one.check) == key]
    return any(one.at_most == "tolerance" or (coarse and one.unit == "log-probability") for one in mine)


def _limit(planting: Planting, found: Measured, limits: Limits) -> float | None:
    """The largest value that passes; None where it is a tolerance that was not measured."""
    key = planting.fault.audit, planting.check
    at_most = next(one.at_most for one in limits.rows if (one.audit, one.check) == key)
    if at_most != "tolerance":
        return float(at_most)
    measured = tolerance(found)
    return None if measured is None else min(measured, limits.largest_tolerance)


def _over(value: float, limit: float) -> bool:
    return not value <= limit  # a NaN is over every limit


def _fails_anyway(planting: Planting, found: Measured, limit: float) -> bool:
    """Whether the audit itself saw the decoder fail this check, under any setting."""
    own = [one for one in found.measurements if one.name.rpartition(": ")[2] == planting.check]
    # A setting of the policy may differ from the one that faults are planted under: its failure is the decoder's own.
    return bool(planting.fault.setting) or any(_over(one.value, limit) for one in own)


def _row(one: Judged) -> dict[str, Any]:
    """What a verdict says of one fault."""
    fault, margin = one.planting.fault, None if one.margin is None else float(f"{one.margin:.4g}")
    return {
        "fault": fault.name, "audit": fault.audit, "check": one.planting.check, "outcome": one.outcome,
        "margin": margin, "reason": one.reason,
    }  # fmt: skip


def _line(one: Judged) -> Mapping[str, Any]:
    planting, fault = one.planting, one.planting.fault
    value = None if one.outcome == "not applicable" or planting.problem else finite(planting.value)
    return {
        "fault": fault.name, "kind": fault.kind, "audit": fault.audit, "check": planting.check, "value": value,
        "limit": one.limit, "count": planting.count, "clean": finite(planting.clean), "margin": one.margin,
        "outcome": one.outcome, "reason": one.reason, "report": fault.report,
    }  # fmt: skip
