"""Figures of the self-check show every outcome, and say so when there is nothing to show."""

from __future__ import annotations

import pandas as pd

from auditlib.runs.self_check import COLUMNS
from auditlib.views.charts_self_check import caught_by_kind, margins, undrawn


def faults(*rows: tuple[str, str, str, float | None], limit: float = 1e-5) -> pd.DataFrame:
    lines = [
        {"fault": name, "kind": kind, "check": "single events", "outcome": outcome, "margin": margin, "limit": limit}
        for name, kind, outcome, margin in rows
    ]
    return pd.DataFrame(lines, columns=list(COLUMNS)).astype({"margin": float, "limit": float})


SOME = faults(
    ("stale", "cache parity", "caught", 3e5),
    ("faint", "cache parity", "missed", 0.5),
    ("<b>leak</b>", "causality", "caught", 12.0),
    ("copied", "reorder", "equivalent", None),
    ("keys", "reorder", "not applicable", None),
)


def test_each_kind_shows_what_became_of_its_faults_without_the_equivalent_ones():
    bars = {bar.name: dict(zip(bar.y, bar.x, strict=True)) for bar in caught_by_kind(SOME).data}
    assert bars["caught"] == {"cache parity": 1, "causality": 1, "reorder": 0}
    assert bars["missed"]["cache parity"] == 1
    assert bars["could not be tried"]["reorder"] == 1
    assert "equivalent" not in bars


def test_margins_stand_on_a_log_axis_and_misses_look_otherwise():
    drawn = margins(SOME)
    assert drawn.layout.xaxis.type == "log"
    marks = {trace.name: trace for trace in drawn.data}
    assert list(marks["caught"].x) == [3e5, 12.0]
    assert marks["missed"].marker.symbol != marks["caught"].marker.symbol


def test_a_missed_fault_that_moved_nothing_is_drawn_at_the_foot():
    found = pd.concat([SOME, faults(("mute", "causality", "missed", 0.0))])
    missed = next(trace for trace in margins(found).data if trace.name == "missed")
    assert [one[0] for one in missed.customdata] == ["faint", "mute"]
    assert missed.x[1] == min(missed.x)


def test_a_caught_fault_of_a_check_that_allows_nothing_never_stands_left_of_the_line():
    found = pd.concat([SOME, faults(("mask of -30", "causality", "caught", 3.7e-11), limit=0.0)])
    drawn = margins(found)
    assert all(x >= 1 for trace in drawn.data if trace.name == "caught" for x in trace.x)
    # Under the figure: a narrow screen cut the end of an axis title off.
    assert "1 fault of checks whose limit is 0" in undrawn(found)
    assert len(drawn.layout.xaxis.title.text) < 40
    assert undrawn(SOME) == ""


def test_names_of_faults_are_no_markup_in_a_figure():
    texts = [str(one) for trace in margins(SOME).data for one in trace.customdata]
    assert not any("<b>" in text for text in texts)


def test_a_run_without_faults_says_so():
    for empty in (pd.DataFrame(), faults()):
        for figure in (caught_by_kind(empty), margins(empty)):
            assert figure.layout.annotations or figure.layout.title.text
