"""The verb `package`, and what an audit says of a policy that plans to serve."""

from __future__ import annotations

import json

import pytest

from auditlib.cli.main import main
from auditlib.cli.packaging import STRATEGIES
from auditlib.runs.folder import list_runs
from auditlib.runs.origins import note_origin
from auditlib.runs.request import AuditRequest
from auditlib.serving import served
from auditlib.serving.artifact import open_artifact
from tests.desk import SOUND_REVISION, audit
from tests.packed import failing, judged_run, policy_of
from tests.small_gpt import write_small_revision


@pytest.fixture(scope="module")
def revision(tmp_path_factory):
    return write_small_revision(tmp_path_factory.mktemp("small") / "revision")


def run_of(root, revision, measured=None, **policy):
    run = judged_run(root / "runs", revision, measured, policy_of(**policy))
    note_origin(run, AuditRequest(root / "store.duckdb", revision.folder, root / "runs"))
    return run


def package(run, out, *options):
    code = main(["package", "--run", str(run.folder), "--out", str(out), "--json", f"{out}.json", *map(str, options)])
    path = out.with_name(f"{out.name}.json")
    return code, json.loads(path.read_text()) if path.exists() else None


def test_a_run_and_a_folder_are_all_that_it_takes(tmp_path, revision, capsys):
    code, document = package(run_of(tmp_path, revision), tmp_path / "artifact")
    assert code == 0
    artifact = open_artifact(tmp_path / "artifact", document["artifact"])
    assert document["format"] == 1
    assert (document["serves"], document["reasons"]) == (True, [])
    assert (document["setting"]["served"], document["strategy"]["served"]) == ("greedy", "cached")
    said = capsys.readouterr().out
    assert "serves greedy, cached; fallback full-prefix" in said
    assert artifact.digest in said


def test_what_is_blocked_is_exit_code_1_with_the_reasons(tmp_path, revision, capsys):
    run = run_of(tmp_path, revision, failing("cache parity", "single events"))
    code, document = package(run, tmp_path / "artifact")
    assert code == 1
    assert document["strategy"] == {"asked": "cached", "served": "full prefix"}
    assert document["reasons"] == ["cache parity: single events: over limit"]
    assert "cache parity: single events: over limit" in capsys.readouterr().out
    assert package(run, tmp_path / "as asked", "--strategy", "full prefix")[0] == 0


def test_a_refusal_is_exit_code_1_and_leaves_its_reasons_and_nothing_else(tmp_path, revision, capsys):
    run = run_of(tmp_path, revision, failing("causality", "exhaustive next event"))
    code, document = package(run, tmp_path / "artifact")
    assert code == 1
    assert (document["artifact"], document["out"], document["serves"]) == (None, None, False)
    said = capsys.readouterr().out
    assert "causality: exhaustive next event: over limit" in said
    assert "--fallback" in said
    assert not (tmp_path / "artifact").exists()


def test_with_a_fallback_the_refused_run_still_gives_an_artifact(tmp_path, revision, capsys):
    package(run_of(tmp_path / "old", revision), tmp_path / "older", "--setting", "beam")
    run = run_of(tmp_path, revision, failing("causality", "exhaustive next event"))
    code, document = package(run, tmp_path / "artifact", "--fallback", tmp_path / "older")
    assert code == 1
    assert document["fallback"] == open_artifact(tmp_path / "older").digest
    assert (document["serves"], document["setting"]["served"]) == (False, None)
    assert "only the fallback serves" in capsys.readouterr().out


def test_bad_input_is_exit_code_2_and_what_does_not_hold_is_3(tmp_path, revision, capsys):
    run = run_of(tmp_path, revision)
    assert package(run, tmp_path / "a", "--setting", "luck")[0] == 2
    assert package(run, tmp_path / "a", "--fallback", tmp_path / "nowhere")[0] == 2
    assert main(["package", "--run", str(tmp_path / "nowhere"), "--out", str(tmp_path / "a")]) == 2
    other = write_small_revision(tmp_path / "other", seed=1)
    assert package(run, tmp_path / "a", "--revision", other.folder)[0] == 3
    (run.folder / "policy.json").write_bytes(b"{}")
    assert package(run, tmp_path / "a")[0] == 3
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "a").exists()


def test_the_strategies_of_the_command_line_are_those_of_the_artifact():
    assert STRATEGIES == served.STRATEGIES


def test_an_audit_under_a_policy_that_plans_to_serve_waits_for_the_bench_of_it(demo_store, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"format": 1, "serving": {"slots": 4}}))
    code, report = audit(demo_store, SOUND_REVISION, tmp_path, "--audits", "training", "--policy", str(policy))
    assert code == 1
    assert report["not_measured"][-1] == "serving limits"
    run = list_runs(tmp_path / "runs")[0]
    code, document = package(run, tmp_path / "artifact")  # the note beside the run says where the revision lies
    assert code == 1
    assert document["artifact"] is None
    assert "causality: exhaustive next event: the audit stopped: left out" in document["reasons"]


def test_a_plan_without_sense_is_refused_before_anything_is_audited(demo_store, tmp_path, capsys):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"format": 1, "serving": {"slots": 0}}))
    code, _ = audit(demo_store, SOUND_REVISION, tmp_path, "--audits", "training", "--policy", str(policy))
    assert code == 2
    assert "slots" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
