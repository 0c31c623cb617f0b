"""Browser tests need Chromium: where it is missing they are skipped with a word, under CI they fail."""

from __future__ import annotations

import os

import pytest

from tests.browser.driving import browser, missing, server
from tests.web.world import make_world


def pytest_collection_modifyitems(items):
    reason = missing()
    for item in items:
        if reason and "browser" in item.keywords and not os.environ.get("CI"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def chromium_is_there():
    reason = missing()
    if reason:
        pytest.fail(f"{reason}; under CI browser tests may not be skipped")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def served(world):
    """Address of a server that looks at the world."""
    with server(world.home / "served", "--store", str(world.store), "--runs", str(world.runs)) as url:
        yield url


@pytest.fixture
def window():
    """A browser window; afterwards nothing may have left this machine, asked, or broken, on a page or in its code."""
    with browser() as (context, watched):
        yield context
        # An exception of a page's own code stands in the page, where no browser counts it as an error.
        broken = [page.url for page in context.pages if page.locator("[data-testid=stException]").count()]
    assert broken == []
    assert watched.outgoing == []
    assert watched.dialogs == []
    assert watched.errors == []
