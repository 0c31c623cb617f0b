"""Which prefix a link or a person asks for."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.errors import InputError
from auditlib.events.event_map import EventMap
from auditlib.sessions.session import Session
from auditlib.web.prefix_choice import LONGEST, Prefix, flags_text, from_link, from_names, of_session

MAP = EventMap.build(["assigned", "closed", "opened"])


@pytest.mark.parametrize(("text", "ids"), [("1-3-5", (1, 3, 5)), ("3-5", (1, 3, 5)), ("1", (1,)), ("1-3-2", (1, 3, 2))])
def test_a_link_names_ids_with_the_start_or_without(text, ids):
    assert from_link(text, MAP) == ids


@pytest.mark.parametrize(
    "text", ["", "a", "1--3", "1-3-", "-1", "1-99", "1 3", "1" * 7, "-".join(["3"] * (LONGEST + 1)), "１"]
)
def test_a_link_that_is_no_prefix_is_refused_with_a_reason(text):
    with pytest.raises(InputError, match="link"):
        from_link(text, MAP)


@given(st.text(max_size=60))
def test_no_text_in_a_link_raises_anything_else(text):
    with suppress(InputError):
        assert from_link(text, MAP)[0] == MAP.start


@pytest.mark.parametrize(
    "text", ["opened, assigned", "opened\nassigned\n", "opened → assigned", "opened -> assigned;", " opened,,assigned "]
)
def test_names_are_read_however_they_are_separated(text):
    assert from_names(text, MAP) == (1, MAP.events["opened"], MAP.events["assigned"])


def test_an_unknown_name_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(InputError, match=r"reopend.*known are assigned, closed, opened"):
        from_names("opened, reopend", MAP)


def test_a_session_is_shown_from_its_start_without_its_end():
    assert of_session(Session("S1", ("opened", "closed")), MAP) == (1, 5, 4)


def test_a_prefix_and_its_link_are_two_forms_of_one_thing():
    prefix = Prefix((1, 3, 4), (True, False))
    assert from_link(prefix.text, MAP) == prefix.ids
    assert flags_text(prefix.flags) == "10"
