"""A verdict signed in the browser names the artifact and its evidence, and nobody signs for less than the first did."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from auditlib.errors import InputError, PrefixgateError
from auditlib.release.signing import new_key
from auditlib.runs.package import PackageRequest, package_run
from auditlib.web import serving_facts
from auditlib.web.desk import Desk
from auditlib.web.settings import read_settings
from auditlib.web.shelf import artifacts
from auditlib.web.work import measure, package
from tests.packed import judged_run
from tests.release.cases import whole_checks
from tests.small_gpt import write_small_revision

PASSPHRASE = "correct horse"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A judged run of a small revision."""
    root = tmp_path_factory.mktemp("desk")
    revision = write_small_revision(root / "revision")
    return root, judged_run(root / "runs", revision)


@pytest.fixture
def desk(tmp_path):
    found = Desk(read_settings(["--home", str(tmp_path), "--artifacts", str(tmp_path / "artifacts")], {}))
    found.settings.keys.mkdir()
    for person in ("ada", "bea"):
        new_key(found.settings.keys / f"{person}.pem", person, PASSPHRASE.encode(), found.settings.trust)
    return found


def packaged(desk, made, name="one"):
    root, run = made
    package(desk.settings, run.folder, root / "revision", desk.settings.artifacts / name)(lambda *_: None)
    return desk.settings.artifacts / name


def evidence(desk, kind, status="passed", created="2026-12-01T00:00:00+00:00", name=None):
    artifact = artifacts(desk.settings.artifacts)[0]
    checks = whole_checks(kind)
    checks[0] |= {"value": 0 if status == "passed" else 1, "limit": 0, "status": status}
    document = {"format": 1, "kind": kind, "artifact": artifact.digest, "created": created, "status": status}
    path = desk.settings.artifacts / (name or f"one.{kind}.json")
    path.write_text(json.dumps({**document, "checks": checks}))
    return path


def test_the_artifact_and_its_evidence_stand_in_the_verdict_and_hold(desk, made):
    run = made[1]
    packaged(desk, made)
    evidence(desk, "replay")
    (bound,) = desk.offered(run)
    assert [found.kind for found in bound.evidence.values()] == ["replay"]
    done = desk.sign(run, "ada", PASSPHRASE, "approve", "", bound)
    assert done.result == "PASSED"
    verified = desk.check(done.path.read_bytes(), run)
    assert {"artifact", "evidence"} <= set(verified.compared)
    again = desk.sign(run, "bea", PASSPHRASE, "approve", "")  # a second person signs for the same things
    assert again.signatures == 2


def test_a_second_signature_is_not_given_to_less_than_the_first(desk, made):
    run = made[1]
    folder = packaged(desk, made)
    path = evidence(desk, "replay")
    desk.sign(run, "ada", PASSPHRASE, "approve", "", desk.offered(run)[0])
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(PrefixgateError):
        desk.sign(run, "bea", PASSPHRASE, "approve", "")
    path.write_bytes(content)
    (folder / "policy.json").write_bytes(b"{}")
    with pytest.raises(PrefixgateError):
        desk.sign(run, "bea", PASSPHRASE, "approve", "")


def test_a_signature_is_given_for_what_was_shown_or_not_at_all(desk, made):
    run = made[1]
    packaged(desk, made)
    evidence(desk, "replay")
    (bound,) = desk.offered(run)
    alone, whole = desk.seen(run, None), desk.seen(run, bound)
    done = desk.sign(run, "ada", PASSPHRASE, "approve", "", bound, whole)
    for seen, changed in (
        (alone, "the artifact, the evidence on the artifact, the verdict on file"),
        (whole, "the ve"),
    ):
        with pytest.raises(InputError, match=f"these have changed: {changed}"):
            desk.sign(run, "bea", PASSPHRASE, "approve", "", None, seen)
    assert len(desk.roster(run, datetime.now(UTC))) == 2
    assert [place.person for place in desk.roster(run, datetime.now(UTC)) if place.signed] == ["ada"]
    shown = desk.seen(run, desk.bound(run))
    new_key(desk.settings.keys / "cy.pem", "cy", PASSPHRASE.encode(), desk.settings.trust)
    desk.sign(run, "cy", PASSPHRASE, "approve", "")
    # that somebody else signs the same statement first changes nothing of it
    assert desk.sign(run, "bea", PASSPHRASE, "approve", "", None, shown).signatures == 3
    assert done.path == desk.verdict_file(run)


