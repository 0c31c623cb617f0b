"""Tables as files: no formula in the CSV, nothing lost in the Parquet."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import pandas as pd
import pytest

from auditlib.web.exports import named, to_csv, to_json, to_parquet

PAYLOADS = [
    "=1+1", "=cmd|' /C calc'!A0", '=HYPERLINK("http://evil.example","x")', "+1+1", "-1+1", "@SUM(A1:A9)", "\t=1",
    "\r=1", "\n=1", "＝1", "＋1", "－1", "＠x", " =1", '"=1', "'=1", "a;=1", "a,=1", "a\t=1", "a|=1", 'a;"=1', "a\n=1",
    "%0A=1;=2",
]  # fmt: skip
STARTS = set("=+-@\t\r＝＋－＠")


def rows_of(data, delimiter=","):
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_cell_begins_a_formula_whatever_the_spreadsheet_splits_on(payload):
    data = to_csv(pd.DataFrame({"name": [payload], payload: ["x"], "gap": [-1.5]}))
    for delimiter in ",;\t|":
        for row in rows_of(data, delimiter):
            for cell in row:
                bare = cell.lstrip(" \"'")
                guarded = "'" in cell[: len(cell) - len(bare)]
                assert guarded or bare[:1] not in STARTS or bare.rstrip('"\r\n ') == "-1.5"


def test_numbers_stay_numbers():
    data = to_csv(pd.DataFrame({"gap": [-1.5e-7, 2.0], "n": [-3, 4], "ok": [True, False], "name": ["a", None]}))
    assert rows_of(data)[1:] == [["-1.5e-07", "-3", "True", "a"], ["2.0", "4", "False", ""]]


def test_parquet_gives_back_the_very_same_table():
    frame = pd.DataFrame({"name": PAYLOADS, "gap": [float(n) for n in range(len(PAYLOADS))]})
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(to_parquet(frame))), frame)


def test_json_keeps_every_digit_and_writes_no_nan():
    gaps = [0.1 + 0.2, float("nan"), float("inf"), 1e-17]
    frame = pd.DataFrame(
        {"gap": gaps, "n": pd.array([1, None, 3, 4], dtype="Int64"), "name": [PAYLOADS[0], None, "é", "x"]}
    )
    rows = json.loads(to_json(frame), parse_constant=pytest.fail)
    assert [row["gap"] for row in rows] == [0.1 + 0.2, None, "Infinity", 1e-17]
    assert [row["n"] for row in rows] == [1, None, 3, 4]
    assert [row["name"] for row in rows] == [PAYLOADS[0], None, "é", "x"]


def test_a_file_is_named_after_revision_and_run_and_no_name_leaves_the_folder():
    run = SimpleNamespace(id="20261130T100000Z-0a1b2c3d", report={"revision_name": "../../a b<c>"})
    assert named(run, "gaps") == "a_b_c_-20261130T100000Z-0a1b2c3d-gaps"
