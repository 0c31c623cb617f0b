"""The store: typed answers, one cursor per call, and nothing from a stranger's file is run."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from datetime import datetime

import duckdb
import pytest

from auditlib.errors import IntegrityError, StoreError
from auditlib.sessions.snapshot import Terms
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import csv_text, imported, ticket_store, write


@pytest.fixture
def path(tmp_path):
    return ticket_store(tmp_path, [(f"s{n}", f"c{n % 4}", f"a{n % 3}") for n in range(20)])


@pytest.fixture
def store(path):
    with SessionStore.open(path, read_only=False) as store:
        yield store


def test_a_summary_counts_what_is_there(tmp_path):
    imported(tmp_path, csv_text())
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        summary = store.summary()
        assert (summary.sessions, summary.events, summary.imports) == (2, 5, 1)
        assert summary.event_counts == {"Closed": 2, "New": 2, "Active": 1}
        assert (summary.customers, summary.assets) == (2, 1)
        assert summary.first_time.isoformat() == "2020-01-01T10:00:00"
        assert store.event_names() == ("Active", "Closed", "New")


def test_an_empty_store_answers_every_question(tmp_path):
    with SessionStore.create(tmp_path / "store.duckdb") as store:
        assert store.summary().sessions == 0
        assert store.summary().first_time is None
        assert store.event_names() == store.imports() == store.rejects() == store.snapshots() == store.revisions() == ()
        assert store.variants() == store.transitions() == ()
        assert store.lengths() == {}
        with pytest.raises(StoreError, match="no split yet"):
            store.snapshot()
        with pytest.raises(StoreError, match="a split needs two"):
            split(store)


def test_variants_transitions_and_lengths_of_the_store_and_of_one_side(tmp_path):
    rows = [
        f"{session},{name},2020-01-01 10:0{n}:00,x,y"
        for session, way in [("1", "abb"), ("2", "ab"), ("3", "ab")]
        for n, name in enumerate(way)
    ]
    imported(tmp_path, csv_text(rows))
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        assert [(variant.events, variant.sessions) for variant in store.variants()] == [
            (("a", "b"), 2),
            (("a", "b", "b"), 1),
        ]
        assert len(store.variants(limit=1)) == 1
        assert {(one.first, one.then): one.count for one in store.transitions()} == {
            (None, "a"): 3,
            ("a", "b"): 3,
            ("b", "b"): 1,
            ("b", None): 3,
        }
        assert store.lengths() == {2: 2, 3: 1}
        snapshot = store.freeze(Terms(("session",), 0.5, 0), {"1": "held-out", "2": "training"})
        assert store.lengths(snapshot) == {2: 1, 3: 1}
        assert store.lengths(snapshot, "held-out") == {3: 1}
        assert store.variants(snapshot, "training")[0].events == ("a", "b")
        assert sum(one.count for one in store.transitions(snapshot, "held-out")) == 4


def test_sessions_come_by_id_with_their_first_customer_and_asset(store):
    snapshot = split(store, held_out=0.5)
    held = list(store.sessions(snapshot, "held-out"))
    assert [session.session_id for session in held] == sorted(session.session_id for session in held)
    assert len(held) == 10
    assert list(store.sessions(snapshot, "held-out", limit=3)) == held[:3]
    assert store.session(snapshot, held[0].session_id) == held[0]
    number = int(held[0].session_id[1:])
    assert (held[0].customer, held[0].asset) == (f"c{number % 4}", f"a{number % 3}")
    with pytest.raises(StoreError, match="no session 'nobody'"):
        store.session(snapshot, "nobody")


def test_sessions_asked_for_by_name_come_in_the_order_asked_for_from_both_sides(store):
    snapshot = split(store, by=("session",), held_out=0.4, seed=1)
    held, rest = tuple(store.sessions(snapshot)), tuple(store.sessions(snapshot, "training"))
    asked = (held[1], rest[0], held[0])
    assert store.named(snapshot, [session.session_id for session in asked]) == asked
    assert store.named(snapshot, ()) == ()
    with pytest.raises(StoreError, match='no session "it\'s"'):
        store.named(snapshot, [held[0].session_id, "it's"])


LATER = [
    ("s1", "2026-01-05T00:00:00", "2026-01-05T00:01:40"),
    ("s2", "2026-01-05T23:59:59", "2026-01-08T23:59:59"),
    ("s3", "2026-01-07T00:00:00", "2026-01-07T00:00:00"),
]


@pytest.mark.parametrize(
    ("last", "period", "begins"),
    [("2026-01-09", "day", "2026-01-09"), ("2027-12-29", "week", "2027-12-27"), ("2030-06-15", "month", "2030-06-01"),
     ("2039-03-03", "year", "2039-01-01")],
)  # fmt: skip
def test_times_are_counted_by_side_in_bins_that_fit_the_span_of_the_log(tmp_path, last, period, begins):
    rows = [*LATER, ("s4", f"{last}T00:00:00", f"{last}T00:00:01")]
    text = "".join(f"{name},a,{first}\n{name},b,{then}\n" for name, first, then in rows)
    imported(tmp_path, f"session,event,time\n{text}")
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        snapshot = split(store, held_out=0.5, seed=1)
        held = {session.session_id for session in store.sessions(snapshot)}
        found = store.times(snapshot)
    took = {"s1": 10, "s2": 27, "s3": None, "s4": 0}  # floor(5 log10(seconds)) of 100 s, 3 days, none and 1 s
    sides = {name: "held-out" if name in held else "training" for name in took}
    assert {(side, place): count for side, place, count in found.durations} == Counter(
        (sides[name], place) for name, place in took.items()
    )
    assert found.period == period
    assert (sides["s4"], datetime.fromisoformat(begins)) in {(side, start) for side, start, _ in found.starts}
    assert sum(count for *_, count in found.starts) == len(took)
    assert {high for _, high in found.spread.values()} <= {0, 1, 100, 259_200}
    assert max(high for _, high in found.spread.values()) == 259_200


def test_many_threads_may_ask_one_store(store):
    snapshot = split(store)
    expected = list(store.sessions(snapshot, "training"))
    answers = []

    def ask():
        answers.extend((list(store.sessions(snapshot, "training")), store.summary().sessions) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [(expected, 20)] * 120


def test_two_generators_of_one_store_do_not_disturb_each_other(store):
    snapshot = split(store, held_out=0.5)
    pairs = list(zip(store.sessions(snapshot, "held-out"), store.sessions(snapshot, "training"), strict=True))
    assert len(pairs) == 10


def test_an_open_store_keeps_its_view_while_another_writes_and_a_new_one_sees_the_change(path):
    with SessionStore.open(path) as reader, SessionStore.open(path, read_only=False) as writer:
        writer.add_revision("gpt", "/models/gpt", "sha256:1")
        assert reader.revisions() == ()
        with SessionStore.open(path) as later:
            assert [one.name for one in later.revisions()] == ["gpt"]


def test_revisions_are_noted_and_moved_but_not_doubled(store):
    store.add_revision("gpt", "old", "sha256:1")
    store.add_revision("gpt", "new", "sha256:1")
    store.add_revision("gpt", "other", "sha256:2")
    assert [(one.name, one.folder, one.digest) for one in store.revisions()] == [
        ("gpt", "new", "sha256:1"),
        ("gpt", "other", "sha256:2"),
    ]


def test_a_store_opened_for_reading_cannot_be_changed(path):
    before = path.read_bytes()
    with SessionStore.open(path) as store:
        for change in (lambda: store.add_revision("a", "b", "c"), lambda: store.undo_import(1), lambda: split(store)):
            with pytest.raises(StoreError, match="read_only=False"):
                change()
    assert path.read_bytes() == before


def test_a_store_is_never_made_over_something_else(path):
    with pytest.raises(StoreError, match="exists already"):
        SessionStore.create(path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no session store at"),
        (lambda path: path.mkdir(), "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.write_bytes(b""), "is not a DuckDB file"),
        (lambda path: path.write_bytes(b"x" * 5000), "is not a DuckDB file"),
        (lambda path: path.write_bytes(b"x" * 8 + b"DUCK" + b"y" * 9000), "cannot be opened as a session store"),
        (lambda path: duckdb.connect(str(path)).close(), "table 'meta' is missing"),
    ],
)
def test_what_is_no_store_is_refused_with_the_reason(tmp_path, make, words):
    make(tmp_path / "odd.duckdb")
    with pytest.raises(StoreError) as caught:
        SessionStore.open(tmp_path / "odd.duckdb")
    assert words in str(caught.value)


def tampered(path, *statements):
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["drop table events"], "table 'events' is missing"),
        (["alter table events add column extra integer"], "table 'events' is made of"),
        (["alter table events alter column event_no type varchar"], "table 'events' is made of"),
        (["update meta set value = '99'"], "store format"),
        (
            ["drop table sessions", "create view sessions as select * from read_text('/etc/passwd')"],
            "table 'sessions' is missing",
        ),
    ],
)
def test_a_file_with_other_tables_or_with_views_is_refused(path, statements, words):
    tampered(path, *statements)
    with pytest.raises(StoreError) as caught:
        SessionStore.open(path)
    assert words in str(caught.value)


def test_a_macro_of_a_stranger_does_not_replace_a_function_that_we_call(path):
    tampered(path, "create macro epoch_us(x) as 42", "create macro len(x) as 99")
    with SessionStore.open(path) as store:
        assert set(store.lengths()) == {2}
        assert all(row.first_time > 42 for row in store.keyed_sessions())


def test_a_connection_to_a_store_reaches_no_file_and_no_setting(path):
    with SessionStore.open(path) as store:
        for statement in (
            "select * from read_text('/etc/hostname')",
            "attach 'x.db' as x",
            "set threads = 1",
            "copy (select 1) to 'x.csv'",
        ):
            with pytest.raises(duckdb.Error):
                store.cursor().execute(statement)
        with pytest.raises(duckdb.Error, match="read-only"):
            store.cursor().execute("delete from store.main.events")


def test_a_write_ahead_log_beside_a_store_is_refused(path):
    write(path.with_name(path.name + ".wal"), b"anything")
    with pytest.raises(StoreError, match="another program is changing the store"):
        SessionStore.open(path)


@pytest.mark.parametrize(
    "damage",
    [
        "update imports set manifest = '{}'",
        "update imports set manifest = 'no json'",
        "update snapshots set document = '{\"by\": [1]}'",
        "update snapshots set document = '[]'",
    ],
)
def test_documents_that_were_damaged_are_refused(path, damage):
    with SessionStore.open(path, read_only=False) as store:
        split(store)
    tampered(path, damage)
    with SessionStore.open(path) as store, pytest.raises(StoreError, match="damaged"):
        store.imports()
        store.snapshots()


def test_flipped_and_cut_files_are_reported_and_never_end_the_process(path, tmp_path):
    with SessionStore.open(path, read_only=False) as store:
        digest = split(store).digest
    good = path.read_bytes()
    step = len(good) // 40
    for place in range(0, len(good), step):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :]):
            broken = write(tmp_path / "broken.duckdb", bad)
            with pytest.raises((StoreError, IntegrityError), match="store"), SessionStore.open(broken) as store:
                store.summary()
                store.verify(store.snapshot(digest))
                raise StoreError("the store was not harmed: that byte is not in use")


def test_a_store_with_a_quote_and_spaces_in_its_path_opens(path, tmp_path):
    odd = tmp_path / "it's a 'store'; drop table x.duckdb"
    shutil.copy(path, odd)
    with SessionStore.open(odd, read_only=False) as store:
        store.add_revision("a", "b", "c")
        assert store.summary().sessions == 20
