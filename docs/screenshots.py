"""Take the README's screenshots: every page of the demo, the board at three widths, two pages also dark.

python docs/screenshots.py [HOME]      HOME: where the demo is or will be made (default: var)
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import BrowserContext, Page  # noqa: E402

from auditlib.audits.device import settle_threads  # noqa: E402
from auditlib.demo.build import ensure_demo  # noqa: E402
from auditlib.demo.places import Demo  # noqa: E402
from auditlib.runs.execute import run_audits  # noqa: E402
from auditlib.runs.folder import list_runs  # noqa: E402
from auditlib.runs.request import AuditRequest  # noqa: E402
from tests.browser.driving import browser, server, settled  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
PAGES = tuple(sorted(path.stem for path in (ROOT / "pages").glob("*.py")))
# width, height of the window, colour scheme, pages
WINDOWS = (
    (1440, 1300, "light", PAGES),
    (1024, 1300, "light", ("board",)),
    (420, 1600, "light", ("board",)),
    (1440, 1300, "dark", ("board", "inspector")),
)
# address, section whose tab is scrolled to, file
PARTS = (
    ("inspector?edit=replace&place=3&by=closed", "What if", "what_if-1440.png"),
    ("sessions?support=0.99", "Rules", "rules-1440.png"),
)
LARGEST_FILE = 200_000


def main() -> None:
    """Write docs/screenshots/<page>-<width>[-dark].png."""
    home = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "var"
    settle_threads()
    _audit_both(ensure_demo(home))
    OUT.mkdir(parents=True, exist_ok=True)
    with server(home) as url:
        for width, height, scheme, pages in WINDOWS:
            with browser(width, height, color_scheme=scheme) as (context, _):
                for name in pages:
                    take(context, f"{url}/{name}", f"{name}-{width}{'-dark' if scheme == 'dark' else ''}.png")
        with browser(1440, 1300, color_scheme="light") as (context, _):
            for address, section, name in PARTS:
                take(context, f"{url}/{address}", name, section)


def _audit_both(demo: Demo) -> None:
    """A run of the sound revision too: a comparison needs two."""
    if len({run.revision for run in list_runs(demo.runs)}) < 2:
        run_audits(AuditRequest(demo.store, demo.sound, demo.runs))


def _drawn(page: Page) -> None:
    """Wait until nothing is left of the grey bars that stand for what is to come; SystemExit for a broken page."""
    page.wait_for_function("() => !document.querySelector('[data-testid=stSkeleton]')", timeout=60_000)
    page.wait_for_timeout(2500)  # figures fade in
    if page.locator("[data-testid=stException]").count():
        raise SystemExit(f"{page.url} shows an exception")


def take(context: BrowserContext, url: str, name: str, section: str | None = None) -> None:
    """One page as a picture, from a section's tab on; SystemExit when it is larger than a repository should carry."""
    page, file = context.new_page(), OUT / name
    page.goto(url)
    settled(page)
    _drawn(page)
    if section is not None:
        page.get_by_role("tab", name=section, exact=True).evaluate("it => it.scrollIntoView()")
        _drawn(page)
    page.screenshot(path=file)
    page.close()
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise SystemExit(f"{file} has {size} bytes, more than {LARGEST_FILE}")
    print(f"{file.relative_to(ROOT)}: {size // 1000} kB")


if __name__ == "__main__":
    main()
