"""The comparison's page: what it says of each run, which run it begins with, and its tables."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from auditlib.runs.folder import open_run, write_run
from auditlib.sessions.store import SessionStore
from auditlib.web import comparison, disk, parts_compare, state
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run, make_world, tables

WHOLE, PART = "20261130T080000Z-aaaaaaaa", "20261130T120000Z-bbbbbbbb"


@pytest.fixture
def partly(tmp_path, monkeypatch):
    """The refused run of one revision, and of the other an older complete run and a newer one of a single audit."""
    world = make_world(tmp_path / "world")
    a_run(world.runs, world.sound, world.snapshot, run_id=WHOLE)
    a_run(world.runs, world.sound, world.snapshot, run_id=PART, audits=("cache parity",))
    settings_for(monkeypatch, tmp_path / "home", world.store, world.runs)
    return world


def test_a_run_is_compared_with_a_complete_one_unless_somebody_asks_for_another(partly):
    app = opened("compare", revision=partly.faulty.digest)
    assert app.selectbox(key="against").value == WHOLE


def test_a_partial_run_is_told_by_what_it_left_out_and_by_no_failure(partly):
    said = words(opened("compare", revision=partly.faulty.digest, against=PART))
    assert "Not approved; not measured: " in said
    assert "causality" in said.split("Not approved; not measured: ")[1].splitlines()[0]
    assert "Refused for cache parity" in said
    assert "gaps" not in "".join(line for line in said.splitlines() if line.startswith("Refused"))


def test_rates_stand_as_percentages_as_on_the_page_of_policies(partly):
    app = opened("compare", revision=partly.faulty.digest, section="Policies")
    columns = app.dataframe[0].proto.columns
    assert columns.count("percent") == 3


def test_exponents_of_paired_differences_keep_their_end_and_sessions_are_told_as_distinct(partly):
    after, before = with_gap(partly, partly.refused, 0.31, "c"), with_gap(partly, open_run(partly.runs / WHOLE), 0, "d")
    link = {"revision": partly.faulty.digest, "run": after, "against": before}
    app = opened("compare", **link, section="Paired differences")
    table = app.dataframe[0]
    assert "distinct sessions" in table.value
    widths = {name: found.get("width") for name, found in json.loads(table.proto.columns).items()}
    assert min(widths[name] for name in ("before", "after", "difference", "p")) >= 90
    assert "see the section Latency" in words(app)
    # What a phone shows without a scroll: how much of what changed, and under which setting.
    assert list(table.value.columns[:3]) == ["difference", "what", "setting"]


def test_a_setting_and_what_became_of_it_stand_in_columns_of_their_own():
    row = {
        "what": "greedy: next event right", "before": 0.5, "after": 0.25, "difference": -0.25, "low": -0.5, "high": 0.0,
        "worse": 1, "better": 0, "p": 1.0, "sessions": 4, "interval": "i",
    }  # fmt: skip
    shown = parts_compare._difference(row)
    assert (shown["setting"], shown["what"], shown["difference"]) == ("greedy", "next event right", "-25.00%")
    assert parts_compare._difference({**row, "what": "sessions within tolerance"})["setting"] == ""


def test_a_flip_is_selected_among_the_rows_that_are_shown(partly, monkeypatch):
    after, before = with_gap(partly, partly.refused, 0.31, "g"), with_gap(partly, open_run(partly.runs / WHOLE), 0, "h")
    asked = []
    monkeypatch.setattr(parts_compare.tables, "selected", lambda table, *_: asked.append(len(table)))
    monkeypatch.setattr(parts_compare.st, "dataframe", lambda *_, **__: pytest.fail("a selection bound to no rows"))
    opened("compare", revision=partly.faulty.digest, run=after, against=before)
    assert set(asked) == {1}


def test_a_pairing_made_while_the_revision_was_away_is_made_again_when_it_is_back(partly):
    with SessionStore.open(partly.store) as store:
        held_out = next(iter(store.sessions(store.snapshot(partly.snapshot), "held-out"))).session_id
    sequences = {("decoding policy", "sequences"): tables()["decoding policy", "sequences"].assign(session_id=held_out)}
    for mark in "ef":
        with_tables(partly, partly.refused, sequences, mark)
    runs = [open_run(partly.runs / f"20261130T130000Z-{8 * mark}") for mark in "ef"]
    found, _ = disk.catalogue(partly.store, partly.runs)
    entry = next(entry for entry in found if entry.digest == partly.faulty.digest)
    places = state.Places(partly.store, partly.runs)
    here = state.Selection(places, found, entry, runs[1], partly.snapshot, partly.snapshot)
    away = partly.faulty.folder.rename(partly.faulty.folder.with_name("away"))
    assert comparison.paired(here, *runs).answers["right_after"].isna().all()
    named = comparison.about(here, *runs)
    away.rename(partly.faulty.folder)
    assert comparison.paired(here, *runs).answers["right_after"].notna().all()
    assert comparison.about(here, *runs) != named


def with_gap(world, run, gap, mark):
    """Name of a copy of the run in which one held-out session has this gap."""
    sessions = pd.DataFrame(
        {"session_id": ["S002"], "events": ["1-6-3-4"], "ratio": [1.0], "gap": [float(gap)], "weight": [3]}
    )
    return with_tables(world, run, {("numerics", "sessions"): sessions}, mark)


def with_tables(world, run, found, mark):
    """Name of a copy of the run with these tables in place of its own."""
    name = f"20261130T130000Z-{8 * mark}"
    manifest = {**json.loads(json.dumps(run.manifest)), "run": name}
    manifest.pop("files")
    report = {**json.loads(json.dumps(run.report)), "run": name}
    return write_run(world.runs, name, manifest=manifest, report=report, tables=found, policy=b"{}").id
