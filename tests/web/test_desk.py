"""The reviewer's desk: who may sign what, and what a verdict on file is worth."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from auditlib.errors import InputError, IntegrityError, KeyFileError, VerdictError
from auditlib.release.signing import new_key
from auditlib.web.desk import Desk, explain
from auditlib.web.settings import read_settings
from tests.web.world import a_run

PASSPHRASE = "correct horse"


@pytest.fixture
def desk(tmp_path):
    return Desk(read_settings(["--home", str(tmp_path)], {}))


@pytest.fixture
def approved(world, tmp_path):
    return a_run(tmp_path / "runs", world.sound, world.snapshot)


def test_the_first_key_starts_the_trust_file_and_later_ones_do_not_enter_it_by_themselves(desk):
    desk.make_key("Ada Reviewer", PASSPHRASE, PASSPHRASE)
    desk.make_key("Eve", PASSPHRASE, PASSPHRASE)
    assert list(desk.keys()) == ["ada-reviewer", "eve"]
    assert [key.person for key in desk.trust().keys.values()] == ["Ada Reviewer"]
    assert "ENCRYPTED" in desk.keys()["eve"].read_text()


@pytest.mark.parametrize(
    ("person", "first", "second"),
    [
        ("Ada", "long enough", "other one"),
        ("Ada", "short", "short"),
        ("", PASSPHRASE, PASSPHRASE),
        ("漢", PASSPHRASE, PASSPHRASE),
    ],
)
def test_a_key_that_would_be_weak_or_nobodys_is_not_made(desk, person, first, second):
    with pytest.raises(InputError):
        desk.make_key(person, first, second)
    assert desk.keys() == {}
    assert desk.trust() is None


def test_a_name_with_a_path_in_it_stays_in_the_folder_of_keys(desk):
    desk.make_key("../../Eve", PASSPHRASE, PASSPHRASE)
    assert [file.parent for file in desk.keys().values()] == [desk.settings.keys]


def test_what_was_signed_verifies_and_says_yes(desk, approved, world):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    done = desk.sign(approved, "ada", PASSPHRASE, "approve", "looks right")
    verdict = desk.check(done.path.read_bytes(), approved, world.sound.folder)
    assert verdict.says_yes
    assert [signer.person for signer in verdict.signers] == ["Ada"]
    assert verdict.statement.review.comment == "looks right"
    assert set(desk.bundles(approved)) == {"Ada"}
    assert desk.digest(approved) == verdict.statement.digest


def test_a_reviewer_may_refuse_what_the_gate_approved(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    done = desk.sign(approved, "ada", PASSPHRASE, "refuse", "not on a Friday")
    assert not desk.check(done.path.read_bytes()).says_yes


def test_a_reviewer_cannot_approve_what_the_gate_refused(desk, world):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    with pytest.raises(InputError, match="gate refused"):
        desk.sign(world.refused, "ada", PASSPHRASE, "approve", "")
    assert not desk.verdict_file(world.refused).exists()


@pytest.mark.parametrize("key", ["../ada", "nobody", ""])
def test_only_a_key_of_the_folder_signs(desk, approved, key):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    with pytest.raises(InputError, match="no key"):
        desk.sign(approved, key, PASSPHRASE, "approve", "")


def test_a_wrong_passphrase_signs_nothing(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    with pytest.raises(KeyFileError, match="passphrase"):
        desk.sign(approved, "ada", "wrong", "approve", "")
    assert not desk.verdict_file(approved).exists()


def test_a_run_that_was_altered_after_it_was_shown_is_not_signed(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    table = approved.folder / "tables" / "cache_parity.gaps.parquet"
    table.write_bytes(table.read_bytes() + b"x")
    with pytest.raises(IntegrityError, match="audit again"):
        desk.sign(approved, "ada", PASSPHRASE, "approve", "")


def test_an_altered_verdict_and_one_about_another_run_are_refused(desk, approved, world):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    envelope = desk.sign(approved, "ada", PASSPHRASE, "approve", "").path.read_bytes()
    document = json.loads(envelope)
    document["payload"] = document["payload"][:-8] + "AAAA" + document["payload"][-4:]
    with pytest.raises(VerdictError):
        desk.check(json.dumps(document).encode())
    with pytest.raises(VerdictError):
        desk.check(envelope, world.refused)
    desk.verdict_file(approved).write_text(json.dumps(document))
    assert desk.digest(approved) is None


def test_without_a_trust_file_nothing_is_valid(desk, approved):
    with pytest.raises(InputError, match="no trust file"):
        desk.check(b"{}")


def test_an_error_is_told_as_a_sentence():
    assert explain(InputError("no key; make one")) == "No key; make one"


def test_the_roster_says_who_has_signed_and_whose_key_does_not_count(desk, approved):
    now = datetime.now(UTC)
    assert desk.roster(approved, now) == ()
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    assert [(place.person, place.against, place.signed) for place in desk.roster(approved, now)] == [("Ada", "", False)]
    add_people(desk, "Bea", "Cy")
    ask_for(desk, 2, Cy={"revoked": True})
    done = desk.sign(approved, "ada", PASSPHRASE, "approve", "fine")
    found = {place.person: (place.against, place.signed) for place in desk.roster(approved, now)}
    assert found == {"Ada": ("", True), "Bea": ("", False), "Cy": ("revoked", False)}
    with pytest.raises(VerdictError, match="signed by 1 of the 2 people"):
        desk.check(done.path.read_bytes(), approved)
    later = desk.roster(approved, now + timedelta(days=4000))
    assert {place.against for place in later} == {"outside its time", "revoked"}
    desk.sign(approved, "bea", PASSPHRASE, "approve", "fine")
    assert desk.check(done.path.read_bytes(), approved).says_yes
    done.path.write_bytes(done.path.read_bytes().replace(b'"sig":"M', b'"sig":"N'))
    assert not any(place.signed for place in desk.roster(approved, now))


def add_people(desk, *names):
    for name in names:
        new_key(desk.settings.keys / f"{name.lower()}.pem", name, PASSPHRASE.encode(), desk.settings.trust)


def ask_for(desk, threshold, **changes):
    """Let the trust file ask for more people, and change entries by person."""
    document = json.loads(desk.settings.trust.read_text())
    document["threshold"] = threshold
    document["keys"] = [{**key, **changes.get(key["person"], {})} for key in document["keys"]]
    desk.settings.trust.write_text(json.dumps(document))
