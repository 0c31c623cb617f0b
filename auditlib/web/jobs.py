"""Long work in the background. No Streamlit here: a worker thread must never need a browser session.

A job lives in this process; what it leaves behind is a run folder. A small journal on disk lets a restarted server say
what became of a job that somebody still has a link to.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from auditlib.errors import CancelledError, InputError, PrefixgateError
from auditlib.progress import Progress
from auditlib.web.journal import Journal

Work = Callable[[Progress], str]
"""What a job does: it reports progress and gives back the name of what it made (a run, a snapshot, …)."""

LIVE = ("queued", "running")
_SWITCH, _NICE = 0.0005, 10
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class JobState:
    """Where a job stands at one moment. `state`: queued, running, done, failed, cancelled, interrupted."""

    id: str
    title: str
    key: str
    state: str = "queued"
    done: int = 0
    total: int = 0
    note: str = ""
    result: str = ""
    error: str = ""
    started: float | None = None
    ended: float | None = None
    ahead: int = 0

    @property
    def live(self) -> bool:
        """Whether the job may still change."""
        return self.state in LIVE

    @property
    def share(self) -> float:
        """Share done, between 0 and 1."""
        return min(max(self.done / self.total, 0.0), 1.0) if self.total > 0 else 0.0

    @property
    def seconds(self) -> float:
        """Seconds of work so far, waiting not included."""
        if self.started is None:
            return 0.0
        return (time.time() if self.ended is None else self.ended) - self.started

    @property
    def left(self) -> float | None:
        """Seconds left by extrapolation; None while too little is done to tell."""
        return self.seconds * (1 - self.share) / self.share if self.state == "running" and self.share > 0.02 else None


@dataclass
class _Job:
    """A job with its switch; `state` is replaced under the registry's lock, never changed."""

    state: JobState
    work: Work
    stop: threading.Event = field(default_factory=threading.Event)


def _let_pages_go_first() -> None:
    """Lower the priority of a worker's thread, and let the interpreter change threads sooner than every 5 ms.

    A page hands over between threads dozens of times, and would wait for a busy worker each time.
    """
    sys.setswitchinterval(_SWITCH)
    if sys.platform == "linux":  # elsewhere priorities belong to processes
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class JobRegistry:
    """All jobs of this server: one queue, `workers` at a time, the same key never twice at once."""

    def __init__(self, journal: Path, workers: int = 1) -> None:
        self._journal = Journal(journal)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="job", initializer=_let_pages_go_first)
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._door = threading.Lock()

    def submit(self, key: str, title: str, work: Work) -> JobState:
        """Queue `work`; while a job of the same `key` is queued or running, that one is given back instead.

        One that was told to stop is not given back. InputError, with nothing queued, where the journal takes no record.
        """
        # Not the lock of the states: no page waits while a disk writes.
        with self._door:
            if (under_way := self._under_way(key)) is not None:
                return under_way
            job = _Job(JobState(uuid.uuid4().hex[:12], title, key), work)
            # Before anybody can find the job: one that is known and never runs would keep its key for ever.
            try:
                self._note(job.state)
            except OSError as problem:
                raise InputError(f"{title}: not started, because it cannot be noted down: {problem}") from problem
            with self._lock:
                self._jobs[job.state.id] = job
            self._pool.submit(self._run, job)
        return job.state

    def newest(self, key: str) -> JobState | None:
        """The job of this `key` that came last, live or ended; None when this server had none."""
        with self._lock:
            found = [job.state for job in self._jobs.values() if job.state.key == key]
        return found[-1] if found else None

    def state(self, job_id: str) -> JobState | None:
        """State of a job, from memory or else from the journal; None when neither knows it.

        A job that the journal holds as unfinished, and that is not in memory, ended with the server that ran it.
        """
        if not _ID.fullmatch(job_id):
            return None
        with self._lock:
            if job := self._jobs.get(job_id):
                return replace(job.state, ahead=self._ahead(job))
        return self._remembered(job_id)

    def live(self) -> tuple[JobState, ...]:
        """Jobs that are queued or running, oldest first."""
        with self._lock:
            return tuple(replace(job.state, ahead=self._ahead(job)) for job in self._jobs.values() if job.state.live)

    def cancel(self, job_id: str) -> None:
        """Ask a job to stop at its next report of progress; one that still waits is cancelled at once."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None:
                return
            job.stop.set()
            if job.state.state != "queued":
                return
            job.state = cancelled = replace(job.state, state="cancelled", ended=time.time())
        # At once: its turn may come hours later, or never, and the journal would say that a restart ended it.
        with contextlib.suppress(OSError):  # tried again at its turn
            self._note(cancelled)

    def close(self) -> None:
        """Stop everything: running jobs at their next report, waiting ones at once."""
        with self._lock:
            for job in self._jobs.values():
                job.stop.set()
        # Nobody waits: the server is going down, and a run that is not finished leaves nothing behind.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _under_way(self, key: str) -> JobState | None:
        """The job of this key that is queued or running and was not told to stop."""
        with self._lock:
            jobs = [job for job in self._jobs.values() if job.state.live and not job.stop.is_set()]
            return next((job.state for job in jobs if job.state.key == key), None)

    def _note(self, state: JobState) -> None:
        """Put down in the journal where a job stands."""
        record = {"title": state.title, "state": state.state, "result": state.result, "error": state.error}
        self._journal.write(state.id, record)

    def _ahead(self, job: _Job) -> int:
        """How many jobs must end before this one starts."""
        if job.state.state != "queued":
            return 0
        earlier = list(self._jobs.values())
        return sum(other.state.live for other in earlier[: earlier.index(job)])

    def _remembered(self, job_id: str) -> JobState | None:
        """State from the journal, with unfinished work called interrupted."""
        record = self._journal.read(job_id)
        if record is None:
            return None
        state = "interrupted" if record["state"] in LIVE else record["state"]
        return JobState(
            job_id, record["title"], "", state, result=record.get("result", ""), error=record.get("error", "")
        )

    def _run(self, job: _Job) -> None:
        """Do the work on a worker thread; whatever it raises ends in the job's state."""
        try:
            self._begin(job)
            result = job.work(lambda done, total, note: self._report(job, done, total, note))
            self._change(job, state="done", result=result, done=1, total=1, ended=time.time())
        except CancelledError:
            self._change(job, state="cancelled", ended=time.time())
        except PrefixgateError as refusal:
            self._change(job, state="failed", error=str(refusal), ended=time.time())
        except Exception as fault:  # noqa: BLE001  the browser is told the kind; the server's log has the rest
            traceback.print_exc(file=sys.stderr)
            self._change(job, state="failed", error=f"{type(fault).__name__}: {fault}", ended=time.time())
        finally:
            self._note(job.state)

    def _begin(self, job: _Job) -> None:
        """Let a job run, unless somebody cancelled it while it waited: in one step, so that none is begun anew."""
        with self._lock:
            if job.stop.is_set():
                raise CancelledError("cancelled in the browser before it began; nothing was written")
            job.state = replace(job.state, state="running", started=time.time())

    def _report(self, job: _Job, done: int, total: int, note: str) -> None:
        """Note progress, and stop the work here when somebody asked for it."""
        self._change(job, done=done, total=total, note=note)
        if job.stop.is_set():
            raise CancelledError("cancelled in the browser; nothing was written")

    def _change(self, job: _Job, **changes: object) -> None:
        """Replace the job's state by one with these `changes`."""
        with self._lock:
            job.state = replace(job.state, **changes)  # type: ignore[arg-type]
