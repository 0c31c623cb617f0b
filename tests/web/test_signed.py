"""The line of a card that says who signed: verified, and verified again when a file changed."""

from __future__ import annotations

import json

import pytest
import streamlit as st

from auditlib.release.signing import new_key
from auditlib.web import signed
from auditlib.web.desk import Desk
from auditlib.web.disk import runs_in
from auditlib.web.settings import read_settings
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run

PASSPHRASE = "correct horse"


@pytest.fixture
def desk(tmp_path):
    st.cache_resource.clear()
    return Desk(read_settings(["--home", str(tmp_path)], {}))


@pytest.fixture
def approved(world, tmp_path):
    return a_run(tmp_path / "runs", world.sound, world.snapshot)


def test_a_run_is_unsigned_until_somebody_signs_it(desk, approved):
    assert signed.line(desk, approved).endswith("Unsigned")
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    desk.sign(approved, "ada", PASSPHRASE, "refuse", "not on a Friday")
    assert signed.line(desk, approved).endswith("Signed by Ada: do not release")


def test_a_verdict_that_was_altered_or_is_no_longer_trusted_is_nobodys(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    file = desk.sign(approved, "ada", PASSPHRASE, "approve", "").path
    assert signed.line(desk, approved).endswith("Signed by Ada: release")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"payload":"', b'"payload":"AAAA'))
    assert "does not hold" in signed.line(desk, approved)
    file.write_bytes(whole)
    trust = json.loads(desk.settings.trust.read_text())
    trust["keys"][0]["revoked"] = True
    desk.settings.trust.write_text(json.dumps(trust))
    assert "does not hold" in signed.line(desk, approved)
    desk.settings.trust.unlink()
    assert "no trust file" in signed.line(desk, approved)


def test_of_two_people_that_must_sign_the_first_is_named_and_the_second_missed(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    new_key(desk.settings.keys / "ben.pem", "Ben", PASSPHRASE.encode(), desk.settings.trust)
    trust = json.loads(desk.settings.trust.read_text())
    desk.settings.trust.write_text(json.dumps({**trust, "threshold": 2}))
    desk.sign(approved, "ada", PASSPHRASE, "approve", "")
    assert "Signed by Ada, not yet by as many" in signed.line(desk, approved)
    desk.sign(approved, "ben", PASSPHRASE, "approve", "")
    assert signed.line(desk, approved).endswith("Signed by Ada, Ben: release")


def test_the_signed_verdict_of_a_run_that_cannot_be_read_is_still_told(desk, approved):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    desk.sign(approved, "ada", PASSPHRASE, "refuse", "")
    (approved.folder / "report.json").write_text("{")
    (lost,) = runs_in(approved.folder.parent).damaged
    assert signed.line(desk, lost).endswith("Signed by Ada: do not release")
    assert "does not hold" in signed.line(desk, approved)


def test_it_is_verified_once_for_each_state_of_its_files(desk, approved, monkeypatch):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    desk.sign(approved, "ada", PASSPHRASE, "approve", "")
    calls, verify = [], signed.verify_verdict
    monkeypatch.setattr(signed, "verify_verdict", lambda *a, **k: calls.append(a) or verify(*a, **k))
    assert len({signed.line(desk, approved) for _ in range(3)}) == len(calls) == 1


def test_the_card_says_who_signed(world, tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path, world.store, world.runs)
    assert "Unsigned" in words(opened("board"))
    desk = Desk(read_settings(["--home", str(tmp_path)], {}))
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    desk.sign(world.refused, "ada", PASSPHRASE, "refuse", "")
    assert "Signed by Ada: do not release" in words(opened("board"))
