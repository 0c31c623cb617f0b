"""Every template against a plain definition of it: all sessions of up to six of four events."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule, Reopening
from auditlib.events.templates import TEMPLATES

EVENTS = EventMap.build("abcr")
A, B = "a", "b"
SESSIONS = [session for length in range(7) for session in product("abcr", repeat=length)]


def places(session, event):
    return [place for place, other in enumerate(session) if other == event]


def alternates_forward(s):
    return all(any(i < j and A not in s[i + 1 : j] for j in places(s, B)) for i in places(s, A))


def alternates_backward(s):
    return all(any(i < j and B not in s[i + 1 : j] for i in places(s, A)) for j in places(s, B))


def responds(s):
    return all(B in s[i + 1 :] for i in places(s, A))


def precedes(s):
    return all(A in s[:j] for j in places(s, B))


def chains_forward(s):
    return all(s[i + 1 : i + 2] == (B,) for i in places(s, A))


def chains_backward(s):
    return all(j > 0 and s[j - 1] == A for j in places(s, B))


MEANINGS = {
    "init": lambda s: s[:1] == (A,),
    "end": lambda s: s[-1:] == (A,),
    "choice": lambda s: A in s or B in s,
    "exclusive choice": lambda s: (A in s) + (B in s) == 1,
    "responded existence": lambda s: A not in s or B in s,
    "co-existence": lambda s: (A in s) == (B in s),
    "not co-existence": lambda s: A not in s or B not in s,
    "response": responds,
    "precedence": precedes,
    "succession": lambda s: responds(s) and precedes(s),
    "alternate response": alternates_forward,
    "alternate precedence": alternates_backward,
    "alternate succession": lambda s: alternates_forward(s) and alternates_backward(s),
    "chain response": chains_forward,
    "chain precedence": chains_backward,
    "chain succession": lambda s: chains_forward(s) and chains_backward(s),
    "not succession": lambda s: not any(i < j for i in places(s, A) for j in places(s, B)),
    "not chain succession": lambda s: (A, B) not in pairwise(s),
}
COUNTED = {
    "existence": lambda s, n: s.count(A) >= n,
    "absence": lambda s, n: s.count(A) < n,
    "exactly": lambda s, n: s.count(A) == n,
}
CASES = [
    *((OrderRule(t, A, B if TEMPLATES[t].arity == 2 else None), m) for t, m in MEANINGS.items()),
    *(
        (OrderRule(t, A, count=n), lambda s, m=m, n=n: m(s, n))
        for t, m in COUNTED.items()
        for n in (1, 2, 3)
    ),
]  # fmt: skip


def ids_by_case(value):
    return value.name if isinstance(value, OrderRule) else ""


def test_every_template_has_a_plain_definition_here():
    assert {rule.template for rule, _ in CASES} == set(TEMPLATES)


@pytest.mark.parametrize(("rule", "meaning"), CASES, ids=ids_by_case)
def test_automaton_accepts_exactly_what_the_template_means(rule, meaning):
    automaton = EventOrder("1", (rule,)).compile(EVENTS).automaton({})
    for session in SESSIONS:
        wrong = automaton.first_wrong(EVENTS.encode(session), ended=True)
        assert (wrong is None) == meaning(session), session


@pytest.mark.parametrize(("rule", "meaning"), CASES, ids=ids_by_case)
def test_a_prefix_is_wrong_exactly_when_nothing_can_save_it(rule, meaning):
    automaton = EventOrder("1", (rule,)).compile(EVENTS).automaton({})
    continuations = [session for session in SESSIONS if len(session) <= 3]
    for prefix in (session for session in SESSIONS if len(session) <= 3):
        can_be_saved = any(meaning(prefix + more) for more in continuations)
        assert (automaton.state_after(EVENTS.encode(prefix)) >= 0) == can_be_saved, prefix


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize(("first", "then"), [("a", "b"), ("a", "a"), ("r", "b"), ("a", "r")])
@pytest.mark.parametrize("template", ["not succession", "not chain succession"])
def test_a_reopening_lifts_what_was_forbidden_only_where_it_is_allowed(template, first, then, allowed):
    rule = OrderRule(template, first, then)
    automaton = EventOrder("1", (rule,), Reopening("r", allowed)).compile(EVENTS).automaton({})
    for session in SESSIONS:
        broken = any(
            # judged before it lifts: a reopening event strictly between the two, and no other, saves the later one
            not (allowed and "r" in session[i + 1 : j])
            for i in places(session, first)
            for j in places(session, then)
            if (i < j if template == "not succession" else i + 1 == j)
        )
        assert (automaton.first_wrong(EVENTS.encode(session), ended=True) is not None) == broken, session


def test_a_reopening_changes_no_other_template():
    for rule, meaning in CASES:
        if rule.template.startswith("not ") and "succession" in rule.template:
            continue
        automaton = EventOrder("1", (rule,), Reopening("r", allowed=True)).compile(EVENTS).automaton({})
        for session in SESSIONS[:1000]:
            assert (automaton.first_wrong(EVENTS.encode(session), ended=True) is None) == meaning(session)
