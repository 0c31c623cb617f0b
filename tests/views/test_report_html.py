"""The HTML report: whole in one file, silent on the network, deaf to markup in names."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest

from auditlib.events.event_map import EventMap
from auditlib.runs.origins import note_origin
from auditlib.runs.request import AuditRequest
from auditlib.views.event_names import with_names
from auditlib.views.report import _wrong_sequences, to_html
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


def in_row(name, html):
    """What stands beside a name in a two-column table."""
    return re.search(rf'<th scope="row">{name}<td[^>]*>([^<]*)', without_plotly(html)).group(1)


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
    assert "Content-Security-Policy\" content=\"default-src 'none'" in without_plotly(to_html(hostile.refused))


def test_the_report_says_why_with_value_limit_and_count(hostile):
    html = without_plotly(to_html(hostile.refused))
    row = re.search(r"<tr><td>single events<td.*?</tr>", html).group()
    assert "0.31" in row
    assert "8.00e-6" in row
    assert "40" in row
    assert "✗ failed" in row


def test_an_approved_report_names_its_verdict_or_says_that_it_is_unsigned(hostile, tmp_path):
    run = a_run(tmp_path, hostile.sound, hostile.snapshot)
    assert in_row("verdict", to_html(run)) == "UNSIGNED"
    assert in_row("verdict", to_html(run, "sha256:feed")) == "sha256:feed"


def test_what_was_left_out_is_said_in_words(hostile, tmp_path):
    html = without_plotly(to_html(a_run(tmp_path, hostile.sound, hostile.snapshot, audits=("causality",))))
    assert "Not measured: left out" in html
    assert "– not measured" in html


def noted(world, folder):
    """The world's refused run, with a note that its revision lies in `folder`."""
    note_origin(world.refused, AuditRequest(world.store, folder, world.runs))
    return world.refused


def test_prefixes_stand_in_the_report_by_their_names(tmp_path):
    world = make_world(tmp_path)
    html = without_plotly(to_html(noted(world, world.faulty.folder)))
    assert "assigned → closed" in html
    assert "3 assigned, 4 closed" in html
    assert not re.search(r"<td[^>]*>1(-[0-9]+)+<", html)


def test_a_prefix_in_a_note_stands_there_by_its_names_and_other_numbers_as_they_are():
    mapping = EventMap.build(["opened", "tested"])
    assert (
        with_names(mapping, "over in 1-3-4, of 1-2 or 2026-12-01") == "over in “opened → tested”, of 1-2 or 2026-12-01"
    )
    assert with_names(None, "over in 1-3-4") == "over in 1-3-4"
    assert (
        with_names(mapping, "row 0, event 1 is 3, the request has 44; prefill") == "row 0, event 1 is “opened”, "
        "the request has “<unused id 44>”; prefill"
    )


@pytest.mark.parametrize("elsewhere", ["nowhere", "another map"])
def test_without_the_map_that_it_was_measured_with_the_report_keeps_ids_and_says_so(elsewhere, tmp_path):
    world = make_world(tmp_path / "one")
    other = tmp_path / "none"
    if elsewhere == "another map":
        other = make_world(tmp_path / "two", names=("zero", "begun", "ended")).sound.folder
    html = without_plotly(to_html(noted(world, other)))
    assert "shown as ids" in html
    assert re.search(r"<td[^>]*>1(-[0-9]+)+<", html)
    assert "begun" not in html


def test_settings_that_nobody_proposed_come_last_and_are_called_comparisons(hostile):
    decision = {
        "cache_acceleration": "blocked",
        "decoding": {"greedy without order mask": "allowed", "greedy": "blocked"},
        "proposed": ["greedy"],
        "fallback": "full-prefix",
    }
    run = replace(hostile.refused, report={**hostile.refused.report, "decision": decision})
    rows = re.findall(r"<tr><th scope=\"row\">(decoding[^<]*)<td[^>]*>([a-z]+)", without_plotly(to_html(run)))
    expected = [
        ("decoding, greedy", "blocked"),
        ("decoding, greedy without order mask (comparison, not proposed)", "allowed"),
    ]
    assert rows == expected


def test_wrong_sequences_of_proposed_settings_come_first_and_a_report_without_any_says_so(hostile):
    html = _wrong_sequences(hostile.refused, sequences(("greedy bare", False), ("greedy", True)))
    assert html.index("<td>greedy<") < html.index("<td>greedy bare (comparison)<")
    assert "First 2 of 2 sequences with a wrong event" in html
    assert "No proposed setting" not in html
    assert "No proposed setting" in _wrong_sequences(hostile.refused, sequences(("greedy bare", False)))


def sequences(*settings):
    rows = [
        {"setting": name, "proposed": proposed, "session_id": "S1", "prefix": "1", "events": "1-3", "stop": "end",
         "rules": "init", "first_wrong": 0}
        for name, proposed in settings
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_names_and_numbers_are_never_broken_within_a_word(hostile):
    style = re.search(r"<style>(.*?)</style>", to_html(hostile.refused), re.DOTALL).group(1)
    assert "anywhere" not in re.search(r"\nth, td \{[^}]*\}", style).group()
