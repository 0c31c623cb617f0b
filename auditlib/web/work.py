"""What background jobs do. What is slow to load is imported inside: the pages must open before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from auditlib.errors import ArtifactError
from auditlib.progress import Progress
from auditlib.runs.request import AuditRequest
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
        from auditlib.sessions.importers import import_log  # noqa: PLC0415

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


def package(settings: Settings, run: Path, revision: Path | None, out: Path) -> Work:
    """Work that packages what a run allows; its result is `artifact <name>`. ArtifactError where that is nothing."""

    def work(progress: Progress) -> str:
        from auditlib.audits.device import settle_threads  # noqa: PLC0415
        from auditlib.runs.package import PackageRequest, package_run  # noqa: PLC0415

        settle_threads()
        packaged = package_run(PackageRequest(run, out, revision, allow_code=settings.allow_code), progress)
        if packaged.artifact is None:
            reasons = "; ".join(packaged.reasons[:3])
            raise ArtifactError(f"the run allows nothing to be served: {reasons}; package it with a fallback artifact")
        return f"artifact {out.name}"

    return work


def measure(settings: Settings, kind: str, artifact: Path, out: Path) -> Work:
    """Work that measures an artifact and writes the evidence; its result is `artifact <name>`.

    `kind` is "replay", "bench" or "rehearsal".
    """

    def work(progress: Progress) -> str:
        from auditlib.audits.device import fingerprint, settle_threads  # noqa: PLC0415
        from auditlib.runs import evidence  # noqa: PLC0415
        from auditlib.serving.artifact import open_artifact  # noqa: PLC0415
        from auditlib.serving.rehearsal import rehearse  # noqa: PLC0415

        settle_threads()
        opened = open_artifact(artifact)
        code = settings.allow_code
        if kind == "replay":
            document = evidence.replay_artifact(opened, allow_code=code, progress=progress)
        elif kind == "bench":
            plan = evidence.bench_plan(opened.policy)
            document = evidence.bench_artifact(opened, plan, allow_code=code, progress=progress)
        else:
            progress(0, 1, "planting failures")
            document = rehearse(artifact, allow_code=code).to_json(fingerprint("cpu"))
        evidence.write_evidence(out, document)
        return f"artifact {artifact.name}"

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
