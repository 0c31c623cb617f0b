"""Figures of a bench: bounds as they are, no height for what has none, and the machine's memory as a line."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from auditlib.serving.memory import MemoryPlan
from auditlib.views import charts_serving

COLUMNS = ["load", "arm", "measure", "share", "value", "low", "high", "count"]
BOUNDED = {"value": 10.0, "low": 8.0, "high": 14.0, "count": 60}
PLAN = MemoryPlan(64, 2, 4, 8, 4, 8)


def latencies(**changes):
    rows = [
        {"load": load, "arm": arm, "measure": measure, "share": share, **BOUNDED}
        for load in ("1 at once", "8 at once")
        for arm in ("cached", "full prefix")
        for measure in ("first event", "whole request")
        for share in (0.5, 0.95, 0.99)
    ]  # fmt: skip
    return pd.DataFrame([{**row, **changes} for row in rows], columns=COLUMNS)


def named(drawn, name):
    return next(trace for trace in drawn.data if trace.name == name)


def test_each_percentile_stands_with_its_bounds_and_the_limit_is_drawn_in():
    drawn = charts_serving.latency(latencies(), "first event", 25.0)
    cached = named(drawn, "cached, p95")
    assert list(cached.y) == [10.0, 10.0]
    assert list(cached.error_y.array) == [4.0, 4.0]
    assert list(cached.error_y.arrayminus) == [2.0, 2.0]
    assert drawn.layout.yaxis.type == "log"
    assert drawn.layout.shapes[0].y0 == 25.0
    assert len(drawn.data) == 7


def test_what_nobody_answered_has_no_height_and_what_is_not_bounded_no_bar():
    drawn = charts_serving.latency(latencies(value=math.nan, high=math.nan), "first event", None)
    assert all(height is None for trace in drawn.data for height in trace.y)
    drawn = charts_serving.latency(latencies(high=math.nan), "first event", None)
    assert list(named(drawn, "cached, p99").error_y.array) == [0.0, 0.0]
    assert "bounds 8 to –" in named(drawn, "cached, p99").hovertext[0]


def test_without_a_measurement_there_are_words():
    for drawn in (
        charts_serving.latency(pd.DataFrame(columns=COLUMNS), "first event", None),
        charts_serving.ratios(pd.DataFrame()),
    ):
        assert drawn.layout.annotations[0].text


def test_ratios_stand_around_one():
    table = pd.DataFrame(
        [{"load": "<b>1</b>", "measure": "throughput", "ratio": 2.0, "low": 1.0, "high": 4.0, "rounds": 5}]
    )
    trace = named(charts_serving.ratios(table), "throughput")
    assert (list(trace.y), list(trace.error_y.array), list(trace.error_y.arrayminus)) == ([2.0], [2.0], [1.0])
    assert trace.x[0] == "&lt;b&gt;1&lt;/b&gt;"


def test_memory_grows_with_requests_and_the_machine_is_a_line():
    plans = {"one": [replace(PLAN, concurrency=count) for count in (1, 10, 100)]}
    drawn = charts_serving.memory(plans, 2.5)
    assert list(named(drawn, "one").y) == [plan.peak / 1e9 for plan in plans["one"]]
    assert drawn.layout.shapes[0].y0 == 2.5
    assert drawn.data[-1].name == "this machine, 2.5 GB"
    assert "rows of 64 events" in named(drawn, "one").hovertext[0]
    assert (drawn.layout.xaxis.type, drawn.layout.yaxis.type) == ("log", "log")
