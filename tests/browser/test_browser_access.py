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
def test_no_section_of_a_page_has_a_serious_finding_or_scrolls_sideways(served, axe, scheme):
    """One walk for all: opening every section takes longer than looking at it in three widths."""
    found = {}
    with browser(color_scheme=scheme) as (context, _):
        page = context.new_page()
        for name in PAGES:
            page.goto(f"{served}/{name}?events=1-6-3-4")
            settled(page)
            page.evaluate(axe)
            for section in sections(page):
                page.wait_for_timeout(500)
                violations = page.evaluate("async () => (await axe.run(document)).violations")
                found[name, section] = [line for violation in violations for line in serious(violation)]
                found[name, section] += list(too_wide(page)) if scheme == "light" else []
    assert {place: lines for place, lines in found.items() if lines} == {}


def too_wide(page):
    """Widths at which the open page can be scrolled sideways; afterwards it is as wide as before."""
    for width in (1024, 420, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        if page.evaluate("() => document.documentElement.scrollWidth - innerWidth") > 1:
            yield f"wider than {width}"


def serious(violation):
    if violation["impact"] not in {"serious", "critical"}:
        return
    for node in violation["nodes"]:
        where = " ".join(map(str, node["target"]))
        yield f"{violation['id']}: {where}: {node['html'][:200]}"
