"""Evidence documents about an artifact: what its replay or its bench measured, judged, as canonical JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from auditlib.audits.base import Findings
from auditlib.audits.bench_findings import bench_findings
from auditlib.audits.device import fingerprint
from auditlib.audits.replay import replay
from auditlib.decoding.policies import Policy
from auditlib.files import write_whole
from auditlib.progress import Progress, silent
from auditlib.release.checks import Measured
from auditlib.release.limits import Limit
from auditlib.release.serving_limits import REPLAY_LIMITS, bench_limits, judge_serving
from auditlib.runs.manifest import document_bytes
from auditlib.serving.artifact import Artifact
from auditlib.serving.bench import BenchPlan, run_bench
from auditlib.serving.fixed_batch import read_fixed_batch
from auditlib.serving.memory import shape_of
from auditlib.serving.plan import serving_plan

_OTHERS = 600  # requests to every load that no limit is held against; 299 bound a 99th percentile
_COMPARED = 300


def replay_artifact(
    artifact: Artifact, *, device: str = "cpu", allow_code: bool = False, progress: Progress = silent
) -> dict[str, Any]:
    """The evidence document of a replay of the artifact's fixed batch on this device.

    ArtifactError where the artifact serves nothing.
    """
    batch = read_fixed_batch(artifact)
    served = artifact.load(device, allow_code=allow_code)
    found = replay(served, batch, same_device=studied_here(artifact, device), progress=progress)
    return evidence("replay", artifact, device, found, REPLAY_LIMITS)


def bench_plan(
    policy: Policy, *, levels: Sequence[int] = (), requests: int | None = None, seed: int = 0, timeout: float = 30.0
) -> BenchPlan:
    """How a policy's serving part wants an artifact loaded; `levels` and `requests` in place of what it says."""
    plan = serving_plan(policy)
    count = plan.requests if requests is None else requests
    return BenchPlan(
        plan.concurrency,
        count,
        min(_OTHERS, count),
        min(_COMPARED, count),
        levels=tuple(levels),
        timeout=timeout,
        seed=seed,
    )


def bench_artifact(
    artifact: Artifact,
    plan: BenchPlan,
    policy: Policy | None = None,
    *,
    device: str = "cpu",
    allow_code: bool = False,
    progress: Progress = silent,
) -> dict[str, Any]:
    """The evidence document of a bench of the artifact on this device, held against the limits of `policy`.

    `policy` None: the one that the artifact was packaged under. ArtifactError where the artifact serves nothing.
    """
    policy = policy or artifact.policy
    limits = serving_plan(policy).limits
    batch = read_fixed_batch(artifact)
    served = artifact.load(device, allow_code=allow_code)
    found = bench_findings(served, run_bench(served, batch, plan, progress))
    shape = shape_of(served)
    return evidence(
        "bench",
        artifact,
        device,
        found,
        bench_limits(limits),
        policy=policy.digest,
        stated=dict(limits),
        plan=asdict(plan),
        served={"strategy": served.strategy, "decoding": served.setting.name, "width": served.setting.width},
        shape=None if shape is None else asdict(shape),
        context_length=served.decoder.context_length,
    )


def studied_here(artifact: Artifact, device: str) -> bool:
    """Whether the artifact's tolerance was measured on this very device, with these threads and kernels."""
    # The whole fingerprint: another thread count alone makes sums round in another order.
    return bool(artifact.document["tolerance"]["device"] == fingerprint(device))


def evidence(
    kind: str,
    artifact: Artifact,
    device: str,
    found: Findings,
    limits: Sequence[Limit],
    **own: Any,
) -> dict[str, Any]:
    """Findings about an artifact as an evidence document; `own` are entries that only this kind has."""
    standing = judge_serving(limits, Measured(found.measurements, found.not_applicable))
    judged = {one.name for one in standing.checks}
    information = [one for one in found.measurements if one.name not in judged]
    document = {
        "format": 1,
        "kind": kind,
        "artifact": artifact.digest,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "device": fingerprint(device),
        **standing.to_json(),
        "information": [
            {"name": one.name, "value": one.value, "unit": one.unit, "count": one.count} for one in information
        ],
        "not_applicable": dict(found.not_applicable),
        "notes": list(found.notes),
        "tables": {name: table.astype(object).to_dict("records") for name, table in found.tables.items()},
        **own,
    }
    cleaned: dict[str, Any] = _without_nan(document)
    return cleaned


def write_evidence(path: Path, document: Mapping[str, Any]) -> None:
    """Write an evidence document in its one form, whole or not at all."""
    write_whole(path, document_bytes(document))


def _without_nan(value: Any) -> Any:
    """The same document with None for what is no finite number: JSON has neither NaN nor infinity."""
    if isinstance(value, Mapping):
        return {str(key): _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
