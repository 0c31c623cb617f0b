"""What background jobs do. What loads torch is imported inside: the pages must open before it is loaded."""

from __future__ import annotations

from pathlib import Path

from auditlib.progress import Progress
from auditlib.web.jobs import Work
from auditlib.web.settings import Settings


def audit(
    settings: Settings, store: Path, runs: Path, revision: Path, snapshot: str, audits: tuple[str, ...] | None
) -> Work:
    """Work that audits a revision on a snapshot; its result is `run <id> <digest of the revision>`."""

    def work(progress: Progress) -> str:
        from auditlib.audits.device import settle_threads  # noqa: PLC0415
        from auditlib.runs.execute import AuditRequest, run_audits  # noqa: PLC0415

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
