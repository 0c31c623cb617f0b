"""Whether an evidence document holds every check that its kind has, each once and as strict as it was written.

A check that was taken out of a document, or that an older program did not know, leaves only checks that passed. So
what must be there is asked for by name: a missing one is "not measured", which is a no.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditlib.release.limits import TOLERANCE, Limit, finite
from auditlib.release.serving_limits import LIMITS_OF, SERVING, stated_limit

Checks = Sequence[Mapping[str, Any]]


def lacking(kind: str, checks: Checks, document: Mapping[str, Any] | None = None) -> Iterator[str]:
    """What the checks of a document of `kind` lack, in words for people, each once; nothing when they are whole.

    `document` says what is not applicable and which limits its policy stated. Without it, as in a verdict, which
    repeats neither, only what every document of the kind has is asked for.
    """
    names = Counter((one["audit"], one["name"]) for one in checks)
    # Two numbers of one name are none: one of them could have been put there for the other.
    yield from (f'"{name}" stands {count} times' for (_, name), count in names.items() if count > 1)
    spared = None if document is None else _not_applicable(kind, document)
    for limit in LIMITS_OF[kind]:
        mine = [one for one in checks if (one["audit"], one["name"]) == (limit.audit, limit.check)]
        if not mine and (limit.required or (spared is not None and limit.check not in spared)):
            yield f'"{limit.check}" is missing'
        yield from (said for one in mine for said in _too_weak(limit, one))
    yield from _stated(kind, checks, document or {})


def too_wide(kind: str, checks: Checks, tolerance: float | None) -> Iterator[str]:
    """Checks of a document that were held against more than the tolerance (logits) of its artifact; None allows none.

    The tolerance is that of one artifact, so the document alone cannot tell.
    """
    for limit in (one for one in LIMITS_OF[kind] if one.at_most == TOLERANCE):
        for one in checks:
            held = finite(one["limit"]) if (one["audit"], one["name"]) == (limit.audit, limit.check) else None
            if held is not None and (tolerance is None or held > tolerance):
                most = "no tolerance, which its run did not measure" if tolerance is None else f"{tolerance:g}"
                yield f'"{limit.check}" was held against {held:g} instead of {most}'


def _not_applicable(kind: str, document: Mapping[str, Any]) -> set[str]:
    """Names of the checks for which a document gives a reason why there is none."""
    given = document.get("not_applicable")
    reasons = given if isinstance(given, Mapping) else {}
    # A rehearsal names the failure that cannot be planted, where the others name the check.
    after = ": answers wrong or missing" if kind == "rehearsal" else ""
    return {f"{name}{after}" for name, why in reasons.items() if isinstance(why, str) and why.strip()}


def _stated(kind: str, checks: Checks, document: Mapping[str, Any]) -> Iterator[str]:
    """What a bench lacks of the limits that its policy stated: whoever weakens one weakens what the policy asked."""
    stated = document.get("stated", {}) if kind == "bench" else {}
    if not isinstance(stated, Mapping):
        yield '"stated" is no object of limits'
        return
    # What stands before ": " names a load.
    mine = [(one["name"].rpartition(": ")[2], one) for one in checks if (kind, one["audit"]) == ("bench", SERVING)]
    yield from (f'"{name}" is missing' for name in stated if name not in {held for held, _ in mine})
    for name, one in mine:
        most, own = finite(stated.get(name)), finite(one["limit"])
        limit = None if own is None or own < 0 else stated_limit(name, own if most is None else max(0, most))
        yield from () if limit is None else _too_weak(limit, one)


def _too_weak(limit: Limit, one: Mapping[str, Any]) -> Iterator[str]:
    """In which way a check asked for less than its limit does."""
    most = None if limit.at_most == TOLERANCE else float(limit.at_most)
    held = finite(one["limit"])
    # A check without a limit holds nothing and is a no already.
    if most is not None and held is not None and held > most:
        yield f'"{limit.check}" was held against {held:g} instead of {most:g}'
    if one["status"] == "passed" and one["count"] < limit.min_count:
        yield f'"{limit.check}" rests on {one["count"]} of {limit.min_count} observations'
