"""What the pages say of a revision without loading its weights."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from auditlib.web import revision_facts
from auditlib.web.catalogue import Entry
from tests.web.world import NAMES, a_revision


@pytest.fixture
def entry(tmp_path):
    made = a_revision(tmp_path / "r", "r", NAMES)
    return Entry("r", made.digest, made.folder, ())


def test_ids_are_told_by_name_the_end_of_a_long_prefix_first(entry):
    assert revision_facts.names_of(entry, "1-6-3") == "opened → assigned"
    assert revision_facts.names_of(entry, "1") == "(start)"
    assert revision_facts.names_of(entry, "1" + "-6" * 20 + "-3").startswith("… → opened")


def test_ids_stand_for_themselves_when_the_folder_is_gone(entry):
    assert revision_facts.names_of(replace(entry, folder=None), "1-6") == "1-6"
    assert revision_facts.names_of(None, "1-6") == "1-6"


def test_a_step_is_possible_only_where_some_state_allows_it(entry):
    mapping, compiled = revision_facts.event_map(entry), revision_facts.order(entry)
    pairs = revision_facts.possible_pairs(compiled, mapping, ("assigned", "closed", "unheard of"))
    # rows: start, assigned, closed, unheard of; columns: assigned, closed, unheard of, end
    assert pairs[:3, [0, 1, 3]].tolist() == [[True, True, True], [True, True, True], [False, True, True]]
    assert np.all(pairs[:, 2])
    assert np.all(pairs[3])


def test_a_folder_that_was_away_for_a_moment_is_read_when_it_is_back(entry):
    away = entry.folder.rename(entry.folder.with_name("away"))
    assert revision_facts.event_map(entry) is None
    assert revision_facts.order(entry) is None
    away.rename(entry.folder)
    assert set(revision_facts.event_map(entry).events) == set(NAMES)
    assert revision_facts.order(entry) is not None


@pytest.mark.parametrize("part", ["event_map.json", "event_order.json", "revision.json"])
def test_another_revision_in_the_folder_names_no_event_of_this_one(entry, part):
    other = a_revision(entry.folder.parent / "other", "other", ("walked", "ran", "slept"))
    (entry.folder / part).write_bytes((other.folder / part).read_bytes())
    assert revision_facts.order(entry) is None
    assert part == "event_order.json" or revision_facts.event_map(entry) is None


@pytest.mark.parametrize("change", [{"event_map": "../outside.json"}, {"event_map": 7}, {"event_map": "none.json"}])
def test_a_manifest_that_points_elsewhere_is_not_followed(entry, change):
    (entry.folder.parent / "outside.json").write_text((entry.folder / "event_map.json").read_text())
    manifest = entry.folder / "revision.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    digest = f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()}"
    assert revision_facts.event_map(replace(entry, digest=digest)) is None


def test_opening_a_page_does_not_load_torch():
    modules = "sys, auditlib.web.shell, auditlib.web.parts_verdict, auditlib.web.parts_prefix"
    code = f"import {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
