"""Every page, run without a browser: it shows what it is for, and says in words what is missing."""

from __future__ import annotations

import re

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from auditlib.runs.folder import Run
from auditlib.sessions.store import SessionStore
from auditlib.web import parts, state, work
from auditlib.web import tables as facts_of_tables
from tests.web.opening import PAGES, ROOT, opened, settings_for, words
from tests.web.world import a_run, make_world, tables


def address(app, name):
    value = app.query_params.get(name)
    return value[0] if isinstance(value, list) else value


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_on_the_refused_revision(page):
    app = opened(page)
    assert len(app.title) == 1
    assert app.sidebar.selectbox(key="revision").value.startswith("sha256:")


SECTIONS = {
    "cache_parity": ("Gaps", "Worst prefixes", "Probes", "Cache identity", "Numerics"),
    "policies": ("Invalid orders", "Stops and repetition", "Sequences", "Event grammar", "Checks"),
    "sessions": ("Imports", "Split and leakage", "Variants", "Lengths and times", "Transitions", "Rules"),
    "inspector": ("Gaps", "What comes next", "What if", "Whose cache", "Attention"),
    "compare": ("Sessions that flip", "Paired differences", "Gaps", "Policies", "Latency"),
}


@pytest.fixture(scope="module")
def twice_audited(tmp_path_factory):
    world = make_world(tmp_path_factory.mktemp("twice"))
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-dddddddd")
    return world


@pytest.mark.parametrize(("page", "section"), [(page, name) for page, names in SECTIONS.items() for name in names])
def test_a_link_opens_each_section_of_a_page_and_no_other(twice_audited, tmp_path, monkeypatch, page, section):
    settings_for(monkeypatch, tmp_path, twice_audited.store, twice_audited.runs)
    app = opened(page, section=section, events="1-6-3-4")
    assert [tab.label for tab in app.tabs] == list(SECTIONS[page])
    assert [tab.label for tab in app.tabs if len(tab.children)] == [section]
    assert address(app, "section") == (None if section == SECTIONS[page][0] else section)


BY_VALUE = [
    ({"step": "2"}, "What comes next"),
    ({"edit": "replace"}, "What if"),
    ({"other": "1-6-4"}, "Whose cache"),
    ({"head": "1"}, "Attention"),
]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("value", "section"), BY_VALUE)
def test_a_link_that_names_an_edit_a_request_or_a_head_opens_its_section(value, section):
    app = opened("inspector", events="1-6-3-4", **value)
    assert [tab.label for tab in app.tabs if len(tab.children)] == [section]


@pytest.mark.usefixtures("place")
def test_an_edit_lasts_while_another_section_is_looked_at():
    app = opened("inspector", events="1-6-3-4", edit="replace", place="1", by="closed", section="Whose cache")
    assert "the edited prefix" in app.selectbox(key="other").options
    app.session_state["section"] = "What if"
    app.run()
    assert app.selectbox(key="edit").value == "replace"
    assert "After the edit, event 2" in words(app)


@pytest.mark.usefixtures("place")
def test_the_board_shows_the_refusal_first_and_says_why_in_one_sentence():
    app = opened("board")
    names = [heading.value for heading in app.subheader]
    assert names[:2] == ["faulty", "sound"]
    assert any("Refused for cache parity" in text.value and "0.31 logit" in text.value for text in app.text)
    assert "Nothing has been measured yet" in words(app)


@pytest.mark.usefixtures("place")
def test_the_board_lists_every_check_with_value_limit_count_and_status_failures_first():
    frame = opened("board").dataframe[0].value
    assert frame.iloc[0]["status"] == "✗ failed"
    assert frame.iloc[0]["check"] == "single events"
    assert frame.iloc[0]["value"] == "0.31"
    assert frame.iloc[0]["limit"] == "8.00e-6"
    assert frame.iloc[0]["observations"] == "40"
    assert set(frame["status"]) == {"✗ failed", "✓ passed"}


@pytest.mark.usefixtures("place")
def test_whoever_asks_for_the_checks_of_a_card_is_told_where_they_are_and_the_card_is_marked(world):
    app = opened("board")
    assert [badge.count("checks below") for badge in words_of_cards(app)] == [1, 0]
    app.button(key=f"choose-{world.sound.digest}").click().run()
    assert [toast.value for toast in app.toast] == ["The checks of sound are shown below."]
    assert [badge.count("checks below") for badge in words_of_cards(app)] == [0, 1]
    assert not app.run().toast


