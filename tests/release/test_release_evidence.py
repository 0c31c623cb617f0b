"""Evidence about an artifact in a verdict: what is read, what it settles, and what is never passed over."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from auditlib.errors import InputError, IntegrityError
from auditlib.release.evidence import read_evidence
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import sign_run, verify_verdict
from auditlib.serving.plan import ServingPlan
from tests.release.cases import (
    NOW,
    PASSPHRASE,
    changed,
    evidence_document,
    key_file,
    sound,
    trusted,
    write_artifact,
    write_evidence,
    write_run,
)

SERVING = {"limits": {"first event p95": 50, "whole request p95": 60}}


class Desk:
    """A run, its artifact, and a key."""

    def __init__(self, root, serving=SERVING, measured=None):
        self.root, self.run, self.artifact = root, write_run(root, measured, serving=serving), root / "artifact"
        write_artifact(self.artifact, self.run)
        self.key, self.out = key_file(root, "ada"), root / "verdict.dsse.json"

    def evidence(self, kind="bench", **fields):
        return write_evidence(
            self.root / f"{kind}-{len(fields)}.json", evidence_document(self.artifact, kind, **fields)
        )

    def check(self, **fields):
        """Evidence whose first check is changed."""
        checks = evidence_document(self.artifact)["checks"]
        return self.evidence(checks=[{**checks[0], **fields}, *checks[1:]])

    def sign(self, *evidence, decision=None, artifact=True):
        return sign_run(
            self.run.folder, self.run.report, self.run.manifest, self.key, PASSPHRASE, decision, "", self.out,
            artifact=self.artifact if artifact else None, evidence=evidence, now=NOW,
        )  # fmt: skip

    def said(self):
        return verify_verdict(self.out, trusted("ada"), now=NOW + timedelta(hours=1)).statement.predicate


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


def test_a_passed_bench_settles_the_serving_limits_and_stands_in_the_verdict(desk):
    assert desk.run.report["not_measured"] == ["serving limits"]
    bench, replay = desk.evidence(), desk.evidence("replay")
    assert desk.sign(replay, bench).result == "PASSED"
    found = verify_verdict(desk.out, trusted("ada"), now=NOW, artifact=desk.artifact, evidence=[bench, replay])
    said = found.statement.predicate
    assert found.compared == ("artifact", "evidence")
    assert [(one["kind"], one["name"], one["status"]) for one in said["evidence"]] == [
        ("bench", "evidence/bench.json", "passed"), ("replay", "evidence/replay.json", "passed"),
    ]  # fmt: skip
    assert {"evidence/bench.json", "evidence/replay.json"} <= set(found.statement.subjects)
    assert (said["failures"], said["not_measured"]) == ([], [])
    assert "serving limits: first event p95" in said["passedTests"]
    assert set(said["evidence"][0]["checks"][0]) == {"audit", "name", "unit", "status", "value", "limit", "count"}


def test_the_planted_faults_of_the_run_stand_in_the_verdict(desk):
    desk.sign(desk.evidence())
    table = desk.said()["planted_faults"]
    assert table["ran"]
    assert table["faults"] == desk.run.report["self_check"]["faults"]
    assert table["audits"]["causality"] == {
        "caught": 2, "missed": 0, "equivalent": 0, "false alarm": 0, "not applicable": 0,
    }  # fmt: skip


def test_without_a_bench_a_policy_on_serving_gives_a_no(desk):
    assert desk.sign(desk.evidence("replay")).result == "FAILED"
    assert desk.said()["not_measured"] == ["serving limits"]


def test_nobody_can_approve_serving_that_was_not_measured(desk):
    with pytest.raises(InputError, match="serving limits not measured"):
        desk.sign(decision="approve")


def test_a_report_that_forgot_what_its_policy_asks_gives_a_no_all_the_same(tmp_path):
    desk = Desk(tmp_path)
    desk.run.report["not_measured"] = []
    (desk.run.folder / "report.json").write_text(json.dumps(desk.run.report))
    with pytest.raises(IntegrityError):
        desk.sign(desk.evidence())
    other = Desk(tmp_path / "other", serving=None)
    other.run.manifest["policy"]["document"]["serving"] = {}
    (other.run.folder / "manifest.json").write_text(json.dumps(other.run.manifest))
    assert other.sign().result == "FAILED"


def test_a_policy_without_serving_needs_no_evidence(tmp_path):
    assert Desk(tmp_path, serving=None).sign().result == "PASSED"


def test_a_bench_settles_nothing_else(tmp_path):
    measured = sound()
    del measured["numerics"]
    desk = Desk(tmp_path, measured=measured)
    assert desk.sign(desk.evidence()).result == "FAILED"
    assert desk.said()["not_measured"] == ["numerics"]


def test_a_bench_does_not_outweigh_a_failure(tmp_path):
    desk = Desk(tmp_path, measured=changed(sound(), "causality", "jacobian", value=1.0))
    assert desk.sign(desk.evidence()).result == "FAILED"
    assert desk.said()["failures"] == ["causality"]


@pytest.mark.parametrize("serving", [SERVING, None], ids=["asked for", "not asked for"])
@pytest.mark.parametrize("kind", ["bench", "replay"])
@pytest.mark.parametrize(
    ("status", "names"),
    [("failed", (["serving limits"], [])), ("not measured", ([], ["serving limits"]))],
)
def test_evidence_that_did_not_pass_is_never_passed_over(tmp_path, serving, kind, status, names):
    desk = Desk(tmp_path, serving)
    others = [desk.evidence()] if kind == "replay" else []
    assert desk.sign(desk.evidence(kind, status=status), *others).result == "FAILED"
    said = desk.said()
    assert (said["failures"], said["not_measured"]) == names


@pytest.mark.parametrize(
    "fields",
    [{"value": 50.1}, {"status": "failed"}, {"status": "not measured"}, {"count": 0}, {"value": None}, {"limit": None}],
    ids=str,
)
def test_evidence_that_calls_itself_passed_must_bear_it_out(desk, fields):
    assert desk.sign(desk.check(**fields)).result == "FAILED"
    assert desk.said()["evidence"][0]["status"] == "failed"


@pytest.mark.parametrize(
    "fields", [{"limit": 51}, {"name": "third event p95"}, {"name": "first event p95 of all"}], ids=str
)
def test_a_limit_of_the_policy_that_no_check_was_held_against_is_not_measured(desk, fields):
    assert desk.sign(desk.check(**fields)).result == "FAILED"
    assert desk.said()["not_measured"] == ["serving limits"]


@pytest.mark.parametrize("serving", [SERVING, {}, {"limits": {}}, None], ids=str)
def test_a_bench_under_an_easier_policy_than_the_runs_does_not_answer_for_what_that_leaves_to_the_defaults(
    tmp_path, serving
):
    desk, usual = Desk(tmp_path, serving), ServingPlan().limits
    assert usual == {"invalid sequences": 0.001}
    stated = evidence_document(desk.artifact)["stated"]
    others = [one for one in evidence_document(desk.artifact)["checks"] if one["name"] not in usual]
    eased = {
        "audit": "serving limits", "name": "invalid sequences", "value": 0.0015, "limit": 0.002, "unit": "share",
        "count": 3000, "status": "passed",
    }  # fmt: skip
    path = desk.evidence(checks=[*others, eased], stated={**stated, "invalid sequences": 0.002})
    with pytest.raises(InputError, match=r"not held against what the policy of the run asks \(invalid sequences\)"):
        desk.sign(path, decision="approve")
    assert desk.sign(path).result == "FAILED"
    assert desk.said()["not_measured"] == ["serving limits"]


def test_a_policy_may_allow_more_than_the_defaults_by_name(tmp_path):
    desk = Desk(tmp_path, {"limits": {"invalid sequences": 0.01}})
    assert desk.sign(desk.evidence()).result == "PASSED"


def test_a_check_under_a_level_of_load_answers_for_its_limit(desk):
    assert desk.sign(desk.check(name="closed loop, 8: first event p95")).result == "PASSED"


@pytest.mark.parametrize(
    "fields",
    [
        {"value": "40"}, {"value": True}, {"limit": "50"}, {"count": 3.0}, {"count": -1}, {"count": True}, {"unit": 3},
        {"status": "splendid"}, {"name": None}, {"audit": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_check_of_another_form_is_bad_input(desk, fields):
    with pytest.raises(InputError, match="no evidence document"):
        desk.sign(desk.check(**fields))
    assert not desk.out.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 2}, {"format": True}, {"kind": "rumour"}, {"status": "splendid"}, {"checks": []}, {"checks": {}},
        {"checks": [3]}, {"artifact": "sha256:0"}, {"artifact": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_document_of_another_form_is_bad_input(desk, fields):
    with pytest.raises(InputError, match="no evidence document"):
        desk.sign(desk.evidence(**fields))


@pytest.mark.parametrize("name", ["format", "kind", "artifact", "status", "checks"])
def test_a_document_that_lacks_something_is_bad_input(desk, name):
    document = evidence_document(desk.artifact)
    del document[name]
    with pytest.raises(InputError, match=f"lacks '{name}'"):
        read_evidence(write_evidence(desk.root / "lacking.json", document))


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"40.0", b"NaN"), (b"40.0", b"-Infinity"), (b"40.0", b"-1e999"), (b'"kind"', b'"kind": "replay", "kind"')],
    ids=str,
)
def test_doubtful_json_is_bad_input(desk, old, new):
    path = desk.evidence()
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(InputError, match="no evidence document"):
        desk.sign(path)


def test_evidence_cut_short_anywhere_is_bad_input(desk):
    data = desk.evidence().read_bytes()
    for length in range(len(data)):
        path = desk.root / "cut.json"
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            read_evidence(path)


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_evidence_that_is_no_file_is_bad_input(desk, name):
    with pytest.raises(InputError, match="no file"):
        desk.sign(desk.root / name)
    desk.sign(desk.evidence())
    with pytest.raises(InputError, match="not a file"):
        verify_verdict(desk.out, trusted("ada"), now=NOW, evidence=[desk.root / name])


def test_evidence_of_another_artifact_is_not_signed(desk):
    with pytest.raises(IntegrityError, match="another artifact"):
        desk.sign(desk.evidence(artifact="sha256:" + "0" * 64))
    assert not desk.out.exists()


def test_evidence_without_its_artifact_is_not_signed(desk):
    with pytest.raises(InputError, match="--artifact"):
        desk.sign(desk.evidence(), artifact=False)


def test_two_documents_of_one_kind_are_not_signed(desk):
    with pytest.raises(InputError, match="of one kind"):
        desk.sign(desk.evidence(), desk.evidence(levels=[1]))


def test_a_second_reviewer_needs_the_same_evidence(desk):
    desk.sign(desk.evidence())
    bob = key_file(desk.root, "bob")
    arguments = (desk.run.folder, desk.run.report, desk.run.manifest, bob, PASSPHRASE, None, "", desk.out, True)
    with pytest.raises(RefusedError, match="does not say what the run in hand says"):
        sign_run(*arguments, artifact=desk.artifact, now=NOW)
    sign_run(*arguments, artifact=desk.artifact, evidence=[desk.evidence()], now=NOW)
    assert len(verify_verdict(desk.out, trusted("ada", "bob", threshold=2), now=NOW).signers) == 2
