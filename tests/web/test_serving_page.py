"""The serving page: what an artifact serves and what is off, its evidence, and words where nothing is there."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from auditlib.errors import IntegrityError
from auditlib.runs.evidence import bench_artifact, bench_plan, write_evidence
from auditlib.runs.package import PackageRequest, package_run
from auditlib.web import serving_facts
from tests.packed import failing, judged_run, small_artifact
from tests.small_gpt import write_small_revision
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A folder of two artifacts, a sound one with its bench and one whose cache is blocked."""
    root = tmp_path_factory.mktemp("packed")
    sound = small_artifact(root / "sound")
    folder = root / "artifacts"
    shutil.copytree(sound.folder, folder / "sound")
    plan = bench_plan(sound.policy, requests=24, levels=(2,))
    write_evidence(folder / "bench.json", bench_artifact(sound, plan))
    (folder / "other.json").write_text('{"kind": "shopping list"}')
    revision = write_small_revision(root / "again")
    run = judged_run(root / "runs", revision, failing("cache parity", "single events"))
    package_run(PackageRequest(run.folder, folder / "blocked", root / "again"))
    return folder


@pytest.fixture
def artifacts(place, packed, monkeypatch):
    monkeypatch.setenv("PREFIXGATE_ARTIFACTS", str(packed))
    return packed


def test_without_an_artifact_the_page_says_how_one_comes_about_and_still_plans(place):
    app = opened("serving")
    assert not app.exception
    assert "There is no artifact yet" in words(app)
    assert app.select_slider


def test_the_page_shows_what_is_served_and_what_was_measured(artifacts):
    app = opened("serving", artifact="sound")
    assert not app.exception
    said = words(app)
    assert "Nothing is blocked" in said
    assert "replay ARTIFACT" in said  # not measured yet
    assert "bench ARTIFACT" not in said
    assert {one.label: one.value for one in app.metric}["slots"] == "8"
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\W?\d\d UTC, ", said)  # when the bench was made
    assert "rows × events" in {one.label for one in app.metric}


def test_an_artifact_is_told_by_revision_run_and_digest_and_one_of_another_run_says_so(artifacts):
    app = opened("serving", artifact="sound")
    box = app.selectbox(key="artifact")
    assert all(" · 2026-11-30 12:00 UTC · " in label for label in box.options)
    assert not any("sound" in label or "blocked" in label for label in box.options)
    name = box.options[0].split(" · ")[0]
    assert f"The chosen run has no artifact; this one is of {name}, run of 2026-11-30 12:00 UTC." in words(app)


def test_the_page_shows_the_artifact_of_the_run_in_the_sidebar_and_follows_it(place, world, monkeypatch):
    monkeypatch.setenv("PREFIXGATE_ARTIFACTS", str(place / "artifacts"))
    other = a_run(place / "runs", world.faulty, world.snapshot, run_id="20261130T110000Z-0a1b2c3d")
    shutil.copytree(world.refused.folder, place / "runs" / world.refused.id)
    settings_for(monkeypatch, place, world.store, place / "runs")
    for folder, run in (("aa", "20200101T000000Z-00000000"), ("bb", other.id), ("cc", world.refused.id)):
        (place / "artifacts" / folder).mkdir(parents=True)
        said = {"run": run, "revision": {"name": f"made {folder}"}}
        (place / "artifacts" / folder / "artifact.json").write_text(json.dumps(said))
    app = opened("serving", revision=world.faulty.digest, run=world.refused.id)
    assert app.selectbox(key="artifact").value == "cc"
    assert "chosen run has" not in words(app)
    app.sidebar.selectbox(key="run").set_value(other.id).run()
    assert app.selectbox(key="artifact").value == "bb"
    app.selectbox(key="artifact").set_value("aa").run()
    assert "The chosen run has an artifact of its own; this one is of made aa, run of 2020-01-01" in words(app)


def test_what_the_run_blocks_is_said_with_its_reason(artifacts):
    app = opened("serving", artifact="blocked")
    assert any("cache acceleration" in one.value and "over limit" in one.value for one in app.warning)
    assert "bench ARTIFACT" in words(app)


def test_an_artifact_that_was_changed_is_not_shown_as_if_it_held(artifacts):
    shutil.copytree(artifacts / "sound", artifacts / "zz")
    path = artifacts / "zz" / "policy.json"
    path.write_bytes(path.read_bytes() + b" ")
    try:
        with pytest.raises(IntegrityError):
            serving_facts.opened(artifacts / "zz")
        app = opened("serving", artifact="zz")
        assert any("does not hold" in one.value for one in app.error)
    finally:
        shutil.rmtree(artifacts / "zz")


def test_the_planner_says_when_it_does_not_fit(artifacts):
    app = opened("serving", artifact="sound")
    before = {one.label: one.value for one in app.metric}["at the peak"]
    app.select_slider(key="plan-Requests at once").set_value(4096)
    app.select_slider(key="plan-Events a row may hold").set_value(8192)
    app.select_slider(key="plan-Layers").set_value(128).run()
    assert {one.label: one.value for one in app.metric}["at the peak"] != before
    assert any("does not fit" in one.value for one in app.error)


def test_evidence_is_the_newest_of_its_kind_about_this_artifact_and_nothing_else(packed, tmp_path):
    document = json.loads((packed / "bench.json").read_bytes())
    for name, changes in (
        ("old", {"created": "2026-01-01T00:00:00.000+00:00"}),
        ("new", {}),
        ("foreign", {"artifact": "sha256:" + "0" * 64}),
    ):
        write_evidence(tmp_path / f"{name}.json", {**document, **changes})
    (tmp_path / "torn.json").write_text('{"kind": "bench", ')
    write_evidence(tmp_path / "wrong.json", {**document, "status": "splendid"})
    found, problems = serving_facts.evidence(tmp_path, document["artifact"])
    assert found.keys() == {"bench"}
    assert found["bench"].path.name == "new.json"
    assert len(problems) == 1


def test_a_planner_starts_from_the_shape_that_was_found(packed):
    artifact = serving_facts.opened(packed / "sound")
    found, _ = serving_facts.evidence(packed, artifact.digest)
    by_bench = serving_facts.starting_plan(artifact, found["bench"])
    assert by_bench == serving_facts.starting_plan(artifact, None)  # the config says the same
    assert (by_bench.layers, by_bench.heads, by_bench.head_size, by_bench.itemsize) == (2, 2, 8, 4)
    assert serving_facts.starting_plan(None, None).peak > 0
