"""A report from which a check was taken, or in which one stands twice, is no approval, and the verdict says why."""

from __future__ import annotations

import copy
import json
from datetime import timedelta

import pytest

from auditlib.errors import InputError
from auditlib.files import sha256_of
from auditlib.release.documents import canonical
from auditlib.release.judge import approved, judge
from auditlib.release.limits import limits_from
from auditlib.release.report_checks import lacking_checks
from auditlib.release.verdict import sign_run, verify_verdict
from tests.release.cases import (
    COMPARISONS,
    NOW,
    PASSPHRASE,
    SETTINGS,
    judged,
    key_file,
    self_checked,
    sound,
    trusted,
    write_run,
)

REPORT = judged(sound())
CHECKS = [
    (audit, one["name"])
    for audit, found in REPORT["audits"].items()
    for one in found["checks"]
    if not one.get("comparison")
]
FIRST = {}
for audit, name in CHECKS:
    FIRST.setdefault(audit, name)


def without(report, audit, name):
    shorter = copy.deepcopy(report)
    own = shorter["audits"][audit]
    own["checks"] = [one for one in own["checks"] if one["name"] != name]
    return shorter


def test_a_sound_report_lacks_nothing():
    assert lacking_checks(REPORT) == {}
    assert approved(REPORT)
    assert len(CHECKS) > 60


@pytest.mark.parametrize(("audit", "name"), CHECKS, ids=str)
def test_a_report_without_any_one_of_its_checks_is_no_approval(audit, name):
    shorter = without(REPORT, audit, name)
    assert lacking_checks(shorter)[audit][0] == f'"{name}" is missing'
    assert not approved(shorter)


@pytest.mark.parametrize(("audit", "name"), FIRST.items(), ids=str)
def test_a_check_that_stands_twice_in_a_report_counts_as_none(audit, name):
    longer = copy.deepcopy(REPORT)
    longer["audits"][audit]["checks"] *= 2
    assert f'"{name}" stands 2 times' in lacking_checks(longer)[audit]
    assert not approved(longer)


@pytest.mark.parametrize("reason", [None, "", " ", 3])
def test_an_optional_check_may_be_left_out_for_a_reason_only(reason):
    shorter = without(REPORT, "causality", "jacobian")
    shorter["audits"]["causality"]["not_applicable"] = {"jacobian": "it shows no gradients"}
    assert approved(shorter)
    shorter["audits"]["causality"]["not_applicable"] = {"jacobian": reason}
    assert not approved(shorter)


def test_a_check_that_every_release_needs_cannot_be_declared_not_applicable():
    shorter = without(REPORT, "causality", "exhaustive next event")
    shorter["audits"]["causality"]["not_applicable"] = {"exhaustive next event": "why not"}
    assert not approved(shorter)


def test_where_faults_were_planted_the_count_of_those_that_were_missed_cannot_be_left_out():
    checked = judge(self_checked(sound()), SETTINGS, COMPARISONS, limits_from(None, self_check=True)).to_report()
    report = {**checked, "self_check": {"ran": True}}
    assert approved(report)
    assert not approved(without(report, "causality", "planted faults missed"))


@pytest.mark.parametrize("odd", [None, [], 3, "x", {}, {"audits": []}, {"audits": {"causality": {"checks": [3, {}]}}}])
def test_whatever_a_report_is_it_lacks_everything_that_is_not_there(odd):
    report = odd if isinstance(odd, dict) else {"audits": odd, "decision": odd, "self_check": odd}
    assert '"exhaustive next event" is missing' in lacking_checks(report)["causality"]
    assert not approved(report)


def test_a_verdict_on_a_run_whose_report_lacks_a_check_is_a_no_that_says_which(tmp_path):
    made, key, out = write_run(tmp_path), key_file(tmp_path, "ada"), tmp_path / "verdict.dsse.json"
    report = without(made.report, "cache parity", "uneven rows")
    (made.folder / "report.json").write_bytes(canonical(report))
    manifest = copy.deepcopy(made.manifest)
    manifest["files"]["report.json"] = sha256_of(made.folder / "report.json")
    (made.folder / "manifest.json").write_text(json.dumps(manifest))
    signing = (made.folder, report, manifest, key, PASSPHRASE)
    said = r'cache parity not measured: report.json has not the checks of cache parity \("uneven rows" is missing\)'
    with pytest.raises(InputError, match=said):
        sign_run(*signing, "approve", "", out, now=NOW)
    signed = sign_run(*signing, None, "", out, now=NOW)
    assert (signed.result, len(signed.shortfalls)) == ("FAILED", 1)
    found = verify_verdict(out, trusted("ada"), now=NOW + timedelta(hours=1))
    assert found.statement.predicate["not_measured"] == ["cache parity"]
