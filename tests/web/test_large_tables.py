"""Tables of a large run: the page carries the first rows, the downloads all of them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pandas as pd
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from auditlib.web import parts_board, tables
from tests.web.opening import opened

ROWS = 2_000


def page():
    import pandas as pd  # noqa: PLC0415

    from auditlib.web import tables  # noqa: PLC0415
    from auditlib.web.state import Places, Selection  # noqa: PLC0415

    frame = pd.DataFrame({"events": [f"1-{n}" for n in range(2_000)], "gap": range(2_000, 0, -1), "session_id": "S"})
    tables.prefixes(Selection(Places("s", "r"), (), None, None, None, None), frame, "k", ["gap"], "worst prefix")


@pytest.fixture
def saved(monkeypatch):
    found = []
    monkeypatch.setattr(tables, "downloads", lambda frame, *_: found.append(len(frame)))
    monkeypatch.setattr(tables, "inspector_link", lambda *_: None)
    return found


def test_the_first_rows_are_shown_with_their_number_and_the_downloads_hold_all(saved):
    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception, app.exception
    assert len(app.dataframe[0].value) == 500
    assert app.dataframe[0].value["gap"].iloc[0] == ROWS
    assert "The first 500 of 2,000 rows" in app.caption[0].value
    assert saved == [ROWS]


def test_gaps_are_read_once_a_run_and_held_out_ones_come_first(tmp_path):
    st.cache_resource.clear()
    run = Counting(tmp_path)
    first, second = tables.gaps_by_size(run), tables.gaps_by_size(run)
    assert run.read == 1
    assert first is second
    assert first["gap"].tolist() == [2.0, 1.0, 9.0]
    assert tables.gaps_by_size(Counting(tmp_path / "other")) is not first


class Counting:
    """A run that counts how often its table is read."""

    def __init__(self, folder):
        self.folder, self.read = folder, 0
        self.manifest = {"files": {"report.json": "sha256:0"}}

    def table(self, *_):
        self.read += 1
        gaps = {"gap": [1.0, 9.0, 2.0], "session_id": ["S1", "", "S2"], "probe": "p", "events": ["1", "1-2", "1-3"]}
        return pd.DataFrame(gaps)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", ["board", "causality"])
def test_downloads_of_checks_hold_numbers_and_not_their_words(page, monkeypatch):
    found = []
    for module in (tables, parts_board):
        monkeypatch.setattr(module, "downloads", lambda frame, name, _: found.append((name, frame)))
    opened(page)
    checks = next(frame for name, frame in found if name.endswith("checks"))
    assert checks[["value", "limit"]].dtypes.tolist() == ["float64", "float64"]
    assert checks["observations"].dtype == "int64"
    assert set(checks["status"]) <= {"passed", "failed", "not measured"}
    assert page != "board" or checks["value"].iloc[0] == 0.31


def test_columns_that_read_alike_are_told_apart_and_their_texts_are_safe():
    frame = pd.DataFrame([["a\x1b", 1, "b\u202e", "c"]], columns=["case_id", "case id", "case_id", "case id (2)"])
    table = tables.shown(frame)
    assert table.columns.tolist() == ["case id", "case id (2)", "case id (3)", "case id (2) (2)"]
    assert table["case id (2)"].tolist() == [1]
    assert "\x1b" not in table["case id"].iloc[0]
    assert "\u202e" not in table["case id (3)"].iloc[0]


def test_a_selected_row_is_not_taken_for_another_one_once_the_rows_are_filtered(monkeypatch):
    keys = []

    def dataframe(_table, *, key, **_):
        keys.append(key)
        return SimpleNamespace(selection=SimpleNamespace(rows=[8]))

    monkeypatch.setattr(tables.st, "dataframe", dataframe)
    frame = pd.DataFrame({"events": [f"1-{n}" for n in range(20)]})
    assert tables.selected(frame, "k", "rows") == 8
    assert tables.selected(frame, "k", "rows") == 8
    assert tables.selected(frame.iloc[1:], "k", "rows") == 8
    assert tables.selected(frame.head(3), "k", "rows") is None
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", ["board", "causality"])
def test_columns_of_values_and_limits_have_a_width_of_their_own_lest_an_exponent_lose_its_end(page):
    table = next(one for one in opened(page).dataframe if {"value", "limit"} <= set(one.value))
    widths = {name: found.get("width") for name, found in json.loads(table.proto.columns).items()}
    assert widths["value"] == widths["limit"] == tables.number_columns("p")["p"]["width"] >= 90


def test_small_measured_numbers_are_given_the_same_width():
    small = AppTest.from_function(small_page, default_timeout=60).run().dataframe[0]
    assert json.loads(small.proto.columns)["gap"]["width"] == tables.number_columns("p")["p"]["width"]


def small_page():
    import pandas as pd  # noqa: PLC0415

    from auditlib.web import tables  # noqa: PLC0415

    tables.show(pd.DataFrame({"gap": [8.08e-28, 1e-5]}), "gaps", "gaps", "Gaps", "None.")
