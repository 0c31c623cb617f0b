"""Cache identity: a cache serves the one request it was made for, and no session's answer depends on another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import pandas as pd

from auditlib.audits.altered_requests import altered_trials
from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.neighbours import NeighbourGaps, Neighbours
from auditlib.audits.prefix_set import prefix_set
from auditlib.audits.requests import Trial, own_trials
from auditlib.audits.tolerance import Tolerance, study
from auditlib.audits.twins import Twins, long_twins, twin_rows
from auditlib.audits.work import Watch

_COLUMNS = ("alteration", "field", "expected", "outcome", "detail")


def _measure(subject: Subject) -> Findings:
    twins = twin_rows(subject, prefix_set(subject))
    watch = Watch(subject.progress)
    missing: dict[str, str] = {}
    altered: list[Trial] = []
    own: list[Trial] = []
    neighbours = Neighbours(subject, (*twins, *long_twins(subject)), watch)
    watch.run(
        [
            ("altered requests", lambda: altered.extend(altered_trials(subject, twins, missing))),
            ("requests of its own", lambda: own.extend(own_trials(subject, twins))),
            *neighbours.pieces(),
        ]
    )
    gaps = neighbours.found
    rows = [astuple(trial) for trial in (*altered, *own)] + gaps.trials
    return Findings(
        (*_measurements(altered, own, gaps), *_tolerance(subject, twins).measurements()),
        {"trials": pd.DataFrame(rows, columns=_COLUMNS)},
        _notes(twins, altered, own, gaps),
        {**missing, **neighbours.not_applicable},
    )


def _tolerance(subject: Subject, twins: Sequence[Twins]) -> Tolerance:
    """Tolerance of the decoder on the sessions at hand: answers are compared over these only."""
    names = {one.session_id for one in twins}
    own = tuple(one for one in subject.held_out if one.session_id in names)
    return study(replace(subject, held_out=own or subject.held_out))  # rows may all have been made up


def _measurements(altered: Sequence[Trial], own: Sequence[Trial], gaps: NeighbourGaps) -> tuple[Measurement, ...]:
    return (
        Measurement("altered requests accepted", sum(not one.as_expected for one in altered), "requests", len(altered)),
        Measurement("own requests rejected", sum(not one.as_expected for one in own), "requests", len(own)),
        Measurement("answer after another session", gaps.worst, "logit", gaps.answers),
        Measurement("repeated answer", gaps.repeated, "changed logits", gaps.repeats),
    )


def _notes(
    twins: Sequence[Twins], altered: Sequence[Trial], own: Sequence[Trial], gaps: NeighbourGaps
) -> tuple[str, ...]:
    tested = (
        f"TESTED on {len(twins)} prefixes: {len(altered)} altered requests and {len(own)} of a cache's own before the "
        f"guard; {gaps.answers} answers after other sessions against a decoder that saw nothing else"
    )
    return tested, "NOT CHECKED: caches kept outside this process, and what a decoder keeps between processes"


CACHE_IDENTITY = Audit(
    "cache identity",
    "Is a cache refused to every request but its own, and does no session's answer depend on another's?",
    _measure,
)
