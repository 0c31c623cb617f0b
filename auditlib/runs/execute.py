"""One call from a request to a finished run: open, measure, judge, write. Browser and command line both come here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from auditlib import __version__
from auditlib.audits import AUDITS
from auditlib.audits.base import Audit, AuditResult
from auditlib.audits.battery import run_battery, unmeasured
from auditlib.audits.device import NAMES_OF_DTYPES, fingerprint, library_versions
from auditlib.audits.subject import Loading, build_subject
from auditlib.decoders.revision import Revision, open_revision
from auditlib.decoding.policies import Policy, Setting, read_policy
from auditlib.errors import DecoderError, EventMapError, InputError, IntegrityError, OrderError
from auditlib.files import sha256_of
from auditlib.progress import Progress, part, silent
from auditlib.release.checks import Measured
from auditlib.release.judge import Judgement, judge
from auditlib.release.limits import Limits, limits_from
from auditlib.runs.folder import Run, write_run
from auditlib.runs.self_check import SelfCheck, run_self_check, with_self_check
from auditlib.sessions.snapshot import Snapshot
from auditlib.sessions.store import SessionStore

# What a measured tolerance (logits) and a beam's recomputed score may reach, before a policy file says otherwise: a
# device whose rounding is worse cannot certify by value. bfloat16 keeps 8 bits: logits near 10 move by hundredths.
_BEAM = "decoding policy: beam score error"
_BY_DTYPE: dict[str, dict[str, float]] = {
    "float64": {"largest_tolerance": 1e-6, _BEAM: 1e-6},
    "float32": {"largest_tolerance": 1e-3, _BEAM: 1e-3},
    "bfloat16": {"largest_tolerance": 0.5, _BEAM: 0.5},
}


_AUDITS_SHARE = 0.7  # of the work of a run; the rest is the self-check


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to audit, against what, and how. Two equal requests on one device give the same numbers."""

    store: Path
    revision: Path
    runs: Path
    audits: tuple[str, ...] | None = None
    policy: Path | None = None
    snapshot: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    allow_code: bool = False
    seed: int = 0
    self_check: bool = True


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Everything a run is about, opened and verified."""

    revision: Revision
    snapshot: Snapshot
    policy: Policy
    audits: tuple[Audit, ...]


def chosen_audits(names: Sequence[str] | None) -> tuple[Audit, ...]:
    """Audits of these names, in report order; all of them for None. InputError names what there is."""
    known = {audit.name: audit for audit in AUDITS}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise InputError(f"no audit named {', '.join(map(repr, unknown))}; there are: {', '.join(known)}")
    return tuple(audit for audit in AUDITS if names is None or audit.name in names)


def run_audits(request: AuditRequest, progress: Progress = silent) -> Run:
    """Audit a revision against a snapshot and write the run; raises InputError or IntegrityError before measuring.

    What goes wrong while measuring becomes a result ("not measured: …") in the run that is written all the same.
    """
    if request.dtype not in NAMES_OF_DTYPES:
        raise InputError(f"--dtype {request.dtype!r} is not one of {', '.join(NAMES_OF_DTYPES)}")
    with SessionStore.open(request.store) as store:
        inputs = _open_inputs(request, store)
        results, checked = _measure(request, store, inputs, progress)
        store.verify(inputs.snapshot)  # the sessions that were measured are still the ones that are named
    if open_revision(request.revision).digest != inputs.revision.digest:
        raise IntegrityError(f"{request.revision} was changed while it was audited; nothing was written, audit again")
    judgement = _judge(_limits(inputs.policy, request.dtype), inputs.policy, results)
    return _write(request, inputs, results, checked, judgement)


def _open_inputs(request: AuditRequest, store: SessionStore) -> _Inputs:
    """Open and verify revision, snapshot and policy."""
    snapshot = store.snapshot(request.snapshot)
    store.verify(snapshot)
    return _Inputs(
        open_revision(request.revision), snapshot, read_policy(request.policy), chosen_audits(request.audits)
    )


def _measure(
    request: AuditRequest, store: SessionStore, inputs: _Inputs, progress: Progress
) -> tuple[tuple[AuditResult, ...], SelfCheck]:
    """Results of the chosen audits, and which planted faults they would have seen.

    When the decoder does not fit the sessions, each result says why it was not measured.
    """
    loading = Loading(request.device, NAMES_OF_DTYPES[request.dtype], request.allow_code)
    try:
        subject = build_subject(
            store, inputs.snapshot, inputs.revision, inputs.policy, loading, seed=request.seed, progress=progress
        )
    except (DecoderError, EventMapError, OrderError) as misfit:
        return unmeasured(inputs.audits, str(misfit)), SelfCheck(problem=str(misfit), ran=request.self_check)
    if not request.self_check:
        checked = SelfCheck(ran=False)
        return with_self_check(run_battery(inputs.audits, subject), checked), checked
    results = run_battery(inputs.audits, replace(subject, progress=part(progress, 0, _AUDITS_SHARE, "")))
    planting = replace(subject, progress=part(progress, _AUDITS_SHARE, 1, "planted faults"))
    checked = run_self_check(planting, results, _limits(inputs.policy, request.dtype))
    progress(1000, 1000, "audits finished")
    return with_self_check(results, checked), checked


def _limits(policy: Policy, dtype: str) -> Limits:
    """The policy's limits, on top of what this dtype is allowed."""
    return limits_from({**_BY_DTYPE[dtype], **policy.limits}, self_check=True)


