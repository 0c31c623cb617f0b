from __future__ import annotations

import math
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auditlib.audits.base import Subject
from auditlib.audits.emitted import STOPPED_EARLY, Bounds, recount
from auditlib.audits.intervals import upper_bound
from auditlib.audits.likeness import duplicate_share, similarity
from auditlib.audits.prefix_set import PrefixCase, prefix_set
from auditlib.decoding.generated import Generated
from auditlib.decoding.policies import DEFAULT_SETTINGS
from auditlib.errors import InputError
from auditlib.events.event_map import EventMap
from auditlib.events.order import Condition, EventOrder, OrderRule
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder

MAP = EventMap.build(["a", "b", "c"])
A, B, C = MAP.encode("abc")
RULES = (OrderRule("not succession", "b", "a", when=Condition("strict", ("yes",))),)
ORDER = EventOrder("1", RULES).compile(MAP)
STRICT = ORDER.automaton({"strict": "yes"})


# -- intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "trials", "bound"),
    [
        (0, 10, 1 - 0.05 ** (1 / 10)),  # closed form where nothing failed
        (0, 2995, 1 - 0.05 ** (1 / 2995)),
        (9, 10, 0.95 ** (1 / 10)),  # closed form where one succeeded
        (1, 20, 0.21611),  # Clopper-Pearson tables, one-sided 95 %
        (5, 50, 0.19882),
        (10, 10, 1.0),
        (0, 0, 1.0),
    ],
)
def test_bounds_are_those_of_clopper_and_pearson(failures, trials, bound):
    assert upper_bound(failures, trials) == pytest.approx(bound, abs=2e-5)


def test_2995_clean_requests_show_a_rate_below_one_in_a_thousand():
    assert upper_bound(0, 2995) < 0.001 < upper_bound(0, 2994)


@given(st.integers(1, 300), st.data())
def test_a_bound_leaves_just_the_tail_it_should(trials, data):
    failures = data.draw(st.integers(0, trials - 1))
    bound = upper_bound(failures, trials)
    tail = sum(math.comb(trials, k) * bound**k * (1 - bound) ** (trials - k) for k in range(failures + 1))
    assert tail == pytest.approx(0.05, rel=1e-5)
    assert failures / trials < bound < upper_bound(failures + 1, trials) + 1e-12


@pytest.mark.parametrize("use", [(-1, 3), (4, 3), (1, 3, 0.0), (1, 3, 1.0)])
def test_counts_that_make_no_sense_are_refused(use):
    with pytest.raises(InputError):
        upper_bound(*use)


# -- likeness ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "like"),
    [
        ((), (), 1.0),
        ((1,), (), 0.0),
        ((1, 2, 3), (1, 2, 3), 1.0),
        ((1, 2, 3), (1, 3), 2 / 3),
        ((1, 2, 3, 4), (1, 3, 2, 4), 0.75),  # swapped neighbours are one edit
        ((1, 2), (3, 4, 5), 0.0),
    ],
)
def test_similarity_counts_edits(left, right, like):
    assert similarity(left, right) == pytest.approx(like)
    assert similarity(right, left) == pytest.approx(like)


def test_duplicates_are_rows_seen_before():
    assert duplicate_share([(1,), (1,), (2,), (1,)]) == 0.5
    assert duplicate_share([]) == 0.0


# -- the frozen prefix set ---------------------------------------------------------------------------------------------


def subject_of(sessions, context_length=16):
    decoder = ToyDecoder(MAP.size, context_length)
    return Subject(
        "toy", "sha256:0", decoder, lambda _: decoder, MAP, ORDER, tuple(sessions), None, DEFAULT_SETTINGS, 8,
        dtype=torch.float32,
    )  # fmt: skip


def some_sessions():
    chance = Random(7)
    for number in range(240):
        strict = ("yes", "no")[number % 2]
        yield Session(f"{strict}{number}", tuple(chance.choices("abc", k=number % 23)), attributes={"strict": strict})


SESSIONS = list(some_sessions())


def test_the_set_is_frozen_by_the_sessions_and_not_by_their_order():
    first, again = prefix_set(subject_of(SESSIONS)), prefix_set(subject_of(SESSIONS[::-1]))
    assert first.cases == again.cases
    assert first.digest == again.digest
    assert prefix_set(subject_of(SESSIONS[:-9])).digest != first.digest


def test_the_set_holds_every_length_of_interest():
    chosen = prefix_set(subject_of(SESSIONS), most=60)
    lengths = [len(case.row) for case in chosen.cases]
    assert len(chosen.cases) == 60
    assert {1, 2, 15, 16} <= set(lengths)
    assert max(lengths) == 16
    assert sum(length > 8 for length in lengths) > 10
    assert len({(case.row, id(case.automaton)) for case in chosen.cases}) == 60


