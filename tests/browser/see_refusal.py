"""Opens the dashboard at the given address and waits for the demo's refusal; fails when it is not served."""

from __future__ import annotations

import sys

from playwright.sync_api import expect, sync_playwright

from tests.browser.driving import CHROMIUM, FLAGS


def main(address: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(address)
        expect(page.get_by_text("service-decoder-1.1", exact=False).first).to_be_visible(timeout=120_000)
        refusal = page.get_by_text("Refused for cache parity", exact=False).first
        expect(refusal).to_be_visible(timeout=60_000)
        print("served:", refusal.inner_text())
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
