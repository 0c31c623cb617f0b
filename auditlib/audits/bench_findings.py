"""What a bench amounts to: percentiles with their bounds, rates, bytes, and every answer judged again from its ids."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import pandas as pd

from auditlib.audits.answers import in_ids, recount_answer
from auditlib.audits.base import Findings, Measurement
from auditlib.audits.emitted import Emitted
from auditlib.audits.intervals import upper_bound
from auditlib.serving.bench import FULL, BenchRun, Part, arms_of
from auditlib.serving.comparing import Difference
from auditlib.serving.log_row import LogRow
from auditlib.serving.percentiles import Percentile, percentile
from auditlib.serving.request import encode
from auditlib.serving.served import Served

SHARES = (0.5, 0.95, 0.99)
FIRST, WHOLE = "first event", "whole request"
_RATIOS = ["load", "measure", "ratio", "low", "high", "rounds"]
_TIES = ["step", "margin", "prefix_length"]
_NO_SHAPE = "this decoder does not tell the shape of its cache"
_NO_CACHE = "full prefixes are served, so there is no cache"


@dataclass(frozen=True, slots=True)
class _Recounted:
    answers: int
    invalid: int
    wrong_stops: int


def bench_findings(served: Served, run: BenchRun) -> Findings:
    """Measurements and tables of a bench of `served`."""
    tables = {
        "loads": pd.DataFrame(list(_loads(served, run))),
        "latency": pd.DataFrame(list(_latencies(served, run))),
        "rounds": pd.DataFrame(list(_rounds(run))),
        "ratios": pd.DataFrame(list(_ratios(served, run)), columns=_RATIOS),
        "ties": pd.DataFrame(list(_ties(served, run)), columns=_TIES),
    }
    return Findings(tuple(_measurements(served, run)), tables, (), _not_applicable(served, run))


def _not_applicable(served: Served, run: BenchRun) -> dict[str, str]:
    if run.apart is not None:
        return {}
    return {"cache bytes beside the formula": _NO_CACHE if served.strategy == FULL else _NO_SHAPE}


# -- what limits are held against --------------------------------------------------------------------------------------


def _measurements(served: Served, run: BenchRun) -> Iterator[Measurement]:
    intended = [part for part in run.of(served.strategy) if part.load.clients == run.plan.intended]
    for name in (FIRST, WHOLE):
        found = percentile(_times(intended, name), 0.95)
        # Without enough observations there is no bound; the number that stands here then rests on too few to count.
        high = found.high if found.high is not None else found.value
        yield Measurement(f"{name} p95", math.inf if high is None else high, "ms", found.count)
    rows = [row for part in intended for row in part.rows if row.valid is not None]
    broken = sum(row.valid is False for row in rows)
    yield Measurement("invalid sequences", upper_bound(broken, len(rows)), "share", len(rows))
    yield from _bytes(run, sum(len(part.sent) for part in run.of(served.strategy)))
    meant = [one for part in run.parts if not part.load.overload for one in part.sent]
    yield Measurement("requests without an answer", sum(o.answer is None for o in meant), "requests", len(meant))
    again = _recounted(served, run)
    yield Measurement("invalid sequences served", again.invalid, "sequences", again.answers)
    yield Measurement("wrong stop reasons", again.wrong_stops, "answers", again.answers)
    differing = len(list(_differing(run, served.tolerance, ties=False)))
    yield Measurement("answers that differ from the full path", differing, "answers", run.comparisons)
    yield from _information(served, run, broken, len(rows))


def _bytes(run: BenchRun, requests: int) -> Iterator[Measurement]:
    yield Measurement("peak cache bytes", run.held.allocated, "bytes", requests)
    if run.apart is not None:
        yield Measurement("cache bytes beside the formula", run.apart, "bytes", requests)
        yield Measurement("peak cache bytes by the formula", run.held.formula or 0, "bytes", requests)
    yield Measurement("process peak", run.process_peak, "bytes", 1)
    yield Measurement("process peak before", run.process_before, "bytes", 1)


def _information(served: Served, run: BenchRun, broken: int, judged: int) -> Iterator[Measurement]:
    ties = len(list(_differing(run, served.tolerance, ties=True)))
    yield Measurement("near ties", ties, "answers", run.comparisons)
    yield Measurement("invalid answers of the path itself", broken, "sequences", judged)
    own = [row for part in run.of(served.strategy) for row in part.rows]
    yield Measurement("answers by another path", sum(row.fallback is not None for row in own), "answers", len(own))
    uses = run.uses
    yield Measurement("requests that continued a kept prefix", uses.continued, "requests", uses.joined)
    yield Measurement("prefix events spared", uses.events_spared, "events", uses.events_spared + uses.events_read)
    for arm, rate in run.capacity.items():
        yield Measurement(f"capacity, {arm}", rate, "requests/s", sum(len(part.sent) for part in run.of(arm)))


def _times(parts: Sequence[Part], name: str) -> list[float]:
    return [took.first if name == FIRST else took.whole for part in parts for took in part.took]


def _recounted(served: Served, run: BenchRun) -> _Recounted:
    """Every answer that went out, judged again from its names; the service's own word counts for nothing."""
    known: dict[object, Emitted] = {}
    answers = invalid = wrong_stops = 0
    for sent in (one for part in run.parts for one in part.sent):
        answer, request = sent.answer, sent.request
        if answer is None:
            continue
        answers += 1
        # Few prefixes are asked for many times; equal answers to equal requests are judged once.
        key = (request.events, tuple(sorted(request.attributes.items())), answer.events, answer.stop, answer.forced)
        if key not in known:
            encoded = encode(request, served)
            known[key] = recount_answer(served, encoded, in_ids(served, encoded, answer))
        emitted = known[key]
        invalid += emitted.wrong is not None or emitted.padding > 0 or emitted.after_end > 0
        wrong_stops += emitted.mislabelled or emitted.over_cap
    return _Recounted(answers, invalid, wrong_stops)