def test_a_case_knows_the_rest_of_its_session_and_its_own_rules():
    rows = {session.session_id: (1, *MAP.encode(session.events), 2) for session in SESSIONS}
    for case in prefix_set(subject_of(SESSIONS)).cases:
        if not case.made_up:
            assert (*case.row, *case.rest) == rows[case.session_id]
            assert case.automaton is ORDER.automaton({"strict": case.session_id.rstrip("0123456789")})
        assert case.automaton.state_after(case.row[1:]) >= 0


def test_prefixes_that_break_the_order_are_kept_apart():
    chosen = prefix_set(subject_of([Session("x", ("a", "b", "a", "c"), attributes={"strict": "yes"})]))
    assert {case.row for case in chosen.already_invalid} == {(1, A, B, A), (1, A, B, A, C)}
    assert all(case.row != (1, A, B, A) for case in chosen.cases)


def test_the_boundary_is_made_up_where_no_session_reaches_it():
    chosen = prefix_set(subject_of([Session("x", ("a", "b"), attributes={"strict": "yes"})]))
    made_up = [case for case in chosen.cases if case.made_up]
    assert sorted(len(case.row) for case in made_up) == [15, 16]
    assert all(case.row[:3] == (1, A, B) for case in made_up)
    assert all(STRICT.first_wrong(case.row[1:], ended=False) is None for case in made_up)


def test_no_boundary_is_made_up_against_the_order():
    order = EventOrder("1", (OrderRule("absence", "a", count=3), OrderRule("absence", "b"), OrderRule("absence", "c")))
    decoder = ToyDecoder(MAP.size, 16)
    sessions = (Session("x", ("a",)),)
    subject = Subject("toy", "s", decoder, lambda _: decoder, MAP, order.compile(MAP), sessions, None, (), 8)
    assert [case.row for case in prefix_set(subject).cases] == [(1,), (1, A)]


def test_no_sessions_give_no_prefixes():
    assert prefix_set(subject_of([])).cases == ()


# -- recounting --------------------------------------------------------------------------------------------------------


def seen(events, stop="end", prefix=(1,), mask=True, forced=False, cap=8, max_new=8, context=16):
    found = Generated(tuple(events), stop, forced, 0.0, stop == "end" and not forced, cap)
    return recount(PrefixCase("s", prefix, (), STRICT), 0, found, MAP, Bounds(max_new, context, mask))


@pytest.mark.parametrize(
    ("events", "stop"),
    [
        ((A, 2), "end"),
        ((2,), "end"),
        ((A,) * 8, "capped"),
        ((A, B), STOPPED_EARLY),
        ((), STOPPED_EARLY),
        ((A, 2, A), "end"),
    ],
)
def test_why_a_sequence_stops_is_read_from_its_ids(events, stop):
    one = seen(events, stop=stop)
    assert one.stop == stop
    assert not one.mislabelled
    assert seen(events, stop="no legal event").mislabelled


@pytest.mark.parametrize(
    ("prefix", "new", "stop"),
    [((1, *[A] * 13), 2, "context full"), ((1, *[A] * 15), 0, "context full"), ((1, *[A] * 7), 8, "capped")],
)
def test_a_full_context_is_told_from_the_cap(prefix, new, stop):
    assert seen((A,) * new, prefix=prefix, stop=stop, cap=min(8, 16 - len(prefix))).stop == stop


def test_padding_and_what_follows_the_end_are_counted_and_not_called_a_broken_order():
    one = seen((A, 0, 0, B, 2, 0, A))
    assert (one.padding, one.after_end, one.wrong) == (3, 2, None)


@pytest.mark.parametrize(
    ("events", "place", "count"),
    [
        ((A, B, A, A, C, 2), 4, 2),
        ((A, 0, B, 0, A, 2), 6, 1),  # the place counts the padding before it
        ((1, A, 2), 2, 1),
        ((A, 99, 2), 3, 1),
    ],
)
def test_the_first_wrong_event_has_its_place_in_the_whole_row(events, place, count):
    one = seen(events, prefix=(1, C))
    assert one.row[one.wrong.position] in (A, 1, 99)
    assert (one.wrong.position, one.wrong_events) == (place, count)


@pytest.mark.parametrize(
    ("events", "max_new", "forced"), [((A, A, 2), 3, True), ((A, A, 2), 4, False), ((2,), 1, True)]
)
def test_an_end_is_forced_where_only_the_budget_leaves_nothing_else(events, max_new, forced):
    one = seen(events, forced=forced, max_new=max_new, cap=max_new)
    assert (one.forced, one.chosen_end, one.mislabelled) == (forced, not forced, False)
    assert not seen(events, mask=False, max_new=max_new, cap=max_new).forced


def test_more_events_than_the_cap_or_another_cap_than_asked_are_seen():
    assert seen((A,) * 9, stop="capped").over_cap
    assert seen((A, 2), cap=7).over_cap
    assert not seen((A, 2)).over_cap
