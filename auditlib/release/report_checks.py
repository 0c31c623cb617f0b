"""Whether the report of a run holds every check that a release needs, each once: what is not there cannot fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditlib.release.limits import LIMITS, SELF_CHECKS, Limit


def lacking_checks(report: Mapping[Any, Any]) -> dict[str, tuple[str, ...]]:
    """By audit, what its checks lack, in words for people; audits that hold all of theirs are left out.

    Which kind of decoding a setting is does not stand in a report: the checks of one kind are asked for together, as
    soon as one of them is there.
    """
    audits, decision = report.get("audits"), report.get("decision")
    proposed = decision.get("proposed") if isinstance(decision, Mapping) else None
    settings = [name for name in proposed if isinstance(name, str)] if isinstance(proposed, list) else []
    limits = LIMITS + (SELF_CHECKS if _self_checked(report) else ())
    found: dict[str, tuple[str, ...]] = {}
    for audit in dict.fromkeys(limit.audit for limit in limits):
        own = audits.get(audit) if isinstance(audits, Mapping) else None
        mine = [limit for limit in limits if limit.audit == audit]
        lacks = tuple(_lacks(mine, own if isinstance(own, Mapping) else {}, settings))
        found |= {audit: lacks} if lacks else {}
    return found


def _self_checked(report: Mapping[Any, Any]) -> bool:
    """Whether faults were planted: each audit then has a check on those that it missed, or says why it has none."""
    self_check = report.get("self_check")
    return isinstance(self_check, Mapping) and self_check.get("ran") is True


def _lacks(limits: Sequence[Limit], own: Mapping[Any, Any], settings: Sequence[str]) -> Iterator[str]:
    names = Counter(_names(own))
    yield from (f'"{name}" stands {count} times' for name, count in names.items() if count > 1)
    yield from (f'"{one.check}" is missing' for one in limits if not one.per_setting and not _there(one, own, names))
    for limit in (one for one in limits if one.per_setting):
        group = [one.check for one in limits if one.kinds == limit.kinds]
        for setting in settings:
            asked = not limit.kinds or any(f"{setting}: {check}" in names for check in group)
            if asked and f"{setting}: {limit.check}" not in names:
                yield f'"{setting}: {limit.check}" is missing'


def _names(own: Mapping[Any, Any]) -> Iterator[str]:
    """Names of the checks that count; comparisons speak for no release."""
    listed = own.get("checks")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and isinstance(one.get("name"), str) and one.get("comparison") is not True:
            yield one["name"]


def _there(limit: Limit, own: Mapping[Any, Any], names: Counter[str]) -> bool:
    """Whether a check is there, or nothing asks for it: as the judge spares it (`judge`)."""
    if limit.check in names:
        return True
    if limit.stand_in_for is not None:
        return limit.stand_in_for in names
    reasons = own.get("not_applicable")
    reason = reasons.get(limit.check) if isinstance(reasons, Mapping) else None
    return not limit.required and isinstance(reason, str) and bool(reason.strip())
