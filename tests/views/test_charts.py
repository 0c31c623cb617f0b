"""Figures: nothing hidden, nothing invented, no text run as markup."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from auditlib.views import charts, charts_compare, charts_inspector, charts_policies, charts_sessions, charts_whatif
from auditlib.views.figure import INK, bottom, on_log
from tests.web.world import TOLERANCE, rates, tables

HOSTILE = "<a href='http://evil.example/x'><img src=http://evil.example/p.png></a>"
TABLES = tables()


def words_of(figure):
    return json.dumps(json.loads(figure.to_json()), ensure_ascii=False)


def test_zero_gaps_stay_on_a_log_axis_and_hover_tells_the_exact_number():
    low = bottom([0.0, 2e-6])
    assert on_log([0.0, 2e-6], low) == [low, 2e-6]
    figure = charts.gap_by_step(TABLES["cache parity", "steps"], TOLERANCE, TOLERANCE / 4)
    median = next(trace for trace in figure.data if trace.name == "median")
    assert median.customdata[0][0] == "0"
    assert min(median.y) > 0


def test_a_gap_that_is_not_a_number_leaves_a_hole_and_says_so():
    steps = TABLES["cache parity", "steps"].assign(worst=[1e-6, np.nan, np.inf])
    worst = next(trace for trace in charts.gap_by_step(steps, TOLERANCE, None).data if trace.name == "worst")
    assert list(worst.y) == [1e-6, None, None]
    assert worst.customdata[1][0] == "not finite"


def test_the_gap_plot_draws_tolerance_and_noise_floor_and_names_their_values():
    figure = charts.gap_by_step(TABLES["cache parity", "steps"], 8e-6, 2e-6)
    assert sorted(shape.y0 for shape in figure.layout.shapes) == [2e-6, 8e-6]
    assert {"tolerance 8.00e-6", "noise floor 2.00e-6"} <= {trace.name for trace in figure.data}
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis.exponentformat == "e"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: charts.gap_by_step(pd.DataFrame(), None, None),
        lambda: charts.changes_by_position(pd.DataFrame()),
        lambda: charts.checks_on_log(pd.DataFrame({"limit": [], "value": []}), "t"),
        lambda: charts.ratio_by_session(pd.DataFrame(), 1.25),
        lambda: charts.baselines(pd.DataFrame()),
        lambda: charts_policies.invalid_rates(pd.DataFrame()),
        lambda: charts_policies.stops(pd.DataFrame()),
        lambda: charts_policies.duplication(pd.DataFrame()),
        lambda: charts_sessions.lengths(pd.DataFrame()),
        lambda: charts_sessions.durations(pd.DataFrame(), 5),
        lambda: charts_sessions.durations(pd.DataFrame({"side": ["training"], "bin": [None], "sessions": [3]}), 5),
        lambda: charts_sessions.starts(pd.DataFrame(), "day"),
        lambda: charts_sessions.transitions([], np.zeros((1, 1), int), None),
        lambda: charts_sessions.components([]),
        lambda: charts_inspector.next_events(pd.DataFrame()),
        lambda: charts_inspector.gap_along(pd.DataFrame(), None),
    ],
)
def test_an_empty_table_gives_words_not_an_empty_plot(draw):
    figure = draw()
    assert len(figure.data) == 0
    assert len(figure.layout.annotations[0].text) > 5


def test_failed_and_passed_checks_differ_in_mark_not_only_in_colour():
    checks = pd.DataFrame(
        {
            "name": ["a", "b"],
            "value": [1e-9, 0.3],
            "limit": [1e-5, 1e-5],
            "unit": "logit",
            "count": 4,
            "status": ["passed", "failed"],
        }
    )
    figure = charts.checks_on_log(checks, "checks")
    symbols = {trace.name: trace.marker.symbol for trace in figure.data}
    assert symbols["passed"] != symbols["failed"]


def test_rates_carry_their_counts_and_end_at_the_upper_bound():
    figure = charts_policies.invalid_rates(rates())
    without = next(trace for trace in figure.data if trace.name == "without order mask")
    assert without.x[0] + without.error_x.array[0] == pytest.approx(0.128)
    assert list(without.customdata[0][:2]) == [7, 100]


def test_stops_add_up_to_all_sequences_of_a_setting():
    figure = charts_policies.stops(rates())
    assert np.nansum([trace.x for trace in figure.data], axis=0) == pytest.approx([1.0, 1.0])


def test_what_stopped_no_sequence_has_neither_a_bar_nor_a_word():
    figure = charts_policies.stops(rates())
    assert {trace.name for trace in figure.data} == {"ended by choice", "forced end", "capped"}
    assert not any(0 in trace.x for trace in figure.data)
    none = rates().assign(sequences=0, capped=0, forced=0)
    assert "No sequence" in charts_policies.stops(none).layout.annotations[0].text


def test_a_forbidden_step_is_crossed_and_one_that_happened_is_told_apart():
    counts = np.array([[4, 0, 0], [0, 3, 1], [2, 0, 2]])
    legal = np.array([[True, True, True], [True, True, True], [False, False, True]])
    crosses = charts_sessions.transitions(["a", "b"], counts, legal).data[1]
    assert list(zip(crosses.y, crosses.x, crosses.customdata, strict=True)) == [("b", "a", 2), ("b", "b", 0)]
    assert crosses.marker.line.color[0] != crosses.marker.line.color[1]


def test_only_the_most_frequent_events_are_drawn():
    names = [f"event {number:03d}" for number in range(90)]
    counts = np.zeros((91, 91), int)
    counts[1:, 0] = np.arange(90)
    heat = charts_sessions.transitions(names, counts, None).data[0]
    assert len(heat.y) == charts_sessions.MOST_NAMES + 1
    assert "event 089" in heat.y
    assert "event 000" not in heat.y


def test_illegal_events_are_hatched_and_marked():
    table = pd.DataFrame(
        {"event": ["a", "b"], "full": [0.9, 0.1], "cached": [0.8, 0.2], "legal": [True, False], "rules": ["", "r"]}
    )
    bars = charts_inspector.next_events(table).data[0]
    assert list(bars.y) == ["a", "✗ b"]
    assert list(bars.marker.pattern.shape) == ["", "/"]


def test_the_legend_of_next_events_says_what_hatching_means_and_hatches_nothing_else():
    table = pd.DataFrame({"event": ["a", "b"], "full": [0.9, 0.1], "cached": [0.8, 0.2], "legal": [False, True]})
    for legal, told in ((table["legal"], ["against the rules"]), (True, [])):
        traces = [
            trace for trace in charts_inspector.next_events(table.assign(legal=legal)).data if trace.showlegend is None
        ]
        assert [trace.name for trace in traces] == ["full path", "cached path", *told]
        assert [trace.name for trace in traces if trace.marker.pattern.shape] == told


def test_times_of_sessions_stand_in_bins_that_are_named_as_times():
    rows = [("training", None, 2), ("training", 8, 5), ("held-out", 25, 1)]
    figure = charts_sessions.durations(pd.DataFrame(rows, columns=["side", "bin", "sessions"]), 5)
    training, held = figure.data
    assert (list(training.x), list(training.y), list(held.x), list(held.y)) == ([8], [5], [25], [1])
    assert list(training.customdata) == ["39.8 seconds to 1.05 minutes"]
    assert training.marker.pattern.shape != held.marker.pattern.shape
    ticks = dict(zip(figure.layout.xaxis.ticktext, figure.layout.xaxis.tickvals, strict=True))
    assert ticks["1 min"] == pytest.approx(5 * np.log10(60) - 0.5)
    assert "1 s" not in ticks


def test_a_step_over_the_tolerance_is_a_cross_also_when_its_gap_is_not_a_number():
    steps = pd.DataFrame({"step": [1, 2, 3], "event": ["x", "y", "z"], "gap": [1e-9, 1.0, np.nan]})
    line = charts_inspector.gap_along(steps, 1e-5).data[0]
    assert list(line.marker.symbol) == ["circle", "x", "x"]


ODD = [1e-6, np.nan, np.inf]


@pytest.mark.parametrize(
    ("draw", "count"),
    [
        (lambda: charts_inspector.gap_along(pd.DataFrame({"step": [1, 2, 3], "event": [*"xyz"], "gap": ODD}), 1e-5), 2),
        (lambda: charts_inspector.gap_along(pd.DataFrame({"step": [1], "event": ["x"], "gap": [np.inf]}), None), 1),
        (lambda: charts.gap_by_step(TABLES["cache parity", "steps"].assign(worst=ODD), TOLERANCE, None), 2),
        (
            lambda: charts.changes_by_position(
                pd.DataFrame({"probe": "p", "path": "full", "events": "1-3", "position": [1, 2, 3], "value": ODD})
            ),
            2,
        ),
        (
            lambda: charts_compare.gap_against_gap(
                pd.DataFrame(
                    {
                        "session_id": [*"abc"], "events": [*"abc"], "weight": 1,
                        "before": ODD, "after": [0.0, 1.0, 2.0],
                        "within_before": [True, False, False], "within_after": [True, False, False],
                    }
                ),
                (1e-5, np.nan),
            ),
            2,
        ),
    ],
)  # fmt: skip
def test_what_is_no_number_stands_at_the_edge_and_is_counted(draw, count):
    drawn = draw()
    marks = next(trace for trace in drawn.data if str(trace.name).startswith("not finite"))
    assert marks.name == f"not finite: {count}"
    axis = drawn.layout.xaxis if "before" in str(drawn.layout.title.text) else drawn.layout.yaxis
    places = marks.x if axis is drawn.layout.xaxis else marks.y
    top = 10.0 ** axis.range[1]
    assert all(top / 2 < place < top for place in places)
    assert len(marks.customdata) == count


def test_sessions_whose_ratio_is_no_number_are_counted_beside_the_bars():
    drawn = charts.ratio_by_session(pd.DataFrame({"ratio": [0.9, np.inf, np.nan], "weight": [40, 30, 7]}), 1.25)
    assert "ratio not finite, not drawn: 37" in {trace.name for trace in drawn.data}
    alone = charts.ratio_by_session(pd.DataFrame({"ratio": [np.inf], "weight": [30]}), 1.25)
    assert "30 have one that is no number" in alone.layout.annotations[0].text


@pytest.mark.parametrize(
    "draw",
    [
        lambda: charts.changes_by_position(TABLES["causality", "probes"].assign(probe=HOSTILE, value=1.0)),
        lambda: charts_policies.invalid_rates(rates().assign(setting=[HOSTILE, HOSTILE + "2"])),
        lambda: charts_sessions.transitions([HOSTILE], np.ones((2, 2), int), np.zeros((2, 2), bool)),
        lambda: charts_inspector.next_events(
            pd.DataFrame({"event": [HOSTILE], "full": [1.0], "cached": [1.0], "legal": [True], "rules": [""]})
        ),
        lambda: charts_inspector.gap_along(pd.DataFrame({"step": [1], "event": [HOSTILE], "gap": [1.0]}), None),
    ],
)
def test_names_reach_a_figure_only_as_escaped_text(draw):
    words = words_of(draw())
    assert "<a" not in words
    assert "<img" not in words
    assert "&lt;a href" in words


def test_events_whose_names_are_cut_off_alike_keep_a_row_each():
    names = [f"{'x' * 70}{letter}" for letter in "abc"]
    heat = charts_sessions.transitions(["(start)", *names], np.ones((5, 5), int), None)
    assert len(set(heat.data[0].x)) == len(set(heat.data[0].y)) == 5
    assert len(set(heat.layout.xaxis.ticktext)) == 5
    table = pd.DataFrame({"event": names, "full": 0.3, "cached": 0.3, "legal": [True, True, False], "rules": ""})
    assert len(set(charts_inspector.next_events(table).data[0].y)) == 3


def test_no_figure_carries_more_than_some_thousand_points():
    steps = pd.DataFrame({"step": range(50_000), "worst": 1.0, "p95": 0.5, "median": 0.1, "prefixes": 1})
    figure = charts.gap_by_step(steps, None, None)
    assert sum(len(trace.x) for trace in figure.data) <= charts.MOST_POINTS
    probes = pd.DataFrame({"probe": "p", "path": "full", "events": "1", "position": range(50_000), "value": 1.0})
    assert sum(len(trace.x) for trace in charts.changes_by_position(probes).data) <= charts.MOST_POINTS


def test_the_largest_changes_are_drawn_where_there_are_too_many_and_what_is_no_number_is_among_them():
    many = pd.DataFrame({"probe": "a", "path": "full", "events": "1", "position": range(3000), "value": 1e-9})
    few = pd.DataFrame({"probe": "z", "path": "full", "events": "1", "position": [4, 5], "value": [0.5, np.nan]})
    figure = charts.changes_by_position(pd.concat([many, few]))
    drawn = [trace for trace in figure.data if trace.name != "not finite: 1"]
    assert len(drawn) < len(figure.data)
    assert sum(len(trace.x) for trace in drawn) == charts.MOST_POINTS
    found = next(trace for trace in figure.data if trace.name.startswith("z"))
    assert (list(found.x), list(found.customdata)) == ([4, 5], ["0.5", "not finite"])


def test_words_on_axes_leave_their_colour_to_the_theme_that_can_be_read():
    axes = charts.gap_by_step(TABLES["cache parity", "steps"], TOLERANCE, None).layout
    for axis in (axes.xaxis, axes.yaxis):
        assert axis.tickfont.color == axis.title.font.color == INK


def test_a_session_weighs_in_the_ratios_as_often_as_it_came_and_no_bar_stands_on_both_sides_of_the_limit():
    sessions = pd.DataFrame({"ratio": [0.9, 1.2, 1.3, 4e5, np.nan], "weight": [40, 30, 20, 10, 7]})
    bars = charts.ratio_by_session(sessions, 1.25).data[0]
    assert sum(bars.y) == 100
    left = np.array(bars.x) * (1 + 1e-9) < 1.25
    assert sum(np.array(bars.y)[left]) == 70
    assert not any(
        x * (1 + 1e-9) < 1.25 < (x + width) * (1 - 1e-9) for x, width in zip(bars.x, bars.width, strict=True)
    )


def test_marks_at_a_rate_of_zero_stand_whole_beside_the_axis():
    assert charts_policies.invalid_rates(rates()).layout.xaxis.range[0] < 0


def test_the_inspectors_gap_plot_draws_the_noise_floor_where_the_run_knows_it():
    steps = pd.DataFrame({"step": [1, 2], "event": ["a", "b"], "gap": [1e-7, 1.0]})
    figure = charts_inspector.gap_along(steps, 8e-6, 2e-6)
    assert sorted(shape.y0 for shape in figure.layout.shapes) == [2e-6, 8e-6]
    assert "noise floor 2.00e-6" in {trace.name for trace in figure.data}
    assert len(charts_inspector.gap_along(steps, 8e-6).layout.shapes) == 1


def test_heat_maps_take_no_width_for_their_colours_and_name_every_event_where_there_are_few():
    figure = charts_sessions.transitions(["a", "b c"], np.ones((3, 3), int), None)
    assert figure.data[0].colorbar.orientation == "h"
    assert list(figure.layout.xaxis.ticktext) == ["a", "b c", "(end)"]
    assert list(figure.layout.yaxis.ticktext) == ["(start)", "a", "b<br>c"]
    assert charts_whatif.attention(np.eye(2), ["a", "b"], "t").data[0].colorbar.orientation == "h"
