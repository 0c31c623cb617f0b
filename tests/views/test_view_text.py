"""Text from outside, made fit to be shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.numbers import amount, number
from auditlib.views.text import duration, in_figure, in_html, in_markdown, in_spreadsheet, plural, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("closed", "closed"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("evil\u202egnp.exe", "evil\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("a\xa0b", "a\\xa0b"),
        ("nul\x00", "nul\\x00"),
        ("half \ud800", "half \\ud800"),
        ("größer → 漢字", "größer → 漢字"),
        (7, "7"),
    ],
)
def test_what_hides_or_reorders_is_shown_as_its_escape(text, shown):
    assert safe(text) == shown


def test_long_text_is_cut_and_says_so():
    assert safe("x" * 500, 10) == "x" * 10 + "…"


@given(st.text())
def test_safe_text_is_printable_and_on_one_line(text):
    assert safe(text).isprintable()


@given(st.text())
def test_html_and_figure_text_hold_no_tag_and_no_open_entity(text):
    for shown in (in_html(text), in_figure(text)):
        assert not re.search("[<>]", shown)
        assert all(re.match(r"&(amp|lt|gt|quot|#x27);", shown[at.start() :]) for at in re.finditer("&", shown))


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_every_mark_of_markdown_is_behind_a_backslash(text):
    shown = re.sub(r"\\[!-/:-@\[-`{-~]", "", in_markdown(text))
    assert not re.search(r"[!-/:-@\[-`{-~]", shown)


@pytest.mark.parametrize("text", ["http://evil.example", "www.evil.example", "a@evil.example", ":material/check:"])
def test_links_and_icons_that_are_found_in_plain_text_are_broken_up(text):
    bare = in_markdown(text).replace("\\", "")
    assert text not in bare
    assert bare.replace("\N{WORD JOINER}", "") == text


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1+cmd|' /C calc'!A0",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "＝1",
        "＠x",
        " =1",
        '"=1',
        "a;=1",
        "a,\t=1",
        "a\n=1",
    ],
)
def test_formulas_are_guarded_wherever_a_cell_may_begin(text):
    assert "'" in in_spreadsheet(text)
    assert in_spreadsheet(text).replace("'", "") == text.replace("'", "")


@pytest.mark.parametrize("text", ["closed", "1-3-4", "a = b", "x@y", "in-progress", ""])
def test_harmless_text_is_left_alone(text):
    assert in_spreadsheet(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        (0, "0"),
        (12345, "12,345"),
        (1e-5, "1.00e-5"),
        (2.5e-12, "2.50e-12"),
        (3.5e7, "3.50e+7"),
        (0.25, "0.25"),
        (977_241.3, "977,241"),
        (-12345.6, "-12,346"),
        (9999.96, "10,000"),
        (9999.4, "9999"),
    ],
)
def test_numbers_are_short_and_never_in_micro(value, shown):
    assert number(value) == shown


def test_plurals_follow_the_count():
    assert plural(1, "row") == "1 row"
    assert plural(2000, "row") == "2,000 rows"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 seconds"), (0.25, "250 ms"), (1, "1 second"), (90, "1.5 minutes"), (3600, "1 hour"), (125_040, "1.45 days"),
     (86_400 * 400, "400 days")],
)  # fmt: skip
def test_a_length_of_time_stands_in_its_largest_unit(seconds, shown):
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("value", "said"), [(float("nan"), "not finite"), (float("-inf"), "not finite"), (2e-6, "2.00e-6")]
)
def test_a_sentence_says_of_a_number_that_is_none_that_it_is_not_finite(value, said):
    assert amount(value) == said
