"""What fails around a service: its disk, its clock, its artifact. No answer is wrong, and no loss goes untold."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from auditlib.errors import InputError
from auditlib.serving.arms import Stage, takes_new
from auditlib.serving.engine import Engine
from auditlib.serving.keeping import Keeper
from auditlib.serving.moments import Clock
from auditlib.serving.opening import ServiceOptions, open_service
from auditlib.serving.planted_failures import FAILURES, planted
from auditlib.serving.request_log import RequestLog
from tests.doubles import ToyDecoder
from tests.serving.asking import call, opened, post, question, with_app
from tests.serving.processes import rows_in
from tests.serving.rows import a_row
from tests.serving.test_serving_engine import MAP, alone, requests_for, toy

END = MAP.end
EARLIER = replace(toy(), digest="sha256:earlier", decoder=ToyDecoder(MAP.size, 14, seed=4))
HALF = Stage("canary 50", 0.5)


def names(served, one):
    return [MAP.name(event) for event in alone(served, one).events if event != END]


# -- the disk ------------------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size):
    """A disk that takes `size` bytes a file, and then half of what it is given, as a full one does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_in_the_middle_of_a_row_costs_that_row_and_no_other(tmp_path):
    log = RequestLog(tmp_path)
    log.keep(a_row(0))
    [journal] = tmp_path.glob("journal-*")
    line = journal.stat().st_size
    with files_of_at_most(line + line // 2), pytest.raises(OSError, match=r"space|large"):
        log.keep(a_row(1))
    assert journal.stat().st_size == line
    log.keep(a_row(2))
    assert journal.read_bytes().count(b"\n") == 2
    log.close()
    assert [row["request_id"] for row in rows_in(tmp_path)] == ["r0", "r2"]


@pytest.mark.parametrize("broken", ["_write_part", "_opened"])
def test_a_part_that_cannot_be_written_leaves_its_rows_in_the_journal_and_overwrites_no_other(
    broken, tmp_path, monkeypatch
):
    log = RequestLog(tmp_path, rows_a_part=3)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        if broken == "_opened":
            patched.setattr(log, broken, full)
        else:
            patched.setattr(f"auditlib.serving.request_log.{broken}", full)
        for number in range(5):
            log.keep(a_row(number))
        assert not list(tmp_path.glob("part-*"))
        assert len(list(tmp_path.glob("journal-*"))) == 1
    for number in range(5, 11):
        log.keep(a_row(number))
    log.close()
    assert sorted(row["request_id"] for row in rows_in(tmp_path)) == sorted(f"r{number}" for number in range(11))
    assert len(list(tmp_path.glob("part-*"))) > 1


class Full(RequestLog):
    """A log on a disk that is full while `full` says so."""

    full = False

    def keep(self, row):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().keep(row)


def test_without_a_rollout_answers_go_on_when_the_log_is_full_and_the_loss_is_told(tmp_path):
    log = Full(tmp_path)
    requests = requests_for(toy(), 12)
    service = opened(toy(), log=log)

    async def script(app):
        found = []
        for number, one in enumerate(requests):
            log.full = 4 <= number < 9
            found.append(await post(app, question(one)))
            if number == 8:
                found.append(await call(app))
        return found, await call(app), (await call(app, path="/metrics")).body.decode()

    replies, after, metrics = with_app(lambda: service, script)
    told = replies.pop(9)
    assert [reply.status for reply in replies] == [200] * 12
    assert (told.status, told.document["status"], told.document["log"]["lost"]) == (200, "degraded", 5)
    assert "cannot be written (No space left on device)" in told.document["reasons"][0]
    assert after.document["reasons"] == ["5 rows of the request log were lost"]
    assert "prefixgate_log_rows_lost_total 5" in metrics
    assert len(rows_in(tmp_path)) == 7


@pytest.mark.parametrize("shadow", [False, True])
def test_a_rollout_that_loses_a_row_leaves_everything_to_its_fallback_for_good(shadow, tmp_path):
    log = Full(tmp_path)
    stage = Stage("shadow", 0.0, shadow=True) if shadow else HALF
    requests = requests_for(toy(), 40)
    service = opened(toy(), EARLIER, stage=stage, log=log)

    async def script(app):
        before = [await post(app, question(one)) for one in requests[:15]]
        log.full = True
        during = [await post(app, question(one)) for one in requests[15:30]]
        log.full = False
        after = [await post(app, question(one)) for one in requests[30:]]
        return before, during, after, (await call(app)).document

    before, during, after, health = with_app(lambda: service, script)
    expected = {
        True: {"sha256:earlier"},
        False: {"sha256:earlier", "sha256:toy"},
    }[shadow]
    assert {reply.document["artifact"] for reply in before} == expected
    assert {reply.document["artifact"] for reply in (*during, *after)} == {"sha256:earlier"}
    for one, reply in zip(requests[15:], (*during, *after), strict=True):
        assert (reply.status, reply.document["events"]) == (200, names(EARLIER, one))
    assert (health["status"], health["stage"]["new_arm"]) == ("degraded", "closed")
    assert any("the new arm is closed" in reason for reason in health["reasons"])
    rows = rows_in(tmp_path)
    if not shadow:
        assert len({row["request_id"] for row in rows}) == len(rows)  # no request has a row of both arms
    late = [row for row in rows if row["request_id"] in {one.request.request_id for one in requests[30:]}]
    assert {row["arm"] for row in late} == {"fallback"}
    assert len(late) == 10


class LosesOne(RequestLog):
    """A log on a disk that is full for one row of the new arm, and never again."""

    lost = False

    def keep(self, row):
        if row.arm == "new" and not self.lost:
            self.lost = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().keep(row)


@pytest.mark.parametrize(
    ("stage", "compare"), [(HALF, 1.0), (Stage("shadow", 0.0, shadow=True), 0.0)], ids=["compared", "shadow"]
)
def test_a_row_lost_behind_an_answer_closes_the_new_arm_though_the_next_one_was_written(stage, compare, tmp_path):
    new = [one for one in requests_for(toy(), 60) if takes_new(one.request.request_id, 0.5)]
    service = opened(toy(), EARLIER, stage=stage, log=LosesOne(tmp_path), compare=compare)

    def until_all_is_told():
        while service.keeper.written + service.keeper.lost < (12 if stage.shadow else 6):
            time.sleep(0.01)

    async def script(app):
        await asyncio.gather(*(post(app, question(one)) for one in new[:6]))
        await asyncio.to_thread(until_all_is_told)
        assert service.keeper.lost == 1
        return (await call(app)).document, [await post(app, question(one)) for one in new[6:12]]

    health, after = with_app(lambda: service, script)
    assert service.keeper.failure is None  # the newest row was written
    assert (health["status"], health["stage"]["new_arm"]) == ("degraded", "closed")
    assert any("until a restart: the request log cannot be written" in reason for reason in health["reasons"])
    assert {reply.document["artifact"] for reply in after} == {"sha256:earlier"}


def test_a_row_that_no_column_takes_is_counted_as_lost_and_troubles_nobody(tmp_path):
    keeper = Keeper(RequestLog(tmp_path))
    keeper.keep(replace(a_row(0), margin=float("nan")))
    keeper.keep(replace(a_row(1), cache_bytes=object()))
    keeper.keep(a_row(2))
    keeper.close()
    assert (keeper.lost, keeper.written, keeper.has_no_row("r1")) == (2, 1, True)
    assert [row["request_id"] for row in rows_in(tmp_path)] == ["r2"]


def test_a_canary_gives_each_request_to_the_arm_of_its_id(tmp_path):
    requests = requests_for(toy(), 30)
    service = opened(toy(), EARLIER, stage=HALF, log=RequestLog(tmp_path))

    async def script(app):
        return [await post(app, question(one)) for one in requests], (await call(app)).document

    replies, health = with_app(lambda: service, script)
    for one, reply in zip(requests, replies, strict=True):
        new = takes_new(one.request.request_id, 0.5)
        assert reply.document["artifact"] == ("sha256:toy" if new else "sha256:earlier")
    assert (health["status"], health["artifact"], set(health["arms"])) == ("ok", "sha256:toy", {"new", "fallback"})
    assert {row["stage"] for row in rows_in(tmp_path)} == {"canary 50"}


@pytest.mark.parametrize("wrong", ["a file", "below a file", "read-only"])
def test_a_log_folder_that_cannot_be_written_is_refused_before_anything_is_served(wrong, shelf, tmp_path, monkeypatch):
    folder = tmp_path / "log"
    if wrong == "read-only":  # whoever runs the tests may be root, whom no permission stops

        def denied(*_, **__):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr("io.FileIO", denied)
    else:
        folder.write_text("not a folder")
        folder = folder / "inside" if wrong == "below a file" else folder
    with pytest.raises(InputError, match="no request log can be written there"):
        open_service(shelf / "lone", None, ServiceOptions(log=folder))


# -- the clock -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_gives_no_request_that_ends_before_it_began(jump, tmp_path):
    shift = [0.0]
    clock = Clock(wall=lambda: time.time() + shift[0])
    service = opened(toy(), log=RequestLog(tmp_path), clock=clock)
    began = time.time() * 1e6

    async def script(app):
        for number, one in enumerate(requests_for(toy(), 20)):
            shift[0] = jump * (number % 3)
            assert (await post(app, question(one))).status == 200
        return

    with_app(lambda: service, script)
    rows = rows_in(tmp_path)
    arrivals = [row["arrival"] for row in rows]
    assert arrivals == sorted(arrivals)
    for row in rows:
        assert row["arrival"] <= row["start"] <= row["first_event"] <= row["end"]
        assert abs(row["arrival"].timestamp() * 1e6 - began) < 600e6
    assert service.keeper.tally.whole["new"].total < 60


# -- the artifact --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["cached", "full prefix"])
@pytest.mark.parametrize("failure", FAILURES)
def test_the_old_artifact_answers_every_request_over_http_however_the_new_one_fails(failure, strategy, tmp_path):
    served = toy(strategy=strategy)
    released = threading.Event()
    kind = planted(failure, released, [])

    def make(what, *, cached):
        return (kind if what is served else Engine)(what, cached=cached)

    requests = requests_for(served, 24)
    service = opened(served, EARLIER, log=RequestLog(tmp_path), make=make, timeout=0.5 if "hang" in failure else 20.0)

    async def script(app):
        try:
            return await asyncio.gather(*(post(app, question(one)) for one in requests)), (await call(app)).document
        finally:
            released.set()

    replies, health = with_app(lambda: service, script)
    by_fallback = 0
    for one, reply in zip(requests, replies, strict=True):
        assert reply.status == 200
        answer = reply.document
        fell_back = answer["path"] == "fallback artifact"
        by_fallback += fell_back
        assert answer["artifact"] == ("sha256:earlier" if fell_back else "sha256:toy")
        assert answer["events"] == names(EARLIER if fell_back else served, one)
    if failure == "cache is rejected":
        assert by_fallback == 0
        assert len(health["rejected_caches"]) == (strategy == "cached")
    else:
        assert by_fallback > 0
    assert len(rows_in(tmp_path)) == 24


@pytest.mark.parametrize(
    ("failure", "status", "code"), [("engine raises", 503, "nothing serves"), ("engine hangs", 504, "time-out")]
)
def test_without_anything_behind_it_a_failure_is_an_error_and_a_supervisor_is_told(failure, status, code):
    released = threading.Event()
    kind = type("AtOnce", (planted(failure, released, []),), {"_steps": 9})
    service = opened(toy(strategy="full prefix"), make=kind, timeout=0.3 if "hang" in failure else 20.0)

    async def script(app):
        try:
            first = [await post(app, {"session": "s", "events": ["c"]}) for _ in range(3)]
            return first, await call(app), await call(app, path="/ready")
        finally:
            released.set()

    replies, health, ready = with_app(lambda: service, script)
    assert [(reply.status, reply.document["error"]) for reply in replies] == [(status, code)] * 3
    assert "planted" not in "".join(reply.document["message"] for reply in replies)
    assert (health.status, health.document["status"], ready.status) == (503, "failed", 503)