def _differing(run: BenchRun, tolerance: float, *, ties: bool) -> Iterator[LogRow]:
    """Compared answers that differ: near ties, or everything else."""
    for row in run.compared:
        found = Difference(row.shadow_events_digest or "", row.first_differing_step, row.margin)
        if found.differs and found.is_tie(tolerance) == ties:
            yield row


# -- tables ------------------------------------------------------------------------------------------------------------


def _loads(served: Served, run: BenchRun) -> Iterator[dict[str, object]]:
    for name in dict.fromkeys(part.load.name for part in run.parts):
        for arm in arms_of(served):
            parts = run.of(arm, name)
            sent = [one for part in parts for one in part.sent]
            seconds = sum(part.seconds for part in parts)
            yield {
                "load": name, "arm": arm, "clients": parts[0].load.clients, "rate": parts[0].load.rate,
                "requests": len(sent), "answered": sum(one.answer is not None for one in sent),
                "timed_out": sum(one.error == "timed out" for one in sent),
                "refused": sum(one.error not in (None, "timed out") for one in sent),
                "seconds": seconds, "requests_per_s": len(sent) / max(seconds, 1e-6),
                "events_per_s": sum(part.events for part in parts) / max(seconds, 1e-6),
                "median_batch": median([row.batch_size for part in parts for row in part.rows] or [0]),
            }  # fmt: skip


def _latencies(served: Served, run: BenchRun) -> Iterator[dict[str, object]]:
    for name in dict.fromkeys(part.load.name for part in run.parts):
        for arm in arms_of(served):
            for measure in (FIRST, WHOLE):
                times = _times(run.of(arm, name), measure)
                for share in SHARES:
                    yield {"load": name, "arm": arm, "measure": measure, **_told(percentile(times, share))}


def _told(found: Percentile) -> dict[str, object]:
    return {"share": found.share, "value": found.value, "low": found.low, "high": found.high, "count": found.count}


def _rounds(run: BenchRun) -> Iterator[dict[str, object]]:
    for part in run.parts:
        whole = percentile([took.whole for took in part.took], 0.5).value
        first = percentile([took.first for took in part.took], 0.5).value
        rate = len(part.sent) / max(part.seconds, 1e-6)
        yield {
            "load": part.load.name, "round": part.round, "arm": part.arm, "requests_per_s": rate,
            "first_median": first, "whole_median": whole,
        }  # fmt: skip


def _ratios(served: Served, run: BenchRun) -> Iterator[dict[str, object]]:
    """The own path over full prefixes, round by round: what both had to share in a round cancels out."""
    own = served.strategy
    if own == FULL:
        return
    rounds = list(_rounds(run))
    # Open loops load each path by its own capacity, so only closed ones compare.
    for load in (load.name for load in run.plan.closed):
        for measure, name in (("requests_per_s", "throughput"), ("first_median", FIRST), ("whole_median", WHOLE)):
            mine, full = (
                {row["round"]: row[measure] for row in rounds if (row["load"], row["arm"]) == (load, arm)}
                for arm in (own, FULL)
            )
            found = sorted(_over(mine[number], full[number]) for number in mine)
            yield {
                "load": load, "measure": name, "ratio": median(found), "low": found[0], "high": found[-1],
                "rounds": len(found),
            }  # fmt: skip


def _ties(served: Served, run: BenchRun) -> Iterator[dict[str, object]]:
    for row in _differing(run, served.tolerance, ties=True):
        yield {"step": row.first_differing_step, "margin": row.margin, "prefix_length": row.prefix_length}


def _over(one: object, other: object) -> float:
    numbers = [value if isinstance(value, float) else math.nan for value in (one, other)]
    return numbers[0] / numbers[1] if numbers[1] else math.nan
