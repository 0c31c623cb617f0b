"""The manifest of a run: everything that its numbers depend on, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from auditlib import __version__
from auditlib.audits.device import fingerprint, library_versions
from auditlib.decoders.revision import Revision
from auditlib.decoding.policies import Policy
from auditlib.files import sha256_of
from auditlib.runs.request import AuditRequest
from auditlib.sessions.snapshot import Snapshot


def manifest_of(
    request: AuditRequest, revision: Revision, snapshot: Snapshot, policy: Policy, audits: list[str]
) -> dict[str, Any]:
    """Everything that the run's numbers depend on, with the moment and the run's name."""
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    manifest = {
        "format": 1,
        "created": created,
        "revision": {"name": revision.manifest.name, "digest": revision.digest, "folder": revision.folder.name},
        "snapshot": {"digest": snapshot.digest, "file": request.store.name, "file_sha256": sha256_of(request.store)},
        "policy": {"digest": policy.digest, "document": policy.document},
        "event_map": {"version": revision.event_map.version, "digest": revision.event_map.digest},
        "event_order": {"version": revision.event_order.version, "digest": revision.event_order.digest},
        "audits": audits,
        "self_check": request.self_check,
        "device": fingerprint(request.device),
        "versions": library_versions(),
        "code": {"version": __version__, "digest": code_digest()},
        "seed": request.seed,
        "dtype": request.dtype,
    }
    return {**manifest, "run": _run_id(manifest)}


def _run_id(manifest: Mapping[str, Any]) -> str:
    """Time of the run, to sort by, and eight digits of what it depends on, to tell runs of one moment apart."""
    moment = datetime.fromisoformat(manifest["created"]).strftime("%Y%m%dT%H%M%S%fZ")[:-4]
    return f"{moment}Z-{hashlib.sha256(document_bytes(manifest)).hexdigest()[:8]}"


@cache
def code_digest() -> str:
    """Digest over the package's own source files, so that a verdict names the code that measured."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        # Name and length before each file: else two trees whose bytes run together alike would have one digest.
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def document_bytes(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a plain document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
