"""Background jobs: one queue, progress, cancel, and a word about jobs that a restart ended."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from auditlib.errors import InputError, StoreError
from auditlib.web.jobs import JobRegistry, JobState
from auditlib.web.journal import Journal


@pytest.fixture
def registry(tmp_path):
    made = JobRegistry(tmp_path / "jobs")
    yield made
    made.close()


def ended(registry, job_id, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = registry.state(job_id)
        if not state.live:
            return state
        time.sleep(0.01)
    raise AssertionError(f"still {state}")


def waiting(gate):
    """Work that reports until the gate opens."""

    def work(progress):
        while not gate.is_set():
            progress(1, 4, "waiting")
            time.sleep(0.005)
        return "run r1 sha256:aa"

    return work


def test_a_job_gives_its_result_and_what_it_reported_last(registry):
    job = registry.submit("k", "audit", lambda progress: progress(3, 4, "nearly") or "run r1 d")
    state = ended(registry, job.id)
    assert (state.state, state.result, state.share) == ("done", "run r1 d", 1.0)


def test_the_same_key_twice_is_one_job_while_it_lives_and_another_afterwards(registry):
    gate = threading.Event()
    first, second = registry.submit("k", "a", waiting(gate)), registry.submit("k", "a", waiting(gate))
    assert first.id == second.id
    gate.set()
    ended(registry, first.id)
    assert registry.submit("k", "a", waiting(gate)).id != first.id


def test_a_second_job_waits_and_knows_how_many_are_ahead(registry):
    gate = threading.Event()
    registry.submit("a", "a", waiting(gate))
    second = registry.submit("b", "b", waiting(gate))
    state = registry.state(second.id)
    assert (state.state, state.ahead) == ("queued", 1)
    assert [job.title for job in registry.live()] == ["a", "b"]
    gate.set()
    assert ended(registry, second.id).state == "done"


@pytest.mark.parametrize("started", [True, False])
def test_a_cancelled_job_stops_and_leaves_no_result(registry, started):
    gate, before = threading.Event(), threading.Event()
    if not started:
        registry.submit("first", "first", waiting(before))
    job = registry.submit("k", "a", waiting(gate))
    registry.cancel(job.id)
    before.set()
    state = ended(registry, job.id)
    assert (state.state, state.result) == ("cancelled", "")


def test_a_waiting_job_that_was_cancelled_is_at_once_and_started_again_it_runs(registry):
    gate, ran = threading.Event(), []
    registry.submit("first", "first", waiting(gate))
    job = registry.submit("k", "a", lambda _: ran.append("old") or "run x y")
    registry.cancel(job.id)
    assert registry.state(job.id).state == "cancelled"
    assert [found.title for found in registry.live()] == ["first"]
    # A restart before its turn: the journal knows what became of it already.
    assert registry._remembered(job.id).state == "cancelled"
    again = registry.submit("k", "a", lambda _: ran.append("new") or "run x y")
    assert again.id != job.id
    gate.set()
    assert ended(registry, again.id).state == "done"
    assert ran == ["new"]
    assert registry.state(job.id).state == "cancelled"


def test_a_running_job_that_was_told_to_stop_is_not_given_back_to_whoever_starts_it_again(registry):
    begun, gate = threading.Event(), threading.Event()

    def silent(progress):
        begun.set()
        gate.wait(20)
        progress(1, 1, "")
        return "run x y"

    job = registry.submit("k", "a", silent)
    assert begun.wait(20)
    registry.cancel(job.id)
    again = registry.submit("k", "a", silent)
    gate.set()
    assert ended(registry, job.id).state == "cancelled"
    assert ended(registry, again.id).state == "done"


def test_a_job_that_cannot_be_noted_is_refused_and_blocks_nothing(tmp_path):
    (tmp_path / "jobs").write_text("stands for a disk that is full")
    registry = JobRegistry(tmp_path / "jobs")
    with pytest.raises(InputError, match="not started"):
        registry.submit("k", "a", lambda _: "run x y")
    assert registry.live() == ()
    (tmp_path / "jobs").unlink()
    assert ended(registry, registry.submit("k", "a", lambda _: "run x y").id).state == "done"
    registry.close()


def test_the_newest_job_of_a_key_is_known_after_its_end(registry):
    assert registry.newest("k") is None
    first = registry.submit("k", "a", lambda _: "run x y")
    ended(registry, first.id)
    assert registry.newest("k").id == first.id
    second = registry.submit("k", "a", lambda _: "run x y")
    assert registry.newest("k").id == second.id
    assert registry.newest("other") is None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (StoreError("no store at x; import one"), "no store at x; import one"),
        (ZeroDivisionError("odd"), "ZeroDivisionError: odd"),
    ],
)
def test_a_job_that_raises_says_why(registry, capsys, fault, words):
    def work(_progress):
        raise fault

    state = ended(registry, registry.submit("k", "a", work).id)
    assert (state.state, state.error) == ("failed", words)
    assert ("Traceback" in capsys.readouterr().err) == isinstance(fault, ZeroDivisionError)


@pytest.mark.parametrize("left_as", ["queued", "running"])
def test_after_a_restart_an_unfinished_job_is_called_interrupted_not_running(tmp_path, left_as):
    Journal(tmp_path / "jobs").write("0123456789ab", {"title": "audit of x", "state": left_as})
    state = JobRegistry(tmp_path / "jobs").state("0123456789ab")
    assert (state.state, state.title, state.live) == ("interrupted", "audit of x", False)


def test_after_a_restart_a_finished_job_still_names_its_run(tmp_path):
    before = JobRegistry(tmp_path / "jobs")
    job = before.submit("k", "audit", lambda _progress: "run r1 d")
    ended(before, job.id)
    before.close()
    deadline = time.monotonic() + 10
    while JobRegistry(tmp_path / "jobs").state(job.id).state != "done" and time.monotonic() < deadline:
        time.sleep(0.01)  # the journal is written just after the state is set
    assert JobRegistry(tmp_path / "jobs").state(job.id).result == "run r1 d"


@pytest.mark.parametrize("job_id", ["", "../../etc/passwd", "0123456789AB", "0123456789ab0", "ffffffffffff", "\x00"])
def test_an_id_that_no_job_has_is_unknown_and_never_a_path(registry, job_id):
    assert registry.state(job_id) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"title": 1}', b"\xff"])
def test_a_damaged_record_is_as_good_as_none(tmp_path, content):
    (tmp_path / "0123456789ab.json").write_bytes(content)
    assert Journal(tmp_path).read("0123456789ab") is None


def test_the_journal_keeps_the_newest_records_only(tmp_path):
    journal = Journal(tmp_path)
    for number in range(210):
        journal.write(f"{number:012x}", {"title": "t", "state": "done"})
    assert len(list(tmp_path.glob("*.json"))) == 200
    assert journal.read(f"{209:012x}") is not None


@pytest.mark.parametrize(
    ("done", "total", "left"), [(1, 4, 30.0), (0, 4, None), (1, 1000, None), (0, 0, None), (4, 4, 0.0)]
)
def test_time_left_is_told_only_when_there_is_something_to_tell_it_from(done, total, left):
    state = JobState("0" * 12, "t", "k", "running", done, total, started=time.time() - 10, ended=time.time())
    assert state.left == (None if left is None else pytest.approx(left, abs=0.5))


def test_closing_stops_what_runs_and_what_waits(tmp_path):
    registry = JobRegistry(tmp_path / "jobs")
    jobs = [registry.submit(str(n), "t", waiting(threading.Event())) for n in range(2)]
    registry.close()
    deadline = time.monotonic() + 10
    while registry.state(jobs[0].id).live and time.monotonic() < deadline:
        time.sleep(0.01)
    assert registry.state(jobs[0].id).state == "cancelled"


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")
def test_a_job_steps_back_behind_the_pages(registry):
    found = []

    def priority():
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    job = registry.submit("key", "title", lambda _: found.append(priority()) or "run x y")
    assert ended(registry, job.id).state == "done"
    assert found[0] > priority()
