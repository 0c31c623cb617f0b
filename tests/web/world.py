"""A small world for the dashboard's tests: a store, two revisions, and runs written by hand.

Numbers are made up but shaped like an audit's; the event names are whatever a test wants them to be.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
from safetensors.torch import save

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.revision import Revision, write_revision
from auditlib.decoding.policies import read_policy
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.release.checks import Measured
from auditlib.release.judge import REQUIRED_AUDITS, judge
from auditlib.release.limits import LIMITS, limits_from
from auditlib.runs.folder import Run, write_run
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from auditlib.sessions.store_file import rewriting

NAMES = ("opened", "assigned", "inspected", "closed")
TOLERANCE = 8e-6


@dataclass(frozen=True)
class World:
    """Places of everything that was made."""

    home: Path
    store: Path
    runs: Path
    snapshot: str
    sound: Revision
    faulty: Revision
    refused: Run


def make_world(home: Path, names: tuple[str, ...] = NAMES, session: str = "S", revision: str = "faulty") -> World:
    """A store with 40 sessions over `names`, a sound revision without a run and a faulty one that a run refused."""
    store = home / "store.duckdb"
    home.mkdir(parents=True, exist_ok=True)
    SessionStore.create(store).close()
    _fill(store, names, session)
    with SessionStore.open(store, read_only=False) as opened:
        snapshot = split(opened, held_out=0.25).digest
    sound = a_revision(home / "sound", "sound", names)
    faulty = a_revision(home / "faulty", revision, names, window=2)
    with SessionStore.open(store, read_only=False) as opened:
        for one in (sound, faulty):
            opened.add_revision(one.manifest.name, one.folder, one.digest)
    run = a_run(home / "runs", faulty, snapshot, bad={"cache parity: single events": 0.31})
    return World(home, store, home / "runs", snapshot, sound, faulty, run)


def a_revision(folder: Path, name: str, names: tuple[str, ...], window: int | None = None) -> Revision:
    """A revision with random weights over an event map of `names`, of which the last may only come last."""
    mapping = EventMap.build(names)
    rules = [{"template": "not succession", "first": names[-1], "then": other} for other in names[:-1]]
    order = EventOrder.from_json(json.dumps({"format": 1, "version": "1", "rules": rules, "reopening": None}))
    config = {"vocabulary_size": mapping.size, "context_length": 24, "width": 16, "layers": 2, "heads": 2}
    config |= {"cached_attention_window": window} if window else {}
    weights = save(fresh_tensors(EventGptConfig.from_mapping(config), seed=1))
    return write_revision(
        folder,
        name=name,
        decoder="event_gpt",
        config=config,
        event_map=mapping,
        event_order=order,
        files={"model.safetensors": weights},
    )


def a_run(
    runs: Path,
    revision: Revision,
    snapshot: str,
    *,
    run_id: str = "20261130T100000Z-0a1b2c3d",
    bad: dict[str, float | None] | None = None,
    audits: tuple[str, ...] | None = None,
) -> Run:
    """A run in which every check passed but those of `bad`, which have the value given there (None: not measured)."""
    report = a_report(revision, snapshot, run_id, bad or {}, audits)
    policy = read_policy(None)
    manifest = {
        "format": 1,
        "run": run_id,
        "created": report["created"],
        "revision": {"name": revision.manifest.name, "digest": revision.digest, "folder": revision.folder.name},
        "snapshot": {"digest": snapshot, "file": "store.duckdb", "file_sha256": "sha256:" + "0" * 64},
        "policy": {"digest": policy.digest, "document": policy.document},
        "event_map": {"version": "1", "digest": revision.event_map.digest},
        "event_order": {"version": "1", "digest": revision.event_order.digest},
        "audits": list(audits or report["audits"]),
        "device": {"device": "cpu", "machine": "x86_64", "system": "Linux", "threads": 1},
        "versions": {"python": "3.11", "torch": "2.13.0"},
        "code": {"version": "0.1.0", "digest": "sha256:" + "1" * 64},
        "seed": 0,
        "dtype": "float32",
    }
    return write_run(runs, run_id, manifest=manifest, report=report, tables=tables(), policy=b"{}")


def a_report(
    revision: Revision, snapshot: str, run_id: str, bad: dict[str, float | None], audits: tuple[str, ...] | None
):
    """What the real judge says of one measurement a limit: 0, or what `bad` says (None: none)."""
    kinds = {"greedy": "greedy", "sampled": "sampled", "beam": "beam"}
    measured = {
        audit: Measured(tuple(_measurements(audit, kinds, bad)))
        for audit in REQUIRED_AUDITS
        if audits is None or audit in audits
    }
    judgement = judge(measured, kinds, {}, limits_from({}))
    report = {
        "format": 1,
        "run": run_id,
        "created": datetime.strptime(f"{run_id[:15]}+0000", "%Y%m%dT%H%M%S%z").isoformat(timespec="milliseconds"),
        "revision": revision.digest,
        "revision_name": revision.manifest.name,
        "snapshot": snapshot,
        "dtype": "float32",
        "device": {"device": "cpu"},
        **judgement.to_report(),
    }
    for audit, result in report["audits"].items():
        result |= {"question": f"Is {audit} in order?", "notes": ["PROVED for 12 states"], "seconds": 0.1}
    return report


def _measurements(audit: str, kinds: dict[str, str], bad: dict[str, float | None]):
    yield Number("tolerance", TOLERANCE, "logit", 40)
    yield Number("noise floor", TOLERANCE / 4, "logit", 40)
    for limit in LIMITS:
        if limit.audit != audit or limit.stand_in_for is not None:
            continue
        owners = [f"{name}: " for name, kind in kinds.items() if not limit.kinds or kind in limit.kinds]
        for owner in owners if limit.blocks == "setting" or limit.kinds else [""]:
            value = bad.get(f"{audit}: {owner}{limit.check}", 0.0)
            if value is not None:
                yield Number(f"{owner}{limit.check}", value, limit.unit, 40)


@dataclass(frozen=True)
class Number:
    """A measurement."""

    name: str
    value: float
    unit: str
    count: int


def tables() -> dict[tuple[str, str], pd.DataFrame]:
    """Tables as the audits leave them, three rows each."""
    gaps = {
        "probe": ["single events", "single events", "dropped rows"],
        "session_id": ["S1", "S2", "S3"],
        "events": ["1-3-4", "1-3-4-5", "1-3"],
        "step": [3, 4, 2],
        "gap": [2e-6, 0.31, 1e-6],
        "weight": [4, 2, 9],
    }
    steps = {"step": [2, 3, 4], "worst": [1e-6, 2e-6, 0.31], "p95": [9e-7, 1e-6, 0.2], "median": [0.0, 5e-7, 0.1]}
    sequences = {
        "setting": ["greedy", "greedy without order mask"],
        "order_mask": [True, False],
        "proposed": [True, False],
        "session_id": ["S1", "S1"],
        "prefix": ["1-3", "1-3"],
        "hypothesis": [0, 0],
        "events": ["1-3-4-2", "1-4-3"],
        "stop": ["end", "capped"],
        "forced": [False, False],
        "score": [-1.5, -2.5],
        "first_wrong": [None, 2],
        "rules": ["", "not succession(closed, opened)"],
    }
    return {
        ("cache parity", "gaps"): pd.DataFrame(gaps),
        ("cache parity", "steps"): pd.DataFrame({**steps, "prefixes": [10, 20, 5]}),
        ("causality", "probes"): pd.DataFrame(
            {"probe": ["jacobian"], "path": ["full"], "events": ["1-3-4"], "position": [1], "value": [0.0]}
        ),
        ("decoding policy", "sequences"): pd.DataFrame(sequences),
        ("decoding policy", "rates"): rates(),
        ("numerics", "sessions"): pd.DataFrame(
            {"session_id": ["S1", "S2"], "events": [3, 4], "ratio": [1.0, 1.01], "gap": [0.0, 1e-6]}
        ),
        ("cache identity", "trials"): pd.DataFrame(
            {
                "alteration": ["one event"],
                "field": ["rows"],
                "expected": ["rejected"],
                "outcome": ["rejected"],
                "detail": [""],
            }
        ),
    }


def rates() -> pd.DataFrame:
    """Two settings: masked without a wrong sequence, unmasked with some."""
    return pd.DataFrame(
        {
            "setting": ["greedy", "greedy without order mask"],
            "order_mask": [True, False],
            "proposed": [True, False],
            "sequences": [100, 100],
            "invalid_sequences": [0, 7],
            "invalid_rate": [0.0, 0.07],
            "invalid_upper": [0.0295, 0.128],
            "emitted_events": [400, 420],
            "invalid_events": [0, 9],
            "event_rate": [0.0, 0.021],
            "event_upper": [0.0075, 0.037],
            "padding": [0, 0],
            "capped": [0, 3],
            "context_full": [0, 0],
            "no_legal": [0, 0],
            "forced": [1, 0],
            "duplicate_share": [0.4, 0.5],
            "log_duplicate_share": [0.3, 0.3],
            "accuracy": [0.7, 0.7],
            "similarity": [0.8, 0.8],
        }
    )


def _fill(store: Path, names: tuple[str, ...], session: str) -> None:
    """Sessions of three to five events, each its own customer."""
    with rewriting(store) as connection:
        for number in range(40):
            events = [*names[: 2 + number % 2], *names[2 : 2 + number % 3], names[-1]]
            start, name = datetime(2026, 3, 2, 8, tzinfo=UTC) + timedelta(hours=number), f"{session}{number:03d}"
            connection.execute(
                "insert into store.main.sessions values (?, 1, ?, ?, ?, ?, ?, [], map {})",
                [name, len(events), start, start + timedelta(minutes=len(events)), number, [f"C{number}"]],
            )
            for position, event in enumerate(events):
                row = [name, position, event, start + timedelta(minutes=position), number * 10 + position]
                connection.execute("insert into store.main.events values (?, ?, ?, ?, ?, 1)", row)
