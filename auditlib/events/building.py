"""From machines to an automaton, or to the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from auditlib.errors import OrderError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.clashes import Clash, OrderClashError, find_clash
from auditlib.events.documents import shown
from auditlib.events.event_map import EventMap
from auditlib.events.machine import Machine
from auditlib.events.product import MOST_STATES, TooManyStatesError

MOST_CELLS = 50_000_000


def build_automaton(event_map: EventMap, machines: Sequence[Machine], context: str) -> OrderAutomaton:
    """Automaton of all machines; OrderError, opened by `context`, when they clash or are too many to compile."""
    if not event_map.domain:
        raise OrderError(f"{context}: event map {event_map.version!r} has no events; map at least one")
    try:
        automaton = OrderAutomaton.of(event_map, machines)
    except TooManyStatesError:
        raise OrderError(
            f"{context}: {len(machines)} rules need more than {MOST_STATES} states; the largest are "
            f"{_largest(machines)}; take out rules that say little, or lower their counts"
        ) from None
    if clash := find_clash(machines, automaton.all_rules):
        raise _refusal(event_map, machines, clash, context)
    if automaton.states * event_map.size > MOST_CELLS:
        raise OrderError(f"{context}: {automaton.states} states × {event_map.size} ids are too many; take out rules")
    return automaton


def _largest(machines: Sequence[Machine]) -> str:
    by_size = sorted(machines, key=lambda machine: -len(machine.accepts))
    return ", ".join(f"{machine.name} ({len(machine.accepts)})" for machine in by_size[:3])


def _refusal(event_map: EventMap, machines: Sequence[Machine], clash: Clash, context: str) -> OrderClashError:
    def _named(column: int) -> str:
        return event_map.name(event_map.domain[column])

    rules = tuple(machines[number].name for number in clash.machines)
    witness = tuple(_named(column) for column in clash.witness)
    what = "no session can satisfy them all"
    remedy = "take one out or give it a condition"
    if clash.event is not None:
        what = f"together they never let {shown(_named(clash.event))} occur, which each alone allows"
        remedy += f", or say absence({shown(_named(clash.event))}) if that is meant"
    message = f"{context}: {' and '.join(rules)} clash: {what}; {_shown_witness(rules, witness, clash)}; {remedy}"
    return OrderClashError(message, rules, witness)


def _shown_witness(rules: Sequence[str], witness: Sequence[str], clash: Clash) -> str:
    session = "[" + ", ".join(map(shown, witness)) + "]"
    at_end = clash.breaks_at == len(witness)
    where = "where it ends" if at_end else f"at {shown(witness[clash.breaks_at])} (event {clash.breaks_at + 1})"
    return f"the session {session} keeps {' and '.join(rules[:-1])} but breaks {rules[-1]} {where}"
