"""One measurement held against one limit. Every way out is a no but one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal, Protocol

from auditlib.release.limits import Limit, finite

Status = Literal["passed", "failed", "not measured"]


class MeasurementLike(Protocol):
    """What a measurement must have to be judged: `audits.base.Measurement` does."""

    @property
    def name(self) -> str:
        """Which check it belongs to."""

    @property
    def value(self) -> float:
        """The number."""

    @property
    def unit(self) -> str:
        """What the number counts."""

    @property
    def count(self) -> int:
        """How many observations it rests on."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one audit found, as far as a judge needs it; `problem` says why it could not measure."""

    measurements: Sequence[MeasurementLike] = ()
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

    def named(self, name: str) -> tuple[MeasurementLike, ...]:
        """All measurements of that name; more than one is a fault of the audit."""
        return tuple(found for found in self.measurements if found.name == name)


@dataclass(frozen=True, slots=True)
class Check:
    """A limit and what became of it. `value` is None where nothing finite was measured: JSON has no NaN."""

    limit: Limit
    name: str
    status: Status
    reason: str
    value: float | None = None
    unit: str = ""
    count: int = 0
    at_most: float | None = None
    setting: str | None = None
    proposed: bool = True

    def to_json(self) -> dict[str, object]:
        """The check as it stands in a report (contract 2)."""
        shown: dict[str, object] = {
            "name": self.name,
            "failure": self.limit.failure,
            "value": self.value,
            "limit": self.at_most,
            "unit": self.unit or self.limit.unit,
            "count": self.count,
            "status": self.status,
            "reason": self.reason,
        }
        return shown if self.proposed else {**shown, "comparison": True}


def check(limit: Limit, name: str, found: Measured, at_most: float | None) -> Check:
    """Judge the measurement called `name`; `at_most` None means that the limit itself could not be measured."""
    if found.problem is not None:
        return Check(limit, name, "not measured", f"the audit stopped: {found.problem}", at_most=at_most)
    results = found.named(name)
    # Two numbers of one name are none: an audit could else measure until one of them is within the limit.
    if len(results) != 1:
        reason = f"measured {len(results)} times under one name" if results else "not measured"
        return Check(limit, name, "not measured", reason, at_most=at_most)
    return _weigh(limit, name, results[0], at_most)


def _weigh(limit: Limit, name: str, result: MeasurementLike, at_most: float | None) -> Check:
    value, count = finite(result.value), observations(result.count)

    def _out(status: Status, reason: str) -> Check:
        return Check(limit, name, status, reason, value, result.unit, count, at_most)

    # First, whatever the value: too few observations are neither a pass nor a failure.
    if count < limit.min_count:
        return _out("not measured", f"rests on {count} of {limit.min_count} observations")
    if result.value is None:
        return _out("not measured", "measured nothing")
    if value is None:  # a number that is none exceeds every limit
        return _out("failed", f"measured {result.value!r}, which is not a finite number")
    if at_most is None:
        return _out("not measured", "the tolerance it is held against was not measured")
    passed = value <= at_most
    return _out("passed" if passed else "failed", "within limit" if passed else "over limit")


def holds(one: Mapping[str, object]) -> bool:
    """Whether a check, read from a document, passed and bears it out: finite numbers, within limit, observations."""
    value, limit = finite(one.get("value")), finite(one.get("limit"))
    if value is None or limit is None or one.get("status") != "passed":
        return False
    # The word "passed" is somebody's claim: the numbers beside it have to say so too.
    return value <= limit and observations(one.get("count")) >= 1


def tolerance(found: Measured) -> float | None:
    """The tolerance an audit measured, in logits; None where it is missing, negative, no number or rests on nothing."""
    results = found.named("tolerance")
    value = finite(results[0].value) if len(results) == 1 and observations(results[0].count) else None
    return value if value is not None and value >= 0 else None


def observations(count: object) -> int:
    """How many observations a count stands for: what is no whole number, or below none, is none."""
    return max(0, int(count)) if isinstance(count, Integral) and not isinstance(count, bool) else 0
