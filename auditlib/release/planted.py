"""The planted-fault table of a run in its verdict: each fault, the check that claims to see it, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from auditlib.release.limits import PLANTED_FAULTS_MISSED

OUTCOMES = ("caught", "missed", "equivalent", "false alarm", "not applicable")
_ROW = ("fault", "audit", "check", "outcome", "margin", "reason")


def planted_faults(report: Mapping[str, Any]) -> dict[str, Any]:
    """What a report says of its self-check: the faults, one a row, and how many came to which end in each audit.

    KeyError where the self-check ran and left no table.
    """
    found = report.get("self_check") or {"ran": False, "problem": None, "faults": []}
    rows = [{name: row[name] for name in _ROW} for row in found["faults"]] if found["ran"] else []
    return {"ran": found["ran"], "problem": found["problem"], "audits": _counted(rows), "faults": rows}


def contradictions(said: Mapping[str, Any]) -> Iterator[str]:
    """What in a predicate's table does not agree with itself, or with what the checks say was missed."""
    table = said["planted_faults"]
    rows = table["faults"]
    if any(set(row) != set(_ROW) or row["outcome"] not in OUTCOMES for row in rows):
        yield "its table of planted faults has a row of another form"
    if table["audits"] != _counted(rows) or len({row["fault"] for row in rows}) != len(rows):
        yield "its table of planted faults does not add up"
    if not table["ran"] and rows:
        yield "it lists planted faults that were not planted"
    for check in said["checks"]:
        if check["name"] == PLANTED_FAULTS_MISSED and check["count"]:
            mine = _counted(rows).get(check["audit"], dict.fromkeys(OUTCOMES, 0))
            planted = sum(mine.values()) - mine["not applicable"]
            if (check["value"], check["count"]) != (mine["missed"] + mine["false alarm"], planted):
                yield "its table of planted faults is not the one that was judged"


def _counted(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many faults came to each end, by audit."""
    counts = Counter((row["audit"], row["outcome"]) for row in rows)
    return {audit: {one: counts[audit, one] for one in OUTCOMES} for audit in {row["audit"]: None for row in rows}}
