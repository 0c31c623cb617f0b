"""Figures in a browser: what no file tells, because Streamlit gives them their colours there."""

from __future__ import annotations

import re

import pytest

from tests.browser.driving import browser, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
_COLOURS = """() => ({
    page: getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor,
    words: [...document.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle')].map(
        element => getComputedStyle(element).fill),
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_on_axes_can_be_read_in_either_theme(served, scheme):
    with browser(color_scheme=scheme) as (context, _):
        page = context.new_page()
        page.goto(f"{served}/cache_parity")
        settled(page)
        page.locator(".ytick text").first.wait_for()
        found = page.evaluate(_COLOURS)
    assert len(found["words"]) > 4
    assert min(contrast(words, found["page"]) for words in found["words"]) >= 4.5


def contrast(one, other):
    """Contrast of two colours (WCAG 2.2, relative luminance)."""
    low, high = sorted(luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
