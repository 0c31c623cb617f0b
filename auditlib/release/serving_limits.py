"""Which checks a replay, a bench and a rehearsal of an artifact answer for, and how large each number may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from auditlib.errors import PolicyError
from auditlib.release.checks import Check, Measured, Status, check, tolerance
from auditlib.release.limits import TOLERANCE, Limit, finite

SERVING, REPLAY = "serving limits", "replay"
"""Audits whose evidence is made of an artifact, after the run that it was packaged from."""

_FALLBACK = "fallback"

_FAILURE = "serving limits"

# One line a check. No answer may hang on its company, so there is nothing to allow for; near ties are counted apart.
REPLAY_LIMITS: tuple[Limit, ...] = (
    Limit(REPLAY, "requests without an answer", _FAILURE, 0, "requests", "release"),
    Limit(REPLAY, "answers that differ", _FAILURE, 0, "answers", "release"),
    Limit(REPLAY, "invalid sequences", _FAILURE, 0, "sequences", "release"),
    Limit(REPLAY, "wrong stop reasons", _FAILURE, 0, "answers", "release"),
    Limit(REPLAY, "answers beyond the cap", _FAILURE, 0, "answers", "release"),
    Limit(REPLAY, "answers by another path", _FAILURE, 0, "answers", "release"),
    Limit(REPLAY, "saved logits", _FAILURE, TOLERANCE, "logit", "release"),
    Limit(REPLAY, "scores beyond the tolerance", _FAILURE, 0, "answers", "release"),
)

# What holds for every bench, whatever the policy states.
_FIXED: tuple[Limit, ...] = (
    Limit(SERVING, "requests without an answer", _FAILURE, 0, "requests", "release"),
    Limit(SERVING, "invalid sequences served", _FAILURE, 0, "sequences", "release"),
    Limit(SERVING, "wrong stop reasons", _FAILURE, 0, "answers", "release"),
    Limit(SERVING, "cache bytes beside the formula", _FAILURE, 0, "bytes", "release", required=False),
    Limit(SERVING, "answers that differ from the full path", _FAILURE, 0, "answers", "release"),
)

# The failures are planted by a room that release must not know; a test holds the two lists together. An artifact that
# serves without a cache has none that could be rejected.
_REHEARSED = ("engine raises", "engine hangs", "logits are not numbers", "answer breaks the order", "cache is rejected")

LIMITS_OF: Mapping[str, tuple[Limit, ...]] = {
    "bench": _FIXED,
    "rehearsal": tuple(
        Limit(
            _FALLBACK, f"{failure}: answers wrong or missing", _FAILURE, 0, "requests", "release",
            required=failure != "cache is rejected",
        )
        for failure in _REHEARSED
    ),
    "replay": REPLAY_LIMITS,
}  # fmt: skip
"""The checks that every evidence document of a kind has, whatever a policy states: what lacks one measured too little.

Those that are not required may be listed as not applicable instead, with the reason.
"""

# An exact upper bound of a 95th percentile needs 59 observations: 0.95 to the 59th is the first power below 0.05.
_STATED: Mapping[str, Limit] = {
    "first event p95": Limit(SERVING, "first event p95", _FAILURE, 0, "ms", "release", min_count=59),
    "whole request p95": Limit(SERVING, "whole request p95", _FAILURE, 0, "ms", "release", min_count=59),
    "peak cache bytes": Limit(SERVING, "peak cache bytes", _FAILURE, 0, "bytes", "release"),
    "invalid sequences": Limit(SERVING, "invalid sequences", _FAILURE, 0, "share", "release"),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """The checks of one evidence document and what they amount to."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """Failed when one check failed; passed only when there are checks and every one passed."""
        found = {one.status for one in self.checks}
        if "failed" in found:
            return "failed"
        return "passed" if found == {"passed"} else "not measured"

    def to_json(self) -> dict[str, Any]:
        """Status and checks as they stand in an evidence document."""
        return {"status": self.status, "checks": [_shown(one) for one in self.checks]}


def bench_limits(stated: Mapping[str, float]) -> tuple[Limit, ...]:
    """The limits of a bench: those that a policy states, by name, and those that always hold.

    PolicyError for a name that no bench measures. What the policy does not state is measured, and holds nothing.
    """
    if unknown := sorted(stated.keys() - _STATED.keys()):
        raise PolicyError(f"serving limits: there is no {unknown}; known are {', '.join(_STATED)}")
    return (*(_at(_STATED[name], stated[name]) for name in _STATED if name in stated), *_FIXED)


def stated_limit(name: str, at_most: float) -> Limit | None:
    """The limit of that name that a policy may state, at so much; None for a name that no bench measures."""
    return _at(_STATED[name], at_most) if name in _STATED else None


def judge_serving(limits: Sequence[Limit], found: Measured) -> Standing:
    """Hold what a replay or a bench measured against its limits; what is missing is "not measured"."""
    return Standing(tuple(_judged(limit, found) for limit in limits if not _spared(limit, found)))


def _judged(limit: Limit, found: Measured) -> Check:
    at_most = tolerance(found) if limit.at_most == TOLERANCE else float(limit.at_most)
    return check(limit, limit.check, found, at_most)


def _spared(limit: Limit, found: Measured) -> bool:
    return not limit.required and not found.named(limit.check) and bool(found.not_applicable.get(limit.check))


def _at(limit: Limit, at_most: float) -> Limit:
    number = finite(at_most)
    if number is None or number < 0:
        raise PolicyError(f"serving limits: {limit.check} is {at_most!r}; a finite number from 0 is needed")
    if limit.unit != "share" or not 0 < number < 1:
        return replace(limit, at_most=number)
    # Fewer clean observations than these cannot bound so small a share with 95 % confidence: 2,995 for 0.001.
    return replace(limit, at_most=number, min_count=math.ceil(math.log(0.05) / math.log1p(-number)))


def _shown(one: Check) -> dict[str, Any]:
    told = one.to_json()
    return {"audit": one.limit.audit, **{key: value for key, value in told.items() if key != "failure"}}
