"""One call from a request to a finished run: open, measure, judge, write. Browser and command line both come here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from auditlib.audits import AUDITS
from auditlib.audits.base import Audit, AuditResult, Subject
from auditlib.audits.battery import Explained, explain, run_battery, unmeasured
from auditlib.audits.device import NAMES_OF_DTYPES
from auditlib.audits.subject import Loading, build_subject
from auditlib.decoders.revision import Revision, open_revision
from auditlib.decoding.policies import Policy, Setting, read_policy
from auditlib.errors import DecoderError, EventMapError, InputError, IntegrityError, OrderError
from auditlib.progress import Progress, part, silent
from auditlib.release.checks import Measured
from auditlib.release.judge import Judgement, judge
from auditlib.release.limits import Limits, limits_from
from auditlib.runs.counterexamples import files_of
from auditlib.runs.folder import Run, write_run
from auditlib.runs.manifest import document_bytes, manifest_of
from auditlib.runs.origins import note_origin
from auditlib.runs.request import AuditRequest
from auditlib.runs.self_check import SelfCheck, run_self_check, with_self_check
from auditlib.serving.plan import serving_plan
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


_AUDITS_END, _MEASURED = 0.65, 0.9  # of the work of a run: until here the audits, then the self-check, then the search


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the audits found, which planted faults they would have seen, and the subject when there was one.

    The subject's progress is that of the search for counterexamples, which comes last.
    """

    results: tuple[AuditResult, ...]
    checked: SelfCheck
    subject: Subject | None = None


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
        measured = _measure(request, store, inputs, progress)
        store.verify(inputs.snapshot)  # the sessions that were measured are still the ones that are named
    # Asked again at the end: nobody may have exchanged what was measured while it was measured.
    if open_revision(request.revision).digest != inputs.revision.digest:
        raise IntegrityError(f"{request.revision} was changed while it was audited; nothing was written, audit again")
    judgement = _judge(_limits(inputs.policy, request.dtype), inputs.policy, measured.results)
    run = _write(request, inputs, measured, judgement)
    note_origin(run, request)
    return run


def _open_inputs(request: AuditRequest, store: SessionStore) -> _Inputs:
    """Open and verify revision, snapshot and policy."""
    snapshot = store.snapshot(request.snapshot)
    store.verify(snapshot)
    policy = read_policy(request.policy)
    serving_plan(policy, str(request.policy))  # what could not be packaged later is refused before it is audited
    return _Inputs(open_revision(request.revision), snapshot, policy, chosen_audits(request.audits))


def _measure(request: AuditRequest, store: SessionStore, inputs: _Inputs, progress: Progress) -> _Measured:
    """Results of the chosen audits, and which planted faults they would have seen.

    When the decoder does not fit the sessions, each result says why it was not measured.
    """
    loading = Loading(request.device, NAMES_OF_DTYPES[request.dtype], request.allow_code)
    try:
        subject = build_subject(
            store, inputs.snapshot, inputs.revision, inputs.policy, loading, seed=request.seed, progress=progress
        )
    except (DecoderError, EventMapError, OrderError) as misfit:
        return _Measured(unmeasured(inputs.audits, str(misfit)), SelfCheck(problem=str(misfit), ran=request.self_check))
    audits_end = _AUDITS_END if request.self_check else _MEASURED
    results = run_battery(inputs.audits, replace(subject, progress=part(progress, 0, audits_end, "")))
    checked = SelfCheck(ran=False)
    if request.self_check:
        planting = replace(subject, progress=part(progress, audits_end, _MEASURED, "planted faults"))
        checked = run_self_check(planting, results, _limits(inputs.policy, request.dtype))
    searching = replace(subject, progress=part(progress, _MEASURED, 1, ""))
    return _Measured(with_self_check(results, checked), checked, searching)


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
        # A run never serves anything, so what a policy plans to serve stays unmeasured until a bench of it is at hand.
        awaited=() if policy.serving is None else ("serving limits",),
    )


def _twin(setting: Setting) -> Setting:
    """The same setting with the order mask off where it is on, and on where it is off."""
    return setting.unmasked() if setting.order_mask else setting.masked()


def _write(request: AuditRequest, inputs: _Inputs, measured: _Measured, judgement: Judgement) -> Run:
    """Put report, manifest, tables and the counterexamples of what failed into a new run folder."""
    names = [audit.name for audit in inputs.audits]
    manifest = manifest_of(request, inputs.revision, inputs.snapshot, inputs.policy, names)
    report = _report(manifest, measured.results, judgement) | {"self_check": measured.checked.to_report()}
    tables: dict[tuple[str, str], pd.DataFrame] = {
        (r.audit, name): table for r in measured.results for name, table in r.findings.tables.items()
    }
    if measured.checked.judged:
        tables["self check", "faults"] = measured.checked.table()
    explained = Explained() if measured.subject is None else explain(measured.subject, report)
    report["counterexamples"] = {"cases": sorted(explained.cases), "problem": explained.problem}
    return write_run(
        request.runs,
        manifest["run"],
        manifest=manifest,
        report=report,
        tables={**tables, **explained.tables},
        policy=document_bytes(inputs.policy.document),
        extras=files_of(explained.cases),
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
