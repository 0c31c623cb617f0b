"""Runs audits one after another; the one place where any exception becomes a result."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from auditlib.audits.base import Audit, AuditResult, Findings, Subject
from auditlib.audits.counterexample import Case
from auditlib.audits.counterexamples import counterexamples_for
from auditlib.audits.locate import located
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
    subject.progress(1000, 1000, "audits measured")
    return tuple(results)


@dataclass(frozen=True, slots=True)
class Explained:
    """Counterexamples of what failed, where each sits, and the `problem` that kept them from being found."""

    cases: Mapping[str, Case] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], pd.DataFrame] = field(default_factory=dict)
    problem: str | None = None


def explain(subject: Subject, report: Mapping[str, Any]) -> Explained:
    """Shrunk counterexamples of the failures in a judged report; a decoder that breaks meanwhile costs only these."""
    try:
        cases = counterexamples_for(subject, report)
        tables = located(subject, cases)
        subject.progress(1, 1, "audits finished")
        return Explained(cases, tables)
    except CancelledError:
        raise
    except (Exception, SystemExit) as fault:  # noqa: BLE001 - as in `run_audit`; the judgement stands without its explanation
        return Explained(problem=f"{type(fault).__name__}: {fault}")


def unmeasured(audits: Iterable[Audit], problem: str) -> tuple[AuditResult, ...]:
    """Results of audits that could not begin, each with the same reason."""
    return tuple(AuditResult(audit.name, Findings(), 0.0, problem) for audit in audits)
