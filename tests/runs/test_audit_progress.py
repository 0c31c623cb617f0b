"""What an audit tells its watcher: how far it is never falls, and every word names something."""

from __future__ import annotations

import pytest

from auditlib.progress import part
from auditlib.runs.execute import run_audits
from auditlib.runs.request import AuditRequest
from tests.web.world import make_world


@pytest.mark.slow
def test_an_audit_that_fails_never_falls_back_and_ends_at_the_whole(tmp_path):
    world, told = make_world(tmp_path), []
    request = AuditRequest(world.store, world.faulty.folder, world.runs, audits=("cache parity",))
    run_audits(request, lambda done, total, note: told.append((done / total, note)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert any("counterexample of" in note for _, note in told)
    assert not any(note.startswith(":") or ": :" in note for _, note in told)


@pytest.mark.parametrize(("name", "note", "words"), [("", "a", "a"), ("b", "", "b"), ("b", "a", "b: a"), ("", "", "")])
def test_a_part_puts_its_name_before_a_note_where_there_are_both(name, note, words):
    told = []
    part(lambda *one: told.append(one), 0.5, 1.0, name)(1, 2, note)
    assert told == [(750, 1000, words)]
