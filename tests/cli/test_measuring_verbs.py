"""`bench` and `replay` on the command line: evidence in one form, and an exit code that says what it amounts to."""

from __future__ import annotations

import json

import pytest

from auditlib.cli.main import main
from auditlib.release.evidence import parse_evidence
from auditlib.runs.evidence import bench_plan
from auditlib.runs.manifest import document_bytes
from auditlib.runs.package import PackageRequest, package_run
from auditlib.serving.engine import Engine
from tests.packed import POLICY, failing, judged_run, policy_of, small_artifact
from tests.small_gpt import write_small_revision

FEW = ("--requests", "60", "--concurrency", "2")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("measured"))


def policy_file(tmp_path, **limits):
    serving = {"slots": 2, "concurrency": 2, "limits": {"invalid sequences": 0.2, **limits}}
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({**POLICY, "serving": serving}))
    return path


def run(verb, artifact, tmp_path, *options):
    out, shown = tmp_path / "evidence.json", tmp_path / "shown.json"
    code = main([verb, str(artifact.folder), "--out", str(out), "--json", str(shown), *options])
    document = json.loads(out.read_bytes(), parse_constant=lambda text: pytest.fail(f"{text} in the evidence"))
    assert out.read_bytes() == document_bytes(document)
    assert json.loads(shown.read_text()) == document
    assert document["artifact"] == artifact.digest
    return code, document


def test_a_bench_within_its_limits_passes(artifact, tmp_path, capsys):
    policy = policy_file(tmp_path, **{"first event p95": 60_000, "whole request p95": 60_000})
    code, document = run("bench", artifact, tmp_path, "--policy", str(policy), *FEW)
    assert (code, document["status"], document["kind"]) == (0, "passed", "bench")
    assert set(document["checks"][0]) == {"audit", "name", "value", "limit", "unit", "count", "status", "reason"}
    assert {check["audit"] for check in document["checks"]} == {"serving limits"}
    assert document["plan"]["intended"] == 2
    assert document["shape"]["layers"] == 2
    assert parse_evidence(document, document["artifact"]).lacks == ()
    said = capsys.readouterr().out
    assert "full prefix" in said
    assert "first event p95" in said


def test_a_bench_over_its_limits_is_refused_by_its_exit_code(artifact, tmp_path):
    policy = policy_file(tmp_path, **{"first event p95": 0})
    code, document = run("bench", artifact, tmp_path, "--policy", str(policy), *FEW)
    assert (code, document["status"]) == (1, "failed")


def test_too_few_requests_for_the_limit_are_no_pass(artifact, tmp_path):
    code, document = run("bench", artifact, tmp_path, *FEW)
    assert (code, document["status"]) == (1, "not measured")
    lacking = [check for check in document["checks"] if check["status"] == "not measured"]
    assert [check["name"] for check in lacking] == ["invalid sequences"]
    assert "2995" in lacking[0]["reason"]


def test_by_default_as_many_requests_are_sent_as_the_invalid_share_needs():
    plan = bench_plan(policy_of())
    assert plan.requests >= 2995
    assert plan.others >= 299
    assert plan.intended == 8


def test_a_replay_that_holds_passes_where_the_tolerance_was_studied(artifact, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("auditlib.runs.evidence.studied_here", lambda *_: True)
    monkeypatch.setattr("auditlib.audits.replay._paths", lambda _: (False,))
    code, document = run("replay", artifact, tmp_path)
    wrong = [check for check in document["checks"] if check["status"] != "passed"]
    assert (code, document["status"], wrong) == (0, "passed", [])
    assert len(document["tables"]["compositions"]) == 7
    assert parse_evidence(document, document["artifact"]).lacks == ()
    assert "by slots" in capsys.readouterr().out


def test_a_replay_elsewhere_says_so_and_passes_nothing(artifact, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("auditlib.audits.replay._paths", lambda _: (False,))
    code, document = run("replay", artifact, tmp_path)  # the small run was not made on this device
    assert (code, document["status"]) == (1, "not measured")
    assert "another device" in capsys.readouterr().out


def test_a_replay_that_loses_an_answer_is_refused(artifact, tmp_path, monkeypatch):
    whole = Engine.step
    monkeypatch.setattr("auditlib.audits.replay._paths", lambda _: (False,))
    monkeypatch.setattr(Engine, "step", lambda self: whole(self)[:-1])
    code, document = run("replay", artifact, tmp_path)
    assert (code, document["status"]) == (1, "failed")


@pytest.mark.parametrize("verb", ["bench", "replay"])
def test_an_artifact_that_serves_nothing_or_was_changed_cannot_be_measured(verb, tmp_path, capsys):
    assert main([verb, str(tmp_path / "nothing")]) == 2
    altered = small_artifact(tmp_path)
    path = altered.folder / "answers.json"
    path.write_bytes(path.read_bytes().replace(b"end", b"End", 1))
    assert main([verb, str(altered.folder)]) == 3
    assert "answers.json" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "x", "1,,2", "-1", "1,0"])
def test_numbers_that_make_no_sense_are_wrong_use(text, artifact):
    with pytest.raises(SystemExit) as left:
        main(["bench", str(artifact.folder), "--concurrency", text])
    assert left.value.code == 2


def test_a_blocked_cache_is_not_benched(tmp_path):
    revision = write_small_revision(tmp_path / "revision")
    judged = judged_run(tmp_path / "runs", revision, failing("cache parity", "single events"))
    packaged = package_run(PackageRequest(judged.folder, tmp_path / "artifact", tmp_path / "revision"))
    _, document = run("bench", packaged.artifact, tmp_path, "--requests", "12", "--concurrency", "2")
    assert {row["arm"] for row in document["tables"]["loads"]} == {"full prefix"}
    assert document["not_applicable"]
