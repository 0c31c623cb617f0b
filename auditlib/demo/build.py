"""Makes the demo on this machine: a store from the shipped log, and the faulty revision's refusal."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from auditlib.decoders.revision import open_revision
from auditlib.demo.places import SHIPPED, Demo, demo_under
from auditlib.errors import PrefixgateError
from auditlib.progress import Progress, part, silent
from auditlib.runs.execute import run_audits
from auditlib.runs.folder import list_runs
from auditlib.runs.request import AuditRequest
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore

ATTRIBUTES = ("contract",)
SPLIT_BY = ("session", "customer", "asset")
SPLIT_SEED = 7


def find_demo(home: Path) -> Demo | None:
    """The demo under `home` when its store is there and the faulty revision as it ships has a run; else None."""
    demo = demo_under(home)
    if not demo.store.is_file():
        return None
    try:
        faulty = open_revision(demo.faulty).digest
        refused = any(run.revision == faulty for run in list_runs(demo.runs))
    except PrefixgateError:
        return None
    return demo if refused else None


def ensure_demo(home: Path, progress: Progress = silent) -> Demo:
    """The demo under `home`, made where it is not there yet. Two callers at once make it once."""
    with _alone(home / "demo"):
        found = find_demo(home)
        return found if found is not None else _make(home, progress)


def fill_store(store: Path, progress: Progress = silent) -> None:
    """Import the shipped log into a new store and freeze its split; the same snapshot on every machine."""
    columns = {"session": "session_id", "event": "event", "time": "timestamp"}
    mapping = {**columns, "customer": "customer", "asset": "asset", "attributes": ATTRIBUTES}
    import_log(SHIPPED / "sessions.csv.gz", store, mapping=mapping, progress=progress)
    with SessionStore.open(store, read_only=False) as opened:
        split(opened, by=SPLIT_BY, held_out=0.2, seed=SPLIT_SEED)


def _make(home: Path, progress: Progress) -> Demo:
    """Build what is missing of the demo."""
    demo = demo_under(home)
    if not demo.store.is_file():
        fill_store(demo.store, part(progress, 0.0, 0.2, "event log"))
    with SessionStore.open(demo.store, read_only=False) as store:
        known = {revision.digest for revision in store.revisions()}
        for folder in (demo.sound, demo.faulty):
            revision = open_revision(folder)
            if revision.digest not in known:
                store.add_revision(revision.manifest.name, folder, revision.digest)
    run_audits(AuditRequest(demo.store, demo.faulty, demo.runs), part(progress, 0.2, 1.0, "audits"))
    return demo


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the demo's folder for this process; others wait. The lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
