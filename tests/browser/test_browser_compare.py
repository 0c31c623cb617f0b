"""Two revisions side by side: what flipped, with a link that leads to it, and a link that holds both runs."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from playwright.sync_api import expect

from auditlib.runs.folder import write_run
from tests.browser.driving import server, settled
from tests.web.world import a_run, make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair_of_runs(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("pair"))
    sound = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-aaaaaaaa")
    faulty = with_sessions(world.refused, world, gap=0.31, run_id="20261130T110000Z-bbbbbbbb")
    sound = with_sessions(sound, world, gap=1e-6, run_id="20261130T090000Z-cccccccc")
    elsewhere = with_sessions(sound, world, gap=1e-6, run_id="20261130T080000Z-dddddddd", snapshot="sha256:" + "e" * 64)
    return world, sound, faulty, elsewhere


def with_sessions(run, world, gap, run_id, snapshot=None):
    """The run written anew with one session's gap in its tables, on another snapshot if asked."""
    manifest = {**json.loads(json.dumps(run.manifest)), "run": run_id}
    manifest.pop("files")
    report = {**json.loads(json.dumps(run.report)), "run": run_id}
    if snapshot:
        manifest["snapshot"]["digest"] = report["snapshot"] = snapshot
    frame = pd.DataFrame({"session_id": ["S002"], "events": ["1-6-3-4"], "ratio": [1.0], "gap": [gap], "weight": [3]})
    return write_run(
        world.runs, run_id, manifest=manifest, report=report, tables={("numerics", "sessions"): frame}, policy=b"{}"
    )


def test_a_flip_is_shown_first_and_leads_to_its_prefix_under_the_revision_that_fails(pair_of_runs, window, tmp_path):
    world, sound, faulty, elsewhere = pair_of_runs
    with server(tmp_path, "--store", str(world.store), "--runs", str(world.runs)) as url:
        page = window.new_page()
        page.goto(f"{url}/compare?revision={world.faulty.digest}&run={faulty.id}&against={sound.id}")
        expect(page.get_by_text("1 flip for the worse, 0 flips for the better.")).to_be_visible(timeout=60_000)
        settled(page)
        expect(page.get_by_role("heading", name="Before: sound")).to_be_visible()
        assert f"against={sound.id}" in page.url
        assert f"run={faulty.id}" in page.url

        # somebody else opens the copied link and sees the same two runs
        other = window.browser.new_context().new_page()
        other.goto(page.url)
        expect(other.get_by_role("heading", name="After: faulty")).to_be_visible(timeout=60_000)
        expect(other.get_by_text("1 flip for the worse, 0 flips for the better.")).to_be_visible(timeout=60_000)

        page.get_by_role("link", name=re.compile(r"^S002, gap .* \(worse, within tolerance\)")).click()
        expect(page.get_by_text("<start> → opened → assigned → closed")).to_be_visible(timeout=60_000)
        assert world.faulty.digest.removeprefix("sha256:") in page.url

        # another snapshot is another set of sessions: refused in words, nothing paired
        page.goto(f"{url}/compare?revision={world.faulty.digest}&run={faulty.id}&against={elsewhere.id}")
        expect(
            page.get_by_text(re.compile("Not compared: the runs measured different held-out snapshots"))
        ).to_be_visible(timeout=60_000)
        assert page.get_by_role("tab", name="Sessions that flip").count() == 0


def test_a_flip_is_reached_and_opened_by_the_keyboard_alone(pair_of_runs, window, tmp_path):
    world, sound, faulty, _ = pair_of_runs
    with server(tmp_path, "--store", str(world.store), "--runs", str(world.runs)) as url:
        page = window.new_page()
        page.goto(f"{url}/compare?revision={world.faulty.digest}&run={faulty.id}&against={sound.id}")
        expect(page.get_by_text("1 flip for the worse, 0 flips for the better.")).to_be_visible(timeout=60_000)
        expect(page.get_by_role("button", name="JSON").last).to_be_visible(timeout=60_000)
        settled(page)
        link = page.get_by_role("link", name=re.compile(r"\(worse, within tolerance\)"))
        for _ in range(80):
            page.keyboard.press("Tab")
            if link.evaluate("it => it === document.activeElement"):
                break
        expect(link).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Prefix inspector")).to_be_visible(timeout=60_000)
