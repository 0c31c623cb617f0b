"""Names on axes: cut off where they are long, whole under the pointer, and never two at one place."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from auditlib.views import (
    charts,
    charts_compare,
    charts_inspector,
    charts_policies,
    charts_self_check,
    charts_sessions,
    charts_whatif,
)
from tests.web.world import rates

ALIKE = [f"{'x' * 70}{letter}" for letter in "ab"]


def two_settings():
    return rates().assign(setting=ALIKE)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: charts.checks_on_log(
            pd.DataFrame({"name": ALIKE, "value": 1.0, "limit": 2.0, "unit": "", "count": 1, "status": "passed"}), "t"
        ),
        lambda: charts.baselines(pd.DataFrame({"name": ALIKE, "accuracy": [0.5, 0.6]})),
        lambda: charts_policies.invalid_rates(two_settings().assign(order_mask=True)),
        lambda: charts_policies.stops(two_settings()),
        lambda: charts_policies.duplication(two_settings()),
        lambda: charts_self_check.caught_by_kind(pd.DataFrame({"kind": ALIKE, "outcome": "caught"})),
        lambda: charts_self_check.margins(
            pd.DataFrame({"kind": ALIKE, "outcome": "caught", "fault": "f", "check": "c", "limit": 1.0, "margin": 2.0})
        ),
        lambda: charts_compare.differences(
            pd.DataFrame({"what": [f"{'s' * 40}: {name}" for name in ALIKE], "difference": 0.0, "low": 0.0, "high": 0.0,
                          "sessions": 1, "worse": 0, "better": 0})
        ),
        lambda: charts_inspector.next_events(
            pd.DataFrame({"event": ["closed", "✗ closed"], "full": 0.5, "cached": 0.5, "legal": [False, True]})
        ),
        lambda: charts_sessions.transitions(ALIKE, np.ones((3, 3), int), None),
    ],
)  # fmt: skip
def test_categories_never_fall_together_though_their_names_be_cut_off_alike(draw):
    trace = next(trace for trace in draw().data if trace.y is not None and len(trace.y) > 1)
    assert len(set(trace.y)) == len(trace.y)


def test_the_whole_name_stands_under_the_pointer_where_a_label_is_cut_off():
    settings = charts_policies.stops(two_settings()).data[0]
    heat = charts_sessions.transitions(ALIKE, np.ones((3, 3), int), None).data[0]
    for shown, label, name in ((settings.hovertext[1], settings.y[1], ALIKE[1]), (heat.hovertext[2][2], "", ALIKE[1])):
        assert name in shown.replace("<br>", "")
        assert name not in label


def test_long_names_leave_a_heat_map_its_place_however_many_there_are():
    names = [f"{'x' * 60}{number}" for number in range(30)]
    heat = charts_sessions.transitions(names, np.ones((31, 31), int), None).data[0]
    assert max(map(len, [*heat.x, *heat.y])) < 30


def test_attention_names_both_events_whole_and_no_cell_that_lies_ahead():
    cells = charts_whatif.attention(np.eye(2), ALIKE, "t").data[0].customdata
    assert [part.replace("<br>", "") for part in cells[1][0]] == [f"1. {ALIKE[1]}", f"0. {ALIKE[0]}"]
    assert cells[0][1] is None


def test_a_long_label_stands_in_lines_that_leave_a_phone_room_for_its_figure():
    name = "request <b> was handed over to the other department"
    table = pd.DataFrame({"event": [name], "full": [1.0], "cached": [1.0], "legal": [True], "rules": [""]})
    label = charts_inspector.next_events(table).data[0].y[0]
    assert label == "request &lt;b&gt; was handed over to the<br>other department"
