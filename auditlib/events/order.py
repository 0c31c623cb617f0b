"""Event-order rules (`event_order.json` of contract 1) and their compilation to automata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as every
from pathlib import Path

from auditlib.errors import OrderError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.building import build_automaton
from auditlib.events.documents import parse, read_text, shown
from auditlib.events.event_map import EventMap
from auditlib.events.machine import Machine
from auditlib.events.rules import Condition, OrderRule, Reopening, check_texts

__all__ = ["MOST_CONDITIONS", "CompiledOrder", "Condition", "EventOrder", "OrderRule", "Reopening"]

MOST_CONDITIONS = 6


@dataclass(frozen=True)
class EventOrder:
    """A version of the rules; no rules permit every order."""

    version: str
    rules: tuple[OrderRule, ...] = ()
    reopening: Reopening | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(self.rules))
        check_texts(self.version)
        names = [rule.name for rule in self.rules]  # blame goes by name, so a name stands for one rule
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise OrderError(f"the same rule stands twice: {', '.join(twice)}; keep one of each")

    @classmethod
    def from_json(cls, text: str, where: str = "event order") -> EventOrder:
        """Rules written in a JSON text; OrderError names `where`, the place in it, the reason and the remedy."""
        top = parse(text, where, OrderError)
        members = top.members(("format", "version", "rules"), ("reopening",))
        members["format"].expect_format(1)
        rules = tuple(OrderRule.from_entry(entry) for entry in members["rules"].items())
        reopening = Reopening.from_entry(members["reopening"]) if "reopening" in members else None
        return top.make(cls, members["version"].text(), rules, reopening)

    @classmethod
    def read(cls, path: Path | str) -> EventOrder:
        """Rules in a file; OrderError when it cannot be read or makes no sense."""
        return cls.from_json(read_text(Path(path), OrderError), str(path))

    def to_json(self) -> str:
        """The one JSON text of these rules: equal rules give equal bytes."""
        reopening = self.reopening.members() if self.reopening else None
        rules = [rule.members() for rule in self.rules]
        document = {"format": 1, "version": self.version, "rules": rules, "reopening": reopening}
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the rules' JSON, as `sha256:<hex>`."""
        return "sha256:" + hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The different conditions, in the order in which rules and reopening name them."""
        parts: list[OrderRule | Reopening] = [*self.rules, *([self.reopening] if self.reopening else [])]
        return tuple(dict.fromkeys(part.when for part in parts if part.when))

    def compile(self, event_map: EventMap) -> CompiledOrder:
        """Automata of these rules, one for each way in which sessions can meet the conditions.

        Raises OrderError for events that the map lacks, more than 6 conditions, rules that clash (with the rules and a
        session that shows it) and more than 20,000 states.
        """
        self._check_events(event_map)
        conditions = self.conditions
        if len(conditions) > MOST_CONDITIONS:
            raise OrderError(f"{self} has {len(conditions)} different conditions; at most {MOST_CONDITIONS} are read")
        automata = {}
        for flags in _possible_flags(conditions):  # all of them now: a clash must not wait for the session that has it
            met = {condition for condition, flag in zip(conditions, flags, strict=True) if flag}
            context = f"{self}" + "".join(f", where {condition}" for condition in conditions if condition in met)
            automata[flags] = build_automaton(event_map, self._machines(event_map, met), context)
        return CompiledOrder(self, event_map, conditions, automata)

    def __str__(self) -> str:
        return f"event order {shown(self.version)!r}"

    def _machines(self, event_map: EventMap, met: set[Condition]) -> list[Machine]:
        reopening = self.reopening
        lifting = reopening and reopening.allowed and (reopening.when is None or reopening.when in met)
        lifts = reopening.event if reopening and lifting else None
        return [rule.machine(event_map, lifts) for rule in self.rules if rule.when is None or rule.when in met]

    def _check_events(self, event_map: EventMap) -> None:
        named = {event for rule in self.rules for event in rule.events}
        named |= {self.reopening.event} if self.reopening else set()
        if lacking := sorted(named - set(event_map.events)):
            raise OrderError(
                f"{self} names events that event map {event_map.version!r} lacks: {', '.join(map(repr, lacking))}; "
                "correct the names or take the rules out"
            )


@dataclass(frozen=True, eq=False)
class CompiledOrder:
    """Rules compiled for an event map: one automaton for each combination of conditions that a session can meet."""

    order: EventOrder
    event_map: EventMap
    conditions: tuple[Condition, ...]
    by_flags: Mapping[tuple[bool, ...], OrderAutomaton] = field(repr=False)

    def automaton(self, attributes: Mapping[str, str]) -> OrderAutomaton:
        """Automaton of the rules in force for a session with these attributes."""
        return self.by_flags[tuple(condition.holds(attributes) for condition in self.conditions)]

    def automata(self) -> dict[tuple[bool, ...], OrderAutomaton]:
        """Automata by which of the conditions hold; combinations that no session can have are left out."""
        return dict(self.by_flags)


def _possible_flags(conditions: Sequence[Condition]) -> list[tuple[bool, ...]]:
    """Which conditions can hold together: of one attribute a session has one value, another value, or none."""
    values: dict[str, dict[str | None, None]] = {}
    for condition in conditions:
        values.setdefault(condition.attribute, {None: None}).update(dict.fromkeys(condition.values))
    sessions = (dict(zip(values, chosen, strict=True)) for chosen in every(*values.values()))
    return sorted({tuple(session[c.attribute] in c.values for c in conditions) for session in sessions})
