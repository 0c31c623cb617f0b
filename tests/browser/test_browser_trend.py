"""The past of a check: which revision broke it, on which snapshot."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.driving import server, settled
from tests.web.world import a_run, make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]
POINTS = """() => [...document.querySelectorAll('.js-plotly-plot')].at(-1).data
  .filter(trace => trace.mode === 'markers').map(trace => [trace.name, trace.x.length])"""


def test_the_board_shows_the_failed_check_over_the_revisions_and_another_one_by_link(window, tmp_path):
    world = make_world(tmp_path / "world")
    a_run(world.runs, world.sound, world.snapshot, run_id="20261129T090000Z-aaaaaaaa")
    a_run(world.runs, world.sound, "sha256:" + "e" * 64, run_id="20261128T090000Z-bbbbbbbb")
    with server(tmp_path / "home", "--store", str(world.store), "--runs", str(world.runs)) as url:
        page = window.new_page()
        page.goto(url)
        page.get_by_role("tab", name="Trend").click(timeout=60_000)
        expect(page.get_by_role("combobox", name="Check", exact=True)).to_have_value(
            "cache parity: single events", timeout=60_000
        )
        settled(page)
        expect(page.get_by_text("1 run on another snapshot: hollow marks")).to_be_visible()
        page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot .point').length >= 3")
        assert sorted(page.evaluate(POINTS)) == [["failed", 1], ["passed", 1], ["passed, other snapshot", 1]]

        page.goto(f"{url}/board?check=causality: exhaustive next event")
        expect(page.get_by_role("combobox", name="Check", exact=True)).to_have_value(
            "causality: exhaustive next event", timeout=60_000
        )
