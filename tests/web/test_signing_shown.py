"""A press on Sign stands for what was shown beside the button: for anything else it signs nothing, and says so."""

from __future__ import annotations

import json

import pytest

from auditlib.release.signing import new_key
from auditlib.runs.folder import open_run
from auditlib.web.desk import Desk
from auditlib.web.settings import read_settings
from auditlib.web.shelf import artifacts
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run

PASSPHRASE = "correct horse"
RUN, LATER = "20261130T100000Z-0a1b2c3d", "20261130T110000Z-0a1b2c3e"


@pytest.fixture
def home(world, tmp_path, monkeypatch):
    """A place with an approved run of the sound revision, a refused one of the faulty, and two people's keys."""
    a_run(tmp_path / "runs", world.sound, world.snapshot, run_id=RUN)
    a_run(tmp_path / "runs", world.faulty, world.snapshot, run_id=LATER, bad={"cache parity: single events": 0.31})
    for person in ("ada", "bea"):
        new_key(tmp_path / "keys" / f"{person}.pem", person, PASSPHRASE.encode(), tmp_path / "trust.json")
    return settings_for(monkeypatch, tmp_path, world.store, tmp_path / "runs")


@pytest.fixture
def desk(home):
    return Desk(read_settings(["--home", str(home), "--artifacts", str(home / "artifacts")], {}))


@pytest.fixture
def run(home):
    return open_run(home / "runs" / RUN)


def filled(world, decision, **more):
    app = opened("verdict", revision=world.sound.digest, run=RUN)
    app.radio(key="sign-decision").set_value(decision)
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    for key, value in more.items():
        app.selectbox(key=f"sign-{key}").set_value(value)
    return app


def press(app, label="Sign"):
    app = next(button for button in app.button if button.label == label).click().run()
    assert not app.exception
    return app


def verdicts(home):
    return sorted(path.name.split(".")[0] for path in (home / "verdicts").glob("*.dsse.json"))


def signers(desk, run):
    return len(json.loads(desk.verdict_file(run).read_bytes())["signatures"])


def test_a_press_that_came_too_late_signs_nothing_of_the_next_run_that_is_looked_at(home, world, desk, run):
    app = filled(world, "refuse")
    for person in ("ada", "bea"):  # both in another tab
        desk.sign(run, person, PASSPHRASE, "approve", "")
    press(app)
    assert "Nothing was signed by this press" in words(app)
    app.sidebar.selectbox(key="revision").set_value(world.faulty.digest).run()
    assert app.radio(key="sign-decision").value == "refuse"
    assert verdicts(home) == [RUN]
    assert PASSPHRASE not in str(app.session_state)


def test_a_passphrase_that_another_page_left_behind_signs_nothing(home, world, desk, run):
    app = opened("board", revision=world.sound.digest, run=RUN)
    app.session_state["taken sign-passphrase"] = PASSPHRASE
    app.session_state["what was signed for"] = desk.seen(run, None)
    app.session_state["sign-decision"] = "refuse"
    app.switch_page("pages/verdict.py").run()
    assert not app.exception
    assert "Nothing was signed" in words(app)
    assert verdicts(home) == []
    assert PASSPHRASE not in str(app.session_state)


def test_a_press_signs_no_other_run_than_the_one_that_was_shown(home, world):
    app = filled(world, "refuse")
    app.sidebar.selectbox(key="revision").set_value(world.faulty.digest)  # arrives together with the press
    press(app)
    assert "Nothing was signed. Since the form was shown, these have changed: the run" in words(app)
    assert verdicts(home) == []


def test_an_approval_is_not_signed_as_a_refusal_when_evidence_fails_meanwhile(home, world, desk):
    artifact = home / "artifacts" / "one"
    artifact.mkdir(parents=True)
    (artifact / "artifact.json").write_text(json.dumps({"run": RUN}))
    app = filled(world, "approve", artifact="one")
    app.text_area(key="sign-comment").set_value("ship it")
    check = {"audit": "bench", "name": "x", "value": 1, "limit": 0, "unit": "answers", "count": 9, "status": "failed"}
    digest = artifacts(home / "artifacts")[0].digest
    document = {"format": 1, "kind": "bench", "artifact": digest, "created": "2026-12-01T00:00:00+00:00"}
    evidence = json.dumps({**document, "status": "failed", "checks": [check]})
    (home / "artifacts" / "one.bench.json").write_text(evidence)
    press(app)
    said = "these have changed: the evidence on the artifact, what may be decided"
    assert said in words(app)
    assert verdicts(home) == []
    assert app.radio(key="sign-decision").options == ["refuse"]
    assert app.text_area(key="sign-comment").value == "ship it"


def test_a_second_signature_is_not_given_to_a_verdict_that_the_form_did_not_show(home, world, desk, run):
    app = filled(world, "approve", key="bea")
    desk.sign(run, "ada", PASSPHRASE, "approve", "")
    press(app)
    assert "these have changed: the verdict on file" in words(app)
    assert signers(desk, run) == 1
    app.text_input(key="sign-passphrase").set_value(PASSPHRASE)
    press(app, "Add my signature")  # now it is shown
    assert signers(desk, run) == 2


def test_passphrases_that_were_left_behind_make_no_key(home, world, desk):
    app = opened("board", revision=world.sound.digest, run=RUN)
    for name in ("key-passphrase", "key-again"):
        app.session_state[f"taken {name}"] = PASSPHRASE
    app.session_state["key-person"] = "Cy"
    app.switch_page("pages/verdict.py").run()
    assert list(desk.keys()) == ["ada", "bea"]
    assert PASSPHRASE not in str(app.session_state)
