"""Every attack of the corpus is refused under its name, and a second verifier that shares no code agrees."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from pathlib import Path

import pytest

from auditlib.errors import KeyFileError
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import sign_run, verify_verdict
from tests.release import independent
from tests.release.attacks import ATTACKS, TRUST, World, packed
from tests.release.cases import (
    NOW,
    PASSPHRASE,
    changed,
    evidence_document,
    key_file,
    signed,
    sound,
    trusted,
    write_artifact,
    write_evidence,
    write_run,
)

FAVOURABLE = ("passed", "approved", "allowed", "success", "verified ok")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """Three verdicts by Ada, an hour apart; the middle one is the one attacked."""
    root = tmp_path_factory.mktemp("world")
    run = write_run(root, serving={"limits": {"first event p95": 50}})
    artifact = root / "artifact"
    write_artifact(artifact, run)
    files_of = {kind: root / f"my-{kind}.json" for kind in ("replay", "bench")}
    evidence = [write_evidence(path, evidence_document(artifact, kind)) for kind, path in files_of.items()]
    key, files = key_file(root, "ada"), []
    for hour in (-2, -1, 0):
        files.append(root / f"verdict{hour}.json")
        sign_run(
            run.folder, run.report, run.manifest, key, PASSPHRASE, "approve", "", files[-1], artifact=artifact,
            evidence=evidence, previous=files[-2] if files[1:] else None, now=NOW + timedelta(hours=hour),
        )  # fmt: skip
    older, verdict, newer = (path.read_bytes() for path in files)
    payload = independent.unbase64(json.loads(verdict)["payload"])
    return World(root, payload, verdict, run.revision, artifact, run.folder / "report.json", evidence[1], older, newer)


def test_the_corpus_is_large_and_knows_every_reason():
    assert len(ATTACKS) >= 40
    assert {reason for reason, _ in ATTACKS.values()} == {
        "malformed", "altered", "foreign key", "revoked", "threshold", "stale", "replayed", "wrong artifact", TRUST,
    }  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_under_its_name_by_both_verifiers(world, name):
    reason, case = ATTACKS[name]
    data, trust, hand = case(world)
    with pytest.raises(KeyFileError if reason == TRUST else RefusedError) as refusal:
        verify_verdict(data, trust, now=NOW, **hand)
    if reason != TRUST:
        assert refusal.value.reason == reason
        assert refusal.value.exit_code == 3
    assert not any(word in str(refusal.value).casefold() for word in FAVOURABLE)
    with pytest.raises(Exception):  # noqa: B017, PT011  any exception is its way to say no
        independent.verify(data, trust, NOW, **hand)


def holding(world: World) -> dict:
    """Verdicts that hold, in forms that must not be refused."""
    failed = write_run(world.root / "failed", changed(sound(), "cache parity", "padded left", value=1.0))
    out = world.root / "failed.json"
    sign_run(
        failed.folder, failed.report, failed.manifest, key_file(world.root, "ada"), PASSPHRASE, None, "", out, now=NOW
    )
    two = signed(world.payload, "ada", "bob")
    hand = {"revision": world.revision, "artifact": world.artifact, "report": world.report, "evidence": [world.bench]}
    trust = trusted("ada", "bob")
    return {
        "as it is": (world.verdict, trusted("ada"), {}),
        "with everything in hand": (world.verdict, trust, hand),
        "after its predecessor": (world.verdict, trust, {"previous": world.older}),
        "young enough": (world.verdict, trust, {"max_age": timedelta(hours=1)}),
        "by two people": (two, trusted("ada", "bob", threshold=2), hand),
        "by two people in the other order": (signed(world.payload, "bob", "ada"), trust, {}),
        "in other white space": (packed(json.loads(world.verdict)).replace(b", ", b",\n\t "), trusted("ada"), {}),
        "one of two revoked": (two, {**trust, "keys": [trust["keys"][0], {**trust["keys"][1], "revoked": True}]}, {}),
        "a no": (out.read_bytes(), trust, {}),
    }


def test_what_holds_is_accepted_by_both_verifiers(world):
    for name, (data, trust, hand) in holding(world).items():
        verified = verify_verdict(data, trust, now=NOW, **hand)
        other = independent.verify(data, trust, NOW, **hand)
        assert verified.result == other["result"] == ("FAILED" if name == "a no" else "PASSED"), name
        assert verified.says_yes == (name != "a no")
        assert set(verified.compared) == {"age" if one == "max_age" else one for one in hand}


def test_the_second_verifier_stays_short_and_shares_no_code():
    source = Path(inspect.getsourcefile(independent)).read_text(encoding="utf-8")
    docstrings = {line for part in (independent, independent.opened) for line in (part.__doc__ or "").splitlines()}
    lines = [line.strip() for line in source.splitlines()]
    code = [one for one in lines if one and one[0] != "#" and one.strip('"') not in docstrings]
    assert len(code) <= 95
    assert "auditlib" not in source
    assert "securesystemslib" not in source