def test_evidence_that_came_after_the_form_was_shown_signs_nothing(desk, made):
    run = made[1]
    packaged(desk, made)
    evidence(desk, "replay")
    seen = desk.seen(run, desk.offered(run)[0])
    evidence(desk, "bench")
    with pytest.raises(InputError, match="have changed: the evidence on the artifact; look again"):
        desk.sign(run, "ada", PASSPHRASE, "approve", "", desk.offered(run)[0], seen)
    assert not desk.verdict_file(run).exists()


def test_evidence_that_failed_leaves_only_a_refusal(desk, made):
    run = made[1]
    packaged(desk, made)
    evidence(desk, "replay", "failed")
    (bound,) = desk.offered(run)
    assert not desk.may_approve(run, bound)
    assert desk.may_approve(run, None)
    with pytest.raises(InputError):
        desk.sign(run, "ada", PASSPHRASE, "approve", "", bound)
    assert desk.sign(run, "ada", PASSPHRASE, "refuse", "", bound).result == "FAILED"


def test_what_failed_counts_however_many_older_files_and_folders_come_before_it_by_name(desk, made):
    run = made[1]
    packaged(desk, made, "zz")
    evidence(desk, "replay", "failed", name="zz.replay.json")
    found = json.loads((desk.settings.artifacts / "zz.replay.json").read_text())
    passed = {**found, "status": "passed", "checks": whole_checks("replay")}
    older = {**passed, "artifact": f"sha256:{'0' * 64}"}
    for number in range(210):
        (desk.settings.artifacts / f"old{number:03d}.replay.json").write_text(json.dumps(older))
        (desk.settings.artifacts / f"old{number:03d}").mkdir()
    (bound,) = desk.offered(run)
    assert [one.status for one in bound.evidence.values()] == ["failed"]
    assert not desk.may_approve(run, bound)
    shown, problems = serving_facts.evidence(desk.settings.artifacts, bound.artifact.digest)
    assert (shown["replay"].status, problems) == ("failed", ())


def test_the_newest_evidence_of_a_kind_counts_and_other_files_are_passed_over(desk, made):
    run = made[1]
    packaged(desk, made)
    evidence(desk, "replay", "failed", "2026-12-01T00:00:00+00:00", "a.json")
    evidence(desk, "replay", "passed", "2026-12-02T00:00:00+00:00", "b.json")
    for name, content in {"c.json": "{", "d.json": "[]", "e.json": '{"format": 1}'}.items():
        (desk.settings.artifacts / name).write_text(content)
    (bound,) = desk.offered(run)
    assert [path.name for path in bound.evidence] == ["b.json"]


def test_artifacts_of_other_runs_and_folders_that_are_none_are_not_offered(desk, made, tmp_path):
    _, run = made
    packaged(desk, made)
    other = judged_run(
        tmp_path / "runs", write_small_revision(tmp_path / "r", seed=5), name="20261130T110000000Z-0a1b2c3d"
    )
    package_run(PackageRequest(other.folder, desk.settings.artifacts / "other", tmp_path / "r"))
    (desk.settings.artifacts / "junk").mkdir()
    (desk.settings.artifacts / "junk" / "artifact.json").write_text("{")
    (desk.settings.artifacts / "linked").symlink_to(desk.settings.artifacts / "one")
    assert [bound.artifact.folder.name for bound in desk.offered(run)] == ["one"]


@pytest.mark.parametrize(("kind", "status"), [("replay", "not measured"), ("rehearsal", "passed")])
def test_what_a_button_measures_is_evidence_as_it_stands(desk, made, kind, status):
    run = made[1]
    folder = packaged(desk, made)
    said = measure(desk.settings, kind, folder, desk.settings.artifacts / f"one.{kind}.json")(lambda *_: None)
    assert said == "artifact one"
    (bound,) = desk.offered(run)
    # The made-up run names no device of this machine, so a replay here can say nothing of its tolerance.
    assert [(found.kind, found.status) for found in bound.evidence.values()] == [(kind, status)]
    assert desk.may_approve(run, bound) == (status == "passed")
