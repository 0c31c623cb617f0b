from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.events.clashes import OrderClashError, smallest_clash
from auditlib.events.event_map import EventMap
from auditlib.events.order import Condition, EventOrder, OrderRule, Reopening
from tests.events.meanings import PAIRS, keeps
from tests.events.test_order_automaton import order_rules

MAP = EventMap.build("abcd")
SESSIONS = [session for length in range(6) for session in product("abcd", repeat=length)]


def clash_of(*rules, reopening=None):
    try:
        EventOrder("1", rules, reopening).compile(MAP)
    except OrderClashError as refusal:
        return refusal
    return None


R = OrderRule
CLASHES = [
    ([R("init", "a"), R("init", "b")], {0, 1}),
    ([R("end", "a"), R("response", "a", "b")], {0, 1}),
    ([R("existence", "a"), R("absence", "a")], {0, 1}),
    ([R("existence", "a", count=3), R("absence", "a", count=3)], {0, 1}),
    ([R("exactly", "a", count=2), R("exactly", "a", count=3)], {0, 1}),
    ([R("precedence", "a", "b"), R("absence", "a")], {0, 1}),  # b can never occur
    ([R("precedence", "a", "b"), R("precedence", "b", "a")], {0, 1}),  # neither can occur
    ([R("init", "a"), R("not succession", "a", "b")], {0, 1}),
    ([R("exclusive choice", "a", "b"), R("existence", "a")], {0, 1}),
    ([R("chain response", "a", "b"), R("not chain succession", "a", "b")], {0, 1}),
    ([R("end", "c"), R("existence", "d"), R("init", "a"), R("init", "b")], {2, 3}),
    ([R("existence", "a"), R("response", "a", "b"), R("response", "b", "c"), R("absence", "c")], {0, 1, 2, 3}),
    ([R("response", "a", "b"), R("response", "b", "c"), R("absence", "c")], {1, 2}),
]
FRIENDS = [
    [R("init", "a"), R("end", "a")],
    [R("existence", "a", count=2), R("absence", "a", count=3)],
    [R("precedence", "a", "b"), R("absence", "b")],  # b is forbidden by one rule alone: that is its meaning
    [R("absence", "a"), R("precedence", "a", "b"), R("absence", "b")],
    [R("init", "a"), R("not succession", "b", "a")],
    [R("end", "b"), R("response", "a", "b"), R("chain response", "c", "a")],
    [R("not succession", "a", "a"), R("not succession", "a", "b"), R("not succession", "b", "a")],
]


@pytest.mark.parametrize(("rules", "guilty"), CLASHES)
def test_names_the_rules_that_clash_and_no_others(rules, guilty):
    refusal = clash_of(*rules)
    assert refusal is not None
    assert set(refusal.rules) == {rules[number].name for number in guilty}
    for name in refusal.rules:
        assert name in str(refusal)


@pytest.mark.parametrize("rules", FRIENDS)
def test_lets_rules_pass_that_do_not_clash(rules):
    assert clash_of(*rules) is None


@pytest.mark.parametrize(("rules", "guilty"), [case for case in CLASHES if len(case[1]) == 2])
def test_taking_out_either_of_two_named_rules_settles_their_clash(rules, guilty):
    for number in guilty:
        assert clash_of(rules[number]) is None


@settings(max_examples=100, deadline=None)
@given(order_rules(), st.booleans())
def test_a_refusal_is_true_and_its_witness_shows_it(rules, reopens):
    lifting = "c" if reopens else None
    refusal = clash_of(*rules, reopening=Reopening("c", reopens))
    possible = [s for s in SESSIONS if all(keeps(rule, s, lifting) for rule in rules)]
    if refusal is None:
        shortest = EventOrder("1", tuple(rules), Reopening("c", reopens)).compile(MAP).automaton({}).to_end[0]
        assert possible or shortest > 6  # no session of the search is that long
        return
    by_name = {rule.name: rule for rule in rules}
    accused = [by_name[name] for name in refusal.rules]
    together = [s for s in SESSIONS if all(keeps(rule, s, lifting) for rule in accused)]
    dead = {event for event in "abcd" if not any(event in s for s in together)}
    assert any(all(any(e in s and keeps(rule, s, lifting) for s in SESSIONS) for rule in accused) for e in dead)
    assert all(keeps(rule, refusal.witness, lifting) for rule in accused[:-1])
    assert not keeps(accused[-1], refusal.witness, lifting)


def test_the_message_says_which_rules_why_by_which_session_and_what_to_do():
    message = str(clash_of(R("precedence", "a", "b"), R("absence", "a")))
    assert message == (
        "event order '1': precedence(a, b) and absence(a) clash: together they never let b occur, which each alone "
        "allows; the session [a, b] keeps precedence(a, b) but breaks absence(a) at a (event 1); "
        "take one out or give it a condition, or say absence(b) if that is meant"
    )
    message = str(clash_of(R("end", "a"), R("response", "a", "b")))
    assert (
        "no session can satisfy them all; the session [a] keeps end(a) but breaks response(a, b) where it ends"
        in message
    )


def test_a_clash_under_a_condition_names_the_condition():
    gold = Condition("contract", ("gold",))
    refusal = clash_of(R("init", "a"), R("init", "b", when=gold))
    assert refusal.rules == ("init(a)", "init(b) when contract in [gold]")
    assert "event order '1', where contract in [gold]: " in str(refusal)


def test_a_reopening_can_settle_what_would_clash_without_it():
    rules = [R("init", "a"), R("not succession", "a", "b")]
    assert clash_of(*rules, reopening=Reopening("c", allowed=False)) is not None
    assert clash_of(*rules, reopening=Reopening("c", allowed=True)) is None


def test_hostile_event_names_cannot_forge_the_message():
    event_map = EventMap.build(["a\n\x1b[2Jb", "c"])
    with pytest.raises(OrderClashError) as refusal:
        EventOrder("1", (R("init", "a\n\x1b[2Jb"), R("init", "c"))).compile(event_map)
    assert str(refusal.value).isprintable()


def test_the_smallest_clash_is_found_from_states_under_way_and_even_without_the_table_of_pairs(monkeypatch):
    machines = [
        R("absence", "a", count=3).machine(MAP),
        R("response", "b", "a").machine(MAP),
        R("init", "b").machine(MAP),
    ]
    used_up, awaiting, begun = 2, 1, 1
    assert smallest_clash(machines, [used_up, awaiting, begun]) == (0, 1)
    monkeypatch.setattr("auditlib.events.clashes._MOST_CELLS", 0)
    fresh = [R("absence", "a", count=3).machine(MAP), R("response", "b", "a").machine(MAP), R("init", "b").machine(MAP)]
    assert smallest_clash(fresh, [used_up, awaiting, begun]) == (0, 1)


def test_every_pair_of_one_event_both_ways_is_judged_as_a_search_over_sessions_judges_it():
    for one, other in product(sorted(PAIRS), repeat=2):
        rules = [R(one, "a", "b"), R(other, "b", "a")]
        together = [s for s in SESSIONS if all(keeps(rule, s) for rule in rules)]
        lost = any(
            not any(event in s for s in together)
            and all(any(event in s and keeps(rule, s) for s in SESSIONS) for rule in rules)
            for event in "abcd"
        )
        assert (clash_of(*rules) is not None) == (lost or not together), (one, other)
