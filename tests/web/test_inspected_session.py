"""The inspector judges a session by the rules that hold for it, however many sessions there are beside it."""

from __future__ import annotations

import json

import pytest
from safetensors.torch import save

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.revision import write_revision
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from auditlib.web import parts_prefix
from tests.web.opening import opened, settings_for, words
from tests.web.world import a_run

RULE = {
    "template": "not succession", "first": "opened", "then": "assigned",
    "when": {"attribute": "kind", "in": ["vip"]},
}  # fmt: skip
COLUMNS = {"session": "s", "event": ("e",), "time": "t", "attributes": ("kind",)}


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """A link's revision and run, and the last held-out session of the run's snapshot, which a rule of its own binds."""
    store = tmp_path / "s.duckdb"
    log(tmp_path, store, "A", 8)
    first = frozen(store)
    revision = a_revision(tmp_path / "r")
    run = a_run(tmp_path / "runs", revision, first)
    with SessionStore.open(store) as read:
        last = list(read.sessions(read.snapshot(first), "held-out"))[-1].session_id
    log(tmp_path, store, "B", 40)
    with SessionStore.open(store, read_only=False) as opened_store:
        split(opened_store, held_out=0.5)
        opened_store.add_revision("r", revision.folder, revision.digest)
    settings_for(monkeypatch, tmp_path / "home", store, tmp_path / "runs")
    monkeypatch.setattr(parts_prefix, "_OFFERED", 2)
    return {"revision": revision.digest, "run": run.id}, last


def log(folder, store, letter, count):
    rows = "".join(
        f"{letter}{n:03d},{event},2026-01-0{day} 10:00:00+00:00,vip\n"
        for n in range(count)
        for day, event in enumerate(("opened", "assigned", "closed"), start=1)
    )
    path = folder / f"{letter}.csv"
    path.write_text(f"s,e,t,kind\n{rows}")
    import_log(path, store, mapping=COLUMNS)


def frozen(store):
    with SessionStore.open(store, read_only=False) as opened_store:
        return split(opened_store, held_out=0.5).digest


def a_revision(folder):
    mapping = EventMap.build(("opened", "assigned", "inspected", "closed"))
    order = EventOrder.from_json(json.dumps({"format": 1, "version": "1", "rules": [RULE], "reopening": None}))
    config = {"vocabulary_size": mapping.size, "context_length": 24, "width": 16, "layers": 1, "heads": 2}
    weights = save(fresh_tensors(EventGptConfig.from_mapping(config), seed=1))
    files = {"model.safetensors": weights}
    return write_revision(
        folder, name="r", decoder="event_gpt", config=config, event_map=mapping, event_order=order, files=files
    )


def test_a_session_beyond_those_that_are_offered_is_shown_whole_and_judged_by_its_own_rules(linked):
    link, last = linked
    said = words(opened("inspector", **link, session=last))
    assert f"From session {last}. 3 events after the start." in said
    assert "not succession(opened, assigned)" in said
    assert "is illegal there" in said


def test_a_session_that_is_not_there_is_told_and_no_condition_is_taken_from_it(linked):
    link, _ = linked
    said = words(opened("inspector", **link, session="nobody"))
    assert "Session nobody is not in the snapshot" in said


def test_an_edited_session_goes_on_under_the_same_rules(linked):
    link, last = linked
    asked = {"session": last, "section": "What if", "edit": "insert", "place": "3", "by": "inspected"}
    app = opened("inspector", **link, **asked)
    app.button(key="take-edit").click().run()
    assert not app.exception
    assert "".join(app.query_params["when"]) == "1"
    assert "session" not in app.query_params
    assert "is illegal there" in words(app)


@pytest.mark.parametrize("odd", ["²", "9" * 5000])
def test_odd_numbers_in_a_link_end_in_no_error(linked, odd):
    link, last = linked
    values = {"section": "What comes next", "step": odd, "edit": "delete", "place": odd}
    opened("inspector", **link, session=last, **values)
    opened("inspector", **link, session=last, **{**values, "section": "Whose cache"})
