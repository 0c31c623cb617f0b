"""What would make a training fail at its end is refused before its first step."""

from __future__ import annotations

import pytest

from auditlib.errors import ContextExceededError
from auditlib.runs.train import TrainRequest, train_revision
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore

RULES = '{"format": 1, "version": "1", "rules": [], "reopening": null}'


def request_over(folder, **config):
    lines = ["case,activity,time"]
    for number in range(20):
        lines += [f"{number},{'abc'[event % 3]},2024-01-{1 + number:02}T0{event}:00:00Z" for event in range(6)]
    (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "rules.json").write_text(RULES, encoding="utf-8")
    mapping = {"session": "case", "event": "activity", "time": "time"}
    import_log(folder / "log.csv", folder / "it.duckdb", mapping=mapping)
    with SessionStore.open(folder / "it.duckdb", read_only=False) as store:
        split(store)
    return TrainRequest(folder / "it.duckdb", folder / "rules.json", folder / "out", config=config)


def test_a_context_that_no_held_out_session_fits_is_refused_before_the_first_step(tmp_path):
    def told(done, whole, note):
        pytest.fail("a step was taken")

    with pytest.raises(ContextExceededError, match="give --context-length 7 or more"):
        train_revision(request_over(tmp_path, context_length=6, width=8, layers=1, heads=1), told)
    assert not (tmp_path / "out").exists()
