"""CSV logs: nothing is lost, everything odd is counted."""

from __future__ import annotations

import os

import pytest

from auditlib.errors import LogError
from auditlib.sessions.importers import import_log, preview
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import HEADER, TICKETS, csv_text, gzipped, imported, sequences, write, zipped


def test_a_servicenow_export_is_read_without_naming_a_column(tmp_path):
    manifest = imported(tmp_path, csv_text())
    assert (manifest.sessions, manifest.events, manifest.rejects) == (2, 5, 0)
    assert manifest.guessed == ("session", "event", "time", "customer", "asset")
    assert sequences(tmp_path) == {"INC1": ("New", "Active", "Closed"), "INC2": ("New", "Closed")}


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("log.csv", lambda text: text.encode()),
        ("log.csv.gz", gzipped),
        ("log.zip", lambda text: zipped(log__csv=text.encode())),
        ("log.csv", lambda text: b"\xef\xbb\xbf" + text.encode()),
        ("log.csv", lambda text: text.encode("utf-16")),
        ("log.csv", lambda text: text.replace("\n", "\r\n").encode()),
        ("log.csv", lambda text: text.replace("\n", "\r").encode()),
        ("log.csv", lambda text: text.replace(",", ";").encode()),
        ("log.tsv", lambda text: text.replace(",", "\t").encode()),
        ("log.txt", lambda text: text.replace(",", "|").encode()),
        ("log.csv", lambda text: text.rstrip("\n").encode()),
    ],
)
def test_the_same_log_in_any_packing_gives_the_same_sessions(tmp_path, name, pack):
    manifest = imported(tmp_path, pack(csv_text()), name)
    assert (manifest.sessions, manifest.events, manifest.rejects) == (2, 5, 0)
    assert sequences(tmp_path)["INC1"] == ("New", "Active", "Closed")


@pytest.mark.parametrize(
    ("row", "reason", "line"),
    [
        ("INC3,New,2020-01-01 10:00:00,Ann", "4 columns instead of 5", 7),
        ("INC3,New,2020-01-01 10:00:00,Ann,srv1,more", "6 columns instead of 5", 7),
        (",New,2020-01-01 10:00:00,Ann,srv1", "no session: number is missing", 7),
        ("?,New,2020-01-01 10:00:00,Ann,srv1", "no session: number is missing", 7),
        ("INC3,?,2020-01-01 10:00:00,Ann,srv1", "no event: incident_state is missing", 7),
        ("INC3, ,2020-01-01 10:00:00,Ann,srv1", "no event: incident_state is missing", 7),
        ("INC3,New,NULL,Ann,srv1", "no time: sys_updated_at is missing", 7),
        ("INC3,New,yesterday,Ann,srv1", "the time is no date from 1900 on, written as YYYY-MM-DD", 7),
        ("INC3,New,2020-02-30 10:00:00,Ann,srv1", "the time is no date from 1900 on, written as YYYY-MM-DD", 7),
        ("INC3,New,0001-01-01 00:00:00,Ann,srv1", "the time is no date from 1900 on, written as YYYY-MM-DD", 7),
        ('INC3,"New"x,2020-01-01 10:00:00,Ann,srv1', "broken quotes: ',' expected after '\"'", 7),
        (f"INC3,{'x' * 5000},2020-01-01 10:00:00,Ann,srv1", "incident_state is longer than 4096 characters", 7),
    ],
)
def test_a_row_that_cannot_be_an_event_is_kept_with_its_line_and_reason(tmp_path, row, reason, line):
    manifest = imported(tmp_path, csv_text([*TICKETS, row]))
    assert manifest.events == len(TICKETS)
    assert manifest.reject_reasons == {reason: 1}
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        (reject,) = store.rejects()
    assert (reject.source_row, reject.reason) == (line, reason)


def test_lines_are_counted_through_quoted_line_breaks_and_blank_lines(tmp_path):
    rows = ['INC1,New,2020-01-01 10:00:00,"Ann\nand\nBob",srv1', "", "INC1,?,2020-01-01 10:00:00,Ann,srv1"]
    manifest = imported(tmp_path, csv_text(rows))
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert [reject.source_row for reject in store.rejects()] == [6]
    assert "1 blank lines" in manifest.notes


