"""What a run and the evidence given with it amount to together: only serving limits are left to evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditlib.release.evidence import EvidenceFile, missing_limits
from auditlib.release.judge import approved
from auditlib.release.report_checks import lacking_checks

SERVING = "serving limits"
"""The one failure that a run cannot measure: a policy that states limits on serving leaves it to a bench."""


# What a policy asks that says nothing of it; the room that reads policies is not known here, and a test compares them.
_UNSAID = {"invalid sequences": 0.001}


@dataclass(frozen=True, slots=True)
class Settled:
    """Failures and what is missing after the evidence, and whether the gate lets the release through.

    `shortfalls` are sentences on checks that the report or the evidence lacks.
    """

    failures: tuple[str, ...]
    not_measured: tuple[str, ...]
    approved: bool
    shortfalls: tuple[str, ...] = ()

    @property
    def wrong(self) -> str:
        """Everything that keeps the gate from letting it through, for a message."""
        named = ", ".join([*self.failures, *(f"{name} not measured" for name in self.not_measured)])
        return ": ".join(filter(None, [named, "; ".join(self.shortfalls)]))


def settle(report: Mapping[str, Any], policy: Mapping[str, Any], evidence: Sequence[EvidenceFile]) -> Settled:
    """A report under its policy document, with the evidence that is given with it.

    A passed bench settles the serving limits and nothing else; evidence that did not pass is never passed over.
    """
    asked = "serving" in policy or SERVING in report["not_measured"] or _bench(evidence) is not None
    statuses = {one.status for one in evidence} | ({_of_bench(policy, evidence)} if asked else set())
    lacking = lacking_checks(report)
    missing = [name for name in report["not_measured"] if name != SERVING]
    missing += [name for name in lacking if name not in (*missing, *report["failures"])]
    missing += [SERVING] * ("not measured" in statuses)
    failures = [name for name in report["failures"] if name != SERVING]
    failures += [SERVING] * ("failed" in statuses or SERVING in report["failures"])
    rest = {**report, "failures": failures, "not_measured": missing}
    # No status at all is within "passed" as well: where no limit on serving is stated, no bench is needed.
    shortfalls = (*_short(lacking), *(one.shortfall for one in evidence if one.lacks), *_eased(policy, evidence))
    return Settled(tuple(failures), tuple(missing), approved(rest) and statuses <= {"passed"}, shortfalls)


def _short(lacking: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One sentence on each audit of the report that lacks checks."""
    for audit, lacks in lacking.items():
        yield f"report.json has not the checks of {audit} ({'; '.join(lacks)}); audit again"


def _of_bench(policy: Mapping[str, Any], evidence: Sequence[EvidenceFile]) -> str:
    """What becomes of the limits on serving: one of the policy's that no bench answers is not measured."""
    bench = _bench(evidence)
    if bench is None or (bench.status == "passed" and _unheld(policy, bench)):
        return "not measured"
    return bench.status


def _eased(policy: Mapping[str, Any], evidence: Sequence[EvidenceFile]) -> Iterator[str]:
    bench = _bench(evidence)
    if bench is not None and (unheld := _unheld(policy, bench)):
        where = bench.where or bench.name
        yield f"{where} was not held against what the policy of the run asks ({', '.join(unheld)}); run bench under it"


def _bench(evidence: Sequence[EvidenceFile]) -> EvidenceFile | None:
    return next((one for one in evidence if one.kind == "bench"), None)


def _unheld(policy: Mapping[str, Any], bench: EvidenceFile) -> tuple[str, ...]:
    """Limits of a policy, those that it leaves to the defaults included, that a bench was not held against."""
    serving = policy.get("serving")
    stated = serving.get("limits") if isinstance(serving, Mapping) else None
    limits = {**_UNSAID, **(stated if isinstance(stated, Mapping) else {})}
    return tuple(missing_limits({"serving": {"limits": limits}}, bench.checks))
