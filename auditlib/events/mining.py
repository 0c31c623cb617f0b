"""Event-order rules that a log suggests, so that whoever has a log and no rules has something to accept or reject."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from auditlib.errors import OrderError
from auditlib.events.candidates import Proposal, candidates
from auditlib.events.clashes import find_clash
from auditlib.events.event_map import EventMap
from auditlib.events.log_counts import LogCounts
from auditlib.events.log_prefixes import LogPrefixes
from auditlib.events.machine import Machine
from auditlib.events.product import TooManyStatesError, implies, product

FEWEST_SESSIONS = 10
FEWEST_SHARE = 0.01
LEAST_GAIN = 0.002
MOST_STATES = 2_000


def propose(
    sequences: Sequence[Sequence[str]],
    *,
    min_support: float = 0.99,
    min_sessions: int | None = None,
    max_rules: int = 16,
) -> list[Proposal]:
    """Rules that at least `min_support` of the sessions they apply to keep; those first that rule out most.

    What a rule rules out is measured on the log's own prefixes: the share of events, drawn as often as they occur, that
    it refuses and no rule before it does. Left out are rules that add next to nothing, that clash with those before
    them, or that would take the automaton beyond 2,000 states; so the result compiles as it is. A rule must apply to
    `min_sessions` sessions (when left out: 1 % of the log and at least 10).
    """
    if not 0 <= min_support <= 1:
        raise OrderError(f"support is a share from 0 to 1, not {min_support}; write 0.99 for 99 %")
    told = [sequence for sequence in sequences if sequence]
    counts = LogCounts.of(told)
    needed = max(FEWEST_SESSIONS, round(FEWEST_SHARE * counts.sessions)) if min_sessions is None else min_sessions
    found = list(candidates(counts, needed, min_support))
    if not found:
        return []
    event_map = EventMap.build(counts.names)
    machines = [proposal.rule.machine(event_map) for proposal in found]
    # How sessions begin and end is what people look for first, whatever it rules out.
    outer = [number for number, proposal in enumerate(found) if proposal.rule.template in {"init", "end"}]
    chosen = _choose(machines, outer, LogPrefixes.of(told, event_map), max_rules)
    return [found[number] for number in chosen]


def _choose(machines: Sequence[Machine], outer: Sequence[int], prefixes: LogPrefixes, most: int) -> list[int]:
    """Numbers of the machines to propose: the outer ones, then those that rule out most beside the ones before them.

    What several rules only rule out together still counts as open: a refusal that one rule explains is understood.
    A gain only shrinks while others are chosen, so one that is stale and yet the largest is the largest (Minoux 1978).
    """
    chosen = [number for place, number in enumerate(outer) if _together(machines, outer[: place + 1])][:most]
    covered = np.zeros(prefixes.mass.shape, dtype=np.bool_)
    for number in chosen:
        covered |= prefixes.refused(machines[number], broken=True)
    queue = [(-prefixes.gain(machine, covered), number) for number, machine in enumerate(machines)]
    heapify(queue)
    while queue and len(chosen) < most:
        number = heappop(queue)[1]
        gain = prefixes.gain(machines[number], covered)
        if queue and gain < -queue[0][0]:
            heappush(queue, (-gain, number))
        elif gain < LEAST_GAIN:
            break
        elif _together(machines, [*chosen, number]):
            chosen.append(number)
            covered |= prefixes.refused(machines[number], broken=True)
    return _without_implied(machines, chosen)


def _together(machines: Sequence[Machine], numbers: Sequence[int]) -> bool:
    """Whether these machines go together: no clash, and an automaton that stays small."""
    asked = [machines[number] for number in numbers]
    try:
        return find_clash(asked, product(asked, asked[0].step.shape[1], MOST_STATES)) is None
    except TooManyStatesError:
        return False


def _without_implied(machines: Sequence[Machine], chosen: Sequence[int]) -> list[int]:
    """The chosen ones that no other one implies by itself: what came later may say more."""
    kept = list(chosen)
    for number in reversed(chosen):
        if any(implies([machines[other]], machines[number]) for other in kept if other != number):
            kept.remove(number)
    return kept
