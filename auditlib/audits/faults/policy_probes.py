"""The checks of decoding policies, the event grammar and training, each run alone over a small world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from auditlib.audits.emitted import Emitted, recount
from auditlib.audits.event_grammar import Expected, Tally, lanes_of
from auditlib.audits.faults.path_probes import Probe
from auditlib.audits.faults.planting import Found, Plan, World, real_loop
from auditlib.audits.faults.training_probes import TRAINING_PROBES
from auditlib.audits.policy_probes import EndAverse, filter_errors, score_error, wrong_caps
from auditlib.audits.policy_runs import Runs, batch_dependence, narrow_differs
from auditlib.audits.prefix_set import PrefixCase, prefix_set
from auditlib.audits.willing_ends import not_ended_by_choice
from auditlib.audits.work import Watch
from auditlib.decoders.protocol import Decoder
from auditlib.decoding.filters import filtered
from auditlib.decoding.policies import Setting

_PREFIXES = 24
_SETTINGS = {
    "greedy": Setting("greedy", "greedy"),
    # Narrow in every way, so that each filter has something to drop.
    "sampled": Setting("sampled", "sampled", temperature=1.5, top_k=4, top_p=0.8, width=2),
    "beam": Setting("beam", "beam", width=3, length_penalty=1.0),
}


@dataclass(frozen=True, slots=True)
class _PlantedRuns(Runs):
    """Generation by the loop that a fault may have been planted in, over the automata that it is given."""

    world: World

    def run(
        self, setting: Setting, cases: Sequence[PrefixCase], batch: int = 128, decoder: Decoder | None = None
    ) -> Found:
        """Hypotheses of each case."""
        subject, given = self.world.subject, self.world.given
        spoilt = {id(case.automaton): given(case.automaton) for case in cases}
        automata = [spoilt[id(case.automaton)] for case in cases]
        plan = Plan(
            decoder or subject.decoder, [case.row for case in cases], setting, subject.event_map, automata,
            subject.max_new_events, batch, subject.device,
        )  # fmt: skip
        found = self.world.loop(plan)
        if self.world.loop is not real_loop:
            self.world.shown.append(found != real_loop(plan))
        return found


def _runs(world: World) -> tuple[_PlantedRuns, Sequence[PrefixCase]]:
    return _PlantedRuns(world.subject, Watch(world.subject.progress), world), prefix_set(world.subject, _PREFIXES).cases


def _emitted(world: World, setting: Setting) -> tuple[list[Emitted], Found]:
    runs, cases = _runs(world)
    found, bounds = runs.run(setting, cases), runs.bounds(setting)
    ids = world.subject.event_map
    numbered = [(case, number, one) for case, some in zip(cases, found, strict=True) for number, one in enumerate(some)]
    return [recount(*one, ids, bounds) for one in numbered], found


def _counted(count: Callable[[Emitted], int], events: bool = False) -> Callable[[str], Probe]:
    def under(kind: str) -> Probe:
        """The probe under the setting of that kind."""

        def probe(world: World) -> tuple[float, int]:
            """Sum of the count over all hypotheses; observations are emitted events where `events`, else hypotheses."""
            emitted, _ = _emitted(world, _SETTINGS[kind])
            return sum(map(count, emitted)), sum(len(one.found.events) for one in emitted) if events else len(emitted)

        return probe

    return under


def _not_chosen(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Share of sequences that did not end by choice, over how many; more are drawn where few did."""
        runs, cases = _runs(world)
        return not_ended_by_choice(runs, _SETTINGS[kind], cases, _emitted(world, _SETTINGS[kind])[0])

    return probe


def _mislabelled(kind: str) -> Probe:
    """With the decoder as it is, and with one that never wants to end: so that some ends are forced."""

    def probe(world: World) -> tuple[float, int]:
        """Stops that are not what the events say, of the hypotheses of both decoders."""
        setting = _SETTINGS[kind]
        averse = replace(world, subject=replace(world.subject, decoder=_averse(world)))
        emitted = [*_emitted(world, setting)[0], *_emitted(averse, setting)[0]]
        return sum(one.mislabelled for one in emitted), len(emitted)

    return probe


