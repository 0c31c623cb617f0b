"""What one event-order rule is: a template over events, a condition for it, and what a reopening lifts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from auditlib.errors import OrderError
from auditlib.events.documents import Entry, text_problem
from auditlib.events.event_map import EventMap
from auditlib.events.machine import Machine, to_machine
from auditlib.events.templates import TEMPLATES, Letter

MOST_TIMES = 1_000  # each time is a state


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds for sessions whose attribute has one of the values; a session without the attribute does not meet it."""

    attribute: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.values, str):  # would be read letter by letter
            raise OrderError(f"the condition on {self.attribute!r} needs a list of values, not {self.values!r}")
        object.__setattr__(self, "values", tuple(self.values))
        check_texts(self.attribute, *self.values)
        if not self.values or len(set(self.values)) < len(self.values):
            raise OrderError(f"the condition on {self.attribute!r} needs one or more different values in 'in'")

    def __str__(self) -> str:
        return f"{_quoted(self.attribute)} in [{', '.join(map(_quoted, self.values))}]"

    def holds(self, attributes: Mapping[str, str]) -> bool:
        """Whether a session with these attributes meets it."""
        return attributes.get(self.attribute) in self.values

    @classmethod
    def from_entry(cls, entry: Entry) -> Condition:
        """Condition in a JSON object."""
        members = entry.members(("attribute", "in"))
        values = tuple(value.text() for value in members["in"].items())
        return entry.make(cls, members["attribute"].text(), values)

    def members(self) -> dict[str, Any]:
        """The condition as JSON members."""
        return {"attribute": self.attribute, "in": list(self.values)}


@dataclass(frozen=True, slots=True)
class OrderRule:
    """One Declare template over one or two events, in force always or `when` a condition holds.

    `count` belongs to existence, absence and exactly, and is 1 where it is left out. Raises OrderError when the parts
    do not fit the template.
    """

    template: str
    first: str
    then: str | None = None
    count: int | None = None
    when: Condition | None = None

    def __post_init__(self) -> None:
        if self.template not in TEMPLATES:
            raise OrderError(_unknown_template(self.template))
        if TEMPLATES[self.template].counts and self.count is None:  # so that equal rules compare equal
            object.__setattr__(self, "count", 1)
        check_texts(self.first, *([] if self.then is None else [self.then]))
        self._check_parts()

    def _check_parts(self) -> None:
        template = TEMPLATES[self.template]
        if (self.then is None) != (template.arity == 1):
            raise OrderError(
                f"{self.template} takes {'one event' if template.arity == 1 else 'two events, first and then'}"
            )
        if self.first == self.then and not template.reflexive:
            raise OrderError(f"{self.template} needs two different events, not {self.first!r} twice")
        if not template.counts and self.count is not None:
            raise OrderError(f"{self.template} takes no count; leave it out")
        if self.count is not None and (type(self.count) is not int or not 1 <= self.count <= MOST_TIMES):
            raise OrderError(f"{self.template} counts from 1 to {MOST_TIMES}, not {self.count!r}")

    @classmethod
    def from_entry(cls, entry: Entry) -> OrderRule:
        """Rule in a JSON object; a template over one event takes it as `event` or `first`."""
        members = entry.members(("template",), ("event", "first", "then", "count", "when"))
        # Both spellings are in use: `event` reads better alone, `first` is what the tables of pairs have.
        subjects = [members[key].text() for key in ("event", "first") if key in members]
        if len(subjects) != 1 or {"event", "then"} <= members.keys():
            entry.refuse("needs 'first' and 'then', or only 'event' where the template is about one event")
        then = members["then"].text() if "then" in members else None
        count = members["count"].integer(1) if "count" in members else None
        return entry.make(cls, members["template"].text(), subjects[0], then, count, _when_in(members))

    @property
    def name(self) -> str:
        """What blame and reports call the rule, e.g. `not succession(closed, assigned)`."""
        counted = "" if self.count in {None, 1} and self.template != "exactly" else f", {self.count}"
        events = ", ".join(map(_quoted, self.events))
        return f"{self.template}({events}{counted})" + (f" when {self.when}" if self.when else "")

    @property
    def meaning(self) -> str:
        """The rule as an English clause, e.g. `after closed, assigned never occurs`."""
        said = TEMPLATES[self.template].says(_quoted(self.first), _quoted(self.then or ""), self.count or 1)
        return f"{said} (where {self.when})" if self.when else said

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the events that the rule is about."""
        return (self.first,) if self.then is None else (self.first, self.then)

    def machine(self, event_map: EventMap, lifts: str | None = None) -> Machine:
        """The rule as a table over the domain of a map that has its events.

        The event `lifts`, if any, lifts what the rule forbade so far.
        """
        ids = [None if name is None else event_map.events[name] for name in (self.first, self.then, lifts)]
        letters = [Letter(*(event == number for number in ids)) for event in event_map.domain]
        return to_machine(self.name, TEMPLATES[self.template].shape(self.count or 1), letters)

    def members(self) -> dict[str, Any]:
        """The rule as JSON members."""
        events = {"event": self.first} if self.then is None else {"first": self.first, "then": self.then}
        count = {} if self.count is None else {"count": self.count}
        return {"template": self.template, **events, **count, **_when_members(self.when)}


@dataclass(frozen=True, slots=True)
class Reopening:
    """An event that, where allowed, lifts all that not succession and not chain succession had forbidden so far.

    With `when` it does so only in sessions that meet the condition.
    """

    event: str
    allowed: bool
    when: Condition | None = None

    def __post_init__(self) -> None:
        check_texts(self.event)
        if self.when and not self.allowed:  # could be read as "allowed elsewhere"
            raise OrderError("a reopening that is not allowed takes no condition; write where it is allowed instead")

    @classmethod
    def from_entry(cls, entry: Entry) -> Reopening | None:
        """Reopening in a JSON object, or None for null."""
        if entry.value is None:
            return None
        members = entry.members(("event", "allowed"), ("when",))
        return entry.make(cls, members["event"].text(), members["allowed"].flag(), _when_in(members))

    def members(self) -> dict[str, Any]:
        """The reopening as JSON members."""
        return {"event": self.event, "allowed": self.allowed, **_when_members(self.when)}


def check_texts(*texts: str) -> None:
    """Nothing, when all can serve as names; OrderError otherwise."""
    for text in texts:
        problem = text_problem(text) if isinstance(text, str) else f"is {text!r}; write a string"
        if problem:
            raise OrderError(f"a name in the rules {problem}")


def _quoted(name: str) -> str:
    """A name that cannot be taken for two, nor for the words around it."""
    plain = name.isprintable() and name == name.strip() and not set(name) & set(',()[]"\\')
    return name if plain else json.dumps(name, ensure_ascii=not name.isprintable())


def _unknown_template(template: str) -> str:
    words = " ".join(template.lower().replace("_", " ").split())
    near = get_close_matches(words, TEMPLATES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no template {template!r}{hint} (known are {', '.join(TEMPLATES)})"


def _when_members(when: Condition | None) -> dict[str, Any]:
    return {"when": when.members()} if when else {}


def _when_in(members: Mapping[str, Entry]) -> Condition | None:
    when = members.get("when")
    return None if when is None or when.value is None else Condition.from_entry(when)
