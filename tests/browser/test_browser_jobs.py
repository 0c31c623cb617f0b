"""Long work in a real browser: cancel, another person's browser, a restarted server."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.driving import browser, server, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE = 900_000


def start(context, url, revision, page_name="causality", button="Run causality only"):
    page = context.new_page()
    page.goto(f"{url}/{page_name}?revision={revision}")
    settled(page)
    # On the board each card of an unaudited revision has such a button too; the chosen one's comes last.
    page.get_by_role("button", name=button).last.click()
    page.wait_for_url(re.compile("job="), timeout=60_000)
    return page


def test_two_people_audit_two_revisions_and_neither_sees_the_others_result(served, world):
    with browser() as (one, watch_one), browser_of(one) as two:
        first = start(one, served, world.sound.digest)
        second = start(two, served, world.faulty.digest)
        for page, mine, other in ((first, "sound", "faulty"), (second, "faulty", "sound")):
            expect(page.get_by_text(re.compile(f"causality of {mine}.*finished. This page"))).to_be_visible(
                timeout=PATIENCE
            )
            expect(page.get_by_text(re.compile(f"causality of {other}"))).to_have_count(0)
            digest = getattr(world, mine).digest
            assert digest.replace(":", "%3A") in page.url or digest in page.url
            expect(page.get_by_text("causality: passed")).to_be_visible(timeout=60_000)
        assert watch_one.outgoing == []


def browser_of(context):
    """Another person's window in the same Chromium: nothing is shared but the server."""
    return context.browser.new_context(viewport={"width": 1200, "height": 900})


def test_a_job_is_cancelled_and_says_so(served, world, window, accessible):
    page = start(window, served, world.sound.digest, "board", "Run all audits")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(re.compile("cancelled. Nothing was written"))).to_be_visible(timeout=PATIENCE)
    accessible(page)
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_text(re.compile("cancelled. Nothing was written"))).to_have_count(0)


def test_after_a_restart_the_link_of_a_job_says_what_became_of_it(world, window, tmp_path):
    options = ("--store", str(world.store), "--runs", str(tmp_path / "runs"))
    with server(tmp_path / "home", *options) as url:
        page = start(window, url, world.sound.digest, "board", "Run all audits")
        link = page.url.removeprefix(url)
        page.close()
    with server(tmp_path / "home", *options) as url:
        page = window.new_page()
        page.goto(url + link)
        expect(page.get_by_text(re.compile("interrupted, because the server was restarted"))).to_be_visible(
            timeout=60_000
        )
        page.goto(f"{url}/board?job=ffffffffffff")
        expect(page.get_by_text(re.compile("does not know the job of this link"))).to_be_visible(timeout=60_000)


def test_progress_goes_on_while_another_page_is_looked_at(served, world, window):
    page = start(window, served, world.faulty.digest, "cache_parity", "Run cache parity only")
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("cache parity of faulty"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text(re.compile("cache parity of faulty.*finished. This page"))).to_be_visible(timeout=PATIENCE)