def words_of_cards(app):
    """What stands on the cards of two revisions, each from its heading on."""
    texts = ((one.type, str(getattr(one, "value", ""))) for one in app.main)
    return "".join("# " if kind == "subheader" else text for kind, text in texts).split("# ")[1:3]


def test_the_bars_of_a_check_end_with_the_run_that_is_shown(world, tmp_path, monkeypatch):
    for day, value in (("29", 0.2), ("30", 0.3)):
        bad = {"cache parity: single events": value}
        a_run(tmp_path / "runs", world.faulty, world.snapshot, run_id=f"202611{day}T100000Z-0a1b2c3d", bad=bad)
    a_run(tmp_path / "runs", world.sound, world.snapshot, run_id="20261130T110000Z-0a1b2c3d")
    settings_for(monkeypatch, tmp_path, world.store, tmp_path / "runs")
    shown = opened("board", revision=world.faulty.digest).dataframe[0].value
    assert list(shown["up to this run"].iloc[0]) == [0.2, 0.3]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", ["board", "verdict"])
def test_the_page_that_one_signs_on_names_the_revision_beside_the_run(world, page):
    said = words(opened(page))
    digest = world.faulty.digest.removeprefix("sha256:")[:12]
    assert f"Revision faulty ({digest}), run {world.refused.id} of 2026-11-30 10:00 UTC" in said


@pytest.mark.usefixtures("place")
def test_a_link_chooses_the_revision_and_the_page_says_it_was_never_audited(world):
    app = opened("cache_parity", revision=world.sound.digest)
    assert app.sidebar.selectbox(key="revision").value == world.sound.digest
    assert "has not been audited yet" in words(app)
    assert app.button(key="run-one")
    assert app.button(key="run-all")


@pytest.mark.usefixtures("place")
def test_a_link_to_something_unknown_is_answered_in_words_not_with_another_revision_in_silence():
    app = opened("board", revision="sha256:" + "f" * 64)
    assert "link asks for a revision that is not here" in words(app)


@pytest.mark.usefixtures("place")
def test_the_choice_made_in_the_sidebar_stands_in_the_address_and_lasts_over_pages(world):
    app = opened("board")
    app.sidebar.selectbox(key="revision").set_value(world.sound.digest).run()
    assert address(app, "revision") == world.sound.digest
    app.switch_page("pages/verdict.py").run()
    assert app.sidebar.selectbox(key="revision").value == world.sound.digest


@pytest.mark.usefixtures("place")
def test_the_worst_prefix_is_linked_with_all_that_the_inspector_needs():
    app = opened("cache_parity", section="Worst prefixes")
    frame = app.dataframe[0].value
    assert frame.iloc[0]["gap"] == pytest.approx(0.31)
    assert frame.iloc[0]["events"] == "assigned → closed → inspected"


@pytest.mark.usefixtures("place")
def test_of_a_long_prefix_the_end_is_named_where_a_narrow_screen_shows_it(monkeypatch):
    gaps = tables()["cache parity", "gaps"].assign(events="1-3-4-5-6-3")
    monkeypatch.setattr(facts_of_tables, "gaps_by_size", lambda _: facts_of_tables.with_origin(gaps))
    app = opened("cache_parity", section="Worst prefixes")
    assert list(app.dataframe[0].value)[:3] == ["gap", "events", "events, start included"]
    assert app.dataframe[0].value["events"].iloc[0] == "… → inspected → opened → assigned"
    assert app.get("page_link")[-1].proto.label.endswith("inspected → opened → assigned")


@pytest.mark.parametrize("section", ["Gaps", "Worst prefixes"])
def test_cache_parity_says_where_the_largest_gap_of_all_is(world, tmp_path, monkeypatch, section):
    gaps = tables()["cache parity", "gaps"].assign(session_id=["S1", None, "S3"])
    read = Run.table
    monkeypatch.setattr(Run, "table", lambda run, audit, name: gaps if name == "gaps" else read(run, audit, name))
    settings_for(monkeypatch, tmp_path, world.store, world.runs)
    said = words(opened("cache_parity", section=section))
    assert "The largest gap of all, 0.31 logit, is on a prefix that a probe made up." in said


