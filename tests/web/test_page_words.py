"""What pages say of what they show: which sessions are counted, where the rules stand, what could not be tried."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from auditlib.runs.folder import write_run
from auditlib.web import parts_cases
from tests.release.cases import trusted
from tests.web.opening import ROOT, opened, settings_for, words
from tests.web.world import a_run, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("words"))


@pytest.fixture
def place(world, tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path, world.store, world.runs)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("events", "says"),
    [
        ("1-6", "Event order: allows assigned, closed, inspected, opened. The session may end here."),
        ("1-6-4", "Event order: allows closed. The session may end here."),
        ("1-4-6", "an event before this was illegal, so nothing may follow"),
    ],
)
def test_the_inspector_says_in_words_where_the_rules_stand_after_the_chosen_event(events, says):
    assert says in words(opened("inspector", section="What comes next", events=events))


def test_a_rule_that_still_waits_for_something_is_named():
    def script():
        import pandas as pd  # noqa: PLC0415

        from auditlib.events.event_map import EventMap  # noqa: PLC0415
        from auditlib.web.parts_inspector import order_words  # noqa: PLC0415

        rows = [("opened", 3, True, ""), ("<end>", 2, False, "response(opened, closed)")]
        order_words(pd.DataFrame(rows, columns=["event", "id", "legal", "rules"]), EventMap.build(["opened"]))

    said = AppTest.from_function(script).run().text[0].value
    assert said == ("Event order: allows opened. The session may not end yet: response(opened, closed) waits.")


@pytest.mark.usefixtures("place")
def test_the_box_names_the_session_only_while_all_of_it_is_shown():
    session = opened("inspector").selectbox(key="pick-session").options[0].split(" · ")[0]
    assert opened("inspector", session=session).selectbox(key="pick-session").value == session
    part = opened("inspector", session=session, events="1-6").selectbox(key="pick-session")
    assert part.value is None
    assert session in part.placeholder


@pytest.mark.usefixtures("place")
def test_a_cache_that_is_refused_for_its_events_tells_them_by_name():
    said = words(opened("inspector", section="Whose cache", events="1-6-3-4", other="1-6-5-4-4"))
    assert "Rejected by its events" in said
    assert "the cache holds assigned, the request has inspected" in said
    assert "event 2 is" not in said


@pytest.mark.usefixtures("place")
def test_decoded_sequences_tell_where_their_prefix_ends():
    shown = opened("policies", section="Sequences").dataframe[0].value
    assert shown["after"].tolist() == ["assigned"]
    assert shown["decoded"].tolist() == ["closed → <end>"]
    assert shown["forced"].tolist() == [""]


def test_a_policy_that_failed_for_the_cache_says_what_that_blocks(tmp_path, monkeypatch):
    world = make_world(tmp_path / "world")
    bad = {"decoding policy: beam: beam score error": 2.4}
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-eeeeeeee", bad=bad)
    settings_for(monkeypatch, tmp_path / "home", world.store, world.runs)
    assert "it blocks the cache and no setting" in words(opened("policies", revision=world.sound.digest))
    assert "it blocks the cache and no setting" not in words(opened("policies", revision=world.faulty.digest))


@pytest.mark.usefixtures("place")
def test_sessions_say_which_of_them_are_counted():
    assert "Held-out sessions only (10)." in words(opened("sessions", section="Variants"))
    assert "over all sessions of the snapshot" in words(opened("sessions", section="Transitions"))


@pytest.mark.usefixtures("place")
def test_a_new_split_begins_with_what_the_shown_one_was_split_by():
    app = opened("sessions", section="Split and leakage")
    shown = next(one.value for one in app.text if one.value.startswith("Split by"))
    assert app.pills(key="split-by").value
    assert all(key in shown for key in app.pills(key="split-by").value)
    assert "Make a new split" in words(app)


def test_what_the_self_check_could_not_try_is_counted_by_its_reason(world, tmp_path, monkeypatch):
    run = a_run(tmp_path / "runs", world.sound, world.snapshot)
    found = {
        "ran": True,
        "problem": None,
        "planted": 1,
        "caught": 1,
        "missed": [],
        "false_alarms": [],
        "equivalent": {},
    }
    found["not_applicable"] = {"one": "it fails by itself", "two": "it fails by itself", "three": "no occasion"}
    run.report["self_check"] = found
    monkeypatch.setattr("auditlib.web.parts.need_run", lambda *_: run)
    settings_for(monkeypatch, tmp_path / "home", world.store, world.runs)
    app = opened("self_check")
    assert {one.label: one.value for one in app.metric}["not tried"] == "3"
    assert "2 faults: it fails by itself\n1 fault: no occasion" in words(app)


def test_a_counterexample_that_no_session_could_be_is_told_as_such(world):
    entry = SimpleNamespace(folder=world.faulty.folder, digest=world.faulty.digest)
    said = parts_cases._against_the_rules(entry, SimpleNamespace(events="1-4-5"))
    assert "event 2, inspected, breaks the event order" in said
    assert parts_cases._against_the_rules(entry, SimpleNamespace(events="1-6-3-4")) == ""
    assert parts_cases._against_the_rules(None, SimpleNamespace(events="1-4-5")) == ""


def test_pages_say_of_an_approved_run_that_no_fault_was_planted(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    run = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    for page in ("verdict", "causality"):
        assert "but no fault was planted to test them" in words(opened(page, revision=run.revision))


def test_events_in_what_audits_note_stand_on_pages_by_their_names(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    ids = world.sound.event_map.encode(["opened", "closed"])
    detail = f"row 0, event 1 is {ids[0]}, the request has {ids[1]}; prefill the request anew"
    trials = pd.DataFrame(
        {"alteration": ["one event"], "field": ["events"], "expected": ["r"], "outcome": ["r"], "detail": [detail]}
    )
    note = f"Shortest held-out prefix over the tolerance: {'-'.join(map(str, (1, *ids)))} (3 events)"
    with_note(world, note, {("cache identity", "trials"): trials})
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    link = {"revision": world.faulty.digest, "run": NOTED}
    assert "tolerance: “opened → closed” (3 events)" in words(opened("cache_parity", **link, section="Probes"))
    table = opened("cache_parity", **link, section="Cache identity").dataframe[0].value
    assert list(table["detail"]) == ["row 0, event 1 is “opened”, the request has “closed”; prefill the request anew"]


def test_a_key_made_beside_a_trust_file_is_not_said_to_start_it(world, tmp_path, monkeypatch):
    settings_for(monkeypatch, tmp_path, world.store, world.runs)
    assert "The first one made here starts the trust file." in words(opened("verdict"))
    (tmp_path / "trust.json").write_text(json.dumps(trusted("ada")))
    said = words(opened("verdict"))
    assert "There is no key yet." in said
    assert "starts the trust file" not in said
    assert "counts once whoever keeps the trust file has added it" in said


COMMAND_IN_CAPTION = re.compile(r"st\.caption\([^)]*`", re.DOTALL)


def test_no_caption_holds_a_command():
    """Captions are drawn at 60 % of their colour: a command, which has one of its own, cannot be read so in dark."""
    files = [*(ROOT / "pages").glob("*.py"), *(ROOT / "auditlib" / "web").glob("*.py")]
    assert [file.name for file in files if COMMAND_IN_CAPTION.search(file.read_text(encoding="utf-8"))] == []


NOTED = "20261130T130000Z-aaaaaaaa"


def with_note(world, note, found):
    """Write the refused run anew, with a note of the audit of cache parity and these tables."""
    manifest, report = (
        {**json.loads(json.dumps(one)), "run": NOTED} for one in (world.refused.manifest, world.refused.report)
    )
    manifest.pop("files")
    report["audits"]["cache parity"]["notes"] = [note]
    write_run(world.runs, NOTED, manifest=manifest, report=report, tables=found, policy=b"{}")


@pytest.mark.usefixtures("place")
def test_tables_of_checks_show_the_value_before_the_audit_and_the_audit_only_where_there_are_two():
    several = list(opened("policies", section="Checks").dataframe[0].value.columns)
    assert several[:4] == ["status", "check", "value", "limit"]
    assert several[-1] == "audit"
    assert "audit" not in opened("cache_parity", section="Probes").dataframe[0].value.columns