def _capped(_: str) -> Probe:
    """Under a decoder that never wants to end, only the mask's budget keeps sequences from being capped."""

    def probe(world: World) -> tuple[float, int]:
        """Capped sequences, of those that emitted anything."""
        runs, cases = _runs(world)
        # A cap of few events and no end by choice: the mask alone must bring every session to its end.
        short = replace(world.subject, max_new_events=min(4, world.subject.max_new_events))
        runs = replace(runs, subject=short, world=replace(world, subject=short))
        setting = _SETTINGS["greedy"]
        bounds = runs.bounds(setting)
        found = runs.run(setting, cases, decoder=_averse(world))
        emitted = [recount(case, 0, some[0], short.event_map, bounds) for case, some in zip(cases, found, strict=True)]
        # A prefix whose end is out of reach from the outset is capped by right.
        due = [one for one in emitted if one.found.events]
        return sum(one.stop == "capped" for one in due), len(due)

    return probe


def _averse(world: World) -> Decoder:
    return EndAverse(world.subject.decoder, world.subject.event_map.end)


def _caps(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Sequences that stop elsewhere than at their cap, of how many."""
        runs, cases = _runs(world)
        return wrong_caps(runs, _SETTINGS[kind], cases)

    return probe


def _company(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Prefixes whose result changes with its company and not by a near tie, of how many."""
        runs, cases = _runs(world)
        found = batch_dependence(runs, _SETTINGS[kind], cases, runs.run(_SETTINGS[kind], cases))
        return found.changed, found.looked

    return probe


def _repeated(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Hypotheses whose events another of the same prefix has as well, of how many."""
        emitted, found = _emitted(world, _SETTINGS[kind])
        return sum(len(some) - len({one.events for one in some}) for some in found), len(emitted)

    return probe


def _scores(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Largest error of a beam score, NaN where a score is none, over how many hypotheses."""
        emitted, _ = _emitted(world, _SETTINGS[kind])
        return score_error(_runs(world)[0], _SETTINGS[kind], emitted), len(emitted)

    return probe


def _narrow(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Prefixes that do not get greedy's events from the narrowest filters, of how many runs."""
        return narrow_differs(_runs(world)[0], _SETTINGS[kind], _runs(world)[1])

    return probe


def _filters(kind: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Prefixes after which the filters keep other events than defined, of how many."""
        runs, cases = _runs(world)
        return filter_errors(runs, _SETTINGS[kind], cases, _watched(world))

    return probe


def _watched(world: World) -> Callable[[Tensor, Setting], Tensor]:
    """The world's filters, noting whether they keep anything else than the real ones."""

    def keep(scores: Tensor, setting: Setting) -> Tensor:
        """Scores as the world's filters leave them; noted only where those are not the real ones."""
        kept = world.filters(scores, setting)
        if world.filters is not filtered:
            world.shown.append(not torch.equal(kept > -torch.inf, filtered(scores, setting) > -torch.inf))
        return kept

    return keep


def _grammar(count: Callable[[Tally], int]) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """The tally's count over all automata and a few budgets, of how many pairs of state and budget."""
        subject, total = world.subject, Tally()
        room = min(subject.max_new_events, subject.decoder.context_length - 1)
        for automaton in subject.order.automata().values():
            expected, given = Expected(automaton, subject.decoder.vocabulary_size), world.given(automaton)
            for budget in sorted({1, 2, 3, max(1, room // 2), max(1, room)}):
                for lanes in lanes_of(given, budget, max(subject.max_new_events, budget)):
                    total.add(expected.judge(lanes.allowed(subject.decoder.vocabulary_size).numpy(), budget))
        return count(total), total.looked

    return probe


_UNDER_SETTINGS: dict[str, Callable[[str], Probe]] = {
    "padding emitted": _counted(lambda one: one.padding, events=True),
    "events after the end": _counted(lambda one: one.after_end, events=True),
    "invalid sequences": _counted(lambda one: one.wrong is not None),
    "mislabelled stops": _mislabelled,
    "capped sequences": _capped,
    "share not ended by choice": _not_chosen,
    "wrong effective cap": _caps,
    "batch dependent sequences": _company,
    "repeated hypotheses": _repeated,
    "beam score error": _scores,
    "top-k 1 differs from greedy": _narrow,
    "filter errors": _filters,
}

OTHER_PROBES: dict[tuple[str, str], Probe] = {
    ("event grammar", "allowed illegal cells"): _grammar(lambda tally: tally.illegal),
    ("event grammar", "states with no event"): _grammar(lambda tally: tally.empty),
    ("event grammar", "ends out of reach"): _grammar(lambda tally: tally.out_of_reach),
    ("event grammar", "end not forced"): _grammar(lambda tally: tally.not_forced),
    **TRAINING_PROBES,
}
"""Probes of the mask and of training, by audit and check."""


def under_setting(check: str, kind: str) -> Probe:
    """The probe of a check of decoding settings, under a setting of this kind."""
    return _UNDER_SETTINGS[check](kind)
