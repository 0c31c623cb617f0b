"""What serving costs: latency and throughput of the demo's sound revision, cached and by full prefixes side by side.

`python benchmarks/serving.py` prints Markdown; `--json FILE` writes the whole evidence of each bench. The artifact is
packaged afresh from a run of the demo. Both paths get the same requests in turns, round by round, so read the ratios:
milliseconds are those of this machine under the load that is noted with them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from auditlib.audits.device import settle_threads  # noqa: E402 - the path above comes first
from auditlib.decoding.policies import read_policy  # noqa: E402
from auditlib.demo.build import fill_store  # noqa: E402
from auditlib.demo.places import demo_under  # noqa: E402
from auditlib.progress import Progress  # noqa: E402
from auditlib.runs.evidence import bench_artifact, bench_plan  # noqa: E402
from auditlib.runs.execute import run_audits  # noqa: E402
from auditlib.runs.package import PackageRequest, package_run  # noqa: E402
from auditlib.runs.request import AuditRequest  # noqa: E402
from auditlib.serving.artifact import Artifact, open_artifact  # noqa: E402

LEVELS = (1, 8, 32)
HEAD = ("clients", "path", "requests/s", "events/s", "first event p50", "p95", "p99", "whole p50", "p95", "p99")


def say(done: int, total: int, note: str) -> None:
    print(f"{100 * done / max(total, 1):3.0f} %  {note}", file=sys.stderr)


def packaged(home: Path, levels: Sequence[int], progress: Progress) -> Artifact:
    """The demo's sound revision as an artifact whose slots hold the most clients that will come at once."""
    demo = demo_under(home)
    demo.store.parent.mkdir(parents=True)
    fill_store(demo.store)
    policy = home / "policy.json"
    slots = max(levels)
    policy.write_text(
        json.dumps(
            {**read_policy(None).document, "serving": {"slots": slots, "queue": 2 * slots, "concurrency": slots}}
        )
    )
    run = run_audits(AuditRequest(demo.store, demo.sound, home / "runs", policy=policy, self_check=False), progress)
    artifact = package_run(PackageRequest(run.folder, home / "artifact"), progress).artifact
    if artifact is None:
        raise SystemExit(f"the demo's sound revision was not packaged: {run.report['failures']}")
    return artifact


def interval(row: Mapping[str, Any]) -> str:
    """A percentile (ms) with its bounds."""
    low, high = ("–" if row[name] is None else f"{row[name]:.1f}" for name in ("low", "high"))
    return "∞" if row["value"] is None else f"{row['value']:.1f} ({low} to {high})"


def lines(document: Mapping[str, Any]) -> list[list[str]]:
    """Cells of the table, one row for each load and path."""
    latency = {(r["load"], r["arm"], r["measure"], r["share"]): r for r in document["tables"]["latency"]}
    found = []
    for load in document["tables"]["loads"]:
        cells = [
            interval(latency[load["load"], load["arm"], measure, share])
            for measure in ("first event", "whole request")
            for share in (0.5, 0.95, 0.99)
        ]
        rates = [f"{load[name]:.0f}" for name in ("requests_per_s", "events_per_s")]
        found.append([load["load"], load["arm"], *rates, *cells])
    return found


def summary(checks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Bytes and rates in words."""
    held = [checks[name]["value"] for name in ("peak cache bytes", "peak cache bytes by the formula", "process peak")]
    invalid = checks["invalid sequences"]
    return [
        f"Peak of the cache: {held[0]:,} bytes allocated, {held[1]:,} by the formula; process {held[2] / 1e6:.0f} MB.",
        f"Invalid sequences: at most {100 * invalid['value']:.3f} % of {invalid['count']:,} at 95 % confidence.",
    ]


def to_markdown(document: Mapping[str, Any], load: Sequence[float]) -> str:
    """The evidence of one bench as tables."""
    checks = {one["name"]: one for one in (*document["checks"], *document["information"])}
    ratios = [
        f"| {one['load']} | {one['measure']} | {one['ratio']:.2f} ({one['low']:.2f} to {one['high']:.2f}) |"
        for one in document["tables"]["ratios"]
    ]
    return "\n".join(
        [
            f"ms, one-sided 95 % bounds in brackets; load average {load[0]:.1f} before, {load[1]:.1f} after.",
            "",
            *(f"| {' | '.join(row)} |" for row in (HEAD, ["---"] * len(HEAD), *lines(document))),
            "",
            "| load | cached over full prefix | median of rounds |",
            "| --- | --- | --- |",
            *ratios,
            "",
            *summary(checks),
        ]
    )


def main() -> int:
    """Package the demo, bench it, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, metavar="FOLDER", help="bench this artifact instead of the demo's")
    parser.add_argument("--requests", type=int, default=3000, help="requests at the highest concurrency")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    settle_threads()
    with tempfile.TemporaryDirectory() as home:
        artifact = open_artifact(options.artifact) if options.artifact else packaged(Path(home), LEVELS, say)
        before = os.getloadavg()[0]
        plan = bench_plan(artifact.policy, levels=LEVELS, requests=options.requests)
        document = bench_artifact(artifact, plan, progress=say)
        load = (before, os.getloadavg()[0])
    print(to_markdown(document, load))
    if options.json is not None:
        options.json.write_text(json.dumps({**document, "load_average": load}, indent=1))
    return 0 if document["status"] == "passed" else 1


if __name__ == "__main__":
    raise SystemExit(main())
