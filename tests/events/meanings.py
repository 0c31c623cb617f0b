"""Plain definitions of the Declare templates on a finite session, written without any automaton."""

from __future__ import annotations

from itertools import pairwise


def places(session, event):
    return [place for place, other in enumerate(session) if other == event]


def response(s, a, b):
    return all(b in s[i + 1 :] for i in places(s, a))


def precedence(s, a, b):
    return all(a in s[:j] for j in places(s, b))


def alternate_response(s, a, b):
    return all(any(i < j and a not in s[i + 1 : j] for j in places(s, b)) for i in places(s, a))


def alternate_precedence(s, a, b):
    return all(any(i < j and b not in s[i + 1 : j] for i in places(s, a)) for j in places(s, b))


def chain_response(s, a, b):
    return all(s[i + 1 : i + 2] == (b,) for i in places(s, a))


def chain_precedence(s, a, b):
    return all(j > 0 and s[j - 1] == a for j in places(s, b))


PAIRS = {
    "choice": lambda s, a, b: a in s or b in s,
    "exclusive choice": lambda s, a, b: (a in s) + (b in s) == 1,
    "responded existence": lambda s, a, b: a not in s or b in s,
    "co-existence": lambda s, a, b: (a in s) == (b in s),
    "not co-existence": lambda s, a, b: a not in s or b not in s,
    "response": response,
    "precedence": precedence,
    "succession": lambda s, a, b: response(s, a, b) and precedence(s, a, b),
    "alternate response": alternate_response,
    "alternate precedence": alternate_precedence,
    "alternate succession": lambda s, a, b: alternate_response(s, a, b) and alternate_precedence(s, a, b),
    "chain response": chain_response,
    "chain precedence": chain_precedence,
    "chain succession": lambda s, a, b: chain_response(s, a, b) and chain_precedence(s, a, b),
    "not succession": lambda s, a, b: not any(i < j for i in places(s, a) for j in places(s, b)),
    "not chain succession": lambda s, a, b: (a, b) not in pairwise(s),
}
SINGLES = {"init": lambda s, a: s[:1] == (a,), "end": lambda s, a: s[-1:] == (a,)}
COUNTED = {
    "existence": lambda s, a, n: s.count(a) >= n,
    "absence": lambda s, a, n: s.count(a) < n,
    "exactly": lambda s, a, n: s.count(a) == n,
}
LIFTED = {"not succession", "not chain succession"}


def keeps(rule, session, reopening=None):
    """Whether a session keeps a rule; `reopening` names an event that is allowed to lift."""
    if rule.template in SINGLES:
        return SINGLES[rule.template](session, rule.first)
    if rule.template in COUNTED:
        return COUNTED[rule.template](session, rule.first, rule.count)
    if reopening is None or rule.template not in LIFTED:
        return PAIRS[rule.template](session, rule.first, rule.then)
    return not any(
        (i < j if rule.template == "not succession" else i + 1 == j)
        # A reopening event strictly between the two saves the later one; it is judged itself before it lifts.
        and reopening not in session[i + 1 : j]
        for i in places(session, rule.first)
        for j in places(session, rule.then)
    )