def test_sessions_that_lost_an_event_are_counted(tmp_path):
    rows = [
        *TICKETS,
        "INC1,?,2020-01-01 10:00:00,Ann,srv1",
        "INC1,New,soon,Ann,srv1",
        ",New,2020-01-01 10:00:00,Ann,srv1",
    ]
    manifest = imported(tmp_path, csv_text(rows))
    assert (manifest.rejects, manifest.rejected_sessions) == (3, 1)


def test_missing_values_are_counted_by_column_and_marker(tmp_path):
    rows = [*TICKETS, "INC3,New,2020-01-01 10:00:00,,NULL", "INC4,-100,2020-01-01 10:00:00,n/a,?"]
    manifest = imported(tmp_path, csv_text(rows))
    assert manifest.missing == {"cmdb_ci": {"?": 3, "NULL": 1}, "caller_id": {"": 1, "n/a": 1}}
    assert sequences(tmp_path)["INC4"] == ("-100",)  # odd, but a value


def test_a_marker_that_the_user_names_replaces_the_usual_ones(tmp_path):
    rows = [*TICKETS, "INC3,New,2020-01-01 10:00:00,-,?"]
    manifest = imported(tmp_path, csv_text(rows), missing=("-",))
    assert manifest.missing == {"caller_id": {"-": 1}}


def test_file_order_decides_between_events_of_the_same_time_and_ties_are_counted(tmp_path):
    rows = [f"INC1,{name},2020-01-01 10:00:00,Ann,srv1" for name in "dbca"] + ["INC1,z,2020-01-01 09:59:59,Ann,srv1"]
    manifest = imported(tmp_path, csv_text(rows))
    assert sequences(tmp_path)["INC1"] == ("z", "d", "b", "c", "a")
    assert (manifest.ties, manifest.out_of_order) == (3, 1)


def test_duplicates_stay_in_and_are_counted(tmp_path):
    rows = [
        "INC1,New,2020-01-01 10:00:00,Ann,srv1",
        "INC1,New,2020-01-01 10:00:00,Ann,srv1",
        "INC1,New,2020-01-01 10:00:00,Ann,srv2",
        "INC2,New,2020-01-01 10:00:00,Ann,srv1",
    ]
    manifest = imported(tmp_path, csv_text(rows))
    assert (manifest.events, manifest.duplicates, manifest.repeats) == (4, 1, 2)


def test_rows_equal_in_the_mapped_columns_only_are_no_duplicates(tmp_path):
    rows = ["INC1,New,2020-01-01 10:00:00,1", "INC1,New,2020-01-01 10:00:00,2"]
    manifest = imported(tmp_path, csv_text(rows, "number,incident_state,sys_updated_at,sys_mod_count"))
    assert (manifest.duplicates, manifest.repeats) == (0, 1)


def test_names_are_taken_as_they_are_with_commas_ampersands_spaces_and_control_characters(tmp_path):
    rows = [
        'Opened by  8,"wait, & <b>see</b>",2020-01-01 10:00:00,Ann  Lee,srv1',
        "Opened by 8,bell\x07,2020-01-01 10:00:00,Ann Lee,srv1",
        "nul,a\x00b,2020-01-01 10:00:00,Ann Lee,srv1",
    ]
    manifest = imported(tmp_path, csv_text(rows))
    assert sequences(tmp_path) == {
        "Opened by  8": ("wait, & <b>see</b>",),
        "Opened by 8": ("bell\x07",),
        "nul": ("a\0b",),
    }
    assert "2 rows with control characters in the event" in manifest.notes


def test_events_that_differ_only_in_case_or_spaces_are_pointed_out(tmp_path):
    rows = [f"INC1,{name},2020-01-01 10:00:00,Ann,srv1" for name in ("Closed", "CLOSED", "closed ", "New")]
    notes = imported(tmp_path, csv_text(rows)).notes
    assert "events that differ only in case or spaces: 'CLOSED' / 'Closed' / 'closed '" in notes


def test_an_event_may_be_made_of_several_columns(tmp_path):
    header, row = f"{HEADER},lifecycle:transition", ",complete"
    text = csv_text([line + row for line in TICKETS], header)
    manifest = imported(tmp_path, text, mapping={"event": "incident_state+lifecycle:transition"})
    assert manifest.mapping.event == ("incident_state", "lifecycle:transition")
    assert sequences(tmp_path)["INC2"] == ("New+complete", "Closed+complete")


