"""Counterexamples of a run, as the pages read them."""

from __future__ import annotations

import json

import pytest
import streamlit as st

from auditlib.errors import IntegrityError
from auditlib.runs.folder import write_run
from auditlib.web.cases import cases_of, content, row_events
from tests.web.opening import opened, settings_for, words
from tests.web.world import make_world, tables

FILE = "counterexamples/01_cache_parity_single_events.json"
CASE = {
    "format": 1,
    "kind": "counterexample",
    "audit": "cache parity",
    "check": "single events",
    "gap": 0.86,
    "limit": 1e-5,
    "asked": {
        "steps": [
            {"verb": "prefill", "events": [[1, 3], [1, 4]], "valid": [[True, True], [False, True]], "parents": []},
            {"verb": "reorder", "events": [], "valid": [], "parents": [1, 0]},
            {"verb": "extend", "events": [[5], [6]], "valid": [[True], [True]], "parents": []},
        ],
        "row": 0,
        "column": 0,
    },
    "against": {
        "steps": [{"verb": "full", "events": [[4, 5]], "valid": [[True, True]], "parents": []}],
        "row": 0,
        "column": 1,
    },
}


@pytest.fixture
def run(tmp_path):
    world = make_world(tmp_path)
    manifest = {key: value for key, value in world.refused.manifest.items() if key != "files"} | {"run": "r2"}
    report = {**world.refused.report, "run": "r2"}
    extras = {FILE: json.dumps(CASE).encode(), FILE.replace(".json", ".py"): b"print()"}
    return write_run(world.runs, "r2", manifest=manifest, report=report, tables=tables(), policy=b"{}", extras=extras)


def test_a_rows_events_are_followed_through_reorders_and_padding():
    assert row_events(CASE["asked"]["steps"], 0) == (4, 5)
    assert row_events(CASE["asked"]["steps"], 1) == (1, 3, 6)


def test_a_case_is_told_with_its_gap_its_limit_and_its_events(run):
    (case,) = cases_of(run, "cache parity")
    assert case.words == "gap 0.86 where 1.00e-5 is allowed, after the start and 1 event"
    assert case.events == "4-5"
    assert cases_of(run, "causality") == ()


def test_an_altered_case_is_not_shown(run):
    path = run.folder / FILE
    path.write_bytes(path.read_bytes().replace(b"0.86", b"0.00"))
    with pytest.raises(IntegrityError, match="audit again"):
        cases_of(run, "cache parity")
    with pytest.raises(IntegrityError):
        content(run, FILE)


def test_the_board_leads_to_the_counterexamples_and_opens_though_one_is_altered(run, tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path / "home", tmp_path / "store.duckdb", run.folder.parent)
    links = [one.proto for one in opened("board").get("page_link")]
    (link,) = [one for one in links if one.label == "Smallest counterexamples"]
    assert "section=Counterexamples" in link.query_string
    asked = {"run": "r2", "section": "Counterexamples"}
    app = opened("cache_parity", **asked)
    assert [tab.label for tab in app.tabs if len(tab.children)] == ["Counterexamples"]
    assert "single events: gap 0.86" in words(app)
    (run.folder / FILE).write_bytes(b"{}")
    st.cache_resource.clear()
    assert "Refused for cache parity" in words(opened("board"))
    assert "audit again" in words(opened("cache_parity", **asked))


def test_two_runs_of_one_minute_are_told_apart(run, tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path / "home", tmp_path / "store.duckdb", run.folder.parent)
    box = opened("board").sidebar.selectbox(key="run")
    assert sorted(box.options) == ["2026-11-30 10:00 UTC · refused · 0a1b2c3d", "2026-11-30 10:00 UTC · refused · r2"]
    box.set_value("2026-11-30 10:00 UTC · refused · r2").run()
    assert "run r2 of" in words(opened("board", run="r2"))
