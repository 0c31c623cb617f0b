"""Small judged runs and artifacts, made without an audit: the report says what a test wants it to say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from auditlib.audits.parity_probes import SINGLE
from auditlib.decoders.revision import Revision
from auditlib.decoding.policies import Policy, parse_policy
from auditlib.release.judge import judge
from auditlib.release.limits import limits_from
from auditlib.runs.folder import Run, write_run
from auditlib.runs.manifest import document_bytes
from auditlib.runs.package import PackageRequest, package_run
from auditlib.serving.artifact import Artifact
from auditlib.serving.artifact_document import document_bytes as artifact_bytes
from tests.release.cases import digest, sound
from tests.small_gpt import write_small_revision

DECODING = {
    "greedy": {"kind": "greedy", "order_mask": True},
    "sampled": {"kind": "sampled", "order_mask": True, "top_p": 0.9},
    "beam": {"kind": "beam", "order_mask": True, "width": 2},
}
POLICY = {"format": 1, "max_new_events": 3, "decoding": DECODING, "limits": {}, "fallback": "full-prefix"}
SEEN = {(1,): 9, (1, 3): 6, (1, 3, 5): 6, (1, 3, 5, 6): 2, (1, 5): 3, (1, 5, 5, 4): 1}


def policy_of(**changes: Any) -> Policy:
    return parse_policy(json.dumps({**POLICY, **changes}).encode(), "policy")


def judged_run(
    root: Path,
    revision: Revision,
    measured: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    name: str = "20261130T120000000Z-0a1b2c3d",
    dtype: str = "float32",
) -> Run:
    """A finished run about `revision`, in which every audit found what `measured` says, by default nothing wrong."""
    policy = policy or policy_of()
    settings = {setting.name: setting.kind for setting in policy.settings}
    judgement = judge(measured or sound(), settings, {}, limits_from(), policy.fallback)
    same = {"run": name, "created": "2026-11-30T12:00:00+00:00", "dtype": dtype, "device": {"device": "cpu"}}
    report = {
        "format": 1, **same, "revision": revision.digest, "revision_name": revision.manifest.name,
        "snapshot": digest("rows"), **judgement.to_report(),
    }  # fmt: skip
    manifest = {
        "format": 1, **same,
        "revision": {"name": revision.manifest.name, "digest": revision.digest, "folder": revision.folder.name},
        "snapshot": {"digest": digest("rows"), "file": "store.duckdb", "file_sha256": digest("file")},
        "policy": {"digest": policy.digest, "document": policy.document},
        "event_map": {"version": "1", "digest": revision.event_map.digest},
        "event_order": {"version": "1", "digest": revision.event_order.digest},
        "versions": {"python": "3.11"}, "code": {"version": "0.1.0", "digest": digest("code")}, "seed": 0,
    }  # fmt: skip
    lines = [(SINGLE, "-".join(map(str, row)), weight) for row, weight in SEEN.items()]
    lines.append(("uneven rows", "1-4-4-4", 0))  # made up by a probe: no session began so
    gaps = pd.DataFrame(lines, columns=["probe", "events", "weight"])
    tables = {("cache parity", "gaps"): gaps}
    content = document_bytes(policy.document)
    return write_run(root, name, manifest=manifest, report=report, tables=tables, policy=content)


def failing(audit: str, check: str) -> dict[str, Any]:
    """What `sound` measured, with one check far over its limit."""
    found = sound()
    numbers = [replace(one, value=9.0) if one.name == check else one for one in found[audit].measurements]
    assert numbers != list(found[audit].measurements)
    return {**found, audit: replace(found[audit], measurements=tuple(numbers))}


def small_artifact(root: Path, **asked: Any) -> Artifact:
    """An artifact of a sound run on a small revision, in the folder `artifact` of `root`."""
    revision = write_small_revision(root / "revision")
    run = judged_run(root / "runs", revision)
    packaged = package_run(PackageRequest(run.folder, root / "artifact", root / "revision", **asked))
    assert packaged.artifact is not None
    return packaged.artifact


def rewritten(folder: Path, change: Any) -> None:
    """Let `change` alter the document of an artifact in place, and write it in the one form that is read."""
    path = folder / "artifact.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(artifact_bytes(document))


def replaced(folder: Path, name: str, content: bytes) -> None:
    """Put another file in the place of one, and have the document list it: what a digest no longer tells."""
    (folder / name).write_bytes(content)
    listed = f"sha256:{hashlib.sha256(content).hexdigest()}"
    rewritten(folder, lambda document: document["files"].__setitem__(name, listed))


def put(*path_and_value: Any) -> Callable[[Any], None]:
    """A change to a document: the last argument stands at the path that the others name from then on."""
    *path, last, value = path_and_value

    def change(document: Any) -> None:
        for part in path:
            document = document[part]
        document[last] = value

    return change
