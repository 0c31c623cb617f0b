"""Accessibility: axe-core finds nothing serious, and no page is wider than a phone."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.browser.driving import ROOT, browser, sections, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = tuple(sorted(path.stem for path in (ROOT / "pages").glob("*.py")))


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """Source of axe-core from npm."""
    folder = tmp_path_factory.mktemp("axe")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: axe-core cannot be fetched")
    command = [
        npm,
        "install",
        "--silent",
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        "--prefix",
        str(folder),
        "axe-core@4",
    ]
    if subprocess.run(command, capture_output=True, check=False, timeout=180).returncode:
        pytest.skip("axe-core cannot be fetched from npm here")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_finding(served, axe, scheme):
    found = {}
    with browser(color_scheme=scheme) as (context, _):
        for name in PAGES:
            page = context.new_page()
            page.goto(f"{served}/{name}?events=1-6-3-4")
            settled(page)
            page.evaluate(axe)
            for section in sections(page):
                page.wait_for_timeout(800)
                violations = page.evaluate("async () => (await axe.run(document)).violations")
                found[name, section] = [line for violation in violations for line in serious(violation)]
            page.close()
    assert {name: lines for name, lines in found.items() if lines} == {}


def serious(violation):
    if violation["impact"] not in {"serious", "critical"}:
        return
    for node in violation["nodes"]:
        where = " ".join(map(str, node["target"]))
        yield f"{violation['id']}: {where}: {node['html'][:200]}"


@pytest.mark.parametrize("width", [1440, 1024, 420])
def test_no_page_scrolls_sideways(served, width):
    with browser(width, 900) as (context, _):
        for name in PAGES:
            page = context.new_page()
            page.goto(f"{served}/{name}?events=1-6-3-4")
            settled(page)
            for section in sections(page):
                page.wait_for_timeout(500)
                over = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
                assert over <= 1, (name, section)
            page.close()
