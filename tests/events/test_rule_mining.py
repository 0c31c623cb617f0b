from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import OrderError
from auditlib.events.candidates import Proposal, candidates
from auditlib.events.event_map import EventMap
from auditlib.events.log_counts import LogCounts
from auditlib.events.mining import propose
from auditlib.events.order import EventOrder, OrderRule
from auditlib.events.product import MOST_STATES, implies
from tests.events.meanings import keeps

logs = st.lists(st.lists(st.sampled_from("abcd"), max_size=6).map(tuple), min_size=1, max_size=25)


def applies(rule, session):
    """Whether a rule says something about a session: the plain reading of each template's figure."""
    if rule.template in {"init", "end", "exactly", "existence"}:
        return True
    has_first, has_then = rule.first in session, rule.then in session
    return {
        "absence": has_first,
        "succession": has_first or has_then,
        "precedence": has_then,
        "response": has_first,
        "chain precedence": has_then,
        "chain response": has_first,
        "not succession": has_first and has_then,
    }[rule.template]


@settings(deadline=None)
@given(logs, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_every_candidate_counts_the_sessions_it_applies_to_and_those_that_keep_it(log, min_support):
    told = [session for session in log if session]
    for proposal in candidates(LogCounts.of(log), 1, min_support):
        rule = proposal.rule
        if rule.template == "not co-existence":
            rarer = min(sum(event in session for session in told) for event in rule.events)
            assert proposal.applies == rarer
            assert proposal.holds == rarer - sum(not keeps(rule, session) for session in told)
            continue
        touched = [session for session in told if applies(rule, session)]
        assert proposal.applies == len(touched)
        assert proposal.holds == sum(keeps(rule, session) for session in touched)
        assert proposal.support >= min_support


@settings(deadline=None)
@given(logs)
def test_no_candidate_that_holds_everywhere_is_overlooked(log):
    found = {proposal.rule for proposal in candidates(LogCounts.of(log), 1, 1.0)}
    told = [session for session in log if session]
    events = sorted({event for session in told for event in session})
    for template in ("precedence", "response", "succession", "not succession", "chain response", "chain precedence"):
        for first in events:
            for then in (event for event in events if event != first):
                rule = OrderRule(template, first, then)
                touched = [session for session in told if applies(rule, session)]
                holds = bool(touched) and all(keeps(rule, session) for session in touched)
                assert (rule in found) == holds, rule.name


def help_desk(sessions, seed=0):
    """Sessions of a service desk: opened, work with loops, resolved, closed; one in fifty is closed twice."""
    chance = random.Random(seed)
    log = []
    for _ in range(sessions):
        work = [chance.choice(["assigned", "waiting"]) for _ in range(chance.randint(1, 4))]
        again = ["resolved", "closed"] if chance.random() < 0.02 else []
        log.append(("opened", *work, "resolved", "closed", *again))
    return log


def test_a_log_without_rules_gets_a_short_list_that_says_how_its_sessions_go():
    found = [proposal.rule.name for proposal in propose(help_desk(2000), min_support=0.97)]
    assert found[:2] == ["init(opened)", "end(closed)"]
    assert "not succession(closed, assigned)" in found or "not succession(resolved, assigned)" in found
    assert any("resolved" in name and "closed" in name for name in found)
    assert len(found) <= 10


def test_what_is_broken_too_often_is_not_proposed():
    strict = {proposal.rule.name for proposal in propose(help_desk(2000), min_support=0.99)}
    lenient = {proposal.rule.name for proposal in propose(help_desk(2000), min_support=0.97)}
    assert "exactly(closed, 1)" not in strict
    assert not any("not succession(closed, " in name and "resolved" in name for name in strict)
    assert lenient - strict


@settings(deadline=None, max_examples=60)
@given(logs, st.sampled_from([0.6, 0.8, 1.0]), st.integers(1, 8))
def test_what_is_proposed_compiles_keeps_its_word_and_repeats_nothing(log, min_support, most):
    found = propose(log, min_support=min_support, min_sessions=1, max_rules=most)
    assert len(found) <= most
    names = sorted({event for session in log for event in session})
    if not names:
        assert found == []
        return
    event_map = EventMap.build(names)
    automaton = EventOrder("1", tuple(proposal.rule for proposal in found)).compile(event_map).automaton({})
    assert automaton.states <= 2_000
    for proposal in found:
        assert 0 < proposal.holds <= proposal.applies <= len(log)
        assert proposal.support >= min_support
    machines = [proposal.rule.machine(event_map) for proposal in found]
    for number, machine in enumerate(machines):
        assert not any(implies([other], machine) for place, other in enumerate(machines) if place != number)


@settings(deadline=None, max_examples=30)
@given(logs, st.randoms())
def test_the_order_of_the_sessions_changes_nothing(log, chance):
    shuffled = list(log)
    chance.shuffle(shuffled)
    assert propose(log, min_support=0.8, min_sessions=1) == propose(shuffled, min_support=0.8, min_sessions=1)


@pytest.mark.parametrize("log", [[], [()], [("a",)] * 9, [(), ()] * 50])
def test_a_log_that_shows_too_little_gets_no_rules(log):
    assert propose(log) == []


def test_rules_that_clash_on_the_log_are_not_proposed_together():
    log = [("a", "b")] * 60 + [("b", "a")] * 40
    found = propose(log, min_support=0.4)
    assert found
    EventOrder("1", tuple(proposal.rule for proposal in found)).compile(EventMap.build("ab"))


def test_events_that_are_merely_rare_are_not_said_to_exclude_each_other():
    rare = [("a", "b", "x")] * 12 + [("a", "b", "y")] * 12 + [("a", "b")] * 2000
    often = [("a", "x")] * 500 + [("a", "y")] * 500
    assert not any("not co-existence" in p.rule.name for p in candidates(LogCounts.of(rare), 10, 0.99))
    assert any(p.rule.name == "not co-existence(x, y)" for p in candidates(LogCounts.of(often), 10, 0.99))


@pytest.mark.parametrize(
    ("rules", "other", "implied"),
    [
        ([OrderRule("succession", "a", "b")], OrderRule("precedence", "a", "b"), True),
        ([OrderRule("precedence", "a", "b")], OrderRule("succession", "a", "b"), False),
        ([OrderRule("chain response", "a", "b")], OrderRule("response", "a", "b"), True),
        ([OrderRule("end", "b"), OrderRule("absence", "b", count=2)], OrderRule("not succession", "b", "a"), True),
        ([OrderRule("end", "b")], OrderRule("not succession", "b", "a"), False),
        ([OrderRule("init", "a")], OrderRule("existence", "a"), True),
        ([OrderRule("response", "a", "b")], OrderRule("existence", "b"), False),
    ],
)
def test_implication_is_exact(rules, other, implied):
    event_map = EventMap.build("abc")
    machines = [rule.machine(event_map) for rule in rules]
    assert implies(machines, other.machine(event_map), MOST_STATES) is implied


@pytest.mark.parametrize("share", [99, -0.1, float("nan")])
def test_a_support_that_is_no_share_is_refused(share):
    with pytest.raises(OrderError, match="share from 0 to 1"):
        propose([("a",)], min_support=share)


def test_a_proposal_knows_its_support():
    assert Proposal(OrderRule("init", "a"), 8, 6).support == 0.75
