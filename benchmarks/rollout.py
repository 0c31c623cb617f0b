"""Simulated rollouts: how often a planted regression is rolled back, how soon, and how often a sound one is stopped.

`python benchmarks/rollout.py --seeds 200` prints Markdown; `--json FILE` writes the same as JSON. Every look goes
through the code that decides on real logs. The last column is the habit that it replaces: a fixed-sample test at the
same nominal level, looked at just as often.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 - the path above comes first
from numpy.typing import NDArray  # noqa: E402

from auditlib.release.rollout_decision import Decision, decide  # noqa: E402
from auditlib.release.rollout_evidence import LiveEvidence, gather  # noqa: E402
from auditlib.release.rollout_plan import RELEASED, SHADOW, Plan, parse_plan  # noqa: E402
from auditlib.release.rollout_rows import COLUMNS, FALLBACK, NEW, LiveRows  # noqa: E402
from auditlib.release.rollout_standing import ROLLED_BACK, Standing  # noqa: E402

REQUESTS = 20_000
SECOND = 1_000_000
TOLERANCE = 1e-4
ARTIFACT, EARLIER = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
SHARES = {SHADOW: 0.5, "canary 5": 0.05, "canary 25": 0.25, "canary 50": 0.5, RELEASED: 1.0}
PLAN = {
    "format": 1,
    "stages": [
        {"name": SHADOW, "requests": 8000, "compared": 7500},
        {"name": "canary 5", "share": 0.05, "requests": 75, "compared": 50},
        {"name": "canary 25", "share": 0.25, "requests": 750, "compared": 500},
        {"name": "canary 50", "share": 0.5, "requests": 2000, "compared": 1000},
    ],
}
INVALID, ERROR, TIES = 0.01, 0.002, 0.001
"""Rates of both arms: answers that break a rule, requests without an answer, answers that differ at a near tie."""


@dataclass(frozen=True)
class Case:
    """What is wrong with the new arm."""

    name: str
    invalid_times: float = 1.0
    slow_share: float = 0.0
    wrong_events: int = 0


CASES = (
    Case("2 × invalid rate", invalid_times=2.0),
    Case("6 % of requests 5 × slower", slow_share=0.06),
    Case("one wrong event", wrong_events=1),
    Case("clean"),
)


@dataclass(frozen=True)
class Outcome:
    """How one simulated rollout ended, after how many requests, and when a naive test would have stopped it."""

    case: str
    seed: int
    end: str
    requests: int
    stage: str
    naive: int | None


class Traffic:
    """Draws for every request, made at once; which arm answers follows from the stage in which it arrives."""

    def __init__(self, case: Case, seed: int) -> None:
        draw = np.random.default_rng([seed, CASES.index(case)])
        lengths = draw.geometric(0.5, REQUESTS)
        sessions = np.repeat(np.arange(REQUESTS), lengths)[:REQUESTS]
        # a session's requests lie within the next few hundred of others
        self.session = sessions[np.argsort(np.arange(REQUESTS) + draw.uniform(0, 300, REQUESTS))]
        self.place = draw.random(REQUESTS)
        self.arrival = np.cumsum(draw.exponential(0.05 * SECOND, REQUESTS)).astype(np.int64)
        load = np.exp(0.3 * np.sin(self.arrival / (120 * SECOND)))
        arms = (FALLBACK, NEW)
        rates = {FALLBACK: INVALID, NEW: INVALID * case.invalid_times}
        self.invalid = {arm: draw.random(REQUESTS) < rates[arm] for arm in arms}
        self.error = {arm: draw.random(REQUESTS) < ERROR for arm in arms}
        self.time = {arm: 0.05 * SECOND * load * draw.lognormal(0.0, 0.5, REQUESTS) for arm in arms}
        self.time[NEW] *= np.where(draw.random(REQUESTS) < case.slow_share, 5.0, 1.0)
        self.margin = np.where(draw.random(REQUESTS) < TIES, TOLERANCE, np.nan)
        self.wrong = np.sort(draw.integers(0, REQUESTS, case.wrong_events))

    def rows(self, first: int, last: int, stage: str) -> LiveRows:
        """Rows of the requests `first` to `last` while `stage` is open; the shadow stage writes two a request."""
        places = np.arange(first, last)
        new = places if stage == SHADOW else places[self.place[first:last] < SHARES[stage]]
        old = places if stage == SHADOW else places[self.place[first:last] >= SHARES[stage]]
        both = [self._arm(new, NEW, stage), self._arm(old, FALLBACK, stage)]
        rows = LiveRows(
            *(np.concatenate([getattr(one, name) for one in both]) for name in COLUMNS),
            both[0].stages,
            both[0].artifacts,
        )
        return rows.take(np.argsort(rows.end, kind="stable"))

    def _arm(self, places: NDArray[np.int64], arm: int, stage: str) -> LiveRows:
        count = len(places)
        error, arrival = self.error[arm][places], self.arrival[places]
        margin = self.margin[places] if arm == NEW else np.full(count, np.nan)
        # the first request of the new arm from the drawn place on gets the wrong event
        due = [np.flatnonzero(places >= wrong)[:1] for wrong in self.wrong] if arm == NEW else []
        for found in due:
            margin[found], error[found] = 1.0, False
        self.wrong = (
            np.array([w for w, found in zip(self.wrong, due, strict=True) if not len(found)]) if due else self.wrong
        )
        return LiveRows(
            request=places,
            session=self.session[places],
            arm=np.full(count, arm, np.int8),
            stage=np.full(count, list(SHARES).index(stage)),
            artifact=np.full(count, 1 - arm),
            file=np.zeros(count, np.int64),
            arrival=arrival,
            end=arrival + self.time[arm][places].astype(np.int64),
            cached=np.full(count, True),
            whole=np.full(count, True),
            invalid=self.invalid[arm][places] & ~error,
            error=error,
            fell_back=np.zeros(count, bool),
            left=np.zeros(count, bool),
            compared=~error if arm == NEW else np.zeros(count, bool),
            differs=~np.isnan(margin) & ~error,
            margin=margin,
            stages=tuple(SHARES),
            artifacts=(ARTIFACT, EARLIER),
        )


def simulate(case: Case, seed: int, plan: Plan, every: int) -> Outcome:
    """One rollout, looked at every so many requests, up to its end or that of the traffic."""
    traffic = Traffic(case, seed)
    standing = Standing(SHADOW, False, ARTIFACT, EARLIER, TOLERANCE, {SHADOW: 0}, None, {})
    pieces: list[LiveRows] = []
    naive: int | None = None
    for first in range(0, REQUESTS, every):
        last = min(first + every, REQUESTS)
        pieces.append(traffic.rows(first, last, standing.state))
        now = int(traffic.arrival[last - 1]) + 60 * SECOND
        evidence = gather(joined(pieces), plan, standing, now)
        decision = decide(plan, standing, evidence)
        if naive is None and naive_alarm(plan, evidence):
            naive = last
        standing = followed(standing, decision, evidence, int(traffic.arrival[last - 1]))
        if standing.paused or standing.state == ROLLED_BACK:
            end = "paused" if standing.paused else standing.state
            return Outcome(case.name, seed, end, last, stage_of(pieces), naive)
    # a released artifact goes on being watched up to the last request
    end = RELEASED if standing.state == RELEASED else "held"
    return Outcome(case.name, seed, end, REQUESTS, standing.state, naive)


def followed(standing: Standing, decision: Decision, evidence: LiveEvidence, now: int) -> Standing:
    """Where the rollout stands after a decision was followed."""
    if decision.action == "pause":
        return replace(standing, paused=True)
    if decision.action == "hold":
        return standing
    slow = evidence.shadow_slow_us if standing.state == SHADOW else standing.slow_us
    return replace(standing, state=decision.to, entered={**standing.entered, decision.to: now}, slow_us=slow)


def stage_of(pieces: Sequence[LiveRows]) -> str:
    """The stage of the last rows."""
    return pieces[-1].stages[pieces[-1].stage[-1]]


def joined(pieces: Sequence[LiveRows]) -> LiveRows:
    """All rows so far."""
    columns = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in COLUMNS)
    return LiveRows(*columns, pieces[0].stages, pieces[0].artifacts)


def naive_alarm(plan: Plan, evidence: LiveEvidence) -> bool:
    """Whether a one-sided test of the same coins, meant for one look, is significant on any rate.

    The count of the new arm's bad units against its binomial mean, summed over the stages (normal approximation); alpha
    is split over the three rates, as it would be by somebody careful.
    """
    cut = {0.05: 2.1280}[plan.alpha]  # normal quantile of 1 - 0.05 / 3
    for rate in ("invalid", "error", "slow"):
        excess = spread = 0.0
        for stage in plan.stages:
            if rate != "slow" or stage.name != SHADOW:
                counts = evidence.stages[stage.name]
                new, both = getattr(counts.new, rate), getattr(counts.new, rate) + getattr(counts.fallback, rate)
                excess += new - both * stage.share
                spread += both * stage.share * (1 - stage.share)
        if spread > 0 and excess / math.sqrt(spread) > cut:
            return True
    return False


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (Wilson 1927, Journal of the American Statistical Association 22)."""
    z, share = 1.959964, hits / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / (1 + z * z / trials)
    return max(0.0, centre - half), min(1.0, centre + half)


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """One line of the table."""
    count = len(outcomes)
    stopped = [one for one in outcomes if one.end in (ROLLED_BACK, "paused")]
    ends = {end: sum(one.end == end for one in outcomes) for end in (ROLLED_BACK, "paused", "held", RELEASED)}
    asked = [one.requests for one in stopped] or [REQUESTS]
    naive = sum(one.naive is not None for one in outcomes)
    return {
        "case": outcomes[0].case,
        "seeds": count,
        "ends": ends,
        "rolled back, 95 % interval": interval(ends[ROLLED_BACK], count),
        "released, 95 % interval": interval(ends[RELEASED], count),
        "requests until the stop": {name: float(np.quantile(asked, q)) for name, q in (("p50", 0.5), ("p95", 0.95))},
        "naive alarms": naive,
        "naive alarms, 95 % interval": interval(naive, count),
    }


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """The table for people."""
    head = (
        "| planted | rolled back | released | paused | held | requests until the stop (p50, p95) | naive test alarms |",
        "|---|---|---|---|---|---|---|",
    )
    rows = []
    for line in lines:
        ends, stop = line["ends"], line["requests until the stop"]
        stops = f"{stop['p50']:,.0f}, {stop['p95']:,.0f}" if ends[ROLLED_BACK] + ends["paused"] else "none"
        shares = [
            f"{100 * count / line['seeds']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
            for count, (low, high) in (
                (ends[ROLLED_BACK], line["rolled back, 95 % interval"]),
                (ends[RELEASED], line["released, 95 % interval"]),
                (line["naive alarms"], line["naive alarms, 95 % interval"]),
            )
        ]
        cells = (line["case"], *shares[:2], ends["paused"], ends["held"], stops, shares[2])
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*head, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--every", type=int, default=400, help="requests between two looks")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    plan, started = parse_plan(PLAN), time.process_time()
    outcomes = {
        case.name: [simulate(case, seed, plan, options.every) for seed in range(options.seeds)] for case in CASES
    }
    lines = [summary(found) for found in outcomes.values()]
    print(f"{REQUESTS:,} requests, {options.seeds} seeds a case, looked at every {options.every} requests\n")
    print(markdown(lines))
    seconds = time.process_time() - started
    print(f"\n{seconds:.0f} CPU seconds")
    if options.json:
        settings = {"requests": REQUESTS, "seeds": options.seeds, "every": options.every, "plan": plan.to_json()}
        rows = [asdict(one) for found in outcomes.values() for one in found]
        document = {"format": 1, **settings, "cpu_seconds": seconds, "summary": lines, "outcomes": rows}
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
