"""The one sentence that says what became of a release, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auditlib.numbers import number
from auditlib.release.judge import approved
from auditlib.release.report_checks import lacking_checks

_NOT_TRIED = ("not applicable", "equivalent")


def headline(report: Mapping[str, Any]) -> str:
    """`approved`, or why not: the failures, the first failed check with its figures, and what was not measured.

    An approval whose checks were not tested by planted faults says so.
    """
    failures, missing = report["failures"], report["not_measured"]
    if not failures and not missing:
        if not approved(report):
            return f"not approved; {_lacking(report)}; audit again"
        untested = untested_by_faults(report)
        return f"approved: {_count(report)} checks within their limits{f', but {untested}' if untested else ''}"
    parts = []
    if failures:
        parts.append(f"refused for {', '.join(failures)}")
        worst = first_failed(report)
        if worst is not None:
            # Most audits fail under their own name, which the sentence has just said.
            parts.append(_figures(worst[1]) if worst[0] in failures else sentence(*worst))
    if missing:
        parts.append(f"not measured: {', '.join(missing)}")
    return "; ".join(parts) if failures else f"not approved; {parts[0]}"


def _lacking(report: Mapping[str, Any]) -> str:
    """What keeps a report without a failure from being a yes: checks that it lacks, as those of older versions do."""
    found = [f"{audit}, {words}" for audit, lacks in lacking_checks(report).items() for words in lacks]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"the report lacks what a release needs: {found[0]}{more}" if found else "the report does not hold together"


def untested_by_faults(report: Mapping[str, Any]) -> str:
    """In words, that no fault was planted to see that the checks catch one; empty where some were."""
    found = report.get("self_check") or {}
    if not found.get("ran"):
        return "no fault was planted to test them"
    tried = (fault for fault in found.get("faults", ()) if fault.get("outcome") not in _NOT_TRIED)
    return "" if any(tried) else "no fault could be planted to test them"


def first_failed(report: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Audit and check of the first failure in the order in which failures are listed; None when nothing failed.

    Checks of settings that nobody proposed do not count, and are no reason for anything.
    """
    failed = [
        (audit, check)
        for audit, result in report["audits"].items()
        for check in result["checks"]
        if check["status"] == "failed" and check.get("failure") in report["failures"] and not check.get("comparison")
    ]
    if not failed:
        return None
    return min(failed, key=lambda pair: report["failures"].index(pair[1]["failure"]))


def sentence(audit: str, check: Mapping[str, Any]) -> str:
    """A failed check in words."""
    return f"{audit}, {_figures(check)}"


def _figures(check: Mapping[str, Any]) -> str:
    if check["value"] is None:
        return f"{check['name']}: {check.get('reason') or 'no finite value'}"
    return (
        f"{check['name']}: {number(check['value'])} {check['unit']} where at most "
        f"{number(check['limit'])} is allowed ({check['count']:,} observations)"
    )


def _count(report: Mapping[str, Any]) -> int:
    """Checks that passed, without those of settings that nobody proposed."""
    checks = (check for result in report["audits"].values() for check in result["checks"])
    return sum(check["status"] == "passed" and not check.get("comparison") for check in checks)
