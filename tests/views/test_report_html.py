"""The HTML report: whole in one file, silent on the network, deaf to markup in names."""

from __future__ import annotations

import re

import pytest

from auditlib.views.report import to_html
from tests.web.world import a_run, make_world

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=http://evil.example/a.png onerror=alert(3)>",
    '"><svg onload=alert(4)>',
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    home = tmp_path_factory.mktemp("hostile")
    return make_world(home, names=("opened", *PAYLOADS), session=PAYLOADS[0], revision=PAYLOADS[2])


def without_plotly(html):
    """The document without plotly's own code, which is not ours to judge."""
    return re.sub(r"<script>.*?</script>(?=</head>)", "", html, count=1, flags=re.DOTALL)


def test_the_report_is_one_file_of_at_most_six_megabytes_with_plotly_once(hostile):
    html = to_html(hostile.refused)
    assert len(html.encode()) <= 6_000_000
    assert html.count("plotly.js v") == 1
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", without_plotly(html))


def test_names_in_the_report_are_never_markup(hostile):
    html = without_plotly(to_html(hostile.refused))
    for payload in PAYLOADS:
        assert payload not in html
    assert "&lt;img src=http://evil.example/a.png" in html  # the revision's name is shown, letter by letter
    assert not re.search(r"<(svg|img)", html)


def test_the_report_forbids_itself_the_network(hostile):
    assert "Content-Security-Policy\" content=\"default-src 'none'" in to_html(hostile.refused)


def test_the_report_says_why_with_value_limit_and_count(hostile):
    html = to_html(hostile.refused)
    row = re.search(r"<tr><td>single events<td.*?</tr>", html).group()
    assert "0.31" in row
    assert "8.00e-6" in row
    assert "40" in row
    assert "✗ failed" in row


def test_an_approved_report_names_its_verdict_or_says_that_it_is_unsigned(hostile, tmp_path):
    run = a_run(tmp_path, hostile.sound, hostile.snapshot)
    assert "UNSIGNED" in to_html(run)
    assert "sha256:feed" in to_html(run, "sha256:feed")


def test_what_was_left_out_is_said_in_words(hostile, tmp_path):
    html = to_html(a_run(tmp_path, hostile.sound, hostile.snapshot, audits=("causality",)))
    assert "Not measured: left out" in html
    assert "– not measured" in html
