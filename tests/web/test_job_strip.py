"""What a page does when a background job ended: for whom it turns, where it never does, and what a failure says."""

from __future__ import annotations

import json
import time

import pytest
from streamlit.testing.v1 import AppTest

from auditlib.errors import InputError
from auditlib.release.signing import new_key
from auditlib.sessions.importers import import_log
from auditlib.sessions.store import SessionStore
from auditlib.web import state, work
from tests.web.opening import ROOT, opened, settings_for, words
from tests.web.world import a_run, make_world

JOB = "0123456789ab"
OTHER = "20261130T110000Z-0a1b2c3e"
PASSPHRASE = "correct horse"


@pytest.fixture
def two_runs(world, tmp_path, monkeypatch):
    """A place with two runs of the sound revision, approved both, and a key."""
    runs = [a_run(tmp_path / "runs", world.sound, world.snapshot), None]
    runs[1] = a_run(tmp_path / "runs", world.sound, world.snapshot, run_id=OTHER)
    new_key(tmp_path / "keys" / "ada.pem", "Ada", PASSPHRASE.encode(), tmp_path / "trust.json")
    settings_for(monkeypatch, tmp_path, world.store, tmp_path / "runs")
    return runs


def wait_for(job_id):
    deadline = time.monotonic() + 30
    while state.registry().state(job_id).live and time.monotonic() < deadline:
        time.sleep(0.01)
    return state.registry().state(job_id)


def shown(app):
    return app.sidebar.selectbox(key="run").value


def test_the_link_of_a_job_that_has_ended_shows_the_run_that_it_names(two_runs, world, tmp_path):
    first, second = two_runs
    record = {"title": "all audits", "state": "done", "result": f"run {second.id} {world.sound.digest}"}
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / f"{JOB}.json").write_text(json.dumps(record))
    app = opened("board", revision=world.sound.digest, run=first.id, job=JOB)
    assert shown(app) == first.id
    assert "all audits: finished." in words(app)
    assert "This page shows its results" not in words(app)
    app.button(key="show-result").click().run()
    assert shown(app) == second.id
    assert "This page shows its results" in words(app)


@pytest.mark.parametrize(("page", "turns"), [("causality", True), ("verdict", False)])
def test_a_job_that_was_watched_turns_the_page_but_never_the_one_that_signs(two_runs, world, page, turns):
    first, second = two_runs
    gate = [False]

    def auditing(progress):
        while not gate[0]:
            progress(1, 2, "auditing")
            time.sleep(0.01)
        return f"run {second.id} {world.sound.digest}"

    job = state.registry().submit("k", "all audits", auditing)
    app = opened(page, revision=world.sound.digest, run=first.id, job=job.id)
    assert shown(app) == first.id
    gate[0] = True
    assert wait_for(job.id).state == "done"
    app.run()
    assert shown(app) == (second if turns else first).id
    assert bool([button for button in app.button if button.key == "show-result"]) != turns
    app.run()
    assert shown(app) == (second if turns else first).id


def test_a_demo_that_fails_says_why_and_is_not_made_again_unasked(tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path, "", "")
    tried = demo_that_fails(monkeypatch)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    for _ in range(3):
        wait_for(state.registry().newest("demo").id)
        app.run()
    assert len(tried) == 1
    assert "Preparing the demo: failed. no space left on device" in words(app)
    app.button(key="demo-again").click().run()
    wait_for(state.registry().newest("demo").id)
    assert len(tried) == 2


def test_a_demo_that_lost_its_store_and_could_not_be_made_again_says_why(tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path, "", "")
    (tmp_path / "demo").mkdir()
    make_world(tmp_path / "made").runs.rename(tmp_path / "demo" / "runs")
    demo_that_fails(monkeypatch)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert "failed" not in words(app)
    app.button(key="demo-again").click().run()
    wait_for(state.registry().newest("demo").id)
    app.run()
    assert [title.value for title in app.title] == ["The demo's store is gone"]
    assert "Preparing the demo: failed. no space left on device" in words(app)


def demo_that_fails(monkeypatch):
    """Let the making of the demo fail from now on; a list of the tries so far."""
    tried = []

    def failing(_settings):
        def work_of_it(_progress):
            tried.append(1)
            raise InputError("no space left on device")

        return work_of_it

    monkeypatch.setattr(work, "demo", failing)
    return tried


def a_log(folder, name):
    path = folder / f"{name}.csv"
    path.write_text(f"s,e,t\n{name},open,2026-01-01 10:00:00+00:00\n{name},close,2026-01-02 10:00:00+00:00\n")
    return path


MAPPING = {"session": "s", "event": ("e",), "time": "t"}


@pytest.mark.parametrize("overtaken", [True, False])
def test_only_the_import_that_was_shown_is_taken_out(tmp_path, monkeypatch, overtaken):
    store = tmp_path / "store.duckdb"
    import_log(a_log(tmp_path, "mine"), store, mapping=MAPPING)
    settings_for(monkeypatch, tmp_path / "home", store, tmp_path / "runs")
    app = opened("sessions", section="Imports")
    press = next(button for button in app.button if button.label == "Take it out")
    if overtaken:
        import_log(a_log(tmp_path, "of_a_colleague"), store, mapping=MAPPING)
    press.click().run()
    for job in state.registry().live():
        wait_for(job.id)
    with SessionStore.open(store) as opened_store:
        left = [one.source for one in opened_store.imports()]
    assert left == (["mine.csv", "of_a_colleague.csv"] if overtaken else [])
    if overtaken:
        assert "Nothing was taken out: import 1 is not the newest any more, import 2 is." in words(app)
