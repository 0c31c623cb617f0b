"""A service opens on exactly the artifacts that were packaged to go together, or says what to do."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil

import pytest

from auditlib.errors import ArtifactError, InputError, IntegrityError
from auditlib.serving.arms import Stage
from auditlib.serving.artifact import open_artifact
from auditlib.serving.on_disk import OnDisk
from auditlib.serving.opening import ServiceOptions, open_service
from auditlib.serving.request import Request
from tests.packed import rewritten

CANARY = Stage("canary 5", 0.05)


def ask(service, *requests):
    async def run():
        async with service:
            return [await service.answer(request) for request in requests], await service.health()

    return asyncio.run(run())


def digest(folder):
    return hashlib.sha256((folder / "artifact.json").read_bytes()).hexdigest()


def test_an_artifact_opens_with_the_fallback_that_it_names(shelf):
    [answer], health = ask(open_service(shelf / "artifact", shelf / "earlier"), Request("s", ("opened",)))
    assert (answer.path, answer.artifact) == ("cached", f"sha256:{digest(shelf / 'artifact')}")
    assert (health["status"], health["fallback"]) == ("ok", f"sha256:{digest(shelf / 'earlier')}")
    json.dumps(health)


def test_an_artifact_that_serves_nothing_is_served_by_its_fallback_which_is_said(shelf):
    [answer], health = ask(open_service(shelf / "idle", shelf / "earlier"), Request("s", ("opened",)))
    assert answer.artifact == health["artifact"] == f"sha256:{digest(shelf / 'earlier')}"
    assert health["asked"] == f"sha256:{digest(shelf / 'idle')}"
    assert health["status"] == "degraded"
    assert "serves nothing" in health["reasons"][0]


@pytest.mark.parametrize(
    ("artifact", "fallback", "error", "said"),
    [
        ("artifact", None, ArtifactError, "give its folder with --fallback"),
        ("artifact", "lone", IntegrityError, "not sha256:"),
        ("artifact", "nowhere", ArtifactError, "nowhere"),
        ("lone", "earlier", ArtifactError, "leave out --fallback"),
        ("idle", None, ArtifactError, "give its folder with --fallback"),
        ("nowhere", None, ArtifactError, "nowhere"),
    ],
)
def test_a_fallback_that_is_missing_needless_or_another_is_refused(artifact, fallback, error, said, shelf):
    with pytest.raises(error, match=said):
        open_service(shelf / artifact, None if fallback is None else shelf / fallback)


def test_a_fallback_that_was_altered_is_refused(shelf, tmp_path):
    shutil.copytree(shelf / "earlier", tmp_path / "earlier")
    weights = tmp_path / "earlier" / "revision" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        open_service(shelf / "artifact", tmp_path / "earlier")


def test_a_fallback_that_serves_nothing_itself_is_refused(shelf, tmp_path):
    shutil.copytree(shelf / "artifact", tmp_path / "artifact")
    rewritten(
        tmp_path / "artifact", lambda document: document.__setitem__("fallback", f"sha256:{digest(shelf / 'idle')}")
    )
    with pytest.raises(ArtifactError, match="serves nothing itself"):
        open_service(tmp_path / "artifact", shelf / "idle")


def test_a_pinned_digest_lets_no_other_artifact_in(shelf):
    named = f"sha256:{digest(shelf / 'lone')}"
    assert ask(open_service(shelf / "lone", digest=named))[1]["artifact"] == named
    with pytest.raises(IntegrityError, match="serve the one that was released"):
        open_service(shelf / "lone", digest=f"sha256:{digest(shelf / 'earlier')}")


def test_a_rollout_needs_an_artifact_that_serves_and_a_log(shelf, tmp_path):
    with pytest.raises(InputError, match="--log"):
        ServiceOptions(stage=CANARY)
    with pytest.raises(ArtifactError, match="cannot be rolled out"):
        open_service(shelf / "idle", shelf / "earlier", ServiceOptions(log=tmp_path, stage=CANARY))


@pytest.mark.parametrize("wrong", [{"compare": 1.1}, {"compare": float("nan")}, {"timeout": 0.0}])
def test_options_without_sense_are_refused(wrong):
    with pytest.raises(InputError):
        ServiceOptions(**wrong)


def test_in_a_rollout_from_the_full_prefix_path_both_arms_are_one_artifact(shelf, tmp_path):
    requests = [Request(f"s{n}", ("opened",), request_id=f"r{n}") for n in range(20)]
    options = ServiceOptions(log=tmp_path / "log", stage=Stage("canary 50", 0.5))
    answers, health = ask(open_service(shelf / "lone", options=options), *requests)
    assert {answer.path for answer in answers} == {"cached", "full prefix"}
    assert {answer.artifact for answer in answers} == {health["artifact"]}
    assert health["status"] == "ok"


def test_a_touched_file_is_not_a_changed_one(shelf, tmp_path):
    artifact = open_artifact(shutil.copytree(shelf / "lone", tmp_path / "lone"))
    watched = OnDisk(artifact.folder, artifact.digest)
    assert watched.state() == "same"
    path = artifact.folder / "policy.json"
    content = path.read_bytes()
    path.write_bytes(content)
    assert watched.state() == "same"
    path.write_bytes(content + b"\n")
    assert watched.state() == "changed"
    path.write_bytes(content)
    assert watched.state() == "same"
    (artifact.folder / "more.txt").write_text("x")
    assert watched.state() == "changed"
    shutil.rmtree(artifact.folder)
    assert watched.state() == "missing"
