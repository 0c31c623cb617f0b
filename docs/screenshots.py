"""Take the README's screenshots: every page of the demo, at three widths, light and dark. Needs Chromium.

python docs/screenshots.py [HOME]      HOME: where the demo is or will be made (default: var)
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from auditlib.demo.build import ensure_demo  # noqa: E402
from tests.browser.driving import browser, server, settled  # noqa: E402

OUT = ROOT / "docs" / "screenshots"
PAGES = ("board", "sessions", "causality", "cache_parity", "policies", "inspector", "verdict")
SHOTS = (
    *((page, 1440, "light") for page in PAGES),
    *((page, 1024, "light") for page in PAGES),
    *((page, 420, "light") for page in PAGES),
    ("board", 1440, "dark"),
    ("inspector", 1440, "dark"),
)
TALLEST = {1440: 1300, 1024: 1300, 420: 1600}
LARGEST_FILE = 200_000


def main() -> None:
    """Write docs/screenshots/<page>-<width>[-dark].png."""
    home = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "var"
    ensure_demo(home)
    OUT.mkdir(parents=True, exist_ok=True)
    with server(home) as url:
        for page, width, scheme in SHOTS:
            take(url, page, width, scheme)


def take(url: str, name: str, width: int, scheme: str) -> None:
    """One page as a picture; SystemExit when it is larger than a repository should carry."""
    with browser(width, TALLEST[width], color_scheme=scheme) as (context, _):
        page = context.new_page()
        page.goto(f"{url}/{name}")
        settled(page)
        page.wait_for_timeout(2500)  # figures draw after the run
        file = OUT / f"{name}-{width}{'-dark' if scheme == 'dark' else ''}.png"
        page.screenshot(path=file)
    if file.stat().st_size > LARGEST_FILE:
        raise SystemExit(f"{file} has {file.stat().st_size} bytes, more than {LARGEST_FILE}")
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
