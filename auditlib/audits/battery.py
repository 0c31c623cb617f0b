"""Runs audits one after another; the one place where any exception becomes a result."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from auditlib.audits.base import Audit, AuditResult, Findings, Subject
from auditlib.errors import CancelledError, PrefixgateError
from auditlib.progress import part


def run_audit(audit: Audit, subject: Subject) -> AuditResult:
    """Result of one audit. Whatever the decoder raises becomes the result's `problem`: never a crash, never a pass."""
    started = time.perf_counter()
    findings, problem = Findings(), None
    try:
        findings = audit.measure(subject)
    except CancelledError:
        raise
    except PrefixgateError as refusal:
        problem = str(refusal)
    except (Exception, SystemExit) as fault:  # noqa: BLE001 - a decoder under audit may raise anything, or try to leave
        problem = f"{type(fault).__name__}: {fault}"
    return AuditResult(audit.name, findings, time.perf_counter() - started, problem)


def run_battery(audits: Iterable[Audit], subject: Subject) -> tuple[AuditResult, ...]:
    """Results of all `audits`, with the subject's progress told over the whole battery in thousandths."""
    chosen = tuple(audits)
    results = []
    for position, audit in enumerate(chosen):
        watched = replace(
            subject, progress=part(subject.progress, position / len(chosen), (position + 1) / len(chosen), audit.name)
        )
        watched.progress(0, 1, "")
        results.append(run_audit(audit, watched))
    subject.progress(1000, 1000, "audits finished")
    return tuple(results)


def unmeasured(audits: Iterable[Audit], problem: str) -> tuple[AuditResult, ...]:
    """Results of audits that could not begin, each with the same reason."""
    return tuple(AuditResult(audit.name, Findings(), 0.0, problem) for audit in audits)
