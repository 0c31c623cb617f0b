from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import OrderError
from auditlib.events.automaton import WrongEvent
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule, Reopening
from tests.events.meanings import COUNTED, PAIRS, SINGLES, keeps

MAP = EventMap.build("abc", unknown=True)
NAMES = ("a", "b", "c", "zapped")
SESSIONS = [session for length in range(6) for session in product(NAMES, repeat=length)]
SHORT = [session for session in SESSIONS if len(session) <= 3]
TICKETS = EventMap("1", 0, 1, 2, {"opened": 5, "assigned": 3, "closed": 9, "reopened": 4})  # ids with gaps


def order_rules():
    single = st.builds(OrderRule, st.sampled_from(sorted(SINGLES)), st.sampled_from("abc"))
    counted = st.builds(
        lambda template, event, count: OrderRule(template, event, count=count),
        st.sampled_from(sorted(COUNTED)),
        st.sampled_from("abc"),
        st.integers(1, 3),
    )
    pair = st.builds(
        lambda template, events: OrderRule(template, *events),
        st.sampled_from(sorted(PAIRS)),
        st.permutations("abc").map(lambda events: events[:2]),
    )
    return st.lists(single | counted | pair | pair, min_size=1, max_size=4, unique_by=lambda rule: rule.name)


def compiled(rules, reopening=None, event_map=MAP):
    return EventOrder("1", tuple(rules), reopening).compile(event_map).automaton({})


def or_none(rules, reopening):
    try:
        return compiled(rules, reopening)
    except OrderError:
        return None


@settings(max_examples=80, deadline=None)
@given(order_rules(), st.booleans())
def test_several_rules_accept_exactly_the_sessions_that_keep_each_of_them(rules, reopens):
    automaton = or_none(rules, Reopening("c", reopens))
    if automaton is None:
        return
    for session in SESSIONS:
        kept = all(keeps(rule, session, "c" if reopens else None) for rule in rules)
        wrong = automaton.first_wrong(MAP.encode(session), ended=True)
        assert (wrong is None) == kept, session


@settings(max_examples=60, deadline=None)
@given(order_rules())
def test_no_state_is_a_dead_end_and_the_distance_to_the_end_is_exact(rules):
    automaton = or_none(rules, None)
    if automaton is None:
        return
    for prefix in SHORT:
        ways = [len(more) + 1 for more in SHORT if all(keeps(rule, prefix + more) for rule in rules)]
        state = automaton.state_after(MAP.encode(prefix))
        if ways:
            assert automaton.to_end[state] == min(ways)
        else:
            assert state == -1 or automaton.to_end[state] > 4


@settings(max_examples=60, deadline=None)
@given(order_rules())
def test_blame_falls_on_the_broken_rules_and_on_the_first_event_that_nothing_can_save(rules):
    automaton = or_none(rules, None)
    if automaton is None:
        return
    by_name = {rule.name: rule for rule in rules}
    for session in SHORT:
        wrong = automaton.first_wrong(MAP.encode(session), ended=True)
        if wrong is None:
            continue
        assert wrong.rules
        accused = [by_name[name] for name in wrong.rules]
        if wrong.kind == "missing":
            assert wrong.position == len(session)
            assert accused == [rule for rule in rules if not keeps(rule, session)]
        else:
            assert wrong.event == MAP.encode(session)[wrong.position]
            before, through = session[: wrong.position], session[: wrong.position + 1]
            assert automaton.state_after(MAP.encode(before)) >= 0
            assert not any(all(keeps(rule, through + more) for rule in accused) for more in SHORT)
            for innocent in accused if len(accused) > 1 else []:  # no rule stands accused without need
                rest = [rule for rule in accused if rule is not innocent]
                alone = [rule for rule in accused if not any(keeps(rule, through + more) for more in SHORT)]
                assert alone or any(all(keeps(rule, through + more) for rule in rest) for more in SHORT)


@settings(max_examples=60, deadline=None)
@given(order_rules())
def test_the_mask_allows_exactly_what_can_still_end_within_the_budget(rules):
    automaton = or_none(rules, None)
    if automaton is None:
        return
    for prefix in (session for session in SESSIONS if len(session) <= 2):
        state = automaton.state_after(MAP.encode(prefix))
        if state < 0:
            continue
        for remaining in range(5):
            allowed = automaton.allowed(np.array([state]), np.array([remaining]))[0]
            expected = {
                MAP.encode([*more, "x"])[0] if more else MAP.end
                for more in SHORT
                if len(more) + 1 <= remaining and all(keeps(rule, prefix + more) for rule in rules)
            }
            assert set(np.flatnonzero(allowed).tolist()) == expected


def test_one_bad_cell_of_a_mask_does_not_escape_the_comparison_above():
    rules = [OrderRule("not succession", "a", "b")]
    automaton = compiled(rules)
    state = automaton.state_after(MAP.encode("a"))
    assert not automaton.legal[state, MAP.events["b"]]
    assert not keeps(rules[0], ("a", "b"))
    lenient = compiled([OrderRule("not chain succession", "a", "b")])
    sessions = [s for s in SESSIONS if (lenient.first_wrong(MAP.encode(s), True) is None) != keeps(rules[0], s)]
    assert ("a", "c", "b") in sessions


TICKET_RULES = (
    OrderRule("init", "opened"),
    OrderRule("not succession", "closed", "assigned"),
    OrderRule("response", "assigned", "closed"),
)


