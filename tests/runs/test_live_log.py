"""Live logs read from every form alike; what is torn, strange or hostile is refused or counted, never passed over."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from auditlib.errors import LogError
from auditlib.files import sha256_of
from auditlib.release.rollout_rows import COLUMNS
from auditlib.runs import live_files, live_log
from auditlib.runs.live_log import read_live_log
from auditlib.serving.log_row import SCHEMA, LogRow, to_table
from auditlib.serving.request_log import RequestLog
from tests.release.rollout_world import shadow

ROWS = [
    *shadow(12),
    replace(shadow(1)[1], request_id='r,"x"', error="no answer", start=None, first_event=None, stop=None, valid=None,
            events_digest=None, shadow_events_digest=None, batch_size=0, output_length=0, cache=False,
            cache_bytes=None),
    replace(shadow(1)[1], request_id="r-2", shadow_events_digest="sha256:o", first_differing_step=0, margin=1e-4,
            largest_logit_gap=2.5e-5, fallback="rejected cache"),
    replace(shadow(1)[1], request_id="r-3", valid=False, rule="not succession(closed, assigned)"),
]  # fmt: skip


def as_parquet(folder):
    pq.write_table(to_table(ROWS), folder / "log.parquet")
    return folder / "log.parquet"


def as_old_parquet(folder):
    """As other tools write it: dictionaries, narrow numbers, nanoseconds, an own column more."""
    table = to_table(ROWS)
    for index, field in enumerate(SCHEMA):
        column = table[field.name]
        if pa.types.is_string(field.type):
            column = column.cast(pa.large_string()) if field.name == "arm" else column.dictionary_encode()
        elif pa.types.is_int64(field.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(field.type):
            column = column.cast(pa.timestamp("ns", tz="Europe/Berlin"))
        table = table.set_column(index, field.name, column)
    pq.write_table(table.append_column("host", pa.array(["h"] * table.num_rows)), folder / "log.parquet")
    return folder / "log.parquet"


def as_parts(folder):
    (folder / "log").mkdir()
    for number, first in enumerate(range(0, len(ROWS), 7)):
        pq.write_table(to_table(ROWS[first : first + 7]), folder / "log" / f"part-{number}.parquet")
    return folder / "log"


def as_csv(folder):
    pa_csv.write_csv(to_table(ROWS), folder / "log.csv")
    return folder / "log.csv"


def as_lines(folder):
    (folder / "log.jsonl").write_text("".join(json.dumps(asdict(one)) + "\n" for one in ROWS))
    return folder / "log.jsonl"


def as_duckdb(folder, statement="create table live_log as select * from rows"):
    with duckdb.connect(folder / "log.duckdb") as connection:
        connection.register("rows", to_table(ROWS))
        connection.execute(statement)
    return folder / "log.duckdb"


def as_journal(folder):
    log = RequestLog(folder / "log", rows_a_part=10)
    for one in ROWS:
        log.keep(one)
    return folder / "log"


FORMS = {
    "parquet": as_parquet, "parquet of others": as_old_parquet, "parts": as_parts, "csv": as_csv, "lines": as_lines,
    "duckdb": as_duckdb,
}  # fmt: skip


def same(left, right):
    return all(
        np.array_equal(getattr(left, n), getattr(right, n), equal_nan=n == "margin") for n in COLUMNS if n != "file"
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_come_out_of_every_form(form, tmp_path):
    (tmp_path / "plain").mkdir()
    log, plain = read_live_log(FORMS[form](tmp_path)), read_live_log(as_parquet(tmp_path / "plain"))
    assert same(log.rows, plain.rows)
    assert log.rows.whole.all()
    assert (log.rows.stages, log.rows.artifacts) == (plain.rows.stages, plain.rows.artifacts)
    assert sum(log.rows.unread.values()) == log.rows.unfinished == 0
    if form != "parts":
        assert [one["digest"] for one in log.files] == [one["digest"] for one in plain.files]


def test_a_service_that_runs_is_read_with_its_journal_and_its_rows_keep_their_names_when_they_become_a_part(tmp_path):
    log = RequestLog(tmp_path, rows_a_part=1000)
    for one in ROWS[:9]:
        log.keep(one)
    early = read_live_log(tmp_path)
    assert early.rows.count == 9
    (one,) = early.files
    for another in ROWS[9:]:
        log.keep(another)
    log.flush()
    late = read_live_log(tmp_path)
    assert late.rows.count == len(ROWS)
    assert late.digest_of(one["name"], 9) == one["digest"]
    log.close()


def test_a_journal_that_became_a_part_before_its_writer_was_killed_is_not_read_twice(tmp_path):
    journal = RequestLog(tmp_path, rows_a_part=1000)
    journal.keep(ROWS[0])
    (path,) = tmp_path.glob("journal-*.jsonl")
    pq.write_table(to_table(ROWS[:1]), tmp_path / f"{path.stem.replace('journal', 'part')}.parquet")
    assert read_live_log(tmp_path).rows.count == 1
    journal.close()


def test_a_journal_that_becomes_a_part_while_the_folder_is_read_loses_no_row(tmp_path, monkeypatch):
    log = RequestLog(tmp_path, rows_a_part=1000)
    for one in ROWS:
        log.keep(one)
    read = live_log.read_lines_part

    def rolling(file):
        log.flush()
        return read(file)

    monkeypatch.setattr(live_log, "read_lines_part", rolling)
    assert read_live_log(tmp_path).rows.count == len(ROWS)
    log.close()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_part_that_was_not_written_to_its_end_is_left_out_and_counted(share, tmp_path):
    folder = as_parts(tmp_path)
    data = (folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(data[: int(share * len(data))])
    log = read_live_log(folder)
    assert log.rows.unfinished == 1
    assert log.rows.count == len(ROWS) - 7


def test_a_whole_part_with_a_broken_inside_is_refused(tmp_path):
    path = as_parquet(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 40] = b"\xff" * 40
    data[-60:-20] = b"\xff" * 40
    path.write_bytes(data)
    with pytest.raises(LogError, match="damaged"):
        read_live_log(path)


@pytest.mark.parametrize("form", [as_csv, as_lines])
@pytest.mark.parametrize("lost", [1, 5, 60])
def test_a_torn_last_line_is_left_out_and_counted(form, lost, tmp_path):
    path = form(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    log = read_live_log(path)
    assert log.rows.count == len(ROWS) - 1
    assert log.rows.unread["last line without its end"] == 1


def test_the_rows_of_a_duckdb_log_are_those_of_the_bytes_that_were_hashed(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    path = as_duckdb(tmp_path)
    other = as_duckdb(tmp_path / "other", "create table live_log as select * from rows limit 1")
    before, read = sha256_of(path), live_files.bytes_of

    def exchanged(file):
        data = read(file)
        other.replace(path)
        return data

    monkeypatch.setattr(live_files, "bytes_of", exchanged)
    part = live_files.read_duckdb_part(path)
    assert (part.sha256, part.table.num_rows) == (before, len(ROWS))


@pytest.mark.parametrize("column", SCHEMA.names)
@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb", "lines"])
def test_a_column_that_is_not_there_is_named_or_its_lines_counted(form, column, tmp_path):
    table = to_table(ROWS).drop_columns([column])
    path = tmp_path / f"log.{form}"
    if form == "lines":
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps({k: v for k, v in asdict(r).items() if k != column}) + "\n" for r in ROWS))
        assert read_live_log(path).rows.unread["line that is no row"] == len(ROWS)
        return
    if form == "csv":
        pa_csv.write_csv(table, path)
    elif form == "parquet":
        pq.write_table(table, path)
    else:
        with duckdb.connect(path) as connection:
            connection.register("rows", table)
            connection.execute("create table live_log as select * from rows")
    with pytest.raises(LogError, match=column):
        read_live_log(path)


@pytest.mark.parametrize(
    ("column", "text", "counted"),
    [
        ("arrival", "yesterday", "arrival: not timestamp"),
        ("arrival", "2026-12-01 12:00:00", "arrival: not timestamp"),  # no zone: nobody knows when
        ("cache", "maybe", "cache: not bool"),
        ("prefix_length", "3.5", "prefix_length: not int64"),
        ("margin", "wide", "margin: not double"),
        ("arm", "newer", "arm: neither new nor fallback"),
        ("arm", "", "arm: missing"),
        ("request_id", "", "request_id: missing"),
        ("artifact", "", "artifact: missing"),
    ],
)
def test_a_value_that_is_none_of_its_column_costs_its_row_and_is_counted(column, text, counted, tmp_path):
    path = as_csv(tmp_path)
    lines = path.read_text().splitlines()
    cells = lines[2].split(",")
    cells[SCHEMA.names.index(column)] = text
    path.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]) + "\n")
    log = read_live_log(path)
    assert log.rows.count == len(ROWS) - 1
    assert any(reason.startswith(counted) and found == 1 for reason, found in log.rows.unread.items())


def test_lines_of_another_width_are_counted(tmp_path):
    path = as_csv(tmp_path)
    path.write_bytes(path.read_bytes() + b"a,b\n")
    log = read_live_log(path)
    assert (log.rows.count, log.rows.unread["line of another width"]) == (len(ROWS), 1)


@pytest.mark.parametrize("line", ["{}", "[]", "null", "{", '"x"', '{"request_id": 1}', "[" * 100_000])
def test_a_line_that_is_no_row_is_counted(line, tmp_path):
    path = as_lines(tmp_path)
    path.write_text(path.read_text() + line + "\n")
    log = read_live_log(path)
    assert (log.rows.count, log.rows.unread["line that is no row"]) == (len(ROWS), 1)


def test_a_line_with_a_value_of_another_type_is_counted(tmp_path):
    path = as_lines(tmp_path)
    path.write_text(path.read_text() + json.dumps({**asdict(ROWS[0]), "arrival": "soon"}) + "\n")
    log = read_live_log(path)
    assert (log.rows.count, log.rows.unread["line with a value of another type"]) == (len(ROWS), 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"start": None}, "start: missing"),
        ({"valid": None}, "valid: missing"),
        ({"stop": "tired"}, "stop: unknown"),
        ({"valid": False}, "rule: missing"),
        ({"cache_bytes": None}, "cache_bytes: missing"),
        ({"cache_bytes": -1}, "cache_bytes: missing"),
        ({"batch_size": 0}, "batch_size: too small"),
        ({"output_length": -1}, "output_length: negative"),
        ({"end": 5}, "times out of order"),
        ({"first_event": 5}, "times out of order"),
        ({"shadow_events_digest": "sha256:o", "margin": 1.0, "largest_logit_gap": 1.0},
         "first_differing_step: missing"),
        ({"shadow_events_digest": "sha256:o", "first_differing_step": 1, "largest_logit_gap": 1.0}, "margin: missing"),
        ({"shadow_events_digest": "sha256:o", "first_differing_step": 1, "margin": float("nan"),
          "largest_logit_gap": 1.0}, "margin: missing"),
        ({"shadow_events_digest": "sha256:o", "first_differing_step": 1, "margin": 1.0,
          "largest_logit_gap": float("inf")}, "largest_logit_gap: missing"),
    ],
)  # fmt: skip
def test_a_row_that_is_silent_where_it_must_speak_is_not_whole(changed, reason, tmp_path):
    rows = [replace(ROWS[1], **changed), *ROWS[2:]]
    pq.write_table(to_table(rows), tmp_path / "log.parquet")
    log = read_live_log(tmp_path / "log.parquet")
    assert log.lacking == {reason: 1}
    assert log.rows.whole.sum() == len(rows) - 1


@pytest.mark.parametrize(
    "statement",
    [
        "create view live_log as select * from read_csv('/etc/passwd')",
        "create table other as select * from rows",
        "create table live_log as select 1 as request_id",
        "create schema s; create table s.live_log as select * from rows",
    ],
)
def test_a_duckdb_log_that_is_no_plain_table_is_refused(statement, tmp_path):
    with pytest.raises(LogError):
        read_live_log(as_duckdb(tmp_path, statement))


def test_a_generated_column_is_refused(tmp_path):
    columns = ", ".join(
        f'"{name}" {kind}' for name, kind in zip(SCHEMA.names, _kinds(), strict=True) if name != "error"
    )
    statement = f'create table live_log ({columns}, "error" varchar generated always as (upper(request_id)))'
    with pytest.raises(LogError, match="generated"):
        read_live_log(as_duckdb(tmp_path, statement))


def _kinds():
    names = {"string": "varchar", "bool": "boolean", "int64": "bigint", "double": "double"}
    return [names.get(str(field.type), "timestamptz") for field in SCHEMA]


def test_a_duckdb_log_that_is_being_written_is_refused(tmp_path):
    path = as_duckdb(tmp_path)
    path.with_name("log.duckdb.wal").write_bytes(b"x")
    with pytest.raises(LogError, match=r"\.wal"):
        read_live_log(path)


@pytest.mark.parametrize("name", ["nowhere.parquet", "nowhere.csv", "nowhere.duckdb", "nowhere.jsonl", "nowhere"])
def test_a_log_that_is_not_there_is_one_error(name, tmp_path):
    with pytest.raises(LogError):
        read_live_log(tmp_path / name)


def test_a_folder_without_a_finished_part_is_refused_and_a_pipe_does_not_block(tmp_path):
    with pytest.raises(LogError, match="no finished file"):
        read_live_log(tmp_path)
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(LogError, match="regular"):
        read_live_log(tmp_path / "log.csv")


@pytest.mark.parametrize("name", ["log.csv", "log.duckdb", "log.jsonl", "log.parquet"])
def test_bytes_that_are_no_log_are_refused_or_counted(name, tmp_path):
    (tmp_path / name).write_bytes(b"\x00\xff\xfe garbage\n" * 50)
    try:
        log = read_live_log(tmp_path / name)
    except LogError:
        return
    assert log.rows.count == 0
    assert sum(log.rows.unread.values()) == 50


def test_times_without_a_zone_and_numbers_as_text_are_refused_in_typed_files(tmp_path):
    table = to_table(ROWS)
    place = SCHEMA.names.index("arrival")
    bare = table.set_column(place, "arrival", table["arrival"].cast(pa.timestamp("us")))
    pq.write_table(bare, tmp_path / "log.parquet")
    with pytest.raises(LogError, match="zone"):
        read_live_log(tmp_path / "log.parquet")
    place = SCHEMA.names.index("margin")
    pq.write_table(table.set_column(place, "margin", pa.array(["1"] * table.num_rows)), tmp_path / "log.parquet")
    with pytest.raises(LogError, match="margin"):
        read_live_log(tmp_path / "log.parquet")


def test_a_null_is_told_from_an_empty_text_in_the_digest_of_rows(tmp_path):
    for number, value in enumerate((None, "")):
        pq.write_table(to_table([replace(ROWS[1], fallback=value)]), tmp_path / f"{number}.parquet")
    digests = {read_live_log(tmp_path / f"{n}.parquet").files[0]["digest"] for n in (0, 1)}
    assert len(digests) == 2


def test_the_row_and_the_schema_have_the_same_columns():
    assert [field.name for field in fields(LogRow)] == SCHEMA.names
