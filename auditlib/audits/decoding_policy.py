"""Decoding policy: what each setting emits after the same held-out prefixes under the same cap, judged from the ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.emitted import Emitted, recount
from auditlib.audits.policy_probes import filter_errors, score_error, wrong_caps
from auditlib.audits.policy_runs import BatchDependence, Found, Runs, batch_dependence, narrow_differs
from auditlib.audits.policy_tables import RATES, SEQUENCES, Rates, sequence_rows
from auditlib.audits.prefix_set import PrefixSet, prefix_set
from auditlib.audits.willing_ends import not_ended_by_choice
from auditlib.audits.work import Piece, Watch
from auditlib.decoding.policies import Setting


@dataclass(frozen=True, slots=True)
class SettingResult:
    """Everything seen of one setting."""

    setting: Setting
    proposed: bool
    emitted: tuple[Emitted, ...]
    rates: Rates
    measurements: tuple[Measurement, ...]
    ties: int


def _measure(subject: Subject) -> Findings:
    watch = Watch(subject.progress)
    chosen = prefix_set(subject)
    audit = _PolicyAudit(subject, Runs(subject, watch), chosen)
    results: list[SettingResult] = []
    # Each proposed setting is compared with its twin, which differs in the order mask alone.
    twins = [setting.twin() for setting in subject.settings]
    pieces: list[Piece] = [(one.name, partial(audit.add, results, one, True)) for one in subject.settings]
    watch.run([*pieces, *((one.name, partial(audit.add, results, one, False)) for one in twins)])
    sequences = [row for one in results for row in sequence_rows(one.setting, one.proposed, one.emitted)]
    return Findings(
        tuple(measurement for one in results for measurement in one.measurements),
        {
            "sequences": pd.DataFrame(sequences, columns=SEQUENCES).astype({"first_wrong": "Int64"}),
            "rates": pd.DataFrame([one.rates.row(one.setting, one.proposed) for one in results], columns=RATES),
        },
        tuple(_notes(subject, chosen, results)),
    )


@dataclass(frozen=True, slots=True)
class _PolicyAudit:
    subject: Subject
    runs: Runs
    chosen: PrefixSet

    def add(self, results: list[SettingResult], setting: Setting, proposed: bool) -> None:
        """Run one setting over the whole set, and its probes; append what was seen."""
        cases, ids = self.chosen.cases, self.subject.event_map
        found = self.runs.run(setting, cases)
        bounds = self.runs.bounds(setting)
        emitted = tuple(
            recount(case, number, one, ids, bounds)
            for case, hypotheses in zip(cases, found, strict=True)
            for number, one in enumerate(hypotheses)
        )
        rates = Rates.of(emitted, bounds)
        company = batch_dependence(self.runs, setting, cases, found)
        measured = (*_counted(emitted), *self._probed(setting, found, emitted, company), *rates.measurements())
        named = tuple(Measurement(f"{setting.name}: {one.name}", one.value, one.unit, one.count) for one in measured)
        results.append(SettingResult(setting, proposed, emitted, rates, named, company.ties))

    def _probed(
        self, setting: Setting, found: Found, emitted: Sequence[Emitted], company: BatchDependence
    ) -> Iterator[Measurement]:
        cases = self.chosen.cases
        wrong, looked = wrong_caps(self.runs, setting, cases)
        wrong += sum(one.over_cap for one in emitted)
        # Without the probe the caps of short sequences were never reached: then nothing was measured.
        yield Measurement("wrong effective cap", wrong, "sequences", looked and looked + len(emitted))
        share, drawn = not_ended_by_choice(self.runs, setting, cases, emitted)
        yield Measurement("share not ended by choice", share, "share", drawn)
        yield Measurement("batch dependent sequences", company.changed, "sequences", company.looked)
        if setting.kind == "beam":
            repeated = sum(len(one) - len({beam.events for beam in one}) for one in found)
            yield Measurement("repeated hypotheses", repeated, "hypotheses", len(emitted))
            error = score_error(self.runs, setting, emitted)
            yield Measurement("beam score error", error, "log-probability", len(emitted))
        if setting.kind == "sampled":
            yield Measurement("top-k 1 differs from greedy", *_split(narrow_differs(self.runs, setting, cases)))
            yield Measurement("filter errors", *_split(filter_errors(self.runs, setting, cases), "prefixes"))


def _split(counted: tuple[int, int], unit: str = "sequences") -> tuple[float, str, int]:
    return counted[0], unit, counted[1]


def _counted(emitted: Sequence[Emitted]) -> Iterator[Measurement]:
    """What the ids alone tell."""
    count = len(emitted)
    events = sum(len(one.found.events) for one in emitted)
    yield Measurement("padding emitted", sum(one.padding for one in emitted), "events", events)
    yield Measurement("events after the end", sum(one.after_end for one in emitted), "events", events)
    yield Measurement("invalid sequences", sum(one.wrong is not None for one in emitted), "sequences", count)
    yield Measurement("capped sequences", sum(one.stop == "capped" for one in emitted), "sequences", count)
    yield Measurement("mislabelled stops", sum(one.mislabelled for one in emitted), "sequences", count)


def _notes(subject: Subject, chosen: PrefixSet, results: Sequence[SettingResult]) -> Iterator[str]:
    made_up = sum(case.made_up for case in chosen.cases)
    yield (
        f"{len(chosen.cases)} prefixes ({made_up} made up to reach the context boundary), set {chosen.digest}; "
        f"at most {subject.max_new_events} new events, the end counted, for every setting"
    )
    invalid = len(chosen.already_invalid)
    if invalid:
        yield f"{invalid} distinct held-out prefixes already break the order: no setting continues them"
    for one in results:
        sequences = one.rates.sequences
        yield (
            f"{one.setting.name}: TESTED on {sequences} sequences, {one.rates.invalid} invalid; the rate is below "
            f"{one.rates.invalid_upper:.4f} with 95 % confidence"
        )
        if one.ties:
            yield f"{one.setting.name}: {one.ties} prefixes change with their batch by rounding alone, not in float64"


DECODING_POLICY = Audit(
    "decoding policy",
    "Do all settings stop at the end, stay within the cap, keep the order, and give each session its own result?",
    _measure,
)
