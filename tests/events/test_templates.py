"""Every template against a plain definition of it: all sessions of up to six of four events."""

from __future__ import annotations

import re
from itertools import product

import pytest

from auditlib.events.event_map import EventMap
from auditlib.events.machine import to_machine
from auditlib.events.order import EventOrder, OrderRule, Reopening
from auditlib.events.templates import TEMPLATES, Letter
from tests.events.meanings import COUNTED, LIFTED, PAIRS, SINGLES, keeps

EVENTS = EventMap.build("abcr")
SESSIONS = [session for length in range(7) for session in product("abcr", repeat=length)]
SHORT = [session for session in SESSIONS if len(session) <= 3]
RULES = [
    *(OrderRule(template, "a") for template in SINGLES),
    *(OrderRule(template, "a", count=count) for template in COUNTED for count in (1, 2, 3)),
    *(OrderRule(template, "a", "b") for template in PAIRS),
    *(OrderRule(template, "a", "a") for template in sorted(LIFTED)),
]


def compiled(rule, reopening=None):
    return EventOrder("1", (rule,), reopening).compile(EVENTS).automaton({})


def broken(automaton, session):
    return automaton.first_wrong(EVENTS.encode(session), ended=True) is not None


def test_every_template_has_a_plain_definition():
    assert {rule.template for rule in RULES} == set(TEMPLATES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_automaton_accepts_exactly_what_the_template_means(rule):
    automaton = compiled(rule)
    for session in SESSIONS:
        assert broken(automaton, session) != keeps(rule, session), session


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_prefix_is_wrong_exactly_when_nothing_can_save_it(rule):
    automaton = compiled(rule)
    for prefix in SHORT:
        can_be_saved = any(keeps(rule, prefix + more) for more in SHORT)
        assert (automaton.state_after(EVENTS.encode(prefix)) >= 0) == can_be_saved, prefix


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_automaton_of_one_rule_has_two_states_that_do_the_same(rule):
    automaton = compiled(rule)
    futures = {
        tuple(automaton.first_wrong(EVENTS.encode(before + after), ended=True) is None for after in SHORT)
        for before in SHORT
        if automaton.state_after(EVENTS.encode(before)) >= 0
    }
    assert automaton.states == len(futures)


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(("first", "then"), [("a", "b"), ("a", "a"), ("r", "b"), ("a", "r"), ("r", "r")])
@pytest.mark.parametrize("template", sorted(LIFTED))
def test_a_reopening_lifts_what_was_forbidden_only_where_it_is_allowed(template, first, then, allowed):
    rule = OrderRule(template, first, then)
    automaton = compiled(rule, Reopening("r", allowed))
    for session in SESSIONS:
        assert broken(automaton, session) != keeps(rule, session, "r" if allowed else None), session


@pytest.mark.parametrize("rule", [r for r in RULES if r.template not in LIFTED], ids=lambda rule: rule.name)
def test_a_reopening_changes_no_other_template(rule):
    with_it, without = compiled(rule, Reopening("r", allowed=True)), compiled(rule)
    assert (with_it.step == without.step).all()
    assert (with_it.legal == without.legal).all()


def test_every_template_says_what_it_means_in_words():
    for rule in RULES:
        assert set(rule.events) <= set(re.findall(r"\w+", rule.meaning))
        assert not set("{}") & set(rule.meaning)
    assert OrderRule("absence", "a").meaning == "a never occurs"
    assert OrderRule("absence", "a", count=2).meaning == "a occurs at most once"
    assert OrderRule("existence", "a", count=3).meaning == "a occurs at least 3 times"


def test_a_rule_broken_from_its_start_is_a_table_that_accepts_nothing():
    machine = to_machine("x", TEMPLATES["existence"].shape(1), [Letter(False, False, False)])
    assert machine.step.tolist() == [[-1]]
    assert machine.accepts.tolist() == [False]
