"""A run as JUnit XML, which continuous integration servers show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from auditlib.views.summary import sentence


def to_junit(report: Mapping[str, Any]) -> bytes:
    """One test suite an audit, one test case a check; a check that was not measured is an error, never a pass.

    A check of a setting that nobody proposed is skipped: it does not count, and must not turn an approved run red.
    """
    root = Element("testsuites", name=_clean(f"prefixgate {report['revision_name']}"))
    for audit, result in report["audits"].items():
        suite = SubElement(root, "testsuite", name=audit, time=str(result.get("seconds", 0.0)))
        for check in result["checks"]:
            _case(suite, audit, check)
        if not result["checks"]:
            _problem(suite, audit, result)
        _count(suite)
    # What a release still waits for has no audit of its own in the report, and must not look green.
    for awaited in (name for name in report["not_measured"] if name not in report["audits"]):
        suite = SubElement(root, "testsuite", name=awaited, time="0.0")
        _problem(suite, awaited, {"problem": f"{awaited} was not measured: the release needs it"})
        _count(suite)
    _count(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _case(suite: Element, audit: str, check: Mapping[str, Any]) -> None:
    """One check as a test case."""
    case = SubElement(suite, "testcase", classname=audit, name=_clean(check["name"]))
    if check.get("comparison"):
        words = f"a comparison, which does not count: {check['status']}"
        SubElement(case, "skipped", message=_clean(words))
    elif check["status"] == "failed":
        SubElement(case, "failure", message=_clean(sentence(audit, check)), type=_clean(str(check.get("failure"))))
    elif check["status"] != "passed":
        SubElement(case, "error", message=_clean(str(check.get("reason") or "not measured")), type="not measured")


def _problem(suite: Element, audit: str, result: Mapping[str, Any]) -> None:
    """An audit without any check as one errored case."""
    case = SubElement(suite, "testcase", classname=audit, name=audit)
    SubElement(case, "error", message=_clean(str(result.get("problem") or "not measured")), type="not measured")


def _count(element: Element) -> None:
    """Fill in the totals that readers of the format expect."""
    element.set("tests", str(len(element.findall(".//testcase"))))
    element.set("failures", str(len(element.findall(".//failure"))))
    element.set("errors", str(len(element.findall(".//error"))))
    element.set("skipped", str(len(element.findall(".//skipped"))))


def _clean(text: str) -> str:
    """Text without the control characters that XML 1.0 does not allow."""
    return "".join(
        c if c in "\t\n" or (ord(c) >= 0x20 and not 0xD800 <= ord(c) <= 0xDFFF and c not in "￾￿") else "�" for c in text
    )
