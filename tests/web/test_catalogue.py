"""Which revisions stand on the board, in which order, and what is out of date."""

from __future__ import annotations

from dataclasses import replace

import pytest

from auditlib.views.worst import held_out_note, largest_gap, worst
from auditlib.web.catalogue import DamagedRun, complete, entries, stale
from auditlib.web.disk import runs_in
from tests.web.world import a_run, make_world, tables


def registered(world):
    return [
        _Known("sound", str(world.sound.folder), world.sound.digest),
        _Known("faulty", str(world.faulty.folder), world.faulty.digest),
    ]


class _Known:
    def __init__(self, name, folder, digest):
        self.name, self.folder, self.digest = name, folder, digest


def test_what_is_refused_stands_before_what_nobody_audited_and_that_before_what_is_approved(world):
    approved = a_run(world.home / "order", world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    third = _Known("third", "/nowhere", "sha256:" + "3" * 64)
    found = entries([*registered(world), third], [approved, world.refused])
    assert [(one.name, one.standing) for one in found] == [
        ("faulty", "refused"),
        ("third", "not audited"),
        ("sound", "approved"),
    ]


def test_a_revision_that_only_a_run_tells_of_is_still_shown(world):
    (only,) = entries([], [world.refused])
    assert (only.name, only.folder, only.standing) == ("faulty", None, "refused")


def test_a_later_run_of_one_audit_does_not_take_the_place_of_a_complete_one(world):
    root = world.home / "partial"
    whole = a_run(root, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    part = a_run(root, world.sound, world.snapshot, run_id="20261130T130000Z-bbbbbbbb", audits=("causality",))
    (entry,) = entries([], [part, whole])
    assert complete(whole)
    assert not complete(part)
    assert entry.run.id == whole.id
    assert entry.standing == "approved"


def test_a_later_run_of_one_audit_that_failed_is_not_hidden_behind_an_older_approval(world):
    root = world.home / "partial-failed"
    whole = a_run(root, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    bad = {"causality: jacobian": 1.0}
    part = a_run(root, world.sound, world.snapshot, run_id="20261130T130000Z-bbbbbbbb", audits=("causality",), bad=bad)
    (entry,) = entries([], [part, whole])
    assert (entry.run.id, entry.standing) == (part.id, "refused")


@pytest.mark.parametrize(
    ("bad", "made", "standing"),
    [
        ({}, "2026-11-30T13:00:00.000+00:00", "unreadable"),  # it may have refused what the older run approved
        ({}, "2026-11-30T11:00:00.000+00:00", "approved"),  # a newer run has spoken since
        ({"causality: jacobian": 1.0}, "2026-11-30T13:00:00.000+00:00", "refused"),
    ],
)
def test_an_older_approval_does_not_speak_for_a_newer_run_that_cannot_be_read(world, tmp_path, bad, made, standing):
    whole = a_run(tmp_path, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa", bad=bad)
    (entry,) = entries([], [whole], [DamagedRun("r", world.sound.digest, "sound", made)])
    assert (entry.standing, entry.run.id) == (standing, whole.id)
    assert (entry.lost is None) == (standing == "approved")


def test_a_damaged_run_still_names_its_revision_by_its_manifest(world, tmp_path):
    run = a_run(tmp_path, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    (run.folder / "report.json").write_text("{")
    found = runs_in(tmp_path)
    assert (found.runs, len(found.problems)) == ((), 1)
    (entry,) = entries([], found.runs, found.damaged)
    assert (entry.name, entry.digest, entry.standing) == ("sound", world.sound.digest, "unreadable")
    (run.folder / "manifest.json").write_text("[]")
    assert (runs_in(tmp_path).damaged, len(runs_in(tmp_path).problems)) == ((), 1)


def test_nothing_is_stale_right_after_the_run(world):
    (entry,) = entries(registered(world)[1:], [world.refused])
    document = world.refused.manifest["policy"]["document"]
    assert stale(entry, world.refused, world.snapshot, document) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"latest": "sha256:" + "9" * 64}, "newer held-out snapshot"),
        ({"policy": {"format": 1}}, "policy file"),
        ({"folder": None}, "files have changed or are gone"),
        ({"machine": "riscv"}, "another kind of machine"),
    ],
)
def test_each_change_since_the_run_is_named(world, change, words):
    (entry,) = entries(registered(world)[1:], [world.refused])
    run = world.refused
    if "machine" in change:
        run = replace(run, manifest={**run.manifest, "device": {**run.manifest["device"], "machine": "riscv"}})
    found = stale(
        replace(entry, folder=change.get("folder", entry.folder)),
        run,
        change.get("latest", world.snapshot),
        change.get("policy", run.manifest["policy"]["document"]),
    )
    assert len(found) == 1
    assert words in found[0]


def test_a_changed_revision_is_stale_by_its_digest(tmp_path):
    world = make_world(tmp_path)
    (entry,) = entries(registered(world)[1:], [world.refused])
    manifest = world.faulty.folder / "revision.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert "changed" in stale(entry, world.refused, world.snapshot, world.refused.manifest["policy"]["document"])[0]


def test_the_worst_prefix_of_a_parity_failure_is_the_largest_gap(world):
    found = worst(world.refused)
    assert (found.events, found.session_id) == ("1-3-4-5", "S2")


def test_a_gap_that_is_not_a_number_is_worse_than_any():
    gaps = tables()["cache parity", "gaps"]
    assert largest_gap(gaps.assign(gap=[1.0, 5.0, float("nan")])).session_id == "S3"
    assert largest_gap(gaps.head(0)) is None


def test_a_larger_gap_on_a_prefix_that_a_probe_made_up_is_told_beside_that_of_the_sessions():
    gaps = tables()["cache parity", "gaps"]
    assert held_out_note(gaps) == held_out_note(gaps.head(0)) == ""
    made_up = gaps.assign(session_id=["S1", "S2", None], gap=[1e-6, 1.952, 2.835])
    assert held_out_note(made_up) == (
        "On held-out sessions the gap is at most 1.952 logit. The largest gap of all, 2.835 logit, is on a prefix that "
        "a probe made up."
    )
    assert "not finite logit" in held_out_note(made_up.assign(gap=[1e-6, 1.952, float("nan")]))
    assert held_out_note(made_up.assign(gap=[float("nan"), 1.0, 2.0])) == ""


def test_a_wrong_sequence_of_a_setting_that_was_not_proposed_is_no_reason(world):
    run = a_run(world.home / "g", world.sound, world.snapshot, bad={"decoding policy: greedy: invalid sequences": 1.0})
    assert run.report["failures"] == ["event grammar"]
    assert worst(run).words.startswith("gap ")  # the only wrong row is of an unmasked twin
