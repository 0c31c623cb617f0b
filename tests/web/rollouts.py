"""A rollout under way, as it lies in a dashboard's home: its chain signed by Ada, its log written just now."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq

from auditlib.release.rollout_moves import Document, Signer, advance, open_on, start
from auditlib.release.trust import load_trust
from auditlib.runs.live_log import read_live_log
from auditlib.serving.log_row import to_table
from tests.release.cases import digest, keyid, private_key, trusted
from tests.release.rollout_world import BEGIN, NEW, OLD, SECOND, STARTS, plan, stages


def make_rollout(home: Path, name: str = "greedy", upto: str = "canary 50", spoil=lambda row: row) -> Path:
    """The folder of a rollout that stands in the stage `upto`, whose rows went through `spoil`."""
    folder = home / "rollouts" / name
    (folder / "log").mkdir(parents=True)
    (home / "trust.json").write_text(json.dumps(trusted("ada")))
    signer = Signer(private_key("ada"), load_trust(home / "trust.json"))
    chain = folder / "chain.jsonl"
    # the newest row was written a minute ago
    shift = datetime.now(UTC) - timedelta(minutes=1) - BEGIN - timedelta(seconds=max(STARTS[upto], 60) + 1300)
    start(chain, signer, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=BEGIN + shift - timedelta(hours=1))
    signed_by = Document("verdict signer", f"sha256:{keyid('ada')}")
    for seconds, document, more in ((-100, "replay", ()), (0, "verdict", (signed_by,))):
        shown = [Document(document, digest(document)), *more]
        open_on(chain, signer, shown, BEGIN + shift + timedelta(seconds=seconds))
    by_stage: dict[str, list] = {}
    for row in stages(upto):
        by_stage.setdefault(row.stage, []).append(row)
    for stage, rows in by_stage.items():
        if stage != "shadow":
            log = read_live_log(folder / "log")
            advance(chain, signer, log, BEGIN + shift + timedelta(seconds=STARTS[stage]))
        moved = [spoil(_moved(row, int(shift.total_seconds() * SECOND))) for row in rows]
        pq.write_table(to_table(moved), folder / "log" / f"part-{stage.replace(' ', '-')}.parquet")
    return folder


def _moved(row, by):
    times = ("arrival", "start", "first_event", "end")
    return replace(row, **{name: getattr(row, name) + by for name in times})
