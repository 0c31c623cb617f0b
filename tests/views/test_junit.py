"""A report as JUnit XML: nothing that keeps a release back may look green on a continuous integration server."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from auditlib.views.junit import to_junit


def a_report(status: str, missing: list[str]):
    check = {"name": "single events", "value": 2.0, "limit": 1.0, "unit": "logit", "count": 9, "status": status}
    audits = {"cache parity": {"checks": [check], "problem": None}, "numerics": {"checks": [], "problem": "no float64"}}
    return {"revision_name": "a\x00b", "audits": audits, "not_measured": missing}


def test_failed_unmeasured_and_awaited_parts_are_counted():
    root = ET.fromstring(to_junit(a_report("failed", ["numerics", "serving limits"])))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "2")
    awaited = root.find("testsuite[@name='serving limits']/testcase/error")
    assert "the release needs it" in awaited.get("message")
    assert root.find("testsuite[@name='numerics']/testcase/error").get("message") == "no float64"


def test_a_check_that_passed_is_no_error_and_hostile_names_stay_text():
    root = ET.fromstring(to_junit(a_report("passed", ["numerics"])))
    assert (root.get("failures"), root.get("errors")) == ("0", "1")
    assert root.get("name") == "prefixgate a�b"
