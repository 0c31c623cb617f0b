"""Parquet logs: typed times keep their value and zone."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from auditlib.errors import LogError
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import gzipped, imported, sequences


def parquet(**columns):
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=2)
    return buffer.getvalue()


def log(times, **more):
    size = len(times)
    return parquet(
        **{
            "case id": [n // 3 for n in range(size)],
            "activity": [f"e{n}" for n in range(size)],
            "timestamp": times,
            **more,
        }
    )


MOMENTS = [datetime(2020, 1, 1, 10, 0, tzinfo=UTC) + timedelta(seconds=n) for n in range(6)]
LOCAL = [moment.replace(tzinfo=None) for moment in MOMENTS]


@pytest.mark.parametrize(
    ("times", "zones"),
    [
        (pa.array(LOCAL, pa.timestamp("us")), {"none": 6}),
        (pa.array(LOCAL, pa.timestamp("ns")), {"none": 6}),
        (pa.array(MOMENTS, pa.timestamp("ms", tz="UTC")), {"+00:00": 6}),
        (pa.array(MOMENTS, pa.timestamp("s", tz="Europe/Berlin")), {"+01:00": 6}),
        (pa.array([moment.isoformat() for moment in MOMENTS]), {"+00:00": 6}),
        (pa.array([int(moment.timestamp()) for moment in MOMENTS]), {"+00:00": 6}),
    ],
)
def test_times_of_any_type_give_the_same_moments(tmp_path, times, zones):
    manifest = imported(tmp_path, log(times), "log.parquet")
    assert (manifest.format, manifest.sessions, manifest.events, manifest.zones) == ("parquet", 2, 6, zones)
    assert (manifest.first_time, manifest.last_time) == ("2020-01-01T10:00:00", "2020-01-01T10:00:05")
    assert sequences(tmp_path) == {"0": ("e0", "e1", "e2"), "1": ("e3", "e4", "e5")}


def test_days_without_a_clock_are_times_too(tmp_path):
    manifest = imported(tmp_path, log(pa.array([date(2020, 1, n + 1) for n in range(3)])), "log.parquet")
    assert manifest.last_time == "2020-01-03T00:00:00"


def test_nulls_are_missing_and_rows_are_counted_from_one(tmp_path):
    content = log(pa.array([LOCAL[0], None, LOCAL[2]]), customer=pa.array(["Ann", None, "?"]))
    manifest = imported(tmp_path, content, "log.parquet")
    assert manifest.missing == {"timestamp": {"(absent)": 1}, "customer": {"(absent)": 1, "?": 1}}
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert [reject.source_row for reject in store.rejects()] == [2]


def test_a_column_of_lists_only_tells_rows_apart(tmp_path):
    columns = {"case id": [1, 1, 1], "activity": ["a"] * 3, "timestamp": [LOCAL[0]] * 3, "tags": [["x"], ["y"], ["x"]]}
    manifest = imported(tmp_path, parquet(**columns), "log.parquet")
    assert (manifest.duplicates, manifest.repeats) == (1, 2)
    assert manifest.notes == ("1 columns hold lists or structures, which were not read",)


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (log(LOCAL)[:-20], "log.parquet", "truncated or damaged"),
        (b"PAR1" + b"\0" * 100, "log.parquet", "truncated or damaged"),
        (b"hello", "log.parquet", "truncated or damaged"),
        (gzipped(log(LOCAL)), "log.parquet.gz", "a packed Parquet file"),
        (
            parquet(**{"case id": [[1]], "activity": ["a"], "timestamp": ["2020-01-01"]}),
            "log.parquet",
            "must hold one value",
        ),
        (log(pa.array([b"\xff\xfe"] * 3)), "log.parquet", "no known way to read times such as 'fffe'"),
        (log(pa.array([], pa.string())), "log.parquet", "no usable event in 0 rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, name, words):
    with pytest.raises(LogError) as caught:
        imported(tmp_path, content, name)
    assert words in str(caught.value)
    assert not (tmp_path / "store.duckdb").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"blob": pa.array([b"\xff\x00", None, b"a", b"b", b"c", b"d"], pa.binary())},
        {"id": pa.array([bytes([n] * 16) for n in range(6)], pa.binary(16))},
        {"text": pa.array([b"one", b"two", b"three", b"four", b"five", None], pa.binary())},
    ],
    ids=["bytes", "uuids", "text as bytes"],
)
def test_a_column_of_bytes_beside_the_others_is_no_damage(tmp_path, more):
    manifest = imported(tmp_path, log(MOMENTS, **more), "log.parquet")
    assert (manifest.events, manifest.rejects) == (6, 0)
