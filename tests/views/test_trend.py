"""One check over all runs: oldest first, other snapshots told apart, nothing that failed left out."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from auditlib.runs.folder import checks_of_all_runs
from auditlib.views import trend
from tests.web.world import a_run, make_world

HERE, OTHER = "sha256:here", "sha256:other"


def checks(*rows):
    """Rows (run, snapshot, value, limit, status) of one check."""
    names = ["run", "snapshot", "value", "limit", "status"]
    frame = pd.DataFrame(rows, columns=names)
    return frame.assign(
        created=frame["run"].map("2026-11-{}T09:00:00+00:00".format),
        revision_name="r",
        audit="cache parity",
        name="single events",
        unit="logit",
        count=40,
    )


def test_small_lines_hold_only_runs_of_the_same_snapshot_and_more_than_one():
    found = checks(
        ("01", OTHER, 9.0, 1.0, "failed"), ("02", HERE, 1.0, 1.0, "passed"), ("03", HERE, 2.0, 1.0, "failed")
    )
    assert trend.small_lines(found, HERE) == {("cache parity", "single events"): [1.0, 2.0]}
    assert trend.small_lines(found, OTHER) == {}
    assert trend.small_lines(pd.DataFrame(), HERE) == {}
    assert trend.elsewhere(found, HERE) == 1


def test_up_to_a_run_nothing_later_is_known():
    found = checks(*((number, HERE, 1.0, 1.0, "passed") for number in ("01", "02", "03")))
    assert trend.until(found, "02")["run"].tolist() == ["01", "02"]
    assert len(trend.until(found, "unknown")) == 3
    assert trend.until(pd.DataFrame(), "02").empty


def test_the_figure_draws_every_run_its_limit_and_where_the_snapshot_changed():
    found = checks(
        ("01", OTHER, 2e-6, 8e-6, "passed"),
        ("02", HERE, 0.31, 8e-6, "failed"),
        ("03", HERE, math.nan, 8e-6, "not measured"),
    )
    drawn = trend.over_runs(trend.of_check(found, "cache parity", "single events"), HERE, "t")
    marks = {trace.name: trace for trace in drawn.data}
    assert set(marks) == {"passed, other snapshot", "failed", "not measured", "limit"}
    assert marks["passed, other snapshot"].marker.symbol.endswith("-open")
    assert list(marks["limit"].y) == [8e-6] * 3
    assert marks["not measured"].y[0] is not None  # stands at the foot, not nowhere
    assert marks["not measured"].customdata[0][2] == "not finite"
    assert drawn.layout.yaxis.type == "log"
    assert [shape.x0 for shape in drawn.layout.shapes] == [0.5]


def test_a_check_that_allows_nothing_counts_from_zero():
    found = checks(("01", HERE, 0.0, 0.0, "passed"), ("02", HERE, 3.0, 0.0, "failed"))
    drawn = trend.over_runs(found, HERE, "t")
    assert drawn.layout.yaxis.type != "log"
    assert drawn.layout.yaxis.rangemode == "tozero"


@pytest.mark.parametrize("count", [1, trend.MOST_RUNS + 40])
def test_any_number_of_runs_can_be_drawn_the_newest_are_kept(count):
    found = checks(*((f"{number:03d}", HERE, 1e-6, 1e-5, "passed") for number in range(count)))
    kept = trend.of_check(found, "cache parity", "single events")
    assert len(kept) == min(count, trend.MOST_RUNS)
    assert kept["run"].iloc[-1] == f"{count - 1:03d}"
    assert trend.over_runs(kept, HERE, "t").data


def test_a_check_that_no_run_asked_for_says_so():
    assert trend.over_runs(trend.of_check(pd.DataFrame(), "a", "b"), HERE, "t").layout.annotations


def test_the_runs_own_table_is_what_is_drawn(tmp_path):
    world = make_world(tmp_path)
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-aaaaaaaa")
    found = trend.of_check(checks_of_all_runs(world.runs), "cache parity", "single events")
    assert found["value"].tolist() == [0.0, 0.31]
    assert [trace.name for trace in trend.over_runs(found, world.snapshot, "t").data] == ["passed", "failed", "limit"]


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], []),
        ([0.0, 0.0], [0.0, 0.0]),
        ([1.0, 3.0, 2.0], [1.0, 3.0, 2.0]),
        ([1e-6, 0.0, 10.0], [1.0, 0.0, 8.0]),
        ([-0.5, 100.0, 0.001], [-0.5, 100.0, 0.001]),
        ([float("nan"), 2.0], [0.0, 2.0]),
    ],
)
def test_bars_of_values_that_span_decades_stand_on_a_log_scale(values, bars):
    assert trend.heights(values) == pytest.approx(bars)


@pytest.mark.parametrize("count", [1, 12, 13, 30])
def test_the_newest_run_is_always_named_and_never_more_than_twelve(count):
    rows = pd.DataFrame({"revision_name": [f"r{n}" for n in range(count)], "created": "2026-12-01T03:05:53"})
    names = trend._names(rows)
    assert names[-1].startswith(f"r{count - 1}<br>")
    assert sum(bool(name) for name in names) <= 12
