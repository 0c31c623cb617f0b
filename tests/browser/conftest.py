"""Browser tests need Chromium: where it is missing they are skipped with a word, under CI they fail."""

from __future__ import annotations

import os

import pytest

from tests.browser.accessibility import fetched, findings
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


@pytest.fixture(scope="session")
def axe_source(tmp_path_factory):
    """Source of axe-core from npm, None where it cannot be fetched."""
    return fetched(tmp_path_factory.mktemp("axe"))


@pytest.fixture
def axe(axe_source):
    """Source of axe-core; without it the test is skipped."""
    return axe_source or pytest.skip("axe-core cannot be fetched from npm here")


@pytest.fixture
def accessible(axe_source):
    """Asks that an open page have no serious finding in either theme; for tests that are about something else.

    Where axe-core cannot be fetched it asks nothing: that is said by the test that is about accessibility.
    """
    return lambda page: axe_source is None or _ask(page, axe_source)


def _ask(page, source):
    assert findings(page, source) == []


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
