"""Rollouts that lie in the dashboard's home, each with its chain, its log, and how its evidence came about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from auditlib.errors import InputError
from auditlib.release.rollout_chain import Chain, read_chain
from auditlib.release.rollout_decision import Decision, run_tests
from auditlib.release.rollout_evidence import LiveEvidence, gather
from auditlib.release.rollout_moves import look
from auditlib.release.trust import load_trust
from auditlib.runs.live_log import LiveLog, read_live_log

CHAIN = "chain.jsonl"
_LOGS = ("log", "log.parquet", "log.csv", "log.jsonl", "log.duckdb")
_LOOKS = 40


@dataclass(frozen=True, slots=True)
class Followed:
    """One rollout: its verified chain, and what its log shows now. The last three are None without a log."""

    chain: Chain
    log: LiveLog | None = None
    evidence: LiveEvidence | None = None
    decision: Decision | None = None


def rollouts(home: Path) -> dict[str, Path]:
    """Folders below `home`/rollouts that hold a chain, by name. Links are passed over: they may lead anywhere."""
    root = home / "rollouts"
    if not root.is_dir():
        return {}
    folders = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()]
    return {folder.name: folder for folder in folders if (folder / CHAIN).is_file()}


def followed(folder: Path, trust: Path) -> Followed:
    """A rollout as it stands; errors are those of chains and logs that do not hold."""
    chain = read_chain(folder / CHAIN, load_trust(trust))
    paths = [path for name in _LOGS if (path := folder / name).exists()]
    if not paths:
        return Followed(chain)
    if len(paths) > 1:
        raise InputError(f"{folder.name} holds {len(paths)} logs: {', '.join(p.name for p in paths)}; keep one")
    log = read_live_log(paths[0])
    evidence, decision = look(chain, log)
    return Followed(chain, log, evidence, decision)


def arms(evidence: LiveEvidence) -> pd.DataFrame:
    """One row a stage and arm that has rows: counts of rows and of what went bad."""
    rows = []
    for name, stage in evidence.stages.items():
        for arm, counts in (("new", stage.new), ("fallback", stage.fallback)):
            if counts.requests:
                bad = {"invalid": counts.invalid, "errors": counts.error, "slow": counts.slow}
                compared = {"compared": stage.compared, "differ": stage.mismatches, "ties": stage.ties}
                words = {name: f"{count:,}" if arm == "new" else "–" for name, count in compared.items()}
                rows.append(
                    {"stage": name, "arm": arm, "requests": counts.requests, "whole": counts.whole, **bad, **words}
                )
    return pd.DataFrame(rows)


def history(found: Followed) -> pd.DataFrame:
    """E-values of every test after so many rows, in order of arrival. Columns: rows, test, log_e."""
    if found.log is None:
        return pd.DataFrame(columns=["rows", "test", "log_e"])
    order = np.argsort(found.log.rows.arrival, kind="stable")
    # in order of arrival a clock that jumps cannot be told; the decision above has looked at the order of writing
    rows = found.log.rows.take(order)
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    points = np.unique(np.linspace(1, rows.count, _LOOKS).astype(int)) if rows.count else np.zeros(0, int)
    seen: list[dict[str, object]] = []
    for point in points:
        evidence = gather(replace(rows.take(slice(0, point)), unread={}), found.chain.plan, found.chain.standing, now)
        tests = run_tests(found.chain.plan, evidence)
        seen += [{"rows": int(point), "test": test.name, "log_e": test.log_e} for test in tests]
    return pd.DataFrame(seen, columns=["rows", "test", "log_e"])
