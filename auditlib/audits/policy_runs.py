"""Generation as the decoding-policy audit asks for it, and whether a second run of a setting gives the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from auditlib.audits.base import Subject
from auditlib.audits.emitted import Bounds
from auditlib.audits.precise import load_precise
from auditlib.audits.prefix_set import PrefixCase
from auditlib.audits.work import Watch
from auditlib.decoders.protocol import Decoder
from auditlib.decoding.generated import Generated
from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Setting

Found = list[list[Generated]]
_ALONE, _REGROUPED, _GROUP, _BATCH = 8, 24, 6, 128


@dataclass(frozen=True, slots=True)
class Runs:
    """Generation on the subject's decoder, under the one cap of new events of its policy."""

    subject: Subject
    watch: Watch

    def run(
        self, setting: Setting, cases: Sequence[PrefixCase], batch: int = _BATCH, decoder: Decoder | None = None
    ) -> Found:
        """Hypotheses of each case by the cached path, on the subject's decoder unless another is given."""
        return generate(
            decoder or self.subject.decoder,
            [case.row for case in cases],
            setting,
            event_map=self.subject.event_map,
            automata=[case.automaton for case in cases],
            max_new=self.subject.max_new_events,
            batch=min(batch, self.subject.most_rows),
            device=self.subject.device,
            progress=lambda *_: self.watch.tick(),
        )

    def bounds(self, setting: Setting) -> Bounds:
        """What new events of a setting stay within."""
        return Bounds(self.subject.max_new_events, self.subject.decoder.context_length, setting.order_mask)


@dataclass(frozen=True, slots=True)
class BatchDependence:
    """How many prefixes were run in other company, how many changed, and how many of these only by rounding."""

    looked: int
    changed: int
    ties: int


def batch_dependence(runs: Runs, setting: Setting, cases: Sequence[PrefixCase], found: Found) -> BatchDependence:
    """Run prefixes alone and in small groups of other company, and compare events with what the large batch gave.

    Where float64 runs alone and in company agree, the change is a tie that rounding decides: counted apart.
    """
    changed = _moved(runs, setting, cases, found)
    ties = changed - _precisely(runs, setting, cases) if changed else set()
    looked = len(places(len(cases), _ALONE)) + len(places(len(cases), _REGROUPED))
    return BatchDependence(looked, len(changed - ties), len(ties))


def _moved(
    runs: Runs, setting: Setting, cases: Sequence[PrefixCase], found: Found, decoder: Decoder | None = None
) -> set[int]:
    """Places whose events are others alone or in small groups than they were in the large batch."""
    alone, regrouped = places(len(cases), _ALONE), places(len(cases), _REGROUPED)
    # Even places before odd ones: other neighbours, and other lengths to be padded to.
    others = regrouped[::2] + regrouped[1::2]
    changed = _changed(runs, setting, cases, found, alone, 1, decoder)
    return {*changed, *_changed(runs, setting, cases, found, others, _GROUP, decoder)}


def _changed(
    runs: Runs,
    setting: Setting,
    cases: Sequence[PrefixCase],
    found: Found,
    chosen: Sequence[int],
    batch: int,
    decoder: Decoder | None,
) -> list[int]:
    again = runs.run(setting, [cases[place] for place in chosen], batch, decoder)
    return [place for place, other in zip(chosen, again, strict=True) if events_of(found[place]) != events_of(other)]


def _precisely(runs: Runs, setting: Setting, cases: Sequence[PrefixCase]) -> set[int]:
    """Places that change in float64 too, in the same company; all of them where there is no finer dtype to ask.

    In the same company: what hangs on other rows must have those rows beside it to show.
    """
    precise = load_precise(runs.subject, runs.watch).decoder
    if precise is None or runs.subject.dtype == torch.float64:
        return set(range(len(cases)))
    return _moved(runs, setting, cases, runs.run(setting, cases, decoder=precise), precise)


def narrow_differs(runs: Runs, setting: Setting, cases: Sequence[PrefixCase]) -> tuple[int, int]:
    """How many prefixes, run with top-k 1 and with the narrowest top-p, do not get greedy's events; how many ran."""
    some = [cases[place] for place in places(len(cases), _REGROUPED)]
    wanted = [events_of(one) for one in runs.run(Setting("greedy", "greedy", setting.order_mask), some)]
    # So small a share is reached by the likeliest event alone.
    narrow = (replace(setting, top_k=1, width=1), replace(setting, top_k=0, top_p=1e-9, width=1))
    got = [events_of(one) for only in narrow for one in runs.run(only, some)]
    return sum(one != other for one, other in zip(got, wanted * len(narrow), strict=True)), len(got)


def events_of(hypotheses: Sequence[Generated]) -> list[tuple[int, ...]]:
    """Events of each hypothesis."""
    return [one.events for one in hypotheses]


def places(count: int, most: int) -> list[int]:
    """At most `most` of the places 0 to `count` - 1, evenly spread, both ends included."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]
