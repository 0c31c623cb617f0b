"""The form that signs: what it keeps when a signature fails, what it never keeps, and what it decides for nobody."""

from __future__ import annotations

import json

import pytest

from auditlib.release.signing import new_key
from auditlib.runs.folder import open_run
from auditlib.web import parts_verdict
from auditlib.web.desk import Desk
from auditlib.web.settings import read_settings
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run

PASSPHRASE = "correct horse"
RUN = "20261130T100000Z-0a1b2c3d"


@pytest.fixture
def approved(world, tmp_path, monkeypatch):
    """A place where the gate let the sound revision through."""
    a_run(tmp_path / "runs", world.sound, world.snapshot)
    return settings_for(monkeypatch, tmp_path, world.store, tmp_path / "runs")


def press(app, label):
    return next(button for button in app.button if button.label == label).click().run()


def make_key(app, person="Ada", again=PASSPHRASE):
    for key, text in (("key-person", person), ("key-passphrase", PASSPHRASE), ("key-again", again)):
        app.text_input(key=key).set_value(text)
    return press(app, "Make the key")


@pytest.mark.usefixtures("place")
def test_the_verdict_page_takes_a_key_a_decision_and_a_signature():
    app = opened("verdict")
    assert "UNSIGNED" in words(app)
    make_key(app)
    assert app.radio(key="sign-decision").options == ["refuse"]  # the gate refused
    assert app.radio(key="sign-decision").value == "refuse"
    app.text_input(key="sign-passphrase").set_value("wrong")
    press(app, "Sign")
    assert "passphrase is wrong" in words(app)
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    app.text_area(key="sign-comment").set_value("not yet")
    press(app, "Sign")
    assert "Valid, signed by Ada" in words(app)
    assert "do not release" in words(app)
    assert "not yet" in words(app)


def test_a_signature_that_failed_keeps_decision_and_comment_and_no_passphrase(approved, world):
    app = make_key(opened("verdict", revision=world.sound.digest))
    app.radio(key="sign-decision").set_value("refuse")
    app.text_area(key="sign-comment").set_value("not on a Friday")
    app.text_input(key="sign-passphrase").set_value("wrong one")
    press(app, "Sign")
    assert "The key ada: the passphrase is wrong" in words(app)
    assert str(approved) not in words(app)
    assert app.radio(key="sign-decision").value == "refuse"
    assert app.text_area(key="sign-comment").value == "not on a Friday"
    assert app.text_input(key="sign-passphrase").value == ""
    assert "wrong one" not in str(app.session_state)


def test_nothing_is_decided_beforehand_and_nothing_signed_without_a_decision(approved, world):
    app = make_key(opened("verdict", revision=world.sound.digest))
    assert app.radio(key="sign-decision").options == ["approve", "refuse"]
    assert app.radio(key="sign-decision").value is None
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    app.text_area(key="sign-comment").set_value("kept")
    press(app, "Sign")
    assert "choose whether to approve or to refuse" in words(app)
    assert app.text_area(key="sign-comment").value == "kept"
    assert not (approved / "verdicts").exists()
    app.radio(key="sign-decision").set_value("approve")
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    press(app, "Sign")
    assert "It says: **release**" in words(app)


def test_what_was_decided_of_one_run_is_not_said_of_another(approved, world):
    other = a_run(approved / "runs", world.sound, world.snapshot, run_id="20261130T110000Z-0a1b2c3d")
    app = make_key(opened("verdict", revision=world.sound.digest, run=RUN))
    app.radio(key="sign-decision").set_value("approve")
    app.text_area(key="sign-comment").set_value("of this run")
    press(app, "Sign")
    assert app.radio(key="sign-decision").value == "approve"
    app.sidebar.selectbox(key="run").set_value(other.id).run()
    assert app.radio(key="sign-decision").value is None
    assert app.text_area(key="sign-comment").value == ""


def test_a_key_that_could_not_be_made_keeps_the_name_and_no_passphrase(approved, world):
    app = make_key(opened("verdict", revision=world.sound.digest), again="another")
    assert "the two passphrases differ" in words(app).lower()
    assert app.text_input(key="key-person").value == "Ada"
    assert (app.text_input(key="key-passphrase").value, app.text_input(key="key-again").value) == ("", "")
    make_key(app)
    assert app.text_input(key="key-person").value == ""
    make_key(app)  # a second key of the same name
    assert "The key ada is there already" in words(app)
    assert str(approved) not in words(app)


def test_the_page_says_who_signed_when_and_offers_nobody_a_second_signature(approved, world):
    for person in ("Ada", "Bea"):
        new_key(approved / "keys" / f"{person.lower()}.pem", person, PASSPHRASE.encode(), approved / "trust.json")
    trust = json.loads((approved / "trust.json").read_text())
    (approved / "trust.json").write_text(json.dumps({**trust, "threshold": 2}))
    app = opened("verdict", revision=world.sound.digest)
    assert "Signed by nobody; the trust file asks for 2 people." in words(app)
    assert "Still needed: Ada, Bea." in words(app)
    for key, button in (("ada", "Sign"), ("bea", "Add my signature")):
        app.selectbox(key="sign-key").set_value(key)
        app.radio(key="sign-decision").set_value("refuse")
        app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
        press(app, button)
        people = next(frame.value for frame in app.dataframe if "signed" in frame.value)
        assert people["when"].str.startswith("20").sum() == people["signed"].eq("✓ signed").sum()
        if key == "ada":
            assert "Still needed: Bea." in words(app)
    assert people["when"].str.startswith("20").all()
    assert "Signed by 2 people; the trust file asks for 2 people." in words(app)
    assert "Everybody who may sign has signed this verdict." in words(app)
    assert not any(button.label == "Add my signature" for button in app.button)


@pytest.mark.usefixtures("place")
def test_a_verdict_whose_revision_was_moved_away_holds_and_says_so(approved, world):
    app = make_key(opened("verdict", revision=world.sound.digest))
    app.radio(key="sign-decision").set_value("refuse")
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    press(app, "Sign")
    away = world.sound.folder.rename(world.sound.folder.with_name("moved"))
    try:
        said = words(opened("verdict", revision=world.sound.digest))
    finally:
        away.rename(world.sound.folder)
    assert "Valid, signed by Ada" in said
    assert "folder is gone from" in said
    assert "does not hold" not in said


@pytest.mark.usefixtures("place")
def test_every_reason_has_its_figures():
    said = words(opened("verdict"))
    assert "cache parity, single events: 0.31 logit where at most 8.00e-6 is allowed (40 observations)" in said
    assert "single events: over limit" not in said


def test_files_are_named_after_revision_and_run(approved, world, monkeypatch):
    new_key(approved / "keys" / "ada.pem", "Ada", PASSPHRASE.encode(), approved / "trust.json")
    run = open_run(approved / "runs" / RUN)
    Desk(read_settings(["--home", str(approved)], {})).sign(run, "ada", PASSPHRASE, "approve", "")
    names = []
    monkeypatch.setattr(parts_verdict, "_file", lambda place, label, content, name, *_: names.append(name))
    opened("verdict", revision=world.sound.digest)
    ours = f"sound-{RUN}"
    assert f"{ours}-verdict.dsse.json" in names
    assert f"{ours}-verdict-Ada.sigstore.json" in names
    assert {name for name in names if not name.startswith(ours)} == {"trust.json"}
