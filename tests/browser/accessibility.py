"""What axe-core finds on a page that is open, in both themes: opening it once more in the other would take longer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

_OF_COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
"""Rules whose answer depends on the theme; the others are asked in one theme only."""
_THEMES = (("dark", _OF_COLOURS), ("light", {}))
_IS_LIGHT = """light => {
    const colour = getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor;
    return (colour.match(/[0-9]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) > 382) === light;
}"""

_RUN = "async options => (await axe.run(document, {...options, resultTypes: ['violations']})).violations"


def fetched(folder: Path) -> str | None:
    """Source of axe-core from npm, put into the folder; None where npm or its registry is not to be had."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    quiet = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
    done = subprocess.run(
        [npm, "install", *quiet, "--prefix", str(folder), "axe-core@4"], capture_output=True, check=False, timeout=180
    )
    if done.returncode:
        return None
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, source: str) -> list[str]:
    """Serious and critical findings on the open page, in dark and in light; it is light afterwards."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(source)
    found = []
    for theme, options in _THEMES:
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(_IS_LIGHT, arg=theme == "light", timeout=30_000)
        page.wait_for_timeout(250)  # colours of buttons change by and by
        violations = page.evaluate(_RUN, options)
        found += [f"{theme}: {line}" for violation in violations for line in _serious(violation)]
    return found


def _serious(violation: dict) -> Iterator[str]:
    if violation["impact"] not in {"serious", "critical"}:
        return
    for node in violation["nodes"]:
        where = " ".join(map(str, node["target"]))
        yield f"{violation['id']}: {where}: {node['html'][:200]}"
