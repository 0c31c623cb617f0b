"""What a policy plans to serve: how, within which bounds, and the limits that a bench of it is held against."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from auditlib.decoding.policies import Policy
from auditlib.errors import PolicyError
from auditlib.events.documents import Entry
from auditlib.serving.served import STRATEGIES, Bounds, Strategy

_COUNTS = {"slots": 1, "queue": 0, "residents": 0, "concurrency": 1, "requests": 1}  # and the least that makes sense
_MOST = 1_000_000
_LIMITS = ("first event p95", "whole request p95", "peak cache bytes", "invalid sequences")
_INVALID_SHARE = 0.001
_SLOTS = 8
# Fewer than 2,995 clean requests cannot bound a share of 0.001 with 95 % confidence.
_REQUESTS = 3_000


def _default_limits() -> dict[str, float]:
    return {"invalid sequences": _INVALID_SHARE}


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """The "serving" part of a policy with its defaults filled in.

    `setting` None: the first that the policy proposes; `max_prefix_events` None: what the context holds. `concurrency`
    and `requests` are how a bench loads it; `limits` are milliseconds, bytes and a share, by name.
    """

    setting: str | None = None
    strategy: Strategy = "cached"
    max_prefix_events: int | None = None
    slots: int = _SLOTS
    queue: int = 64
    residents: int = 8
    concurrency: int = _SLOTS
    requests: int = _REQUESTS
    limits: Mapping[str, float] = field(default_factory=_default_limits)

    def bounds(self, context_length: int, max_new_events: int) -> Bounds:
        """The bounds of an artifact whose decoder holds `context_length` events, start included.

        PolicyError when the plan asks for longer prefixes than that.
        """
        holds = context_length - 1
        most = holds if self.max_prefix_events is None else self.max_prefix_events
        if most > holds:
            raise PolicyError(
                f"serving, max_prefix_events: {most} events and the start token exceed the context length "
                f"{context_length}; at most {holds} can be served"
            )
        return Bounds(most, max_new_events, self.slots, self.queue, self.residents)


def serving_plan(policy: Policy, where: str = "policy") -> ServingPlan:
    """The plan in a policy, all defaults where it has none; PolicyError names the place that does not fit."""
    if policy.serving is None:
        return ServingPlan()
    top = Entry(dict(policy.serving), where, PolicyError, "serving")
    found = top.members((), ("setting", "strategy", "max_prefix_events", *_COUNTS, "limits"))
    counts = {name: _count(found[name], least) for name, least in _COUNTS.items() if name in found}
    # Whoever says how many are decoded at once, and not how many come at once, means the same number.
    counts.setdefault("concurrency", counts.get("slots", _SLOTS))
    return ServingPlan(
        setting=_setting(found["setting"], policy) if "setting" in found else None,
        strategy=strategy_in(found["strategy"]) if "strategy" in found else "cached",
        max_prefix_events=_count(found["max_prefix_events"], 1) if "max_prefix_events" in found else None,
        limits=_limits(found["limits"]) if "limits" in found else _default_limits(),
        **counts,
    )


def strategy_in(entry: Entry) -> Strategy:
    """The strategy that a document names; whatever the document raises for any other value."""
    known = {str(strategy): strategy for strategy in STRATEGIES}
    if entry.text() not in known:
        entry.refuse(f"is {entry.value!r}; choose one of {', '.join(known)}")
    return known[entry.value]


def _setting(entry: Entry, policy: Policy) -> str:
    names = [setting.name for setting in policy.settings]
    if entry.text() not in names:
        entry.refuse(f"is {entry.value!r}, which the policy does not propose; choose one of {', '.join(names)}")
    return entry.text()


def _count(entry: Entry, least: int) -> int:
    if entry.integer(least) > _MOST:
        entry.refuse(f"is {entry.value}; write at most {_MOST}")
    return entry.integer(least)


def _limits(entry: Entry) -> dict[str, float]:
    found = {name: _limit(value) for name, value in entry.members((), _LIMITS).items()}
    if found.get("invalid sequences", 0) > 1:
        entry.refuse("'invalid sequences' is a share of the requests; write a number from 0 to 1")
    return _default_limits() | found


def _limit(entry: Entry) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        entry.refuse("is no number; write one of at least 0")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number < math.inf:
        entry.refuse(f"is {number}; write a finite number of at least 0")
    return number
