"""The inspector under the hand: edit an event, offer the cache elsewhere, look at attention; each has its link."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.driving import choose, server
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]
CELLS = """() => [...document.querySelectorAll('.js-plotly-plot')].at(-1).data[0].z
  .map(row => row.filter(cell => cell !== null))"""
PREFIX = "1-6-3-4"  # opened, assigned, closed


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("world"))
    with server(world.home / "served", "--store", str(world.store), "--runs", str(world.runs)) as url:
        yield world, f"{url}/inspector?revision={world.faulty.digest}&events={PREFIX}"


def test_an_edited_event_shows_what_it_breaks_and_the_link_shows_it_to_others(place, window, accessible):
    page = window.new_page()
    page.goto(place[1])
    page.get_by_role("tab", name="What if").click(timeout=60_000)
    choose(page, "Edit", "replace")
    choose(page, "New event", "closed")
    expect(
        page.get_by_text(re.compile("After the edit, event 2, assigned, is illegal: not succession"))
    ).to_be_visible()
    expect(page.get_by_text(re.compile(r"Felt most after event \d, .*of the probability"))).to_be_visible()
    assert re.search(r"edit=replace.*place=1.*by=closed", page.url)
    accessible(page)

    other = window.browser.new_context().new_page()
    other.goto(page.url)
    expect(other.get_by_text(re.compile("After the edit, event 2, assigned, is illegal"))).to_be_visible(timeout=60_000)

    page.get_by_role("button", name="Go on from the edited prefix").click()
    expect(page.get_by_text("<start> → closed → assigned → closed").first).to_be_visible(timeout=30_000)
    assert "edit=replace" not in page.url


def test_the_cache_is_refused_for_another_request_with_the_field_and_taken_for_its_own(place, window):
    page = window.new_page()
    page.goto(f"{place[1]}&other=1-6-3-3-4")
    expect(page.get_by_text(re.compile("Rejected by its events"))).to_be_visible(timeout=60_000)
    expect(page.get_by_text("They part at event 3: the cache holds closed, the request has assigned.")).to_be_visible()
    expect(
        page.get_by_text(re.compile(r"Without the guard, the answer would have been [\d.]+ logit away"))
    ).to_be_visible()
    page.goto(f"{place[1]}&other=1-6-3")
    expect(page.get_by_text(re.compile("Rejected by its length"))).to_be_visible(timeout=60_000)
    page.goto(f"{place[1]}&other={PREFIX}-4")
    expect(page.get_by_text(re.compile("Accepted: the cache holds exactly"))).to_be_visible(timeout=60_000)
    page.goto(f"{place[1]}&other=1-999")
    expect(page.get_by_text(re.compile("does not know: .999"))).to_be_visible(timeout=60_000)


def test_attention_of_a_head_is_drawn_and_stands_in_the_link(place, window):
    page = window.new_page()
    page.goto(f"{place[1]}&layer=0&head=1")
    title = page.get_by_text("Attention of layer 0, head 1, full path")
    expect(title).to_be_visible(timeout=60_000)
    cells = page.evaluate(CELLS)
    assert [len(row) for row in cells] == [1, 2, 3, 4]
    assert all(abs(sum(row) - 1) < 1e-5 for row in cells)
    choose(page, "Head", "mean of all heads")
    expect(page.get_by_text("Attention of layer 0, mean of all heads, full path")).to_be_visible()
    assert "head=mean" in page.url
