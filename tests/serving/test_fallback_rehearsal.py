"""A rehearsal shows a fallback that stands in, and shows one that does not."""

from __future__ import annotations

import json

import pytest

from auditlib.cli.main import main
from auditlib.errors import ArtifactError
from auditlib.release.evidence import parse_evidence
from auditlib.serving.planted_failures import FAILURES, FailingEngine
from auditlib.serving.rehearsal import rehearse
from auditlib.serving.service import Service
from tests.packed import small_artifact


@pytest.fixture
def one_failure(monkeypatch):
    """One failure instead of all, where all would show the same."""
    monkeypatch.setattr("auditlib.serving.rehearsal.FAILURES", {"engine raises": FAILURES["engine raises"]})


@pytest.mark.slow
def test_an_earlier_artifact_stands_in_for_every_failure_and_the_command_line_says_so(shelf, tmp_path, capsys):
    evidence = tmp_path / "rehearsal.json"
    arguments = ["--fallback", str(shelf / "earlier"), "--timeout", "1.5", "--json", str(evidence)]
    assert main(["rehearse", str(shelf / "artifact"), *arguments]) == 0
    said = capsys.readouterr().out
    document = json.loads(evidence.read_bytes())
    assert (document["kind"], document["format"], document["status"]) == ("rehearsal", 1, "passed")
    assert document["artifact"].startswith("sha256:")
    assert document["device"]["device"] == "cpu"
    assert len(document["checks"]) == len(FAILURES)
    assert parse_evidence(document, document["artifact"]).status == "passed"
    for check, trial in zip(document["checks"], document["trials"], strict=True):
        assert set(check) == {"audit", "name", "value", "limit", "unit", "count", "status"}
        assert (check["value"], check["limit"], check["count"], check["status"]) == (0, 0, 256, "passed")
        assert trial["right"] == sum(trial["paths"].values()) == 256
        stands_in = "full prefix" if trial["failure"] == "cache is rejected" else "fallback artifact"
        assert trial["paths"][stands_in] > 200
        assert trial["failure"] in said


def test_the_full_prefix_path_stands_in_where_it_is_the_fallback(shelf, monkeypatch):
    some = {name: FAILURES[name] for name in ("logits are not numbers", "answer breaks the order")}
    monkeypatch.setattr("auditlib.serving.rehearsal.FAILURES", some)
    found = rehearse(shelf / "earlier", timeout=1.5)
    assert found.passed
    assert {tuple(trial.paths)[-1] for trial in found.trials} == {"full prefix"}


def test_an_artifact_with_nothing_behind_it_fails_its_rehearsal_by_errors_and_by_no_wrong_answer(tmp_path, capsys):
    artifact = small_artifact(tmp_path, strategy="full prefix")
    evidence = tmp_path / "rehearsal.json"
    assert main(["rehearse", str(artifact.folder), "--timeout", "0.5", "--json", str(evidence)]) == 1
    assert "do not count on this fallback" in capsys.readouterr().out
    document = json.loads(evidence.read_bytes())
    assert document["status"] == "failed"
    assert document["not_applicable"] == {"cache is rejected": "it serves without a cache"}
    assert len(document["trials"]) == len(FAILURES) - 1
    assert parse_evidence(document, document["artifact"]).lacks == ()
    for trial in document["trials"]:
        assert trial["wrong"] == 0
        assert trial["unanswered"] > 200


@pytest.mark.usefixtures("one_failure")
def test_a_fallback_that_answers_otherwise_than_alone_is_caught(shelf, monkeypatch):
    kept = Service._answer

    def swapped(self, given):
        answer = kept(self, given)
        events = ("repaired", *answer.events) if answer.path == "fallback artifact" else answer.events
        return type(answer)(answer.request_id, events, *[getattr(answer, name) for name in answer.__slots__[2:]])

    monkeypatch.setattr(Service, "_answer", swapped)
    found = rehearse(shelf / "artifact", shelf / "earlier", timeout=1.5)
    assert not found.passed
    assert all(trial.wrong > 200 for trial in found.trials)


@pytest.mark.usefixtures("one_failure")
def test_a_failure_that_never_shows_has_rehearsed_nothing(shelf, monkeypatch):
    monkeypatch.setattr("auditlib.serving.planted_failures._SOUND_STEPS", 10**9)
    found = rehearse(shelf / "artifact", shelf / "earlier", timeout=1.5)
    assert not any(trial.passed for trial in found.trials)
    assert all(trial.right == 256 for trial in found.trials)


class BreaksAtItsFirstBreath(FailingEngine):
    """Fails, but not in the way that was to be rehearsed."""

    def __init__(self, served, *, cached=None):
        raise TypeError("cannot be made")


def test_a_plant_that_fails_otherwise_than_planned_has_rehearsed_nothing(shelf, monkeypatch):
    monkeypatch.setattr("auditlib.serving.planted_failures.FAILURES", {"one": BreaksAtItsFirstBreath})
    monkeypatch.setattr("auditlib.serving.rehearsal.FAILURES", {"one": BreaksAtItsFirstBreath})
    [trial] = rehearse(shelf / "artifact", shelf / "earlier").trials
    assert trial.paths == {"fallback artifact": 256}
    assert (trial.right, trial.passed) == (256, False)


def test_what_serves_nothing_has_nothing_to_rehearse(shelf):
    with pytest.raises(ArtifactError, match="serves nothing"):
        rehearse(shelf / "idle", shelf / "earlier")
