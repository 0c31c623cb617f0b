"""Links: through the same door on a fresh server, and carrying the whole state."""

from __future__ import annotations

import ast
import re

import pytest
from playwright.sync_api import expect

from tests.browser.driving import ROOT, server, settled

pytestmark = pytest.mark.browser
PAGES = sorted((ROOT / "pages").glob("*.py"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_file_goes_through_the_door_before_it_does_anything(path):
    body = ast.parse(path.read_text(encoding="utf-8")).body
    doing = [node for node in body if not isinstance(node, (ast.Import, ast.ImportFrom)) and not docstring(node)]
    named = [node for node in doing if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))]
    assert ast.unparse(named[0]) in {"here = shell.enter()", "shell.enter()"}


def docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("name", ["verdict", "inspector"])
def test_a_deep_link_on_a_fresh_server_passes_through_the_shell(world, window, tmp_path, name):
    with server(tmp_path, "--store", str(world.store), "--runs", str(world.runs)) as url:
        page = window.new_page()
        page.goto(f"{url}/{name}?revision={world.sound.digest}")
        expect(page.get_by_role("combobox", name="Revision", exact=True)).to_be_visible(timeout=60_000)
        settled(page)
        assert page.get_by_role("heading", level=1).count() == 1
        expect(page.locator("[data-testid=stSidebarNavLink]")).to_have_count(len(PAGES))
        expect(page.get_by_role("combobox", name="Revision", exact=True)).to_have_value("sound · not audited")


def test_the_board_loads_no_code_that_its_page_has_not_named_from_the_start(served, window):
    page = window.new_page()
    sent = page.goto(served)
    expect(page.locator("[data-testid=stDataFrame] canvas").first).to_be_visible(timeout=60_000)
    settled(page)
    loaded = page.evaluate("performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)")
    scripts = {path for path in loaded if path.endswith(".js")}
    assert len(scripts) > 50
    assert {path for path in scripts if f'"./{path[1:]}"' not in sent.text()} == set()


def test_a_copied_link_shows_another_person_the_very_same_prefix_and_step(served, world, window):
    page = window.new_page()
    page.goto(f"{served}/inspector?revision={world.faulty.digest}&events=1-6-3-4&section=What comes next")
    expect(page.get_by_text("<start> → opened → assigned → closed")).to_be_visible(timeout=60_000)
    settled(page)
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile("step=3"), timeout=30_000)
    link = page.url
    other = window.browser.new_context().new_page()
    other.goto(link)
    expect(other.get_by_text("<start> → opened → assigned → closed")).to_be_visible(timeout=60_000)
    expect(other.get_by_text("2. assigned").first).to_be_visible(timeout=30_000)
    assert {part.split("=")[0] for part in link.split("?")[1].split("&")} >= {"revision", "run", "snapshot", "events"}


def test_the_back_button_returns_to_the_revision_that_was_shown_before(served, world, window):
    page = window.new_page()
    page.goto(f"{served}/board?revision={world.faulty.digest}")
    expect(page.get_by_role("heading", name="Checks of faulty")).to_be_visible(timeout=60_000)
    settled(page)
    page.get_by_role("button", name="Show checks").nth(1).click()
    expect(page.get_by_role("heading", name="Checks of sound")).to_be_visible(timeout=30_000)
    page.go_back()
    expect(page.get_by_role("heading", name="Checks of faulty")).to_be_visible(timeout=30_000)


def test_a_foreign_host_name_is_turned_away(served):
    import http.client  # noqa: PLC0415

    address = served.removeprefix("http://")
    for host, allowed in ((address, True), ("evil.example", False)):
        connection = http.client.HTTPConnection(address, timeout=10)
        connection.putrequest("GET", "/_stcore/stream", skip_host=True)
        for name, text in (
            ("Host", host),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ):
            connection.putheader(name, text)
        connection.endheaders()
        status = connection.getresponse().status
        connection.close()
        assert (status == 101) is allowed, (host, status)
