"""Words that the pages share: status marks, meanings of terms, a check as a row of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from auditlib.numbers import number
from auditlib.views.text import safe

MARKS = {"passed": "✓ passed", "failed": "✗ failed", "not measured": "– not measured"}
"""Status words with a mark, so that nobody needs the colour."""

BADGES = {
    "refused": ("refused", "red", ":material/block:"),
    "approved": ("approved", "green", ":material/check_circle:"),
    "unreadable": ("unreadable", "orange", ":material/warning:"),
    "not audited": ("not audited", "gray", ":material/help:"),
}

TERMS = {
    "tolerance": "Largest logit gap that still counts as rounding: four times the noise floor.",
    "noise floor": "How far the full path in this dtype lies from the same path in float64: rounding alone.",
    "gap": "Largest absolute difference between a logit of the full-prefix path and the same logit of the cached path.",
    "logit": "Score of one possible next event before scores are turned into probabilities.",
    "prefix": "The beginning of a session: its start token and first events.",
    "run": "One finished audit of a revision on a snapshot. Its files never change.",
    "snapshot": "A frozen, numbered copy of the sessions, split into a training and a held-out side.",
    "order mask": "Takes away, before choosing, every event that the event-order rules forbid next.",
    "upper bound": "One-sided 95 % Clopper–Pearson bound: with so few sequences, the true rate may be up to this.",
    "cache identity": "A cache belongs to one revision, dtype and exact row of events. For any other it is wrong.",
    "capped": "Stopped by the maximum of new events, not by an end the decoder chose.",
    "event order": "Rules on which event may follow which, compiled into one automaton.",
}
"""What words of the field mean, for help texts."""


def short(digest: str) -> str:
    """Twelve digits of a digest: enough to tell apart, short enough to read."""
    return safe(digest.removeprefix("sha256:")[:12])


def check_facts(audit: str, check: Mapping[str, Any]) -> dict[str, Any]:
    """One check as it was judged, for exports: numbers with all of their digits, reasons whole."""
    return {
        "status": check["status"],
        "comparison": bool(check.get("comparison")),
        "audit": audit,
        "check": check["name"],
        "value": math.nan if check["value"] is None else float(check["value"]),
        "limit": math.nan if check["limit"] is None else float(check["limit"]),
        "unit": check["unit"],
        "observations": check["count"],
        "why": check.get("reason") or "",
    }


def check_row(audit: str, check: Mapping[str, Any]) -> dict[str, str]:
    """One check as a row of words for a table; one that is only a comparison, and does not count, says so."""
    compared = ", comparison" if check.get("comparison") else ""
    return {
        "status": MARKS.get(check["status"], check["status"]) + compared,
        "audit": audit,
        "check": safe(check["name"]),
        "value": number(check["value"]),
        "limit": number(check["limit"]),
        "unit": safe(check["unit"]),
        "observations": f"{check['count']:,}",
        "why": safe(check.get("reason") or ""),
    }
