"""From a log on one's own disk to a frozen split, without the command line."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from auditlib.demo.log import demo_log
from tests.browser.driving import server, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE = 120_000


def test_a_log_is_previewed_mapped_imported_and_split(window, tmp_path, accessible):
    log = tmp_path / "desk.csv"
    log.write_bytes(demo_log(sessions=60))
    with server(tmp_path / "home", "--store", str(tmp_path / "sessions.duckdb")) as url:
        page = window.new_page()
        page.goto(f"{url}/sessions")
        expect(page.get_by_text(re.compile("No store at .* yet"))).to_be_visible(timeout=PATIENCE)
        page.locator("input[type=file]").set_input_files(log)
        expect(page.get_by_role("combobox", name="Session", exact=True)).to_have_value("session_id", timeout=PATIENCE)
        expect(page.get_by_role("combobox", name="Time", exact=True)).to_have_value("timestamp")
        accessible(page)
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_text(re.compile("Import of desk.csv: finished"))).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_text("No row was left out.")).to_be_visible()
        page.get_by_role("tab", name="Split and leakage").click()
        page.get_by_role("button", name="Split", exact=True).click()
        expect(page.get_by_text(re.compile("Split of the store: finished"))).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_text(re.compile("No session and no key of the split stands on both sides"))).to_be_visible()
        expect(page.get_by_role("combobox", name="Snapshot for new audits")).to_have_value(re.compile("held out"))


def test_a_file_that_is_no_log_is_refused_in_words(window, tmp_path):
    log = tmp_path / "broken.csv"
    log.write_bytes(b"a,b\n1,2\n")
    with server(tmp_path / "home", "--store", str(tmp_path / "sessions.duckdb")) as url:
        page = window.new_page()
        page.goto(f"{url}/sessions")
        settled(page)
        page.locator("input[type=file]").set_input_files(log)
        expect(page.get_by_text(re.compile("no column has a usual name"))).to_be_visible(timeout=PATIENCE)
