"""XES logs: streamed, whole or refused."""

from __future__ import annotations

import random

import pytest

from auditlib.errors import LogError
from auditlib.sessions.importers import preview
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import gzipped, imported, sequences, write, xes_event, xes_text, zipped

TIMES = [f"2020-01-01T10:0{n}:00.000+00:00" for n in range(5)]
SMALL = xes_text(
    {
        "Case 1": [
            xes_event("Open &amp; wait", TIMES[0], customer="Ann"),
            xes_event("Close", TIMES[2], customer="Bob"),
        ],
        "Case 2": [xes_event("Close", TIMES[4]), xes_event("Open &amp; wait", TIMES[3])],
    }
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.xes", SMALL),
        ("log.xes.gz", gzipped(SMALL)),
        ("log.zip", zipped(log__xes=SMALL.encode())),
        ("log", SMALL),
        ("log.xes", SMALL.replace("\n", "")),
        ("log.xes", SMALL.replace('encoding="UTF-8"', 'encoding="utf-16"').encode("utf-16")),
        ("log.xes", SMALL.replace("<log", '<x:log xmlns:x="http://www.xes-standard.org/"').replace("</log", "</x:log")),
    ],
)
def test_a_log_is_read_in_any_packing(tmp_path, name, content):
    manifest = imported(tmp_path, content, name)
    assert (manifest.format, manifest.sessions, manifest.events, manifest.rejects) == ("xes", 2, 4, 0)
    assert manifest.mapping.session == "case:concept:name"
    assert sequences(tmp_path) == {"Case 1": ("Open & wait", "Close"), "Case 2": ("Open & wait", "Close")}


def test_every_customer_of_a_session_is_kept_first_seen_first(tmp_path):
    manifest = imported(tmp_path, SMALL, "log.xes")
    assert manifest.changing == {"customer": 1}
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert [row.customers for row in store.keyed_sessions()] == [("Ann", "Bob"), ()]


def test_nested_attributes_lists_and_globals_are_not_taken_for_values(tmp_path):
    event = (
        '<event><string key="concept:name" value="a"><string key="customer" value="nested"/></string>'
        '<list key="l"><values><string key="customer" value="listed"/></values></list>'
        f'<date key="time:timestamp" value="{TIMES[0]}"/></event>'
    )
    inside = '<global scope="event"><string key="customer" value="__INVALID__"/></global>'
    text = xes_text({"1": [event]}).replace("<trace>", f"{inside}<trace>", 1)
    assert preview(write(tmp_path / "log.xes", text)).head.columns == (
        "concept:name",
        "time:timestamp",
        "case:concept:name",
    )


def test_an_event_made_of_activity_and_lifecycle_is_asked_for_and_hinted_at(tmp_path):
    events = [xes_event("Accepted", TIMES[0], **{"lifecycle:transition": "In Progress"})]
    text = xes_text({"1": events, "2": events})
    assert "lifecycle:transition" in imported(tmp_path, text, "log.xes").notes[0]
    (tmp_path / "store.duckdb").unlink()
    manifest = imported(tmp_path, text, "log.xes", mapping={"event": "concept:name+lifecycle:transition"})
    assert manifest.notes == ()
    assert sequences(tmp_path)["1"] == ("Accepted+In Progress",)


def test_what_stands_in_odd_places_is_counted_or_rejected_with_its_line(tmp_path):
    text = xes_text({"1": [xes_event("a", TIMES[0]), '<event><string key="concept:name" value="b"/></event>'], "2": []})
    text = text.replace("</log>", f"{xes_event('stray', TIMES[1])}\n<trace>{xes_event('c', TIMES[1])}</trace></log>")
    text = text.replace("</trace>", '<string key="concept:name" value="again"/><int key="n"/></trace>', 1)
    manifest = imported(tmp_path, text, "log.xes")
    assert (manifest.rows, manifest.events) == (4, 1)
    assert manifest.reject_reasons == {
        "event outside any trace": 1,
        "no time: time:timestamp is missing": 1,
        "no session: case:concept:name is missing": 1,
    }
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert sorted(reject.source_row for reject in store.rejects()) == [6, 12, 13]
    assert set(manifest.notes) == {
        "1 attributes without key or value",
        "1 attributes given twice, of which the first was read",
        "1 traces without events",
    }


