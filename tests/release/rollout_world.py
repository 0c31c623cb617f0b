"""A small rollout for tests: its plan, rows that a sound service writes, and where it stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from auditlib.release.rollout_decision import decide
from auditlib.release.rollout_evidence import gather
from auditlib.release.rollout_plan import parse_plan
from auditlib.release.rollout_standing import Standing
from auditlib.runs.live_columns import to_rows
from auditlib.serving.log_row import LogRow, to_table

NEW, OLD = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
BEGIN = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
SECOND = 1_000_000
TOLERANCE = 1e-3
PLAN = {
    "format": 1,
    "detect_ratio": 20.0,
    "detect_rate": 0.02,
    "stages": [
        {"name": "shadow", "requests": 40, "compared": 40},
        {"name": "canary 5", "share": 0.05, "requests": 20, "compared": 5},
        {"name": "canary 50", "share": 0.5, "requests": 60, "compared": 30},
    ],
}
STARTS = {"shadow": 0, "canary 5": 1000, "canary 50": 3000, "released": 6000}
"""Seconds after `BEGIN` at which each stage is entered."""


def plan(**changed):
    return parse_plan({**PLAN, **changed})


def us(seconds: float) -> int:
    return int((BEGIN + timedelta(seconds=seconds)).timestamp() * SECOND)


def row(number: int, stage: str, arm: str, at: float, took: float = 0.1, **changed) -> LogRow:
    """A sound row of a request that arrived `at` seconds after the beginning."""
    cached = arm == "new"
    return replace(
        LogRow(
            request_id=f"{stage}-{number}", arrival=us(at), start=us(at) + 1000, first_event=us(at) + 2000,
            end=us(at + took), session=f"s{number}", arm=arm, stage=stage, artifact=NEW if cached else OLD,
            cache=cached, decoding="greedy", prefix_length=3, output_length=4, batch_size=2, stop="end", valid=True,
            rule=None, mask_empty=False, events_digest="sha256:e",
            shadow_events_digest="sha256:e" if cached else None, cache_bytes=4096 if cached else None,
        ),
        **changed,
    )  # fmt: skip


def shadow(count: int = 60, first: int = 0) -> list[LogRow]:
    """Both arms of so many requests."""
    numbers = range(first, first + count)
    return [row(n, "shadow", arm, n, 0.1 + 0.001 * (n % 20)) for n in numbers for arm in ("fallback", "new")]


def canary(stage: str, new: int, old: int) -> list[LogRow]:
    """So many requests of each arm, mixed as an assignment by chance would."""
    total = new + old
    rows = []
    for n in range(total):
        arm = "new" if (n * new) // total != ((n + 1) * new) // total else "fallback"
        rows.append(row(n, stage, arm, STARTS[stage] + n, 0.1 + 0.0005 * ((n * 7) % 20)))
    return rows


def stages(upto: str) -> list[LogRow]:
    """Rows of every stage up to this one, each with what the plan asks for."""
    made = {
        "shadow": shadow, "canary 5": lambda: canary("canary 5", 25, 475),
        "canary 50": lambda: canary("canary 50", 400, 400),
        "released": lambda: [row(n, "released", "new", STARTS["released"] + 400 + n) for n in range(40)],
    }  # fmt: skip
    names = list(made)[: list(made).index(upto) + 1]
    return [one for name in names for one in made[name]()]


def standing(state: str, **changed) -> Standing:
    entered = {name: us(at) for name, at in STARTS.items() if at <= STARTS.get(state, 0)}
    slow = None if state == "shadow" else us(0.1195) - us(0)
    base = Standing(state, False, NEW, OLD, TOLERANCE, entered, slow, {})
    return replace(base, **changed)


def live(rows):
    return to_rows([to_table(rows)], Counter(), 0)[0]


def now_after(rows) -> int:
    return max(one.end for one in rows if one.end < us(1e6)) + SECOND


def shown(rows, state, the_plan=None, now=None, **changed):
    """Evidence and decision for some rows."""
    the_plan = the_plan or plan()
    evidence = gather(live(rows), the_plan, standing(state, **changed), now or now_after(rows))
    return evidence, decide(the_plan, standing(state, **changed), evidence)
