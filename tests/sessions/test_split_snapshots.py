"""Splits: sides that share no key, or a refusal with the numbers; snapshots that never change."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.errors import IntegrityError, StoreError
from auditlib.sessions.components import KeyedSession, components
from auditlib.sessions.sides import choose_sides
from auditlib.sessions.snapshot import FrozenSession, Terms, content_digest
from auditlib.sessions.split import group_sizes, leakage, split
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import csv_text, imported, ticket_store

CHAIN = [(f"s{n}", f"c{n}+c{n + 1}", "?") for n in range(10)]
GROUPS = [(f"s{n}", f"c{n // 2}", f"a{n // 4}") for n in range(20)]
CROSSED = [(f"s{n:03d}", f"c{n % 20}", f"a{(n + n // 40) % 5}") for n in range(200)]
LOOSE = [(f"s{n}", "?", "?") for n in range(20)]


@pytest.fixture
def opened(tmp_path):
    stores = []

    def make(sessions):
        stores.append(SessionStore.open(ticket_store(tmp_path, sessions), read_only=False))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def keyed(number, customers=(), assets=(), start=None):
    start = number * 100 if start is None else start
    return KeyedSession(f"s{number:04d}", tuple(customers), tuple(assets), start, start + 50, 1, number)


names = st.lists(st.sampled_from("abcdefgh"), max_size=2, unique=True)
logs = st.lists(st.tuples(names, names, st.integers(0, 1000)), min_size=2, max_size=40).map(
    lambda rows: [keyed(n, customers, assets, start) for n, (customers, assets, start) in enumerate(rows)]
)


@given(logs)
def test_components_are_the_sets_that_sharing_a_key_connects(rows):
    found = components(rows, ("session", "customer", "asset"))
    label = list(range(len(rows)))  # the slow way: merge until nothing changes
    for _ in rows:
        for one in range(len(rows)):
            for other in range(len(rows)):
                if set(rows[one].customers) & set(rows[other].customers) or set(rows[one].assets) & set(
                    rows[other].assets
                ):
                    label[one] = label[other] = min(label[one], label[other])
    same = np.equal.outer(found.label, found.label)
    assert (same == np.equal.outer(np.array(label), np.array(label))).all()
    assert found.sizes.sum() == len(rows)


@given(
    logs,
    st.lists(st.sampled_from(["customer", "asset"]), unique=True),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([0.1, 0.2, 0.5]),
)
def test_whatever_is_split_shares_no_key_and_keeps_what_was_promised(
    rows, keys, chronological, quarantine, seed, share
):
    terms = Terms(("session", *sorted(keys)), share, seed, chronological, quarantine)
    try:
        chosen = choose_sides(rows, terms).by_session
    except StoreError:  # refused rather than leaking; the wording has tests of its own
        return
    side = {
        name: [row for row in rows if chosen[row.session_id] == name]
        for name in ("training", "held-out", "quarantined")
    }
    for key in ("customers", "assets"):
        if key[:-1] in keys:
            values = [{value for row in side[name] for value in getattr(row, key)} for name in ("training", "held-out")]
            assert not values[0] & values[1]
    if chronological:
        assert max(row.first_time for row in side["training"]) <= min(row.first_time for row in side["held-out"])
    if chronological and quarantine:
        assert max(row.last_time for row in side["training"]) <= min(row.first_time for row in side["held-out"])
    if not quarantine:
        assert not side["quarantined"]
    kept = len(side["training"]) + len(side["held-out"])
    assert side["training"]
    assert abs(len(side["held-out"]) - share * kept) <= max(1.0, 0.25 * share * kept)


@pytest.mark.parametrize(
    ("sessions", "by", "sizes"),
    [
        (CHAIN, ("session",), [1] * 10),
        (CHAIN, ("customer",), [10]),
        (GROUPS, ("customer",), [2] * 10),
        (GROUPS, ("customer", "asset"), [4] * 5),
        (LOOSE, ("session",), [1] * 20),
    ],
)
def test_group_sizes_follow_the_keys_and_missing_keys_join_nobody(opened, sessions, by, sizes):
    assert list(group_sizes(opened(sessions), by)) == sizes


def test_a_split_by_customer_shares_no_customer(opened):
    store = opened(GROUPS)
    snapshot = split(store, ("session", "customer"), held_out=0.3, seed=1)
    report = leakage(store, snapshot)
    assert (report.shared_sessions, report.shared_customers, report.crossing_keys) == (0, 0, {"customer": 0})
    assert report.shared_assets > 0  # not asked for, but told
    assert (snapshot.held_out_sessions, snapshot.components, snapshot.largest_component) == (6, 10, 2)


def test_an_impossible_split_is_refused_with_the_numbers_and_the_ways_out(opened):
    with pytest.raises(StoreError) as caught:
        split(opened(CROSSED), ("customer", "asset"))
    message = str(caught.value)
    assert "holds 200 of 200 sessions (100.00%)" in message
    assert "--quarantine" in message
    assert "session,customer 5.00%" in message
    assert "session,asset 20.00%" in message


@pytest.mark.parametrize("chronological", [False, True])
def test_quarantine_leaves_out_what_joins_the_sides(opened, chronological):
    store = opened(CROSSED)
    snapshot = split(store, ("asset",), quarantine=True, chronological=chronological)
    report = leakage(store, snapshot)
    assert report.crossing_keys == {"asset": 0}
    assert report.shared_assets == report.shared_sessions == 0
    assert snapshot.training_sessions + snapshot.held_out_sessions + snapshot.quarantined == 200
    assert 0.15 <= snapshot.held_out_share <= 0.25
    assert (snapshot.quarantined > 0) == chronological


def test_a_chronological_split_holds_out_the_latest(opened):
    store = opened(LOOSE)
    snapshot = split(store, chronological=True)
    assert [session.session_id for session in store.sessions(snapshot)] == ["s16", "s17", "s18", "s19"]
    assert leakage(store, snapshot).training_after_start == 0


def test_the_seed_decides_and_the_same_seed_decides_the_same(opened):
    store = opened(LOOSE)
    held = [frozenset(one.session_id for one in store.sessions(split(store, seed=seed))) for seed in (0, 1, 0)]
    assert held[0] == held[2] != held[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": ("colour",)}, "cannot split by colour"),
        ({"by": "session"}, "cannot split by session; the keys are some of"),
        ({"by": ("customer",)}, "no session has a value for 'customer'"),
        ({"held_out": 0}, "between 0 and 1"),
        ({"held_out": 1.0}, "between 0 and 1"),
        ({"held_out": float("nan")}, "between 0 and 1"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(opened, options, words):
    with pytest.raises(StoreError) as caught:
        split(opened(LOOSE), **options)
    assert words in str(caught.value)


def test_progress_is_told_and_can_stop_a_split(opened):
    seen = []
    split(opened(LOOSE), progress=lambda *step: seen.append(step))
    assert seen[0] == (0, 3, "reading keys")
    assert seen[-1] == (3, 3, "done")


def test_a_snapshot_stays_as_it_is_when_the_store_goes_on(opened, tmp_path):
    store = opened(LOOSE)
    snapshot = split(store)
    before = list(store.frozen(snapshot))
    imported(tmp_path, csv_text(), "more.csv")
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as later:
        later.undo_import(1)
        assert later.summary().sessions == 2
        assert list(later.frozen(snapshot)) == before
        later.verify(snapshot)
        assert later.snapshot(snapshot.digest) == later.snapshot() == snapshot
        newer = split(later, held_out=0.5)
        assert later.snapshots() == (snapshot, newer)
        assert later.snapshot() == newer


def test_the_same_split_is_the_same_snapshot_and_other_terms_are_another(opened):
    store = opened(LOOSE)
    first = split(store)
    assert split(store) == first
    assert len(store.snapshots()) == 1
    assert split(store, quarantine=True).digest != first.digest


def test_the_digest_belongs_to_the_content_and_not_to_the_file(tmp_path):
    digests = set()
    for name, sessions in (("a", LOOSE), ("b", [*LOOSE[10:], *LOOSE[:10]])):
        folder = tmp_path / name
        folder.mkdir()
        rows = [f"{session},go,2020-01-01 00:00:00,?,?" for session, _, _ in sessions]
        imported(folder, csv_text(rows))
        with SessionStore.open(folder / "store.duckdb", read_only=False) as store:
            digests.add(split(store).digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        "update frozen set events = ['x', 'close'] where session_id = 's3'",
        "update frozen set side = if(side = 'training', 'held-out', 'training') where session_id = 's3'",
        "update frozen set session_id = 's99' where session_id = 's3'",
        "update frozen set customers = ['eve'] where session_id = 's3'",
        "update frozen set attributes = map {'vip': 'yes'} where session_id = 's3'",
        "update frozen set last_time = last_time + interval 1 second where session_id = 's3'",
        "delete from frozen where session_id = 's3'",
        "insert into frozen select * from frozen where session_id = 's3'",
        'update snapshots set document = replace(document, \'"by": ["session"]\', \'"by": ["session", "customer"]\')',
    ],
)
def test_a_change_of_the_frozen_rows_or_terms_is_noticed(opened, change):
    store = opened(LOOSE)
    digest = split(store).digest
    store.close()
    with duckdb.connect(str(store.path)) as connection:
        connection.execute(change)
    with SessionStore.open(store.path) as tampered, pytest.raises(IntegrityError, match="changed after the split"):
        tampered.verify(tampered.snapshot(digest))


def test_an_unknown_snapshot_is_refused(opened):
    store = opened(LOOSE)
    split(store)
    with pytest.raises(StoreError, match="has no snapshot sha256:0"):
        store.snapshot("sha256:0")


def test_sessions_that_the_store_does_not_hold_cannot_be_frozen(opened):
    store = opened(LOOSE)
    with pytest.raises(StoreError, match="1 of 2 sessions to freeze are not in the store"):
        store.freeze(Terms(("session",), 0.5, 0), {"s1": "training", "ghost": "held-out"})
    assert store.snapshots() == ()


texts = st.text(max_size=6)
frozen_rows = st.lists(
    st.builds(
        FrozenSession,
        st.sampled_from(["training", "held-out"]),
        texts,
        st.lists(texts, max_size=3).map(tuple),
        st.lists(texts, max_size=2).map(tuple),
        st.lists(texts, max_size=2).map(tuple),
        st.dictionaries(texts, texts, max_size=2),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=4,
)


@given(frozen_rows, frozen_rows)
def test_different_rows_have_different_digests(one, other):
    terms = Terms(("session",), 0.2, 0)
    assert (content_digest(terms, one) == content_digest(terms, other)) == (one == other)


def test_a_chronological_cut_that_moved_is_looked_at_for_sessions_that_run_across_it():
    """Sessions 6 and 7 share a customer, so the cut falls before 6, where session 5 is still going on."""
    rows = [keyed(n, [f"c{6 if n == 7 else n}"]) for n in range(10)]
    rows[5] = replace(rows[5], last_time=rows[6].first_time + 10)
    terms = Terms(("session", "customer"), 0.3, 0, chronological=True, quarantine=True)
    sides = choose_sides(rows, terms).by_session
    begin = min(row.first_time for row in rows if sides[row.session_id] == "held-out")
    assert all(row.last_time <= begin for row in rows if sides[row.session_id] == "training")
