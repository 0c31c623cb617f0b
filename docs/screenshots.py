"""Take the README's screenshots: every page of the demo, the board at three widths, two pages also dark.

python docs/screenshots.py [HOME]      HOME: where the demo is or will be made (default: var)
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import BrowserContext  # noqa: E402

from auditlib.demo.build import ensure_demo  # noqa: E402
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
LARGEST_FILE = 200_000


def main() -> None:
    """Write docs/screenshots/<page>-<width>[-dark].png."""
    home = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "var"
    ensure_demo(home)
    OUT.mkdir(parents=True, exist_ok=True)
    with server(home) as url:
        for width, height, scheme, pages in WINDOWS:
            with browser(width, height, color_scheme=scheme) as (context, _):
                for name in pages:
                    take(context, f"{url}/{name}", f"{name}-{width}{'-dark' if scheme == 'dark' else ''}.png")


def take(context: BrowserContext, url: str, name: str) -> None:
    """One page as a picture; SystemExit when it is larger than a repository should carry."""
    page, file = context.new_page(), OUT / name
    page.goto(url)
    settled(page)
    page.wait_for_timeout(2500)  # figures draw after the run
    page.screenshot(path=file)
    page.close()
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise SystemExit(f"{file} has {size} bytes, more than {LARGEST_FILE}")
    print(f"{file.relative_to(ROOT)}: {size // 1000} kB")


if __name__ == "__main__":
    main()
