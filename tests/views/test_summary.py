"""The one sentence about a run: what it rests on stands in it wherever it is said."""

from __future__ import annotations

import pytest

from auditlib.views.markdown import to_markdown
from auditlib.views.report import to_html
from auditlib.views.summary import headline, untested_by_faults
from tests.web.world import a_run, make_world


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("world"))
    return a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")


def fault(outcome):
    return {"fault": "f", "audit": "a", "check": "c", "outcome": outcome, "margin": None, "reason": ""}


@pytest.mark.parametrize(
    ("self_check", "said"),
    [
        (None, "no fault was planted"),
        ({"ran": False, "problem": None, "faults": []}, "no fault was planted"),
        ({"ran": True, "problem": None, "faults": [fault("not applicable"), fault("equivalent")]}, "could be planted"),
        ({"ran": True, "problem": None, "faults": [fault("not applicable"), fault("caught")]}, ""),
    ],
)
def test_an_approval_says_so_when_no_planted_fault_tested_its_checks(approved, self_check, said):
    spared = {"not_applicable": {"planted faults missed": "none can be planted"}}
    audits = {name: {**result, **spared} for name, result in approved.report["audits"].items()}
    sentence = headline({**approved.report, "audits": audits, "self_check": self_check})
    assert sentence.startswith("approved: ")
    assert said in sentence
    assert ("fault" in sentence) == bool(said)
    assert bool(untested_by_faults({"self_check": self_check})) == bool(said)


def test_reports_carry_that_no_fault_was_planted(approved):
    words = "but no fault was planted to test them"
    assert words in to_html(approved).split("</script>", 1)[1]
    assert words in to_markdown(approved.report)


def test_a_refusal_needs_no_such_words(approved):
    assert "fault" not in headline({**approved.report, "failures": ["causality"]})


def test_a_report_without_a_failure_that_lacks_a_check_is_not_called_approved(approved):
    audits = dict(approved.report["audits"])
    parity = audits["cache parity"]
    fewer = {**parity, "checks": [check for check in parity["checks"] if check["name"] != "long chunks"]}
    said = headline({**approved.report, "audits": {**audits, "cache parity": fewer}})
    assert said == (
        'not approved; the report lacks what a release needs: cache parity, "long chunks" is missing; audit again'
    )
    assert headline({**approved.report, "decision": {}}).startswith("not approved; ")
