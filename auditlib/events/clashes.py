"""Which rules contradict each other, and a session that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from auditlib.errors import OrderError
from auditlib.events.machine import DEAD, OUT_OF_REACH, Flags, Machine, to_machine, ways_out
from auditlib.events.product import Product, TooManyStatesError, product
from auditlib.events.templates import TEMPLATES, Letter

_MOST_CELLS = 250_000


@dataclass(frozen=True, slots=True)
class Clash:
    """Rules that contradict each other: `machines` by number, fewest first looked for in pairs.

    `event`: the domain column that they make impossible together, or None when no session satisfies them at all.
    `witness`: columns of a shortest session that keeps all of them but the last, and, where an event is at stake, has
    it. `breaks_at`: place in the witness at which the last rule breaks; its length when it breaks at the end.
    """

    machines: tuple[int, ...]
    event: int | None
    witness: tuple[int, ...]
    breaks_at: int


class OrderClashError(OrderError):
    """Rules that contradict each other: `rules` by name, `witness` as event names."""

    def __init__(self, message: str, rules: tuple[str, ...], witness: tuple[str, ...]) -> None:
        super().__init__(message)
        self.rules = rules
        self.witness = witness


def find_clash(machines: Sequence[Machine], whole: Product) -> Clash | None:
    """A contradiction among machines whose product is `whole`, of two of them where there is one, or None.

    A clash is a set of rules under which no session can end, or which together make an event impossible that each
    alone allows.
    """
    if whole.empty:
        return _explain(machines, machines, None, smallest_clash(machines, [0] * len(machines)))
    lost = np.flatnonzero(_never(whole) & ~np.any([_never(machine) for machine in machines], axis=0))
    if not len(lost):  # events that one rule alone forbids are not lost: that is its meaning
        return None
    event, guilty = _pair_that_loses(machines, lost) or (int(lost[0]), None)
    narrowed = [_requiring(machine, event) for machine in machines]
    return _explain(machines, narrowed, event, guilty or _drop_needless(narrowed, [0] * len(machines)))


def _never(machine: Machine | Product) -> Flags:
    """Which events [E] no accepted session has; neither has states without a way to the end."""
    return np.asarray((machine.step == DEAD).all(axis=0))


def _pair_that_loses(machines: Sequence[Machine], lost: npt.NDArray[np.intp]) -> tuple[int, tuple[int, int]] | None:
    for one, other in combinations(range(len(machines)), 2):
        both = product([machines[one], machines[other]], machines[one].step.shape[1])
        here = lost[_never(both)[lost]]
        if len(here):
            return int(here[0]), (one, other)
    return None


def smallest_clash(machines: Sequence[Machine], starts: Sequence[int]) -> tuple[int, ...]:
    """Numbers of machines that from these states have no way to the end together: a pair, else no more than needed.

    All machines together must have none.
    """
    for one, other in combinations(range(len(machines)), 2):
        # Nearly every clash is one of two rules, and a table of each pair answers for all its states.
        if not _ways_of_both(machines[one], machines[other])[starts[one], starts[other]]:
            return one, other
    return _drop_needless(machines, starts)


def _drop_needless(machines: Sequence[Machine], starts: Sequence[int]) -> tuple[int, ...]:
    kept = tuple(range(len(machines)))  # the least number of rules would need a search over all sets of them
    for number in range(len(machines)):
        fewer = tuple(other for other in kept if other != number)
        if _no_way([machines[n] for n in fewer], [starts[n] for n in fewer]):
            kept = fewer
    return kept


def _no_way(machines: Sequence[Machine], starts: Sequence[int]) -> bool:
    if not machines:
        return False
    try:
        return product(machines, machines[0].step.shape[1], starts=starts).empty
    except TooManyStatesError:
        return False  # not shown to clash, so the rule left out stays among the accused


@lru_cache(maxsize=4096)
def _ways_of_both(one: Machine, other: Machine) -> Flags:
    """Whether two machines have a way to the end together, from each pair of their states [S, S']."""
    sizes = len(one.accepts), len(other.accepts)
    if sizes[0] * sizes[1] * one.step.shape[1] > _MOST_CELLS:
        return np.ones(sizes, dtype=np.bool_)  # too large for a table: left to the search without pairs
    first, then = one.step[:, None, :], other.step[None, :, :]
    step = np.where((first == DEAD) | (then == DEAD), DEAD, first * sizes[1] + then)  # [S, S', E]
    accepts = one.accepts[:, None] & other.accepts[None, :]
    distance = ways_out(step.reshape(sizes[0] * sizes[1], -1).astype(np.int32), accepts.reshape(-1))
    return (distance < OUT_OF_REACH).reshape(sizes)


def _requiring(machine: Machine, event: int) -> Machine:
    """The machine narrowed to sessions that have an event, which it must allow."""
    letters = [Letter(column == event, False, False) for column in range(machine.step.shape[1])]
    need = to_machine("need", TEMPLATES["existence"].shape(1), letters)
    both = product([machine, need], len(letters))
    return Machine(machine.name, both.step, both.accepts)


def _explain(
    rules: Sequence[Machine], narrowed: Sequence[Machine], event: int | None, guilty: tuple[int, ...]
) -> Clash:
    turns = [(*(other for other in guilty if other != broken), broken) for broken in guilty]
    clashes = [_shown_by(rules, narrowed, turn, event) for turn in turns]
    return max(clashes, key=lambda clash: (len(clash.witness), clash.machines[-1]))  # the longest shows most


def _shown_by(
    rules: Sequence[Machine], narrowed: Sequence[Machine], guilty: tuple[int, ...], event: int | None
) -> Clash:
    *kept, broken = guilty
    witness = _shortest(product([narrowed[number] for number in kept], rules[0].step.shape[1]))
    return Clash(guilty, event, witness, _breaks_at(rules[broken], witness))


def _shortest(whole: Product) -> tuple[int, ...]:
    state, columns = 0, []
    while whole.to_end[state] > 1:
        after = whole.step[state]
        nearer = (after != DEAD) & (whole.to_end[after] == whole.to_end[state] - 1)
        columns.append(int(np.flatnonzero(nearer)[0]))
        state = int(after[columns[-1]])
    return tuple(columns)


def _breaks_at(machine: Machine, columns: Sequence[int]) -> int:
    state = 0
    for position, column in enumerate(columns):
        state = int(machine.step[state, column])
        if state == DEAD:
            return position
    return len(columns)