def test_two_traces_of_one_name_become_one_session_and_are_counted(tmp_path):
    text = xes_text({"1": [xes_event("a", TIMES[1])], "x": [xes_event("b", TIMES[0])]}).replace('"x"', '"1"')
    manifest = imported(tmp_path, text, "log.xes")
    assert sequences(tmp_path) == {"1": ("b", "a")}
    assert "1 traces with the name of an earlier one, joined to it" in manifest.notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<?xml version="1.0"?><!DOCTYPE log [<!ENTITY a "aaaa">]><log/>', "a DOCTYPE"),
        ('<!DOCTYPE log SYSTEM "file:///etc/passwd"><log/>', "a DOCTYPE"),
        ("<log>" + '<list key="a">' * 200_000, "tags stand 64 deep"),
        ('<log><trace><string key="' + "a" * 10_000_000, "a tag of over 4,194,304 bytes"),
        (SMALL[: len(SMALL) // 2], "is truncated: the XML ends at line"),
        (SMALL.replace("</log>", ""), "is truncated"),
        (SMALL + "<log/>", "no well-formed XML"),
        (SMALL.replace("&amp;", "&"), "no well-formed XML"),
        (SMALL.replace("&amp;", "&nbsp;"), "no well-formed XML"),
        (SMALL.replace("UTF-8", "klingon"), "an encoding that cannot be read (unknown encoding: klingon)"),
        ("<html><body/></html>", "the outermost tag is <html>"),
        ("<log/>", "no column has a usual name"),
        (xes_text({"1": [xes_event("a", "soon")]}), "no known way to read times"),
    ],
)
def test_a_log_that_is_not_whole_or_not_harmless_is_refused(tmp_path, text, words):
    with pytest.raises(LogError) as caught:
        imported(tmp_path, text, "log.xes")
    assert words in str(caught.value)
    assert not (tmp_path / "store.duckdb").exists()


def test_a_trace_without_end_is_refused_before_it_fills_the_memory(tmp_path):
    with pytest.raises(LogError, match="more than 100,000 events"):
        imported(tmp_path, xes_text({"1": [xes_event("a", TIMES[0])] * 100_001}), "log.xes")


def test_an_attribute_that_comes_late_can_be_named_and_one_that_never_comes_is_refused(tmp_path):
    plain = [xes_event("a", TIMES[0])] * 5
    traces = {str(n): plain for n in range(1100)} | {"late": [xes_event("a", TIMES[0], vip="yes")]}
    text = xes_text(traces)
    assert "vip" not in preview(write(tmp_path / "log.xes", text)).head.columns
    manifest = imported(tmp_path, text, "log.xes", mapping={"attributes": ("vip",)})
    assert manifest.missing == {"vip": {"(absent)": 5500}}
    (tmp_path / "store.duckdb").unlink()
    with pytest.raises(LogError, match=r"no event of log\.xes has 'pet'"):
        imported(tmp_path, text, "log.xes", mapping={"attributes": ("pet",)})


def test_events_of_one_time_keep_the_order_of_the_log_though_all_stand_on_one_line(tmp_path):
    chance = random.Random(5)
    wanted = {f"s{n:03d}": tuple(chance.choices("abcde", k=12)) for n in range(150)}
    text = xes_text({name: [xes_event(event, TIMES[0]) for event in events] for name, events in wanted.items()})
    imported(tmp_path, text.replace("\n", ""), "log.xes")
    assert sequences(tmp_path) == wanted
