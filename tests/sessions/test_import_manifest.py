"""Manifests and cleaned rows: plain values there and back, and the order of events as a simple program finds it."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.sessions.manifest import ColumnMapping, ImportManifest
from auditlib.sessions.staging import twins
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import csv_text, imported, sequences


def test_a_manifest_survives_json_and_the_store(tmp_path):
    manifest = imported(tmp_path, csv_text(), mapping={"attributes": ("cmdb_ci",), "event": "incident_state"})
    assert ImportManifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert store.imports() == (manifest,)
    assert manifest.source == "log.csv"  # the name only: a folder of this machine means nothing elsewhere
    assert len(manifest.sha256) == len("sha256:") + 64


def test_a_mapping_survives_json():
    mapping = ColumnMapping("a", ("b", "c"), "d", attributes=("e",))
    assert json.loads(json.dumps(mapping.to_dict())) == {
        "session": "a",
        "event": ["b", "c"],
        "time": "d",
        "customer": None,
        "asset": None,
        "attributes": ["e"],
    }


def test_twins_are_names_that_a_reader_would_take_for_one():
    assert twins({"Closed", "closed", "Re opened", "re  opened ", "New"}) == [
        "'Closed' / 'closed'",
        "'Re opened' / 're  opened '",
    ]


events = st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9), st.sampled_from(["", "x", "y"]))


@settings(max_examples=20, deadline=None)
@given(st.lists(events, min_size=1, max_size=40))
def test_events_stand_in_the_order_that_sorting_by_time_and_line_gives(rows):
    lines = [f"{session},{name},2020-01-01 10:00:0{second},{customer},?" for session, name, second, customer in rows]
    with tempfile.TemporaryDirectory() as folder:
        manifest = imported(Path(folder), csv_text(lines))
        found = sequences(Path(folder))
        with SessionStore.open(Path(folder) / "store.duckdb") as store:
            keys = {row.session_id: row.customers for row in store.keyed_sessions()}
            follows = {(one.first, one.then): one.count for one in store.transitions()}
    expected, customers = {}, {}
    for session, name, _, customer in sorted(rows, key=lambda row: row[2]):  # sorted() keeps the order of ties
        expected.setdefault(str(session), []).append(name)
        seen = customers.setdefault(str(session), [])
        seen += [customer] if customer and customer not in seen else []
    assert found == {session: tuple(names) for session, names in expected.items()}
    assert keys == {session: tuple(names) for session, names in customers.items()}
    pairs = Counter(pair for names in expected.values() for pair in zip([None, *names], [*names, None], strict=True))
    assert follows == dict(pairs)
    assert manifest.ties == len(rows) - len({(row[0], row[2]) for row in rows})
    assert manifest.duplicates == len(rows) - len(set(rows))
    assert manifest.repeats == len(rows) - len({row[:3] for row in rows})
