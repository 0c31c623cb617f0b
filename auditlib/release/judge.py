"""What all measurements of a run amount to: failures, what is missing, and what may be released.

The judge knows numbers, limits and names, and no model. It fails closed: the only way to an approval is that every
required audit measured every required check, with a finite value on enough observations and within its limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from auditlib.release.checks import Check, Measured, MeasurementLike, Status, check, holds, observations, tolerance
from auditlib.release.headline import headline
from auditlib.release.limits import LIMITS, Limit, Limits, finite
from auditlib.release.report_checks import lacking_checks

FAILURES = (
    "cache parity", "padding emission", "event grammar", "end-token coverage", "causality", "cache identity",
    "training targets", "split leakage", "numerics", "decoding policy", "serving limits",
)  # fmt: skip
REQUIRED_AUDITS: tuple[str, ...] = tuple(dict.fromkeys(limit.audit for limit in LIMITS))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Every check of a run, and the decisions that follow from them.

    `settings` and `comparisons` map names of decoding settings to their kind; a comparison is measured beside the
    proposed settings and never counts against the release. `awaited` are audits that the policy asks for and that other
    evidence than this run has to answer.
    """

    checks: tuple[Check, ...]
    measured: Mapping[str, Measured]
    settings: Mapping[str, str]
    comparisons: Mapping[str, str]
    fallback: str
    awaited: tuple[str, ...] = ()

    @property
    def proposed(self) -> list[Check]:
        """Checks that count."""
        return [one for one in self.checks if one.proposed]

    @property
    def failures(self) -> list[str]:
        """Names of what was measured and fails, each once, in the order of `FAILURES`."""
        found = {one.limit.failure for one in self.proposed if one.status == "failed"}
        summary = headline(self.proposed)
        # The public gate is asked as well: a report never says less than contract 3 would.
        found.update(summary.failures if summary else ())
        return [name for name in FAILURES if name in found]

    @property
    def not_measured(self) -> list[str]:
        """Names of the audits that were left out, lack a required check, have no limit, or are still awaited."""
        return [*(name for name in self._audits() if self._lacks(name)), *self.awaited]

    def to_report(self) -> dict[str, object]:
        """The parts of a report (contract 2) that a judge answers for, free of NaN."""
        summary = headline(self.proposed)
        return {
            "failures": self.failures,
            "not_measured": self.not_measured,
            "audits": {name: self._audit(name) for name in self._audits()},
            "gate": summary.to_json() if summary else None,
            "decision": self._decision(),
        }

    def _audits(self) -> list[str]:
        return list(dict.fromkeys((*REQUIRED_AUDITS, *self.measured)))

    def _lacks(self, audit: str) -> bool:
        mine = [one for one in self.proposed if one.limit.audit == audit]
        return not mine or any(one.status == "not measured" for one in mine)

    def _audit(self, name: str) -> dict[str, object]:
        mine = [one for one in self.checks if one.limit.audit == name]
        found = self.measured.get(name, Measured(problem="left out"))
        judged = {one.name for one in mine}
        return {
            "status": self._status(name),
            "checks": [one.to_json() for one in mine],
            "information": [_shown(one) for one in found.measurements if one.name not in judged],
            "not_applicable": dict(found.not_applicable),
            "problem": found.problem,
        }

    def _status(self, name: str) -> Status:
        if any(one.status == "failed" for one in self.proposed if one.limit.audit == name):
            return "failed"
        return "not measured" if self._lacks(name) else "passed"

    def _decision(self) -> dict[str, object]:
        cache = self._against("cache", None)
        decoding = {name: self._against("decoding", name) for name in (*self.settings, *self.comparisons)}
        return {
            "cache_acceleration": "blocked" if cache else "allowed",
            "decoding": {name: "blocked" if reasons else "allowed" for name, reasons in decoding.items()},
            "fallback": self.fallback,
            "proposed": list(self.settings),
            "because": {"cache_acceleration": cache, "decoding": decoding},
        }

    def _against(self, thing: str, setting: str | None) -> list[str]:
        """What speaks against releasing cache acceleration ("cache") or one decoding setting ("decoding")."""
        return [
            f"{one.limit.audit}: {one.name}: {one.reason}"
            # Comparisons too: a setting that fails as one never speaks against the release, but stays blocked itself.
            for one in self.checks
            if one.status != "passed"
            and (
                (one.proposed and one.limit.blocks in ("release", thing))
                or (one.limit.blocks == "setting" and one.setting == setting)
            )
        ]


