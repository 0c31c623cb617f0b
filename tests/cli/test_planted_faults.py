"""Whole way through the command line: each planted fault is refused under its right name, and nothing else is."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest

from auditlib.decoders.revision import open_revision
from auditlib.demo.build import SPLIT_BY
from auditlib.demo.places import FAULTY, SHIPPED
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from tests import faulty
from tests.desk import SOUND_REVISION, audit, revision_with

UNMASKED = {
    "format": 1,
    "max_new_events": 16,
    "decoding": {"greedy": {"kind": "greedy", "order_mask": False}},
}


def test_the_ids_that_the_planted_faults_rely_on_are_those_of_the_demo():
    events = open_revision(SOUND_REVISION).event_map.events
    assert (events["closed"], events["assigned"]) == (faulty.Reassigns.closed, faulty.Reassigns.assigned)
    assert open_revision(SOUND_REVISION).event_map.end == 2


@pytest.mark.parametrize(
    ("factory", "audits", "failure"),
    [
        ("future_leak", "causality", "causality"),
        ("stale_cache", "cache parity", "cache parity"),
        ("padding_seen", "cache parity", "cache parity"),
        ("layer_forgotten", "cache parity", "cache parity"),
        ("shared_prefix", "cache identity", "cache identity"),
        ("never_ends", "decoding policy", "end-token coverage"),
    ],
)
def test_a_planted_fault_is_refused_under_its_name(factory, audits, failure, demo_store, tmp_path):
    revision = revision_with(tmp_path / factory, factory)
    code, report = audit(demo_store, revision, tmp_path, "--audits", audits)
    assert code == 1
    assert report["failures"] == [failure]
    assert report["audits"][audits]["status"] == "failed"


@pytest.mark.parametrize(
    ("factory", "failure"),
    [("reassigns", "event grammar"), ("never_ends", "end-token coverage"), ("pads", "padding emission")],
)
def test_a_setting_without_the_order_mask_shows_what_the_decoder_does(factory, failure, demo_store, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(UNMASKED))
    revision = revision_with(tmp_path / factory, factory)
    code, report = audit(demo_store, revision, tmp_path, "--audits", "decoding policy", "--policy", str(policy))
    assert code == 1
    assert failure in report["failures"]
    assert report["decision"]["decoding"]["greedy"] == "blocked"


def test_closed_then_assigned_is_named_with_the_rule_that_it_breaks(demo_store, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(UNMASKED))
    revision = revision_with(tmp_path / "reassigns", "reassigns")
    _, report = audit(demo_store, revision, tmp_path, "--audits", "decoding policy", "--policy", str(policy))
    table = pd.read_parquet(tmp_path / "runs" / report["run"] / "tables" / "decoding_policy.sequences.parquet")
    broken = table[table["proposed"] & table["first_wrong"].notna()]
    assert len(broken)
    assert broken["rules"].astype(str).str.contains("not succession(closed, assigned)", regex=False).any()


@pytest.mark.parametrize("audits", ["causality", "cache parity", "cache identity"])
def test_the_same_adapter_without_a_fault_passes(audits, demo_store, tmp_path):
    revision = revision_with(tmp_path / "sound", "sound")
    _, report = audit(demo_store, revision, tmp_path, "--audits", audits)
    assert report["failures"] == []
    assert report["audits"][audits]["status"] == "passed"


@pytest.mark.slow
def test_the_demos_revisions_are_told_apart_by_all_audits(demo_store, tmp_path):
    code, report = audit(demo_store, SOUND_REVISION, tmp_path)
    assert (code, report["failures"], report["not_measured"]) == (0, [], [])
    assert report["decision"]["cache_acceleration"] == "allowed"
    code, report = audit(demo_store, SHIPPED / "revisions" / FAULTY, tmp_path)
    assert code == 1
    assert report["failures"] == ["cache parity", "numerics"]
    assert report["decision"]["cache_acceleration"] == "blocked"
    assert report["decision"]["fallback"] == "full-prefix"
    assert report["decision"]["decoding"]["beam"] == "allowed"


@pytest.mark.parametrize("factory", ["raises", "refuses_dtype"])
def test_a_decoder_that_breaks_is_not_measured_and_never_passes(factory, demo_store, tmp_path):
    revision = revision_with(tmp_path / factory, factory)
    code, report = audit(demo_store, revision, tmp_path, "--audits", "cache parity")
    assert code == 1
    assert report["failures"] == []
    assert "cache parity" in report["not_measured"]
    assert report["audits"]["cache parity"]["problem"]


@pytest.mark.parametrize(
    ("seed", "failures"), [(7, []), (8, ["split leakage"])], ids=["its own split", "another split"]
)
def test_a_revision_is_refused_on_a_split_that_holds_out_what_it_was_trained_on(seed, failures, demo_store, tmp_path):
    store = tmp_path / "sessions.duckdb"
    shutil.copy(demo_store, store)
    with SessionStore.open(store, read_only=False) as opened:
        split(opened, by=SPLIT_BY, held_out=0.2, seed=seed)
    _, report = audit(store, SOUND_REVISION, tmp_path, "--audits", "training")
    assert report["failures"] == failures
    found = {check["name"]: check["value"] for check in report["audits"]["training"]["checks"]}
    assert (found["sessions on both sides"] > 200) is bool(failures)


def test_a_revision_that_names_no_known_training_says_that_this_was_not_checked(demo_store, tmp_path):
    revision = revision_with(tmp_path / "sound", "sound")
    _, report = audit(demo_store, revision, tmp_path, "--audits", "training")
    assert any(note.startswith("NOT CHECKED: which sessions") for note in report["audits"]["training"]["notes"])
