from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import EventMapError
from auditlib.events.event_map import LARGEST_ID, EventMap

GOOD = {
    "format": 1,
    "version": "3",
    "padding": 0,
    "start": 1,
    "end": 2,
    "events": {"opened": 3, "closed": 7},
    "unknown": None,
}
TICKETS = EventMap("3", 0, 1, 2, {"opened": 3, "closed": 7})


def changed(**members):
    return json.dumps({**GOOD, **members})


def test_reads_the_json_of_the_contract():
    assert EventMap.from_json(json.dumps(GOOD)) == TICKETS
    without = {key: value for key, value in GOOD.items() if key != "unknown"}
    assert EventMap.from_json(json.dumps(without)) == TICKETS


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(deadline=None)
@given(st.sets(names, max_size=6), names, st.booleans())
def test_json_round_trips_exactly_whatever_the_names(events, version, unknown):
    event_map = EventMap.build(events, version, unknown=unknown)
    again = EventMap.from_json(event_map.to_json())
    assert again == event_map
    assert again.to_json() == event_map.to_json()
    assert again.digest == event_map.digest
    assert [again.name(i) for i in again.encode(sorted(events))] == sorted(events)


def test_equal_maps_have_one_text_and_one_digest_whatever_the_order_of_their_events():
    other = EventMap("3", 0, 1, 2, {"closed": 7, "opened": 3})
    assert other == TICKETS
    assert hash(other) == hash(TICKETS)
    assert other.to_json() == TICKETS.to_json()
    assert TICKETS.digest.startswith("sha256:")
    assert len(TICKETS.digest) == 71


@pytest.mark.parametrize(
    "other",
    [
        EventMap("4", 0, 1, 2, {"opened": 3, "closed": 7}),
        EventMap("3", 0, 1, 2, {"opened": 7, "closed": 3}),
        EventMap("3", 0, 1, 2, {"opened": 3, "closed": 7}, unknown=4),
        EventMap("3", 2, 1, 0, {"opened": 3, "closed": 7}),
    ],
)
def test_any_difference_changes_the_digest(other):
    assert other.digest != TICKETS.digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1 column 2"),
        ("[]", "is a list"),
        ('{"format": 1, "format": 1}', "'format' twice"),
        (changed(padding=float("nan")), "NaN"),
        ("[" * 100_000, "cannot be read"),
        (json.dumps({"format": 1}), "lacks 'version', 'padding', 'start', 'end', 'events'"),
        (changed(format=2), "at format: is 2; this version reads format 1"),
        (changed(format=True), "at format: is true or false"),
        (changed(format=1.0), "at format: is the number 1.0"),
        (changed(version=3), "at version: is the number 3"),
        (changed(version=""), "at version: is an empty string"),
        (changed(padding=True), "at padding: is true or false"),
        (changed(start=-1), "at start: is -1"),
        (changed(end="2"), "at end: is a string"),
        (changed(unknown="x"), "at unknown: is a string"),
        (changed(events=["opened"]), "at events: is a list"),
        (changed(events={"opened": 3.0}), "at events.opened: is the number 3.0"),
        (changed(events={"opened": None}), "at events.opened: is null"),
        (changed(events={"": 3}), "an event name is an empty string"),
        (changed(events={"\ud800": 3}), "half of a character"),
        (changed(events={"opened": LARGEST_ID + 1}), "ids are whole numbers from 0 to"),
        (changed(events={"a\x1b[2J": -1}), "at events.a\\x1b[2J"),
        (changed(comment="x"), "has 'comment', which means nothing here"),
        (changed(padding=2), "padding and end share id 2"),
        (changed(start=0), "padding and start share id 0"),
        (changed(events={"opened": 3, "closed": 3}), "'opened' and 'closed' share id 3"),
        (changed(events={"opened": 2}), "end and 'opened' share id 2"),
        (changed(unknown=3), "unknown and 'opened' share id 3"),
    ],
)
def test_refuses_what_makes_no_sense_with_file_place_and_reason(text, says):
    with pytest.raises(EventMapError) as refusal:
        EventMap.from_json(text, "maps/m.json")
    assert str(refusal.value).startswith("maps/m.json")
    assert says in str(refusal.value)
    assert "\x1b" not in str(refusal.value)


def test_reads_a_file_and_names_it_where_it_cannot(tmp_path):
    good = tmp_path / "map.json"
    good.write_text(TICKETS.to_json(), encoding="utf-8")
    assert EventMap.read(good) == TICKETS
    assert EventMap.read(str(good)) == TICKETS
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"version": "\xe9"}')
    with pytest.raises(EventMapError, match=r"latin\.json: byte 13 is not UTF-8"):
        EventMap.read(latin)
    with pytest.raises(EventMapError, match=r"none\.json: cannot be read"):
        EventMap.read(tmp_path / "none.json")
    with pytest.raises(EventMapError, match="cannot be read"):
        EventMap.read(tmp_path)


def test_refuses_a_file_that_is_far_too_large(tmp_path):
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(EventMapError, match="larger than"):
        EventMap.read(large)


def test_new_maps_number_names_in_alphabetical_order():
    event_map = EventMap.build(["closed", "assigned", "closed"], unknown=True)
    assert dict(event_map.events) == {"assigned": 3, "closed": 4}
    assert (event_map.padding, event_map.start, event_map.end, event_map.unknown) == (0, 1, 2, 5)
    assert event_map.domain == (3, 4, 5)
    assert event_map.size == 6


def test_names_every_id_and_no_other():
    event_map = EventMap.build(["closed"], unknown=True)
    assert [event_map.name(i) for i in range(5)] == ["<padding>", "<start>", "<end>", "closed", "<unknown>"]
    with pytest.raises(EventMapError, match="id 5 means nothing; ids are 0 to 4"):
        event_map.name(5)


def test_encodes_names_and_lists_all_that_it_lacks():
    assert TICKETS.encode(["closed", "opened", "closed"]) == (7, 3, 7)
    with pytest.raises(EventMapError, match="lacks the events 'lost', 'zapped'"):
        TICKETS.encode(["opened", "zapped", "lost", "zapped"])


def test_an_unknown_id_takes_every_name_that_the_map_lacks():
    assert EventMap("3", 0, 1, 2, {"opened": 3}, unknown=9).encode(["opened", "zapped"]) == (3, 9)


def test_refuses_a_vocabulary_that_does_not_hold_every_id():
    TICKETS.check_size(8)
    with pytest.raises(EventMapError, match=r"has id 7 \(closed\), but the decoder's vocabulary size is 7"):
        TICKETS.check_size(7)


def test_nobody_changes_a_map_through_the_names_it_was_made_of():
    events = {"opened": 3}
    event_map = EventMap("1", 0, 1, 2, events)
    events["closed"] = 3
    assert dict(event_map.events) == {"opened": 3}
