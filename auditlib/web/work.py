"""What background jobs do. What loads torch is imported inside: the pages must open before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from auditlib.progress import Progress
from auditlib.runs.request import AuditRequest
from auditlib.sessions.importers import import_log
from auditlib.sessions.manifest import ColumnMapping
from auditlib.sessions.split import split as split_store
from auditlib.sessions.store import SessionStore
from auditlib.web.jobs import Work
from auditlib.web.settings import Settings


@dataclass(frozen=True, slots=True)
class SplitTerms:
    """What a person asks of a split."""

    by: tuple[str, ...]
    held_out: float
    seed: int
    chronological: bool
    quarantine: bool


def import_file(store: Path, log: Path, mapping: ColumnMapping, time_format: str | None, time_zone: str | None) -> Work:
    """Work that imports a log; its result is `import <number>`."""

    def work(progress: Progress) -> str:
        done = import_log(log, store, mapping=mapping, time_format=time_format, time_zone=time_zone, progress=progress)
        return f"import {done.import_id}"

    return work


def undo_import(store: Path, import_id: int) -> Work:
    """Work that takes an import out of the store again; snapshots keep what they froze."""

    def work(progress: Progress) -> str:
        progress(0, 1, "taking it out")
        with SessionStore.open(store, read_only=False) as opened:
            opened.undo_import(import_id)
        return f"undone {import_id}"

    return work


def split(store: Path, terms: SplitTerms) -> Work:
    """Work that freezes a snapshot; its result is `snapshot <digest>`."""

    def work(progress: Progress) -> str:
        with SessionStore.open(store, read_only=False) as opened:
            made = split_store(
                opened, terms.by, terms.held_out, terms.seed, terms.chronological, terms.quarantine, progress
            )
        return f"snapshot {made.digest}"

    return work


def audit(
    settings: Settings, store: Path, runs: Path, revision: Path, snapshot: str, audits: tuple[str, ...] | None
) -> Work:
    """Work that audits a revision on a snapshot; its result is `run <id> <digest of the revision>`."""

    def work(progress: Progress) -> str:
        from auditlib.audits.device import settle_threads  # noqa: PLC0415
        from auditlib.runs.execute import run_audits  # noqa: PLC0415

        # Two threads on small batches are slower than one, and round in another order.
        settle_threads()
        request = AuditRequest(
            store=store,
            revision=revision,
            runs=runs,
            audits=audits,
            policy=settings.policy,
            snapshot=snapshot,
            allow_code=settings.allow_code,
        )
        run = run_audits(request, progress)
        return f"run {run.id} {run.revision}"

    return work


def demo(settings: Settings) -> Work:
    """Work that makes the demo under the home folder, or finds it there."""

    def work(progress: Progress) -> str:
        from auditlib.audits.device import settle_threads  # noqa: PLC0415
        from auditlib.demo.build import ensure_demo  # noqa: PLC0415

        settle_threads()
        ensure_demo(settings.home, progress)
        return "demo"

    return work
