"""A run in the five facts of the public gate, so that anybody can hold it against contract 3 again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from auditlib.release.checks import Check
from auditlib.release.gate import DecodeAudit, release_failures


@dataclass(frozen=True, slots=True)
class Headline:
    """The five facts over all proposed settings, and the two limits that were allowed."""

    audit: DecodeAudit
    allowed_gap: float
    allowed_capped: int

    @property
    def failures(self) -> list[str]:
        """What the public gate says about them."""
        return release_failures(self.audit, self.allowed_gap, self.allowed_capped)

    def to_json(self) -> dict[str, object]:
        """The facts, the limits and the answer; a gap that is no number becomes null."""
        gap = self.audit.maximum_logit_gap
        facts = {**asdict(self.audit), "maximum_logit_gap": None if math.isnan(gap) else gap}
        limits = {"allowed_gap": self.allowed_gap, "allowed_capped": self.allowed_capped}
        return {**facts, **limits, "failures": self.failures}


def headline(checks: Sequence[Check]) -> Headline | None:
    """The headline of all proposed checks, or None while one that it rests on is not measured."""
    parity = [one for one in checks if one.limit.audit == "cache parity"]
    gaps = [one for one in parity if one.limit.at_most == "tolerance"]
    padding, orders, capped = (
        [one for one in checks if one.limit.check == name]
        for name in ("padding emitted", "invalid sequences", "capped sequences")
    )
    needed = [*parity, *padding, *orders, *capped]
    if not (gaps and padding and orders and capped) or any(one.status == "not measured" for one in needed):
        return None
    gap, most_capped = max(gaps, key=_excess), max(capped, key=_excess)
    matching = all(one.status == "passed" for one in parity if one not in gaps)
    audit = DecodeAudit(matching, _number(gap), _total(padding), _total(orders), _total([most_capped]))
    return Headline(audit, _limit(gap), math.floor(_limit(most_capped)))


def _number(check: Check) -> float:
    return math.nan if check.value is None else check.value  # measured, but no finite number


def _limit(check: Check) -> float:
    return 0.0 if check.at_most is None else check.at_most


def _excess(check: Check) -> float:
    # by how much a check is over its own limit: the worst one speaks for all
    return math.inf if check.value is None else check.value - _limit(check)


def _total(checks: Sequence[Check]) -> int:
    # a count that is no number is at least one: rounding may never turn something wrong into nothing
    return sum(1 if one.value is None else math.ceil(one.value) for one in checks)
