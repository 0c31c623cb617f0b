"""A run as Markdown: for a pull request, a ticket, or a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auditlib.numbers import number
from auditlib.views.summary import headline
from auditlib.views.text import in_markdown as cell


def to_markdown(report: Mapping[str, Any]) -> str:
    """Headline, one table of the checks, the decision, and what was not measured with its reason."""
    lines = [
        f"# {cell(report['revision_name'])}: {headline(report)}",
        "",
        "| audit | check | value | limit | unit | observations | status |",
        "|---|---|---:|---:|---|---:|---|",
    ]
    for audit, result in report["audits"].items():
        lines += [_row(audit, check) for check in result["checks"]]
    for audit, result in report["audits"].items():
        if result.get("problem"):
            lines += ["", f"**{cell(audit)}** not measured: {cell(result['problem'])}"]
    return "\n".join([*lines, "", *_decision(report["decision"])]) + "\n"


def _row(audit: str, check: Mapping[str, Any]) -> str:
    """One check as a table row; a comparison says that it does not count."""
    compared = " (comparison, does not count)" if check.get("comparison") else ""
    figures = f"{number(check['value'])} | {number(check['limit'])} | {cell(check['unit'])} | {check['count']}"
    return f"| {cell(audit)} | {cell(check['name'])} | {figures} | {check['status']}{compared} |"


def _decision(decision: Mapping[str, Any]) -> list[str]:
    """What may be switched on, and what answers in its place."""
    return [
        f"- cache acceleration: {decision['cache_acceleration']}",
        *(f"- decoding, {cell(name)}: {state}" for name, state in decision["decoding"].items()),
        f"- fallback: {cell(decision['fallback'])}",
    ]
