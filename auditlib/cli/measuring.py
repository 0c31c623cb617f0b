"""Verbs that measure an artifact where it is to be served: bench, replay."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditlib.cli.output import ProgressLine, add_json_option, emit, say, table
from auditlib.numbers import number

REFUSED = 1
_MOST = 100_000


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `bench` and `replay`."""
    bench = _verb(verbs, "bench", "load an artifact as its callers would and hold it against its limits")
    bench.add_argument("--policy", type=Path, metavar="FILE", help="limits and load (default: the artifact's policy)")
    bench.add_argument(
        "--concurrency", type=_counts, default=(), metavar="1,8,32", help="callers at once, beside those of the policy"
    )
    bench.add_argument("--requests", type=_count, metavar="N", help="requests at the intended concurrency")
    bench.add_argument("--seed", type=int, default=0)
    bench.set_defaults(run=_bench)
    replay = _verb(verbs, "replay", "decode an artifact's fixed batch in all companies beside its saved answers")
    replay.set_defaults(run=_replay)


def _verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, words: str) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=words)
    verb.add_argument("artifact", type=Path, metavar="ARTIFACT", help="folder that `package` wrote")
    verb.add_argument("--out", type=Path, metavar="FILE", help="write the evidence there, to be signed")
    verb.add_argument("--device", default="cpu")
    verb.add_argument(
        "--allow-code", action="store_true", help="run the code that a revision names (package.module:factory)"
    )
    add_json_option(verb)
    return verb


def _bench(options: argparse.Namespace) -> int:
    """Bench, and say which limits hold."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415 - these load torch
    from auditlib.decoding.policies import read_policy  # noqa: PLC0415
    from auditlib.runs.evidence import bench_artifact, bench_plan  # noqa: PLC0415
    from auditlib.serving.artifact import open_artifact  # noqa: PLC0415

    settle_threads()
    artifact = open_artifact(options.artifact)
    policy = artifact.policy if options.policy is None else read_policy(options.policy)
    plan = bench_plan(policy, levels=options.concurrency, requests=options.requests, seed=options.seed)
    progress = ProgressLine()
    try:
        document = bench_artifact(
            artifact, plan, policy, device=options.device, allow_code=options.allow_code, progress=progress
        )
    finally:
        progress.close()
    return _tell(options, document, _loads(document))


def _replay(options: argparse.Namespace) -> int:
    """Replay, and list what differs."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415 - these load torch
    from auditlib.runs.evidence import replay_artifact  # noqa: PLC0415
    from auditlib.serving.artifact import open_artifact  # noqa: PLC0415

    settle_threads()
    artifact = open_artifact(options.artifact)
    progress = ProgressLine()
    try:
        document = replay_artifact(artifact, device=options.device, allow_code=options.allow_code, progress=progress)
    finally:
        progress.close()
    return _tell(options, document, _compositions(document))


def _tell(options: argparse.Namespace, document: Mapping[str, Any], own: str) -> int:
    """Write the evidence, say what it amounts to, and give the exit code."""
    from auditlib.runs.evidence import write_evidence  # noqa: PLC0415 - loads torch

    if options.out is not None:
        write_evidence(options.out, document)
    checks = [("check", "value", "limit", "unit", "n", "status")]
    checks += [
        (c["name"], number(c["value"]), number(c["limit"]), c["unit"], f"{c['count']:,}", c["status"])
        for c in document["checks"]
    ]
    reasons = [f"{c['name']}: {c['reason']}" for c in document["checks"] if c["status"] != "passed"]
    notes = [*document["notes"], *(f"{name}: {why}" for name, why in document["not_applicable"].items())]
    words = f"{document['kind']} of artifact {document['artifact']}: {document['status']}"
    say(options, "\n".join([own, "", table(checks), *reasons, *notes, words]))
    emit(options, document)
    return 0 if document["status"] == "passed" else REFUSED


def _loads(document: Mapping[str, Any]) -> str:
    """Throughput and latency of each load and path, with the upper bounds beside the percentiles."""
    found = {(row["load"], row["arm"], row["measure"], row["share"]): row for row in document["tables"]["latency"]}
    rows = [("load", "path", "requests/s", "first event p50", "p95 (≤)", "whole p50", "p95 (≤)", "no answer")]
    for load in document["tables"]["loads"]:
        cells = [
            _bounded(found[load["load"], load["arm"], measure, share], bounded=share > 0.5)
            for measure in ("first event", "whole request")
            for share in (0.5, 0.95)
        ]
        lost = load["requests"] - load["answered"]
        rows.append((load["load"], load["arm"], f"{load['requests_per_s']:.1f}", *cells, str(lost)))
    return f"latency in ms\n{table(rows)}"


def _bounded(row: Mapping[str, Any], *, bounded: bool) -> str:
    return f"{number(row['value'])} ({number(row['high'])})" if bounded else number(row["value"])


def _compositions(document: Mapping[str, Any]) -> str:
    rows = [("composition", "path", "requests", "differ", "near ties", "no answer")]
    for one in document["tables"]["compositions"]:
        counts = (one["requests"], one["differing"], one["ties"], one["unanswered"])
        rows.append((one["composition"], one["path"], *(f"{count:,}" for count in counts)))
    listed = [
        f"{one['path']}, {one['composition']}: {one['prefix']} step {one['step']}, margin {number(one['margin'])}"
        for one in document["tables"]["differences"][:20]
    ]
    return "\n".join([table(rows), *listed])


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to {_MOST:,} is needed")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part.strip()) for part in text.split(","))
