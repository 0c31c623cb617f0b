"""Rules mined, struck out and saved in the browser; an import taken out again; times on the viewer's clock."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from auditlib.demo.log import demo_log
from auditlib.events.order import EventOrder
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from tests.browser.driving import browser, server, settled
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def store(tmp_path):
    log, store = tmp_path / "desk.csv.gz", tmp_path / "sessions.duckdb"
    log.write_bytes(demo_log(sessions=80))
    import_log(log, store, mapping={"session": "session_id", "event": "event", "time": "timestamp"})
    with SessionStore.open(store, read_only=False) as opened:
        split(opened)
    return store


def test_rules_are_proposed_struck_out_and_saved_and_the_link_keeps_what_was_struck(
    store, window, tmp_path, accessible
):
    with server(tmp_path / "home", "--store", str(store)) as url:
        page = window.new_page()
        page.goto(f"{url}/sessions?section=Rules")
        settled(page)
        page.get_by_role("button", name="Propose rules").click()
        expect(page.get_by_text(re.compile(r"\d+ rules from \d+ training sessions"))).to_be_visible(timeout=60_000)
        settled(page)
        boxes = page.get_by_role("checkbox", name=re.compile("held-out session"))
        expect(boxes.first).to_be_visible(timeout=30_000)
        settled(page)
        count = boxes.count()
        assert count > 2
        accessible(page)
        page.get_by_text(re.compile(r"holds in .* of .*broken by")).first.click()
        expect(page.get_by_role("button", name=f"Save {count - 1} accepted rules")).to_be_visible(timeout=30_000)
        settled(page)
        with page.expect_download() as started:
            page.get_by_role("button", name=f"Save {count - 1} accepted rules").click()
        assert started.value.suggested_filename == "event_order.json"
        order = EventOrder.from_json(started.value.path().read_text(encoding="utf-8"))
        assert len(order.rules) == count - 1
        assert "struck=0" in page.url
        other = window.browser.new_context().new_page()
        other.goto(page.url)
        expect(other.get_by_role("button", name=f"Save {count - 1} accepted rules")).to_be_visible(timeout=60_000)


def test_the_newest_import_is_taken_out_again_after_a_second_look(store, window, tmp_path):
    with server(tmp_path / "home", "--store", str(store)) as url:
        page = window.new_page()
        page.goto(f"{url}/sessions")
        settled(page)
        page.get_by_role("button", name="Undo the newest import").click()
        expect(page.get_by_text(re.compile("Takes import 1, desk.csv.gz, out again: 80 sessions"))).to_be_visible()
        page.get_by_role("button", name="Take it out").click()
        expect(page.get_by_text(re.compile("Undo of import 1: finished"))).to_be_visible(timeout=60_000)
        expect(page.get_by_text("No log has been imported yet.")).to_be_visible(timeout=30_000)
    with SessionStore.open(store) as opened:
        assert opened.summary().sessions == 0
        assert opened.snapshot().held_out_sessions > 0  # what was frozen stays


@pytest.mark.parametrize(("zone", "shown"), [("Asia/Kolkata", "15:30 IST"), ("UTC", "10:00 UTC")])
def test_times_are_on_the_clock_of_whoever_looks(tmp_path, zone, shown):
    world = make_world(tmp_path / "world")
    with (
        server(tmp_path / "home", "--store", str(world.store), "--runs", str(world.runs)) as url,
        browser(timezone_id=zone) as (context, _),
    ):
        page = context.new_page()
        page.goto(url)
        expect(page.get_by_text(re.compile(f"of 2026-11-30 {shown}"))).to_be_visible(timeout=60_000)
        expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(
            re.compile(f"^2026-11-30 {shown} · ")
        )