def _shown(found: MeasurementLike) -> dict[str, object]:
    """A measurement that no limit holds, for people; its value is None where it is no number."""
    return {
        "name": found.name,
        "value": finite(found.value),
        "unit": found.unit,
        "count": observations(found.count),
    }


def judge(
    measured: Mapping[str, Measured],
    settings: Mapping[str, str],
    comparisons: Mapping[str, str],
    limits: Limits,
    fallback: str = "full-prefix",
    awaited: Sequence[str] = (),
) -> Judgement:
    """Hold what the audits measured (by audit name) against `limits`.

    `settings` are the proposed decoding settings and `comparisons` those measured only to compare, each as name → kind
    ("greedy", "sampled", "beam"). `awaited` audits are not measured here, and no approval comes without them.
    """
    left_out = Measured(problem="left out")
    checks = tuple(
        one
        for limit in limits.rows
        for one in _checks(limit, measured.get(limit.audit, left_out), settings, comparisons, limits)
    )
    return Judgement(checks, measured, settings, comparisons, fallback, tuple(awaited))


def _checks(
    limit: Limit, found: Measured, settings: Mapping[str, str], comparisons: Mapping[str, str], limits: Limits
) -> Iterator[Check]:
    at_most = _at_most(limit, found, limits.largest_tolerance)
    if not limit.per_setting:
        if not _spared(limit, found):
            yield check(limit, limit.check, found, at_most)
        return
    # A name on both sides is judged once, as proposed: being compared must not excuse it.
    for setting, kind in {**comparisons, **settings}.items():
        if not limit.kinds or kind in limit.kinds:
            one = check(limit, f"{setting}: {limit.check}", found, at_most)
            yield replace(one, setting=setting, proposed=setting in settings)


def _at_most(limit: Limit, found: Measured, largest_tolerance: float) -> float | None:
    if limit.at_most != "tolerance":
        return float(limit.at_most)
    measured = tolerance(found)
    # However much a device rounds, what it measured of itself cannot widen the limit beyond this.
    return None if measured is None else min(measured, largest_tolerance)


def _spared(limit: Limit, found: Measured) -> bool:
    """Whether no check is asked for: declared not applicable where that is allowed, or standing in for nothing."""
    if limit.stand_in_for is not None:
        return bool(found.named(limit.stand_in_for)) and not found.named(limit.check)
    return not limit.required and not found.named(limit.check) and bool(found.not_applicable.get(limit.check))


def approved(report: Mapping[str, object]) -> bool:
    """Whether a report says yes, read strictly: every required audit and check, every decision, no failure.

    Anything missing or of another type is a no, so a report that somebody cut short cannot turn into an approval.
    """
    audits, decision = report.get("audits"), report.get("decision")
    if report.get("failures") != [] or report.get("not_measured") != []:
        return False
    if not isinstance(audits, Mapping) or not isinstance(decision, Mapping):
        return False
    if not set(REQUIRED_AUDITS) <= set(audits) or not all(_audit_passed(one) for one in audits.values()):
        return False
    return not lacking_checks(report) and _all_allowed(decision)


def _audit_passed(audit: object) -> bool:
    checks = audit.get("checks") if isinstance(audit, Mapping) and audit.get("status") == "passed" else None
    if not isinstance(checks, list) or not all(isinstance(one, Mapping) for one in checks):
        return False
    counted = [one for one in checks if one.get("comparison") is not True]
    return bool(counted) and all(holds(one) for one in counted)


def _all_allowed(decision: Mapping[object, object]) -> bool:
    decoding, proposed = decision.get("decoding"), decision.get("proposed")
    if decision.get("cache_acceleration") != "allowed" or not isinstance(decoding, Mapping):
        return False
    if not isinstance(proposed, list) or not proposed:
        return False
    return all(isinstance(name, str) and decoding.get(name) == "allowed" for name in proposed)
