"""Faults of the order mask: single bad cells, ends out of reach, states with nothing left, another row's state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from auditlib.audits.faults.needs import forbids_something, goes_on_beyond_the_cap
from auditlib.audits.faults.planting import Fault, Need, Plant, World
from auditlib.events.automaton import OrderAutomaton

_AUDIT = "event grammar"
_ILLEGAL = "allowed illegal cells"
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer]


class _Spoilt(OrderAutomaton):
    """The automaton that the loop is given in place of a session's own; subclasses spoil what it allows."""


class _OneCell(_Spoilt):
    """One forbidden event is allowed in one state."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, and one cell more."""
        true = super().allowed(states, remaining)
        domain = list(self.event_map.domain)
        bad = np.argwhere(~self.legal[:, domain])
        if len(bad):
            state, column = bad[len(bad) // 2]
            true[np.asarray(states) == state, domain[column]] = True
        return true


class _PaddingAllowed(_Spoilt):
    """Padding may be emitted anywhere."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, and padding."""
        true = super().allowed(states, remaining)
        true[:, self.event_map.padding] = True
        return true


class _StartAllowed(_Spoilt):
    """The start token may come again in the first state."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, and the start token once more."""
        true = super().allowed(states, remaining)
        true[np.asarray(states) == self.start, self.event_map.start] = True
        return true


class _EndAnywhere(_Spoilt):
    """A session may end in every state."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, and the end."""
        true = super().allowed(states, remaining)
        true[np.asarray(states) >= 0, self.event_map.end] = True
        return true


class _AfterWrong(_Spoilt):
    """The state -1 is read as the last state: after a wrong event anything of it goes."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, the state -1 taken for the last."""
        return super().allowed(np.where(np.asarray(states) < 0, self.states - 1, states), remaining)


class _NoBudget(_Spoilt):
    """The budget is not looked at: the end may come to lie out of reach."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton would allow without an end to the budget."""
        return super().allowed(states, np.where(np.asarray(remaining) > 0, 1 << 20, remaining))


class _OneTooMany(_Spoilt):
    """The budget is taken for one event more than it is: the end is not counted as one of them."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows with one event more."""
        return super().allowed(states, np.asarray(remaining) + 1)


class _NothingLeft(_Spoilt):
    """With two events left nothing is allowed in some states: the end's way was counted from the wrong side."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows, but for the states next to their end."""
        true = super().allowed(states, remaining)
        true[np.asarray(remaining) == 2] = False
        return true


class _OtherState(_Spoilt):
    """Each row is masked by its neighbour's state, as after a reorder that the states did not follow."""

    def allowed(self, states: Integers, remaining: Integers) -> Flags:
        """What the true automaton allows of the state of the next row."""
        return super().allowed(np.roll(states, 1), remaining)


def _spoilt(kind: type[_Spoilt]) -> Plant:
    def given(real: OrderAutomaton) -> OrderAutomaton:
        """The spoilt automaton of the same rules and start; what is emitted is still judged by the real one."""
        return kind(real.event_map, real.machines, real.all_rules, real.start)

    return lambda world: replace(world, given=given)


def ends_only_sometimes(world: World) -> str | None:
    """There is a state in which a session may not end."""
    automata, end = world.subject.order.automata().values(), world.subject.event_map.end
    some = any(not automaton.legal[:, end].all() for automaton in automata)
    return None if some else "a session may end in every state of this order"


def _mask(name: str, kind: type[_Spoilt], check: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    return Fault(name, _AUDIT, _AUDIT, (check,), _spoilt(kind), report, needs)


_CFG = "epfl-dlab/transformers-CFG PR 108"

MASKS: tuple[Fault, ...] = (
    _mask("one bad cell of the mask", _OneCell, _ILLEGAL, "pytorch/pytorch #48841", (forbids_something,)),
    _mask("padding is allowed", _PaddingAllowed, _ILLEGAL, "lablup/mlxcel PR 412"),
    _mask("the start may come again", _StartAllowed, _ILLEGAL, "NVIDIA/TensorRT-LLM PR 12358"),
    _mask("a session may end anywhere", _EndAnywhere, _ILLEGAL, _CFG, (ends_only_sometimes,)),
    _mask("a broken session goes on", _AfterWrong, _ILLEGAL, _CFG),
    _mask("rows are masked by their neighbour's state", _OtherState, _ILLEGAL, "pytorch/translate PR 353"),
    _mask("the budget is ignored", _NoBudget, "ends out of reach", "PaddlePaddle/FastDeploy PR 4543"),
    _mask("the budget is one too many", _OneTooMany, "end not forced", "NVIDIA/TensorRT-LLM PR 12358"),
    _mask("nothing is allowed before the end", _NothingLeft, "states with no event", _CFG),
    Fault("capped by a mask without budget", "decoding policy", "decoding policy", ("capped sequences",),
          _spoilt(_NoBudget),
          "PaddlePaddle/FastDeploy PR 4543", (goes_on_beyond_the_cap,), setting="endless"),
)  # fmt: skip