def test_further_failures_are_where_the_head_says_and_stand_first_there(world, tmp_path, monkeypatch):
    bad = {"cache parity: dropped rows": 0.2, "cache parity: reordered rows": 0.1, "numerics: logic in float64": 1.0}
    a_run(tmp_path / "runs", world.faulty, world.snapshot, bad=bad)
    settings_for(monkeypatch, tmp_path, world.store, tmp_path / "runs")
    app = opened("cache_parity", section="Probes")
    assert "and 1 more, in Probes" in words(app)
    assert app.dataframe[0].value["status"].tolist()[:3] == ["✗ failed", "✗ failed", "✓ passed"]


@pytest.mark.usefixtures("place")
def test_the_board_calls_the_worst_prefix_that_of_a_held_out_session():
    labels = [link.proto.label for link in opened("board").get("page_link")]
    assert any(label.startswith("Worst held-out prefix: gap 0") for label in labels)


@pytest.mark.usefixtures("place")
def test_the_inspector_tells_where_the_paths_part_and_what_the_rules_forbid():
    # closed (4) may be followed by nothing else, and the faulty cache sees two events only
    app = opened("inspector", events="1-6-3-4-5")
    assert "The paths part after event" in words(app)
    assert "is illegal there: not succession(closed, inspected)" in words(app)
    steps = app.dataframe[0].value
    assert steps["order"].tolist() == ["✓ legal"] * 4 + ["✗ illegal"]
    assert "✗ over tolerance" in set(steps["parity"])


@pytest.mark.usefixtures("place")
def test_the_two_paths_of_the_sound_revision_agree(world):
    app = opened("inspector", events="1-6-3-4", revision=world.faulty.digest)
    assert "part after" in words(app)
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-cccccccc")
    app = opened("inspector", events="1-6-3-4", revision=world.sound.digest)
    assert "Both paths agree after every event" in words(app)


@pytest.mark.usefixtures("place")
def test_events_are_appended_by_hand_and_the_link_follows():
    app = opened("inspector", events="1-6", section="What comes next")
    legal = [button for button in app.button if str(button.key).startswith("append-")]
    event = legal[0].key.removeprefix("append-")
    legal[0].click().run()
    assert address(app, "events") == f"1-6-{event}"
    app.button(key="shorten").click().run()
    assert address(app, "events") == "1-6"


@pytest.mark.usefixtures("place")
def test_events_are_pasted_by_name_and_a_wrong_name_is_told():
    app = opened("inspector")
    app.text_area(key="paste").set_value("opened, assigned").run()
    assert address(app, "events") == "1-6-3"
    app.text_area(key="paste").set_value("opened, reopend").run()
    assert "reopend" in words(app)
    assert address(app, "events") == "1-6-3"


@pytest.mark.usefixtures("place")
def test_a_held_out_session_is_chosen_and_stepped_through():
    app = opened("inspector", section="What comes next")
    box = app.selectbox(key="pick-session")
    box.set_value(box.options[0].split(" · ")[0]).run()
    assert address(app, "session")
    assert address(app, "events").startswith("1-6")
    app.select_slider(key="at").set_value(2).run()
    assert address(app, "step") == "2"


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("events", ["1-99", "x", "1-" + "3-" * 600 + "3", "-".join(["3"] * 40)])
def test_a_broken_link_to_the_inspector_ends_in_words(events):
    app = opened("inspector", events=events)
    assert app.warning or app.error


def test_a_failed_check_of_a_setting_that_counts_against_the_cache_says_so(tmp_path, monkeypatch):
    world = make_world(tmp_path / "world")
    bad = {"decoding policy: beam: beam score error": 2.4, "decoding policy: greedy: padding emitted": 1.0}
    run = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-eeeeeeee", bad=bad)
    settings_for(monkeypatch, tmp_path / "home", world.store, world.runs)
    for name, counted in (("beam score error", "cache parity"), ("padding emitted", "padding emission")):
        check = next(
            c for c in run.report["audits"]["decoding policy"]["checks"] if c["name"].endswith(name) and c["value"]
        )
        assert parts._failed_words("decoding policy", check).replace("\\", "").endswith(f"counted as {counted}")
    app = opened("policies", revision=world.sound.digest)
    assert "counted as padding emission" in words(app) or "counted as cache parity" in words(app)


@pytest.mark.usefixtures("place")
def test_the_policies_page_shows_rates_with_bounds_and_filters_its_sequences():
    app = opened("policies")
    assert app.dataframe[0].value["invalid upper"].tolist() == [0.0295, 0.128]
    app = opened("policies", section="Sequences")
    app.selectbox(key="setting").set_value("greedy without order mask").run()
    app.selectbox(key="only").set_value("wrong").run()
    assert app.dataframe[0].value["first wrong"].tolist() == ["event 2"]
    assert address(app, "only") == "wrong"


