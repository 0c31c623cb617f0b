"""Replays the fixed batch of an artifact: each saved answer must come out in whatever company its request is decoded.

Every prefix goes through the serving engine in every composition, on each path that may serve it. Nothing is averaged:
each answer is compared with the saved one, and each that differs is listed with its step and margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields

import pandas as pd
import torch

from auditlib.audits.answers import recount_answer
from auditlib.audits.base import Findings, Measurement
from auditlib.audits.compositions import Composition, compositions
from auditlib.decoders.rows import padded
from auditlib.decoding.generated import Generated
from auditlib.progress import Progress, silent
from auditlib.serving.comparing import compare_events
from auditlib.serving.engine import Engine, Finished, serve_through
from auditlib.serving.fixed_batch import FixedBatch, SavedAnswer
from auditlib.serving.served import Served

_ELSEWHERE = "the tolerance was studied on another device, or never; package a run of this one"


@dataclass(slots=True)
class Tally:
    """What became of one composition on one path. `problem`: what the engine raised; nothing was answered then."""

    path: str
    composition: str
    slots: int
    requests: int
    continued: int = 0
    compared: int = 0
    differing: int = 0
    ties: int = 0
    unanswered: int = 0
    invalid: int = 0
    wrong_stops: int = 0
    beyond_cap: int = 0
    other_path: int = 0
    scores_apart: int = 0
    largest_score_gap: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Differing:
    """One answer that is not the saved one. `margin` and `gap` are logits; None where the events are the same."""

    path: str
    composition: str
    row: int
    prefix: str
    saved: str
    given: str
    saved_stop: str
    given_stop: str
    step: int | None
    margin: float | None
    gap: float | None
    tie: bool


@dataclass(slots=True)
class _Replayed:
    tallies: list[Tally] = field(default_factory=list)
    differing: list[Differing] = field(default_factory=list)

    def total(self, name: str) -> int:
        """Sum of one count, named as in `Tally`, over all compositions."""
        return sum(int(getattr(one, name)) for one in self.tallies)


def replay(served: Served, batch: FixedBatch, *, same_device: bool = True, progress: Progress = silent) -> Findings:
    """What the fixed batch gives now, beside what was saved of it.

    On another device than that of the run (`same_device` False) the tolerance is void: logits and scores are then not
    held against anything, and no difference passes as a near tie.
    """
    tolerance = served.tolerance if same_device else 0.0
    done = _Replayed()
    planned = [(cached, one) for one in compositions(served, batch) for cached in _paths(served)]
    for number, (cached, composition) in enumerate(planned):
        progress(number, len(planned) + 1, f"{_path_name(cached)}, {composition.name}")
        _replay_one(done, served, batch, composition, cached=cached, tolerance=tolerance)
    progress(len(planned), len(planned) + 1, "saved logits")
    gap = _largest_gap(served, batch)
    return Findings(
        tuple(_measurements(done, gap, len(batch.prefixes), tolerance)),
        {"compositions": _table(Tally, done.tallies), "differences": _table(Differing, done.differing)},
        tuple(_notes(done, tolerance)),
        {} if tolerance else {"scores beyond the tolerance": _ELSEWHERE},
    )


def _paths(served: Served) -> tuple[bool, ...]:
    """Which paths may give an answer: the cached one only where it serves."""
    return (False,) if served.strategy == "full prefix" else (True, False)


def _path_name(cached: bool) -> str:
    return "cached" if cached else "full prefix"


def _replay_one(
    done: _Replayed, served: Served, batch: FixedBatch, composition: Composition, *, cached: bool, tolerance: float
) -> None:
    tally = Tally(_path_name(cached), composition.name, composition.slots, len(composition.requests))
    done.tallies.append(tally)
    engine = Engine(composition.served(served), cached=cached)
    try:
        answers = serve_through(engine, composition.requests)
    except Exception as problem:  # noqa: BLE001 - a stranger's decoder may raise anything, and that is a result
        tally.problem, answers = f"{type(problem).__name__}: {problem}", {}
    tally.continued = engine.uses.continued
    for encoded in composition.requests:
        found = answers.get(encoded.request.request_id)
        if found is None:
            tally.unanswered += 1
            continue
        _recheck(tally, served, found, cached=cached)
        row = composition.rows.get(encoded.request.request_id)
        if row is not None:
            _compare(done, tally, served, found, batch.answers[row], row, tolerance)


def _recheck(tally: Tally, served: Served, found: Finished, *, cached: bool) -> None:
    """Judge one answer from its ids."""
    emitted = recount_answer(served, found.encoded, found.best)
    tally.invalid += emitted.wrong is not None or emitted.padding > 0 or emitted.after_end > 0
    tally.wrong_stops += emitted.mislabelled
    tally.beyond_cap += emitted.over_cap
    tally.other_path += found.cached != cached


def _compare(
    done: _Replayed, tally: Tally, served: Served, found: Finished, saved: SavedAnswer, row: int, tolerance: float
) -> None:
    """Compare one answer with the saved one."""
    tally.compared += 1
    best = found.best
    if (best.events, best.stop, best.forced) == (saved.events, saved.stop, saved.forced):
        gap = abs(best.score - saved.score)
        tally.largest_score_gap = max(tally.largest_score_gap, gap)
        # Logits that move by d move the log of a probability by 2 d at most. NaN is beyond everything.
        tally.scores_apart += not gap <= 2 * tolerance * max(1, len(best.events))
        return
    one = _differing(tally, served, found, saved, row, tolerance)
    tally.ties += one.tie
    tally.differing += not one.tie
    done.differing.append(one)


def _differing(
    tally: Tally, served: Served, found: Finished, saved: SavedAnswer, row: int, tolerance: float
) -> Differing:
    step = margin = gap = None
    tie = False
    if found.best.events != saved.events:
        try:
            difference = compare_events(served, found.encoded, found.best.events, saved.events)
        except Exception as problem:  # noqa: BLE001 - what cannot be explained is a difference
            tally.problem = tally.problem or f"{type(problem).__name__}: {problem}"
        else:
            step, margin, gap = difference.step, difference.margin, difference.gap
            tie = difference.is_tie(tolerance)
    return Differing(
        tally.path, tally.composition, row, _ids(found.encoded.prefix), _ids(saved.events), _ids(found.best.events),
        _stop(saved), _stop(found.best), step, margin, gap, tie,
    )  # fmt: skip


def _ids(events: Sequence[int]) -> str:
    return "-".join(map(str, events))


def _stop(one: SavedAnswer | Generated) -> str:
    return f"{one.stop}, forced" if one.forced else one.stop


@torch.no_grad()
def _largest_gap(served: Served, batch: FixedBatch) -> float:
    """Largest difference of a logit between the saved ones and the full path here, each row alone; inf where unfit."""
    largest = 0.0
    for row, saved in zip(batch.prefixes, batch.logits, strict=True):
        events, valid = padded([row])
        here = served.decoder.full(events.to(served.device), valid.to(served.device))[0, -1].cpu().double()
        if here.shape != saved.shape:
            return float("inf")
        apart = torch.where(here == saved.double(), 0.0, (here - saved.double()).abs())  # equal infinities are equal
        largest = max(largest, float(apart.nan_to_num(nan=float("inf")).max()))
    return largest


def _measurements(done: _Replayed, gap: float, rows: int, tolerance: float) -> Iterator[Measurement]:
    requests = done.total("requests")
    compared, answered = done.total("compared"), requests - done.total("unanswered")
    yield Measurement("requests without an answer", done.total("unanswered"), "requests", requests)
    yield Measurement("answers that differ", done.total("differing"), "answers", compared)
    yield Measurement("invalid sequences", done.total("invalid"), "sequences", answered)
    yield Measurement("wrong stop reasons", done.total("wrong_stops"), "answers", answered)
    yield Measurement("answers beyond the cap", done.total("beyond_cap"), "answers", answered)
    yield Measurement("answers by another path", done.total("other_path"), "answers", answered)
    yield Measurement("saved logits", gap, "logit", rows)
    if tolerance:
        yield Measurement("tolerance", tolerance, "logit", rows)
        yield Measurement("scores beyond the tolerance", done.total("scores_apart"), "answers", compared)
    yield Measurement("near ties", done.total("ties"), "answers", compared)
    yield Measurement("prefixes", rows, "prefixes", rows)
    yield Measurement("requests that continued a kept prefix", done.total("continued"), "requests", requests)


def _notes(done: _Replayed, tolerance: float) -> Iterator[str]:
    if not tolerance:
        yield f"logits and scores are held against nothing: {_ELSEWHERE}"
    for one in done.tallies:
        if one.problem is not None:
            yield f"{one.path}, {one.composition}: {one.problem}"


def _table(kind: type, rows: Sequence[Tally | Differing]) -> pd.DataFrame:
    records: list[Mapping[str, object]] = [asdict(one) for one in rows]
    return pd.DataFrame(records, columns=[one.name for one in fields(kind)])
