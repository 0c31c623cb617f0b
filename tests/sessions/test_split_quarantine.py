"""Quarantine: values of keys take sides, and what mixes the sides is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.sessions.components import KeyedSession
from auditlib.sessions.quarantine import Quarantined, best_quarantine, order_of, random_starts

KEYS = ("customer", "asset")


def rows(*keys):
    """Sessions given as (customers, assets), letters each."""
    return [KeyedSession(f"s{n:03d}", tuple(c), tuple(a), n, n, 1, n) for n, (c, a) in enumerate(keys)]


def start(text):
    """Which sessions one would hold out (h) or train on (t); a dot is neither."""
    return Quarantined(np.array([letter == "h" for letter in text]), np.array([letter == "t" for letter in text]))


def shown(proposal):
    return "".join({"held-out": "h", "training": "t", "quarantined": "."}[side] for side in proposal.sides())


@pytest.mark.parametrize(
    ("keys", "begin", "wanted", "expected"),
    [
        # Nothing crosses: the start stands.
        ([("a", ""), ("a", ""), ("b", ""), ("c", "")], "hhtt", 0.5, "hhtt"),
        # One session of customer a is on the wrong side of its majority.
        ([("a", ""), ("a", ""), ("a", ""), ("b", ""), ("b", ""), ("b", "")], "hhtttt", 0.4, "hh.ttt"),
        # A session with values of both sides is left out.
        ([("a", ""), ("ab", ""), ("b", ""), ("c", "")], "hhtt", 0.33, "h.tt"),
        # A missing key follows nobody.
        ([("", ""), ("", ""), ("a", ""), ("a", "")], "htth", 0.25, "htt."),
        # Both keys have to agree.
        ([("a", "x"), ("a", "x"), ("b", "x"), ("b", "y"), ("b", "y"), ("b", "y")], "hhtttt", 0.4, "hh.ttt"),
        # What the start leaves out stays out.
        ([("a", ""), ("b", ""), ("c", ""), ("d", "")], "h.tt", 0.33, "h.tt"),
    ],
)
def test_a_start_becomes_a_split_without_crossing_values(keys, begin, wanted, expected):
    assert shown(best_quarantine(rows(*keys), KEYS, wanted, [start(begin)])) == expected


def test_the_start_that_keeps_more_wins_when_both_reach_the_share():
    keys = [("a", ""), ("a", ""), ("b", ""), ("c", "")]
    good, poor = start("tthh"), start("thht")
    assert shown(best_quarantine(rows(*keys), KEYS, 0.5, [poor, good])) == "tthh"


def test_a_share_that_is_missed_loses_against_one_that_is_reached():
    keys = [(letter, "") for letter in "abcdefghij"]
    few, right = start("h" + "t" * 9), start("hh" + "." * 4 + "tttt")
    assert shown(best_quarantine(rows(*keys), KEYS, 0.33, [few, right])) == "hh....tttt"


letters = st.text("abcde", max_size=2)


@given(st.lists(st.tuples(letters, letters), min_size=1, max_size=30), st.data())
def test_no_value_ever_stands_on_both_sides(keys, data):
    begin = data.draw(st.text("ht.", min_size=len(keys), max_size=len(keys)))
    proposal = best_quarantine(rows(*keys), KEYS, 0.3, [start(begin)])
    assert not (proposal.held & proposal.trained).any()
    for place in (0, 1):
        held, trained = (
            {value for key, flag in zip(keys, flags.tolist(), strict=True) if flag for value in key[place]}
            for flags in (proposal.held, proposal.trained)
        )
        assert not held & trained


def test_random_starts_hold_out_whole_values_of_the_key_with_fewest_and_repeat_by_seed():
    keys = [("abcdefghij"[n % 10], "xyzuv"[n % 5]) for n in range(50)] + [("", "")] * 20
    first = list(random_starts(rows(*keys), KEYS, 0.4, seed=1))
    again = list(random_starts(rows(*keys), KEYS, 0.4, seed=1))
    other = list(random_starts(rows(*keys), KEYS, 0.4, seed=2))
    assert [one.held.tolist() for one in first] == [one.held.tolist() for one in again]
    assert [one.held.tolist() for one in first] != [one.held.tolist() for one in other]
    for one in first:
        assets = {"xyzuv"[n % 5] for n in range(50) if one.held[n]}
        assert [bool(flag) for flag in one.held[:50]] == ["xyzuv"[n % 5] in assets for n in range(50)]
        assert 1 <= len(assets) <= 2


def test_the_order_to_shuffle_by_is_the_same_for_ever():
    """Written down, because a change would give every user another split under the same seed."""
    assert order_of(0, "INC1").hex() == "61b3815f8abeea22"
    assert order_of(1, "0") != order_of(10, "")