@pytest.mark.parametrize(("stage", "says"), [("empty", "knows no revision"), ("no split", "knows no revision")])
def test_an_empty_store_says_what_to_do_next(stage, says, tmp_path, monkeypatch):
    store = tmp_path / "s.duckdb"
    SessionStore.create(store).close()
    settings_for(monkeypatch, tmp_path / stage, store, tmp_path / "runs")
    for page in PAGES:
        app = opened(page)
        assert app.info or page == "sessions", page
    assert says in words(opened("cache_parity"))


@pytest.mark.parametrize("page", ["board", "causality"])
def test_a_store_that_is_not_there_yet_is_told_once_with_the_next_step_and_nothing_else(tmp_path, monkeypatch, page):
    settings_for(monkeypatch, tmp_path, tmp_path / "none.duckdb", tmp_path / "runs")
    app = opened(page)
    assert re.search(r"No store at .*none.duckdb yet. Import a log on the page Sessions", words(app))
    assert (len(app.info), len(app.error), len(app.header)) == (1, 0, 0)


def test_a_store_that_is_gone_is_told_and_makes_no_revision_stale(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    world.store.unlink()
    said = words(opened("board"))
    assert "is gone. Put it back; nothing was deleted here." in said
    assert "Refused for cache parity" in said
    assert "stale" not in said


def test_a_demo_without_its_store_is_made_again_only_when_asked(tmp_path, monkeypatch):
    for name in ("STORE", "RUNS"):
        monkeypatch.delenv(f"PREFIXGATE_{name}", raising=False)
    monkeypatch.setenv("PREFIXGATE_HOME", str(tmp_path))
    world = make_world(tmp_path / "made")
    world.runs.rename((tmp_path / "demo").mkdir() or tmp_path / "demo" / "runs")
    queued = []
    monkeypatch.setattr(work, "demo", lambda _: lambda report: queued.append(report) or "demo")
    st.cache_resource.clear()
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert [title.value for title in app.title] == ["The demo's store is gone"]
    assert "is gone. Put it back; nothing was deleted here." in words(app)
    assert queued == []
    app.button(key="demo-again").click().run()
    state.registry().close()
    assert len(queued) == 1


def test_a_damaged_run_is_named_and_does_not_hide_the_others(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    other = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    report = other.folder / "report.json"
    report.write_bytes(report.read_bytes().replace(b"passed", b"PASSED"))
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    app = opened("board")
    assert "differs from what the run's manifest recorded" in words(app)
    assert "Refused for cache parity" in words(app)


def test_an_approval_that_a_damaged_run_followed_is_no_longer_shown_as_one(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-dddddddd")
    newer = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T120000Z-aaaaaaaa")
    (newer.folder / "report.json").write_text("{")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    said = words(opened("board", revision=world.sound.digest))
    assert "unreadable" in said
    assert "The newest run, of 2026-11-30 12:00 UTC, cannot be read; an older one approved it." in said
    assert "Approved:" not in said
    assert "The newest run, of 2026-11-30 12:00 UTC, cannot be read." in words(
        opened("causality", revision=world.sound.digest)
    )


def test_a_revision_whose_only_run_is_damaged_is_not_called_unmeasured(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    (world.refused.folder / "report.json").write_text("{")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    said = words(opened("board", revision=world.faulty.digest))
    assert "cannot be read, and what cannot be read is a no" in said
    assert "The run of this revision, of 2026-11-30 10:00 UTC, cannot be read." in said
    assert said.count("Nothing has been measured yet") == 1  # the sound revision alone


def test_a_damaged_table_is_told_in_words_beside_all_that_can_be_shown(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    for name in ("checks", "cache_parity.gaps"):
        (world.refused.folder / "tables" / f"{name}.parquet").write_bytes(b"PAR1 no more")
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    app = opened("board")
    assert words(app).count("cannot be read") == 2
    assert "Refused for cache parity" in words(app)
    assert "single events" in set(app.dataframe[-1].value["check"])


def test_a_revision_whose_folder_is_gone_is_marked_and_not_inspected(tmp_path, monkeypatch):
    world = make_world(tmp_path)
    (world.faulty.folder / "revision.json").unlink()
    settings_for(monkeypatch, tmp_path / "h", world.store, world.runs)
    assert "files have changed or are gone" in words(opened("board"))
    app = opened("inspector", events="1-3")
    assert app.error or app.info
