"""What a planted fault is, and the world it is planted in: all that a probe takes and a fault may stand in for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from auditlib.audits.base import Subject
from auditlib.audits.held_out import HeldOut, Material
from auditlib.audits.loss_probes import Loss, Shift
from auditlib.audits.tolerance import Tolerance
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.targets import event_loss, shifted_targets
from auditlib.decoding.cache_guard import GuardedDecoder
from auditlib.decoding.filters import filtered
from auditlib.decoding.generated import Generated
from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Setting
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.event_map import EventMap

Found = list[list[Generated]]


@dataclass(frozen=True, slots=True)
class Plan:
    """One request to the generation loop."""

    decoder: Decoder
    prefixes: Sequence[tuple[int, ...]]
    setting: Setting
    event_map: EventMap
    automata: Sequence[OrderAutomaton]
    max_new: int
    batch: int
    device: str


def real_loop(plan: Plan) -> Found:
    """Hypotheses of each prefix from the one generation loop."""
    return generate(
        plan.decoder, plan.prefixes, plan.setting, event_map=plan.event_map, automata=plan.automata,
        max_new=plan.max_new, batch=plan.batch, device=plan.device,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """What probes look at: a subject with few sessions, few rows, and the functions that decoding and training use.

    `fine` is the decoder in float64, None where there is none for the reason `no_float64`. `given` is the automaton
    that the loop gets in place of a session's own; what it emits is judged by the session's own.
    """

    subject: Subject
    held: HeldOut
    rows: Material
    tolerance: Tolerance
    fine: Decoder | None
    no_float64: str = ""
    shift: Shift = shifted_targets
    loss: Loss = event_loss
    guard: type[GuardedDecoder] = GuardedDecoder
    given: Callable[[OrderAutomaton], OrderAutomaton] = lambda automaton: automaton
    loop: Callable[[Plan], Found] = real_loop
    filters: Callable[[Tensor, Setting], Tensor] = filtered
    shown: list[bool] = field(default_factory=list)
    """For faults of the loop and its filters: whether each call that was made gave another result than the real one."""


Plant = Callable[[World], World]
Need = Callable[[World], "str | None"]
"""Why a fault cannot be planted in a world; None where it can."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault: what goes wrong, the public report it stands for, and the check that claims to see it.

    Of several `checks` the first that the decoder can serve is claimed. `equivalent` says why the change changes no
    answer: then no check may see it. `setting` is the kind of decoding a check of settings runs under.
    """

    name: str
    kind: str
    audit: str
    checks: tuple[str, ...]
    plant: Plant
    report: str = ""
    needs: tuple[Need, ...] = ()
    equivalent: str = ""
    setting: str = ""


def in_decoder(kind: Callable[[Decoder], Decoder]) -> Plant:
    """Plants `kind` around the decoder in every dtype that it is loaded in."""

    def plant(world: World) -> World:
        """The world with the fault in its decoder, in every later load, and in its float64 decoder if it has one."""
        subject = world.subject
        faulty = replace(subject, decoder=kind(subject.decoder), load=lambda dtype: kind(subject.load(dtype)))
        fine = world.fine and (faulty.decoder if world.fine is subject.decoder else kind(world.fine))
        return replace(world, subject=faulty, fine=fine)

    return plant
