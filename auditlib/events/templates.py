"""Declare templates as small machines that read one event after another.

A machine sees an event only as a letter: is it the rule's first event, its then event, one that lifts what was
forbidden? Meanings follow the Declare literature on finite traces (Pesic & van der Aalst 2006; Di Ciccio & Montali,
"Declarative Process Specifications", 2022), except that "not succession" says what its words say: once the first
event occurred, the other never occurs later.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple


class Letter(NamedTuple):
    """What a rule sees of an event."""

    first: bool
    then: bool
    lifts: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """A deterministic machine: where it starts, its next state (None: broken for good), where a session may end."""

    start: Hashable
    step: Callable[[Any, Letter], Hashable]
    accepts: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Template:
    """A rule template: its machine for a count, what it says, how many events it names, and whether it counts.

    `reflexive`: both events may be the same one. The meaning holds {first}, {then}, {count} and {below} (count − 1).
    """

    shape: Callable[[int], Shape]
    meaning: str
    arity: int = 2
    counts: bool = False
    reflexive: bool = False

    def says(self, first: str, then: str, count: int) -> str:
        """The meaning with its events and count filled in, e.g. `after closed, assigned never occurs`."""
        below = "never occurs" if count == 1 else f"occurs at most {_times(count - 1)}"
        return self.meaning.format(first=first, then=then, count=_times(count), below=below)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _init() -> Shape:
    def _step(state: str, letter: Letter) -> str | None:
        return "begun" if state == "begun" or letter.first else None

    return Shape("empty", _step, lambda state: state == "begun")


def _end() -> Shape:
    return Shape(False, lambda _state, letter: letter.first, bool)


def _occurs(least: int, most: int | None) -> Shape:
    """At least `least` times, at most `most` times (None: without limit)."""

    def _step(count: int, letter: Letter) -> int | None:
        more = count + letter.first  # True counts as one
        if most is None:
            return min(more, least)  # what is beyond the least makes no difference
        return more if more <= most else None

    return Shape(0, _step, lambda count: count >= least)


def _seen(accepts: Callable[[bool, bool], bool]) -> Shape:
    """Whatever the order: only whether each of the two events occurred decides."""
    return Shape(
        (False, False),
        lambda seen, letter: (seen[0] or letter.first, seen[1] or letter.then),
        lambda seen: accepts(*seen),
    )


def _answered(breaks: Callable[[Letter], bool]) -> Shape:
    """Every first is followed by a then; while one is awaited, no event may come that `breaks`."""

    def _step(awaiting: bool, letter: Letter) -> bool | None:
        if awaiting and breaks(letter):
            return None
        return letter.first or (awaiting and not letter.then)

    return Shape(False, _step, lambda awaiting: not awaiting)


def _prepared(keeps: Callable[[Letter], bool]) -> Shape:
    """Every then needs a first before it, which stays good over all events that `keeps` names."""

    def _step(ready: bool, letter: Letter) -> bool | None:
        if letter.then and not ready:
            return None
        return letter.first or (ready and keeps(letter))

    return Shape(False, _step, lambda _ready: True)


def _forbidden(keeps: Callable[[Letter], bool]) -> Shape:
    """After a first no then may come, for as long as `keeps` holds and until an event lifts it.

    The event that lifts is judged before it lifts, so that a rule can still forbid it by name.
    """

    def _step(active: bool, letter: Letter) -> bool | None:
        if active and letter.then:
            return None
        return letter.first or (active and not letter.lifts and keeps(letter))

    return Shape(False, _step, lambda _active: True)


def _both(one: Shape, other: Shape) -> Shape:
    def _step(state: tuple[Hashable, Hashable], letter: Letter) -> tuple[Hashable, Hashable] | None:
        left, right = one.step(state[0], letter), other.step(state[1], letter)
        return None if left is None or right is None else (left, right)

    return Shape((one.start, other.start), _step, lambda state: one.accepts(state[0]) and other.accepts(state[1]))


# Named, not lambdas in place: each of them stands in several templates below.
def _always(_letter: Letter) -> bool:
    return True


def _never(_letter: Letter) -> bool:
    return False


def _not_then(letter: Letter) -> bool:
    return not letter.then


def _is_first(letter: Letter) -> bool:
    return letter.first


_RESPONSE, _PRECEDENCE = _answered(_never), _prepared(_always)
_ALTERNATE_RESPONSE, _ALTERNATE_PRECEDENCE = _answered(_is_first), _prepared(_not_then)
_CHAIN_RESPONSE, _CHAIN_PRECEDENCE = _answered(_not_then), _prepared(_never)


def _pair(shape: Shape, meaning: str, *, reflexive: bool = False) -> Template:
    return Template(lambda _count: shape, meaning, reflexive=reflexive)


TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "init": Template(lambda _count: _init(), "every session begins with {first}", arity=1),
        "end": Template(lambda _count: _end(), "every session ends with {first}", arity=1),
        "existence": Template(
            lambda count: _occurs(count, None), "{first} occurs at least {count}", arity=1, counts=True
        ),
        "absence": Template(lambda count: _occurs(0, count - 1), "{first} {below}", arity=1, counts=True),
        "exactly": Template(
            lambda count: _occurs(count, count), "{first} occurs exactly {count}", arity=1, counts=True
        ),
        "choice": _pair(_seen(lambda a, b: a or b), "{first} or {then} occurs, or both"),
        "exclusive choice": _pair(_seen(lambda a, b: a != b), "either {first} or {then} occurs, never both"),
        "responded existence": _pair(_seen(lambda a, b: b or not a), "where {first} occurs, {then} occurs too"),
        "co-existence": _pair(_seen(lambda a, b: a == b), "{first} and {then} occur together or not at all"),
        "not co-existence": _pair(_seen(lambda a, b: not (a and b)), "{first} and {then} never both occur"),
        "response": _pair(_RESPONSE, "after {first}, {then} follows"),
        "precedence": _pair(_PRECEDENCE, "before {then}, {first} has occurred"),
        "succession": _pair(
            _both(_RESPONSE, _PRECEDENCE), "after {first}, {then} follows, and before {then}, {first} has occurred"
        ),
        "alternate response": _pair(_ALTERNATE_RESPONSE, "after {first}, {then} follows before another {first}"),
        "alternate precedence": _pair(_ALTERNATE_PRECEDENCE, "each {then} needs a {first} of its own before it"),
        "alternate succession": _pair(
            _both(_ALTERNATE_RESPONSE, _ALTERNATE_PRECEDENCE), "{first} and {then} alternate, {first} first"
        ),
        "chain response": _pair(_CHAIN_RESPONSE, "right after {first} comes {then}"),
        "chain precedence": _pair(_CHAIN_PRECEDENCE, "right before {then} stands {first}"),
        "chain succession": _pair(
            _both(_CHAIN_RESPONSE, _CHAIN_PRECEDENCE), "{first} and {then} stand side by side only, {first} first"
        ),
        "not succession": _pair(_forbidden(_always), "after {first}, {then} never occurs", reflexive=True),
        "not chain succession": _pair(_forbidden(_never), "{then} never stands right after {first}", reflexive=True),
    }
)
