"""What went wrong, in words for a reviewer: the run and the fault, and no path of the server."""

from __future__ import annotations

import logging
from pathlib import Path

from auditlib.web import problems
from tests.web.opening import opened, settings_for, words
from tests.web.world import make_world


def test_a_damaged_run_is_told_by_its_name_and_fault_and_its_path_stands_in_the_log(tmp_path, monkeypatch, caplog):
    world = make_world(tmp_path)
    (world.refused.folder / "report.json").write_text("{")
    (world.runs / "20261129T100000Z-eeeeeeee").mkdir()
    (world.runs / "20261129T100000Z-eeeeeeee" / "manifest.json").write_text("[]")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    problems._note.cache_clear()
    with caplog.at_level(logging.WARNING):
        said = words(opened("board")) + words(opened("causality"))
    assert f"Run {world.refused.id}: the run cannot be read" in said
    assert "Run 20261129T100000Z-eeeeeeee: the run cannot be read" in said
    assert str(tmp_path) not in said
    assert [str(world.runs / world.refused.id) in line for line in caplog.messages].count(True) == 1


def test_a_damaged_table_is_told_without_its_path_too(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    for name in ("checks", "cache_parity.gaps"):
        (world.refused.folder / "tables" / f"{name}.parquet").write_bytes(b"PAR1 no more")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    said = words(opened("board"))
    assert said.count("cannot be read") == 2
    assert str(tmp_path) not in said


def test_a_folder_in_another_leaves_nothing_of_itself_behind():
    folders = (Path("/srv/home"), Path("/srv/home/demo/runs"))
    text = "/srv/home/demo/runs/R: no report (/srv/home/keys/a.pem)"
    assert problems.without_folders(text, folders) == "R: no report (keys/a.pem)"