def _judge(limits: Limits, policy: Policy, results: Sequence[AuditResult]) -> Judgement:
    """What the gate says of these results under the policy's limits."""
    measured = {r.audit: Measured(r.findings.measurements, dict(r.findings.not_applicable), r.problem) for r in results}
    return judge(
        measured,
        settings={setting.name: setting.kind for setting in policy.settings},
        comparisons={_twin(setting).name: setting.kind for setting in policy.settings},
        limits=limits,
        fallback=policy.fallback,
    )


def _twin(setting: Setting) -> Setting:
    """The same setting with the order mask off where it is on, and on where it is off."""
    return setting.unmasked() if setting.order_mask else setting.masked()


def _write(
    request: AuditRequest,
    inputs: _Inputs,
    results: Sequence[AuditResult],
    checked: SelfCheck,
    judgement: Judgement,
) -> Run:
    """Put report, manifest and tables into a new run folder."""
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    manifest = _manifest(request, inputs, created)
    run_id = _run_id(manifest)
    manifest["run"] = run_id
    report = {**_report(manifest, results, judgement), "self_check": checked.to_report()}
    tables: dict[tuple[str, str], pd.DataFrame] = {
        (r.audit, name): table for r in results for name, table in r.findings.tables.items()
    }
    if checked.judged:
        tables["self check", "faults"] = checked.table()
    return write_run(
        request.runs,
        run_id,
        manifest=manifest,
        report=report,
        tables=tables,
        policy=_document_bytes(inputs.policy.document),
    )


def _report(manifest: Mapping[str, Any], results: Sequence[AuditResult], judgement: Judgement) -> dict[str, Any]:
    """`audit --json` of contract 2, with what else a reader of the run wants beside it."""
    report: dict[str, Any] = {
        "format": 1,
        "run": manifest["run"],
        "created": manifest["created"],
        "revision": manifest["revision"]["digest"],
        "revision_name": manifest["revision"]["name"],
        "snapshot": manifest["snapshot"]["digest"],
        "dtype": manifest["dtype"],
        "device": manifest["device"],
        **judgement.to_report(),
    }
    questions = {audit.name: audit.question for audit in AUDITS}
    for result in results:
        report["audits"][result.audit] |= {
            "question": questions[result.audit],
            "problem": result.problem,
            "notes": list(result.findings.notes),
            "not_applicable": dict(result.findings.not_applicable),
            "seconds": round(result.seconds, 3),
        }
    return report


def _manifest(request: AuditRequest, inputs: _Inputs, created: str) -> dict[str, Any]:
    """Everything that the run's numbers depend on."""
    revision, snapshot, policy = inputs.revision, inputs.snapshot, inputs.policy
    return {
        "format": 1,
        "created": created,
        "revision": {"name": revision.manifest.name, "digest": revision.digest, "folder": revision.folder.name},
        "snapshot": {"digest": snapshot.digest, "file": request.store.name, "file_sha256": sha256_of(request.store)},
        "policy": {"digest": policy.digest, "document": policy.document},
        "event_map": {"version": revision.event_map.version, "digest": revision.event_map.digest},
        "event_order": {"version": revision.event_order.version, "digest": revision.event_order.digest},
        "audits": [audit.name for audit in inputs.audits],
        "device": fingerprint(request.device),
        "versions": library_versions(),
        "code": {"version": __version__, "digest": code_digest()},
        "seed": request.seed,
        "dtype": request.dtype,
    }


def _run_id(manifest: Mapping[str, Any]) -> str:
    """Time of the run, to sort by, and eight digits of what it depends on, to tell runs of one moment apart."""
    moment = datetime.fromisoformat(manifest["created"]).strftime("%Y%m%dT%H%M%S%fZ")[:-4]
    return f"{moment}Z-{hashlib.sha256(_document_bytes(manifest)).hexdigest()[:8]}"


@cache
def code_digest() -> str:
    """Digest over the package's own source files, so that a verdict names the code that measured."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def _document_bytes(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON of a plain document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
