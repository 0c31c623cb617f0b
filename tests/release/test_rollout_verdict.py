"""The verdict under a rollout: each step onwards asks whether it still carries, and no step back ever does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from auditlib.errors import InputError
from auditlib.release.ledger import Entry, _write
from auditlib.release.refusals import RefusedError
from auditlib.release.rollout_chain import read_chain
from auditlib.release.rollout_moves import Signer, advance, by_hand, open_on, start
from auditlib.release.rollout_verdict import MAX_AGE, Document, verdict_doubts
from auditlib.release.trust import load_trust
from tests.release.cases import digest, entry, keyid, private_key, trusted
from tests.release.rollout_world import BEGIN, NEW, OLD, live, plan, stages

VERDICT, ANOTHER = (Document("verdict", digest(name)) for name in ("verdict", "another"))
BY_BOB, BY_ADA = (Document("verdict signer", f"sha256:{keyid(name)}") for name in ("bob", "ada"))
TRUST = load_trust(trusted("ada", "bob"))
MUCH_LATER = 1000


@dataclass
class InMemory:
    """A log that is as long as its rows."""

    rows: object
    files: tuple

    def digest_of(self, name, rows):
        return self.files[0]["digest"] if rows == self.files[0]["rows"] else None


def log_of(rows):
    found = live(rows)
    return InMemory(found, ({"name": "log", "sha256": digest("f"), "rows": found.count, "digest": digest("rows")},))


def begun(root, *documents, shown_before=timedelta()) -> Path:
    """A chain in the shadow stage that Ada opened on these documents."""
    path, signer = root / "c.jsonl", Signer(private_key("ada"), TRUST)
    opened = BEGIN - shown_before
    start(path, signer, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=opened - timedelta(seconds=2))
    open_on(path, signer, [Document("replay", digest("replay"))], opened - timedelta(seconds=1))
    open_on(path, signer, documents, opened)
    return path


def onwards(path, trust=TRUST, rows=None, **more):
    log = log_of(stages("shadow") if rows is None else rows)
    return advance(path, Signer(private_key("ada"), trust), log, BEGIN + timedelta(seconds=MUCH_LATER), **more)


def without(*fields):
    """Ada, and what has become of Bob's key."""
    document = trusted("ada")
    document["keys"] += [entry("bob", **one) for one in fields]
    return load_trust(document)


def written(path, *verdicts):
    before = [None, *(one.digest for one in verdicts)]
    _write(path, tuple(
        Entry(number, one.digest, before[number - 1], "2026-11-30T12:00:00Z", "run")
        for number, one in enumerate(verdicts, 1)
    ))  # fmt: skip
    return path


def test_a_verdict_that_still_counts_carries_a_step_onwards(tmp_path):
    chain, decision = onwards(begun(tmp_path, VERDICT, BY_BOB))
    assert (decision.action, chain.standing.state) == ("promote", "canary 5")


@pytest.mark.parametrize(
    ("trust", "said"),
    [
        (without({"revoked": True}), "revoked: the key of Bob, who signed the verdict, was revoked since"),
        (without({"roles": []}), "threshold: Bob, who signed the verdict, has no longer the role release-signer"),
        (without(), f"foreign key: key {keyid('bob')[:16]}, which signed the verdict, is in the trust file no more"),
    ],
    ids=["revoked", "another role", "taken out"],
)
def test_a_signer_who_no_longer_counts_stops_every_step_onwards(tmp_path, trust, said):
    path = begun(tmp_path, VERDICT, BY_ADA, BY_BOB)
    before = path.read_bytes()
    with pytest.raises(RefusedError) as refusal:
        onwards(path, trust)
    assert str(refusal.value) == f"{said}; give one that holds with --verdict, or roll back"
    assert refusal.value.exit_code == 3
    assert path.read_bytes() == before


def test_a_chain_that_notes_no_signer_goes_no_step_onwards(tmp_path):
    with pytest.raises(RefusedError, match="threshold: the chain does not say who signed its verdict"):
        onwards(begun(tmp_path, VERDICT))


@pytest.mark.parametrize(("before", "goes"), [(MAX_AGE - timedelta(seconds=MUCH_LATER), True), (MAX_AGE, False)])
def test_a_verdict_is_looked_at_again_after_so_long(tmp_path, before, goes):
    path = begun(tmp_path, VERDICT, BY_BOB, shown_before=before)
    if goes:
        assert onwards(path)[1].action == "promote"
        return
    with pytest.raises(RefusedError, match=r"^stale: the verdict was shown last on 2026-11-01T12:00:00Z"):
        onwards(path)


@pytest.mark.parametrize(
    ("known", "goes"), [([VERDICT], True), ([ANOTHER, VERDICT], True), ([VERDICT, ANOTHER], False), ([ANOTHER], False)]
)
def test_only_the_newest_verdict_of_a_ledger_carries_a_step_onwards(tmp_path, known, goes):
    path, ledger = begun(tmp_path, VERDICT, BY_BOB), written(tmp_path / "ledger.jsonl", *known)
    if goes:
        assert onwards(path, ledger=ledger)[1].action == "promote"
        return
    with pytest.raises(RefusedError, match=f"^replayed: the newest verdict of .* is number {len(known)} of 2026-11-30"):
        onwards(path, ledger=ledger)


@pytest.mark.parametrize("content", [None, b""])
def test_a_ledger_that_knows_of_nothing_is_no_ledger(tmp_path, content):
    ledger = tmp_path / "ledger.jsonl"
    if content is not None:
        ledger.write_bytes(content)
    with pytest.raises(InputError, match="there is no ledger"):
        onwards(begun(tmp_path, VERDICT, BY_BOB), ledger=ledger)


def test_a_verdict_shown_again_is_noted_and_relied_on_from_there(tmp_path):
    path, trust = begun(tmp_path, VERDICT, BY_BOB), without({"revoked": True})
    chain, _ = onwards(path, trust, verdict=[ANOTHER, BY_ADA])
    assert chain.standing.state == "canary 5"
    assert [one["kind"] for one in chain.moves[-1].documents] == ["verdict", "verdict signer"]
    assert list(verdict_doubts(chain, trust, BEGIN)) == []


def test_harm_rolls_back_whatever_has_become_of_the_verdict(tmp_path):
    rows = [one if one.arm == "fallback" else replace(one, valid=False, rule="init") for one in stages("shadow")]
    chain, decision = onwards(begun(tmp_path, VERDICT), without(), rows)
    assert (decision.action, chain.standing.state) == ("roll back", "rolled back")
    assert chain.moves[-1].documents == ()


def test_a_person_pauses_and_rolls_back_whatever_has_become_of_the_verdict(tmp_path):
    path, signer = begun(tmp_path, VERDICT), Signer(private_key("ada"), without({"revoked": True}))
    assert by_hand(path, signer, "pause", "looking", now=BEGIN).standing.paused
    assert by_hand(path, signer, "roll back", "enough", now=BEGIN).standing.state == "rolled back"
    assert read_chain(path, TRUST).standing.state == "rolled back"