@pytest.mark.parametrize(
    ("names", "ended", "wrong"),
    [
        ([], False, None),
        ([], True, (0, "<end>", ("init(opened)",), "missing")),
        (["closed"], False, (0, "closed", ("init(opened)",), "forbidden")),
        (["opened", "assigned"], False, None),
        (["opened", "assigned"], True, (2, "<end>", ("response(assigned, closed)",), "missing")),
        (["opened", "assigned", "<end>"], False, (2, "<end>", ("response(assigned, closed)",), "missing")),
        (["opened", "closed", "assigned"], True, (2, "assigned", ("not succession(closed, assigned)",), "forbidden")),
        (["opened", "closed", "reopened", "assigned", "closed"], True, None),
        (["opened", "closed", "<end>"], True, None),
        (["opened", "<end>", "closed"], True, (2, "closed", (), "after end")),
        (["opened", "assigned", "<end>", "closed"], True, (2, "<end>", ("response(assigned, closed)",), "missing")),
        (["opened", "<end>", "<padding>"], True, (2, "<padding>", (), "after end")),
        (["opened", "<padding>"], True, (1, "<padding>", (), "padding")),
        (["opened", "<start>"], True, (1, "<start>", (), "not an event")),
        (["<start>", "opened"], True, (0, "<start>", (), "not an event")),
    ],
)
def test_names_the_first_wrong_event_its_place_and_the_rules(names, ended, wrong):
    automaton = compiled(TICKET_RULES, Reopening("reopened", allowed=True), TICKETS)
    number = {TICKETS.name(i): i for i in (0, 1, 2, *TICKETS.domain)}
    found = automaton.first_wrong([number[name] for name in names], ended)
    assert found == (wrong and WrongEvent(wrong[0], number[wrong[1]], *wrong[2:]))


@pytest.mark.parametrize("event", [-1, -6, 6, 7, 10, 10**9])
def test_an_id_without_meaning_is_wrong_and_leads_nowhere(event):
    automaton = compiled(TICKET_RULES, None, TICKETS)
    assert automaton.first_wrong([5, event], ended=False) == WrongEvent(1, event, (), "not an event")
    assert automaton.advance(automaton.start, event) == -1
    assert automaton.advance_all(np.array([0, 0]), np.array([event, 5])).tolist() == [-1, automaton.advance(0, 5)]


def test_an_event_that_only_several_rules_forbid_together_is_pruned_and_blamed_on_those():
    rules = [
        OrderRule("response", "a", "b"),
        OrderRule("not succession", "c", "b"),
        OrderRule("absence", "a", count=3),
        OrderRule("existence", "c"),
    ]
    automaton = compiled(rules)
    wrong = automaton.first_wrong(MAP.encode("ca"), ended=False)
    assert wrong == WrongEvent(1, MAP.events["a"], ("response(a, b)", "not succession(c, b)"), "forbidden")


def test_three_rules_that_are_all_needed_are_all_blamed():
    rules = [OrderRule("response", "a", "b"), OrderRule("response", "b", "c"), OrderRule("absence", "c", count=2)]
    wrong = compiled(rules).first_wrong(MAP.encode("ca"), ended=False)
    assert wrong.rules == tuple(rule.name for rule in rules)


def test_what_was_wrong_stays_wrong():
    automaton = compiled(TICKET_RULES, None, TICKETS)
    assert automaton.advance(-1, 5) == -1
    assert automaton.state_after([9, 5, 5]) == -1
    assert automaton.advance_all(np.array([-1]), np.array([5])).tolist() == [-1]
    assert not automaton.allowed(np.array([-1]), np.array([99])).any()
    assert automaton.forbidding(-1, 5) == ()


def test_the_last_event_of_the_budget_is_the_end_and_a_hopeless_budget_allows_nothing():
    automaton = compiled(TICKET_RULES, None, TICKETS)
    after = [automaton.state_after(TICKETS.encode(names)) for names in (["opened"], ["opened", "assigned"])]
    allowed = automaton.allowed(np.array([after[0], after[1], after[1], after[1]]), np.array([1, 2, 1, 0]))
    assert [np.flatnonzero(row).tolist() for row in allowed] == [[TICKETS.end], [TICKETS.events["closed"]], [], []]


def test_shapes_and_types_are_those_that_the_decoding_loop_reads():
    automaton = compiled(TICKET_RULES, None, TICKETS)
    assert automaton.step.shape == automaton.legal.shape == (automaton.states, TICKETS.size)
    assert (automaton.step.dtype, automaton.legal.dtype, automaton.to_end.dtype) == (np.int32, np.bool_, np.int32)
    assert automaton.to_end.shape == (automaton.states,)
    assert automaton.start == 0
    assert (automaton.step[:, TICKETS.end] == -1).all()
    assert not automaton.legal[:, [TICKETS.padding, TICKETS.start, 6, 7, 8]].any()
    within = np.delete(automaton.legal, TICKETS.end, axis=1) == (np.delete(automaton.step, TICKETS.end, axis=1) >= 0)
    assert within.all()
    batch = automaton.allowed(np.zeros(7, dtype=np.int64), np.full(7, 9, dtype=np.int32))
    assert batch.shape == (7, TICKETS.size)


@pytest.mark.parametrize("table", ["step", "legal", "to_end"])
def test_nobody_changes_the_tables(table):
    array = getattr(compiled(TICKET_RULES, None, TICKETS), table)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0


def test_forbidding_tells_why_an_event_or_the_end_is_illegal_and_nothing_where_it_is_legal():
    automaton = compiled(TICKET_RULES, None, TICKETS)
    state = automaton.state_after(TICKETS.encode(["opened", "assigned"]))
    assert automaton.forbidding(state, TICKETS.end) == ("response(assigned, closed)",)
    assert automaton.forbidding(state, TICKETS.events["closed"]) == ()
    assert automaton.forbidding(0, TICKETS.events["closed"]) == ("init(opened)",)
    assert automaton.forbidding(0, TICKETS.padding) == ()
    assert automaton.rules == tuple(rule.name for rule in TICKET_RULES)