def test_two_events_that_joining_would_make_one_are_refused(tmp_path):
    rows = ["1,a+b,c,2020-01-01", "1,a,b+c,2020-01-01"]
    text = csv_text(rows, "case id,one,two,timestamp")
    with pytest.raises(LogError, match=r"both make the event 'a\+b\+c'"):
        imported(tmp_path, text, mapping={"event": ("one", "two")})


def test_a_part_of_an_event_that_is_missing_makes_a_reject(tmp_path):
    text = csv_text(["1,a,,2020-01-01", "1,a,b,2020-01-01"], "case id,one,two,timestamp")
    manifest = imported(tmp_path, text, mapping={"event": "one+two"})
    assert manifest.reject_reasons == {"no event: two is missing": 1}


def test_session_attributes_are_the_first_value_and_changes_are_counted(tmp_path):
    rows = ["1,a,2020-01-02,,silver", "1,b,2020-01-01,x,", "1,c,2020-01-03,y,gold", "2,a,2020-01-01,,"]
    text = csv_text(rows, "case id,activity,timestamp,team,contract")
    manifest = imported(tmp_path, text, mapping={"attributes": ("team", "contract")})
    assert manifest.changing == {"team": 1, "contract": 1}
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        snapshot = split(store, held_out=0.5)
        attributes = {row.session_id: row.attributes for row in store.frozen(snapshot)}
    assert attributes == {"1": {"team": "x", "contract": "silver"}, "2": {}}


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"", "log.csv", "is empty"),
        (b"\n\n", "log.csv", "has no header line"),
        (csv_text([]), "log.csv", "no usable event in 0 rows"),
        (csv_text(["INC1,New,?,Ann,srv1"]), "log.csv", "no usable event in 1 rows"),
        ("a,b\n1,2\n", "log.csv", "no column has a usual name for session, event, time"),
        (csv_text().encode("cp1252").replace(b"Ann", b"J\xfcrg"), "log.csv", "is not utf-8 text near line"),
        (
            csv_text([*TICKETS, 'INC3,"New,2020-01-01 10:00:00,Ann,srv1']),
            "log.csv",
            "line 7: a quoted value never ends",
        ),
        (f'{HEADER}\nINC1,"{"x" * 200_000}",2020-01-01,a,b\n', "log.csv", "line 2: a quoted value never ends"),
        (b"x" * 5_000_000, "log.csv", "a line of more than 4,194,304 bytes"),
        (",".join("c" * 5000), "log.csv", "has 5000 columns"),
        (csv_text(), "log.dat", "neither the name nor the first bytes"),
        (zipped(a__csv=b"x", b__csv=b"y"), "log.zip", "holds 2 files ('a.csv', 'b.csv')"),
        (zipped(), "log.zip", "holds 0 files"),
        (csv_text(header=HEADER.replace("caller_id", "number")), "log.csv", "2 columns are called 'number'"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused_with_the_reason(tmp_path, content, name, words):
    with pytest.raises(LogError) as caught:
        imported(tmp_path, content, name)
    assert words in str(caught.value)
    assert not (tmp_path / "store.duckdb").exists()


def test_another_encoding_is_read_when_it_is_named(tmp_path):
    text = csv_text().replace("Ann", "Jürg")
    manifest = imported(tmp_path, text.encode("cp1252"), encoding="cp1252")
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert {row.customers for row in store.keyed_sessions()} == {("Jürg",), ("Bob",)}
    assert manifest.encoding == "cp1252"


@pytest.mark.parametrize(
    "options", [{"encoding": "no such"}, {"encoding": "rot13"}, {"delimiter": ";;"}, {"format": "pdf"}]
)
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    with pytest.raises(LogError):
        imported(tmp_path, csv_text(), **options)


def test_a_preview_shows_columns_first_rows_and_the_guess_without_a_store(tmp_path):
    seen = preview(write(tmp_path / "log.csv", csv_text()), rows=2)
    assert seen.head.columns == tuple(HEADER.split(","))
    assert [row[0] for row in seen.head.rows] == ["INC1", "INC1"]
    assert (seen.mapping.session, seen.problem) == ("number", None)
    unknown = preview(write(tmp_path / "log.csv", "a,b\n1,2\n"))
    assert unknown.mapping is None
    assert "--session" in unknown.problem


def test_a_missing_log_a_folder_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "none.csv", tmp_path, tmp_path / "pipe.csv"):
        with pytest.raises(LogError):
            import_log(path, tmp_path / "store.duckdb")
