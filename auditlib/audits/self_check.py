"""Faults planted in the decoder under audit, and what the checks that claim to see them then measure.

Whether a value is too large is for others to say: this module knows no limit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from auditlib.audits.base import Subject
from auditlib.audits.faults.path_probes import PATH_PROBES, Probe
from auditlib.audits.faults.planting import Fault, World
from auditlib.audits.faults.policy_probes import OTHER_PROBES, under_setting
from auditlib.audits.held_out import LONGEST_EVERYDAY, Material, beside, held_out, material, spread
from auditlib.audits.precise import load_precise
from auditlib.audits.tolerance import FACTOR, study
from auditlib.audits.work import Piece, Watch
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CancelledError

_SESSIONS, _SAMPLE = 12, 4
_LENGTHS = (1, 2, 3, 5, 9, 17)
_MOST_NEW = 12


@dataclass(frozen=True, slots=True)
class Planting:
    """One fault and what became of it.

    `value` over `count` observations is what the claimed `check` measured with the fault, `clean` over `clean_count`
    what it measured without. `reason` says why the fault was not planted, `problem` what kept the probe from measuring.
    """

    fault: Fault
    check: str
    value: float = 0.0
    count: int = 0
    clean: float = 0.0
    clean_count: int = 0
    reason: str = ""
    problem: str = ""


def plant_all(subject: Subject, faults: Iterable[Fault], tolerance: float | None = None) -> tuple[Planting, ...]:
    """What became of each fault; each is planted alone, over a few of the held-out sessions and made-up rows.

    `tolerance` (logits) is what an audit measured on all prefixes; without it the few at hand are studied. Raises what
    the decoder itself raises before any fault is planted.
    """
    checking = _SelfCheck(small_world(subject, tolerance))
    done: list[Planting] = []
    pieces: list[Piece] = [
        (fault.name, lambda fault=fault: done.append(checking.plant(fault)))  # type: ignore[misc]
        for fault in faults
    ]
    Watch(subject.progress).run(pieces)
    return tuple(done)


def small_world(subject: Subject, tolerance: float | None = None) -> World:
    """A few sessions and rows of the subject, small enough to be read once for every fault."""
    by_length = sorted(subject.held_out, key=lambda session: (len(session.events), session.session_id))
    small = replace(
        subject,
        held_out=spread(by_length, _SESSIONS),  # type: ignore[arg-type]  # any sequence is spread alike
        load=_copies(subject),
        max_new_events=min(subject.max_new_events, _MOST_NEW),
        progress=lambda *_: None,
    )
    held = held_out(small)
    studied = study(small)
    if tolerance is not None:
        studied = replace(studied, floor=tolerance / FACTOR, tolerance=tolerance)
    precise = load_precise(small, Watch(small.progress))
    return World(small, held, _few(material(small, held)), studied, precise.decoder, precise.reason)


def _few(rows: Material) -> Material:
    """A few rows of the lengths that matter."""
    # A window that no everyday row reaches is left to the audit: every fault would read its rows anew at each step.
    ends = tuple(end for end in rows.block_ends if end <= LONGEST_EVERYDAY)
    lengths = {*_LENGTHS, *beside(ends)}
    made_up = tuple(row for row in rows.made_up if len(row) in lengths)
    return replace(rows, sample=spread(rows.sample, _SAMPLE), made_up=made_up, block_ends=ends)


def _copies(subject: Subject) -> Callable[[torch.dtype], Decoder]:
    """Loads each dtype once, and gives a copy of what was loaded: opening a revision anew costs most of the time."""
    loaded: dict[torch.dtype, Decoder] = {}

    def load(dtype: torch.dtype) -> Decoder:
        """A decoder that a fault may change: a deep copy, or one loaded anew where it does not let itself be copied."""
        if dtype not in loaded:
            loaded[dtype] = subject.load(dtype)
        try:
            return copy.deepcopy(loaded[dtype])
        except (TypeError, AttributeError, NotImplementedError, RuntimeError, copy.Error):
            return subject.load(dtype)

    return load


class _SelfCheck:
    """Plants faults in one world, and remembers what each probe measured without any."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clean: dict[tuple[str, str, str], tuple[float, int]] = {}

    def plant(self, fault: Fault) -> Planting:
        """What became of one fault."""
        check = self._claimed(fault)
        reason = next((why for need in fault.needs if (why := need(self._world)) is not None), None)
        if reason is not None:
            return Planting(fault, check, reason=reason)
        probe = _probe(fault, check)
        clean, clean_count = self._without(fault, check, probe)
        world = fault.plant(replace(self._world, shown=[]))
        try:
            value, count = probe(world)
        except CancelledError:
            raise
        except (Exception, SystemExit) as problem:  # noqa: BLE001  # a fault that breaks the probe was not seen by it
            return Planting(
                fault, check, clean=clean, clean_count=clean_count, problem=f"{type(problem).__name__}: {problem}"
            )
        if world.shown and not any(world.shown):
            return Planting(fault, check, reason="the loop has no occasion to show it after the prefixes at hand")
        return Planting(fault, check, float(value), count, clean, clean_count)

    def _claimed(self, fault: Fault) -> str:
        """The first of the fault's checks that this decoder can serve."""
        served = [one for one in fault.checks if not (one.endswith("in float64") and self._world.fine is None)]
        return (served or list(fault.checks))[0]

    def _without(self, fault: Fault, check: str, probe: Probe) -> tuple[float, int]:
        key = fault.audit, check, fault.setting
        if key not in self._clean:
            value, count = probe(self._world)
            self._clean[key] = float(value), count
        return self._clean[key]


def _probe(fault: Fault, check: str) -> Probe:
    if fault.setting:
        return under_setting(check, fault.setting)
    return {**PATH_PROBES, **OTHER_PROBES}[fault.audit, check]
