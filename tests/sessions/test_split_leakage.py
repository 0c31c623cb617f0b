"""The leakage report measures the frozen rows: a leak that was planted is told."""

from __future__ import annotations

import json

import duckdb
import pytest

from auditlib.sessions.split import leakage, split
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import csv_text, imported, ticket_store


@pytest.fixture
def store(tmp_path):
    sessions = [(f"s{n:02d}", f"c{n}", f"a{n}") for n in range(20)]
    with SessionStore.open(ticket_store(tmp_path, sessions), read_only=False) as store:
        yield store


def planted(store, change):
    """The report after a change to the frozen rows, as a faulty split or a tampering hand would leave them."""
    snapshot = split(store, ("customer", "asset"))
    store.close()
    with duckdb.connect(str(store.path)) as connection:
        connection.execute(change)
    with SessionStore.open(store.path) as changed:
        return leakage(changed, changed.snapshot(snapshot.digest))


FIRST = "(select min(session_id) from frozen where side = '{}')"
HELD, TRAINED = FIRST.format("held-out"), FIRST.format("training")
OF_HELD, OF_TRAINED = f"from frozen where session_id = {HELD}", f"from frozen where session_id = {TRAINED}"


def test_a_sound_split_has_no_leak(store):
    report = planted(store, "select 1")
    assert (report.training_sessions, report.held_out_sessions, report.quarantined) == (16, 4, 0)
    assert (report.shared_sessions, report.prefix_in_training, report.shared_customers, report.shared_assets) == (
        0,
        0,
        0,
        0,
    )
    assert report.crossing_keys == {"customer": 0, "asset": 0}
    assert (report.duplicate_sequences, report.twin_sessions) == (4, 0)
    assert report.component_sizes == (1,) * 20


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            f"insert into frozen select * replace ('training' as side) {OF_HELD}",
            {"shared_sessions": 1, "prefix_in_training": 1, "shared_customers": 1, "twin_sessions": 1},
        ),
        (
            f"insert into frozen select * replace ('training' as side, events[:1] as events) {OF_HELD}",
            {"shared_sessions": 1, "prefix_in_training": 1, "twin_sessions": 0},
        ),
        (
            f"insert into frozen select * replace ('training' as side, ['other'] as events) {OF_HELD}",
            {"shared_sessions": 1, "prefix_in_training": 0},
        ),
        (
            f"update frozen set customers = (select customers {OF_TRAINED}) where session_id = {HELD}",
            {
                "shared_sessions": 0,
                "shared_customers": 1,
                "shared_assets": 0,
                "crossing_keys": {"customer": 1, "asset": 0},
            },
        ),
        (
            f"update frozen set assets = [assets[1], (select assets[1] {OF_TRAINED})] where session_id = {HELD}",
            {"shared_assets": 1, "crossing_keys": {"customer": 0, "asset": 1}},
        ),
        ("update frozen set events = ['new'] where side = 'held-out'", {"duplicate_sequences": 0}),
        ("update frozen set last_time = '2030-01-01' where side = 'training'", {"training_after_start": 16}),
    ],
)
def test_a_planted_leak_is_told(store, change, expected):
    report = planted(store, change)
    assert {name: getattr(report, name) for name in expected} == expected


def test_a_session_counts_with_every_customer_it_ever_had(tmp_path):
    rows = [
        "1,a,2020-01-01,Ann",
        "1,b,2020-01-02,Bob",
        "2,a,2020-01-01,Bob",
        "3,a,2020-01-01,Cid",
        "4,a,2020-01-01,Cid",
    ]
    imported(tmp_path, csv_text(rows, "case id,activity,timestamp,customer"))
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        snapshot = split(store, ("customer",), held_out=0.5)
        held = {session.session_id for session in store.sessions(snapshot)}
    assert held in ({"1", "2"}, {"3", "4"})


def test_the_report_is_plain_json_with_shares(store):
    document = json.loads(json.dumps(leakage(store, split(store)).to_dict()))
    assert document["by"] == ["session"]
    assert document["crossing_keys"] == {}
    assert document["duplicate_sequences_share"] == 1.0
