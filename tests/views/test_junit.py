"""A report as JUnit XML and in words: what keeps a release back may look green nowhere, and what does not, not red."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from auditlib.views.junit import to_junit
from auditlib.views.markdown import to_markdown
from auditlib.views.summary import headline


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


def with_comparisons(proposed: str, failures: list[str]):
    def check(setting: str, value: float, status: str, **more: bool):
        figures = {"value": value, "limit": 0.0, "unit": "sequences", "count": 9, "status": status}
        return {"name": f"{setting}: invalid", **figures, "failure": "event grammar", **more}

    value = 3.0 if proposed == "failed" else 0.0
    # The judge lists the comparisons first.
    checks = [check("unmasked", 77.0, "failed", comparison=True), check("masked", value, proposed)]
    decision = {"cache_acceleration": "off", "decoding": {}, "proposed": [], "fallback": "full-prefix"}
    audits = {"event grammar": {"checks": checks, "problem": None}}
    return {
        "revision_name": "a", "audits": audits, "not_measured": [], "failures": failures, "decision": decision
    }  # fmt: skip


def test_a_failed_comparison_turns_nothing_red_and_is_marked_in_words():
    report = with_comparisons("passed", [])
    root = ET.fromstring(to_junit(report))
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("2", "0", "1")
    assert "failed (comparison, does not count)" in to_markdown(report)
    assert to_markdown(report).count("comparison") == 1


def test_the_headline_cites_the_check_that_counts():
    said = headline(with_comparisons("failed", ["event grammar"]))
    assert "masked: invalid: 3 sequences" in said
    assert "77" not in said
