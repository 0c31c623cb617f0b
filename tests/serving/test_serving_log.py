"""No row is lost to a kill, none is there twice, and half a line is counted, not believed."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditlib.errors import InputError
from auditlib.serving import request_log
from auditlib.serving.arms import Arms, Stage, takes_new
from auditlib.serving.request import Request
from auditlib.serving.request_log import RequestLog
from auditlib.serving.routes import Label
from auditlib.serving.service import Service
from tests.serving.rows import a_row
from tests.serving.test_serving_engine import requests_for, toy
from tests.serving.test_serving_service import Gated

ROOT = Path(__file__).parents[2]


def kept(folder: Path) -> list[str]:
    return sorted(
        name for part in folder.glob("part-*.parquet") for name in pq.read_table(part)["request_id"].to_pylist()
    )


def test_rows_come_back_in_parts_and_no_journal_stays(tmp_path):
    with RequestLog(tmp_path, rows_a_part=10) as log:
        for number in range(25):
            log.keep(a_row(number))
        assert len(kept(tmp_path)) == 20
    assert kept(tmp_path) == sorted(f"r{number}" for number in range(25))
    assert not list(tmp_path.glob("journal-*"))


def test_two_writers_share_a_folder_and_neither_takes_the_others_journal(tmp_path):
    with RequestLog(tmp_path) as one, RequestLog(tmp_path) as other:
        one.keep(a_row(1))
        other.keep(a_row(2))
        assert other.recovered.rows == 0
    assert kept(tmp_path) == ["r1", "r2"]


def test_what_a_killed_writer_left_is_saved(tmp_path):
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests.serving.rows import a_row\n"
        "from auditlib.serving.request_log import RequestLog\n"
        "log = RequestLog(Path(sys.argv[1]))\n"
        "[log.keep(a_row(number)) for number in range(7)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-c", script, tmp_path], cwd=ROOT, env=paths, check=False)
    assert ended.returncode == -signal.SIGKILL
    with RequestLog(tmp_path) as log:
        assert (log.recovered.rows, log.recovered.broken) == (7, 0)
    assert kept(tmp_path) == [f"r{number}" for number in range(7)]


@pytest.mark.parametrize("torn", [b'{"request_id": "r9", "arr', b"[]\n", b"\xff\xfe\n", b'{"other": 1}\n'])
def test_half_a_line_is_counted_and_not_believed(tmp_path, torn):
    lines = [json.dumps(asdict(a_row(number))).encode() + b"\n" for number in range(3)]
    (tmp_path / "journal-1-abandoned.jsonl").write_bytes(b"".join(lines) + torn)
    with RequestLog(tmp_path) as log:
        assert (log.recovered.rows, log.recovered.broken) == (3, 1)
    assert kept(tmp_path) == ["r0", "r1", "r2"]


WRONG = [
    {"arrival": "x"}, {"arrival": None}, {"arrival": 10**30}, {"prefix_length": 1.5}, {"prefix_length": True},
    {"valid": "yes"}, {"valid": 1}, {"request_id": 5}, {"request_id": "\ud800"}, {"margin": "1"}, {"margin": [1.0]},
    {"margin": 10**400}, {"cache": None},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{next(iter(wrong))} {str(wrong)[:40]!a}")
def test_a_line_with_a_value_of_another_type_is_broken_and_stops_no_start(wrong, tmp_path):
    lines = [asdict(a_row(0)), {**asdict(a_row(1)), **wrong}, asdict(a_row(2))]
    (tmp_path / "journal-1-abandoned.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with RequestLog(tmp_path) as log:
        assert (log.recovered.rows, log.recovered.broken) == (2, 1)
        with pytest.raises(ValueError, match="its column's type"):
            log.keep(replace(a_row(3), **wrong))
        log.keep(a_row(4))
    assert kept(tmp_path) == ["r0", "r2", "r4"]
    assert not list(tmp_path.glob("journal-*"))


def test_every_value_that_a_column_takes_is_taken(tmp_path):
    full = replace(
        a_row(0), shadow_events_digest="d", first_differing_step=0, margin=1, largest_logit_gap=0.5, cache_bytes=2**40,
        fallback="\u00e9", rule="r", arrival=-(2**63),
    )  # fmt: skip
    empty = replace(a_row(1), **dict.fromkeys(("start", "first_event", "stop", "valid", "events_digest")))
    with RequestLog(tmp_path) as log:
        log.keep(full)
        log.keep(empty)
    assert kept(tmp_path) == ["r0", "r1"]


def test_of_two_services_that_start_at_once_both_start_and_one_saves_what_was_left(tmp_path, monkeypatch):
    (tmp_path / "journal-1-abandoned.jsonl").write_text(json.dumps(asdict(a_row(1))) + "\n")
    write, others = request_log._write_part, []

    def slow(*arguments):
        if not others:
            others.append(None)
            others[0] = RequestLog(tmp_path)  # while the first writes its part
        write(*arguments)

    monkeypatch.setattr(request_log, "_write_part", slow)
    with RequestLog(tmp_path) as first, others[0] as second:
        assert (first.recovered.rows, second.recovered.rows) == (1, 0)
    assert kept(tmp_path) == ["r1"]


def test_a_journal_that_another_service_has_just_saved_is_passed_by(tmp_path, monkeypatch):
    journal = tmp_path / "journal-1-abandoned.jsonl"
    journal.write_text(json.dumps(asdict(a_row(1))) + "\n")
    lock = fcntl.flock

    def late(file, how):
        journal.unlink(missing_ok=True)  # between the opening of the file and its lock
        lock(file, how)

    monkeypatch.setattr(request_log.fcntl, "flock", late)
    with RequestLog(tmp_path) as log:
        assert (log.recovered.rows, log.recovered.broken) == (0, 0)
    assert kept(tmp_path) == []


def test_a_kill_between_part_and_journal_leaves_no_row_twice(tmp_path, monkeypatch):
    log = RequestLog(tmp_path)
    for number in range(3):
        log.keep(a_row(number))
    journal = next(tmp_path.glob("journal-*"))
    content = journal.read_bytes()
    log.close()
    journal.write_bytes(content)  # as if the process had died before it removed the journal
    RequestLog(tmp_path).close()
    assert kept(tmp_path) == ["r0", "r1", "r2"]


STAGES = {
    "shadow": Stage("shadow", 0.0, shadow=True),
    "canary 25": Stage("canary 25", 0.25),
    "released": Stage("r", 1.0),
}


@pytest.mark.parametrize("name", STAGES)
def test_each_request_is_answered_by_its_arm_and_rows_say_which(name):
    stage, rows = STAGES[name], []
    served = toy(queue=500)
    requests = [one.request for one in requests_for(served, 80)]

    async def run():
        new = Service(served, keep=rows.append, label=Label("new", name))
        old = Service(served, keep=rows.append, label=Label("fallback", name))
        async with Arms(new, old, stage) as arms:
            await asyncio.gather(*(arms.answer(request) for request in requests))

    asyncio.run(run())
    by_arm = {arm: {row.request_id for row in rows if row.arm == arm} for arm in ("new", "fallback")}
    everyone = {request.request_id for request in requests}
    if stage.shadow:
        assert by_arm == {"new": everyone, "fallback": everyone}
    else:
        assert by_arm["new"] == {name for name in everyone if takes_new(name, stage.share)}
        assert by_arm["fallback"] == everyone - by_arm["new"]


@pytest.mark.parametrize("slower", ["new", "fallback"])
def test_a_caller_who_asks_again_under_its_id_in_shadow_makes_no_error_of_either_arm(slower):
    rows, gate = [], Gated("extend")
    request = Request("s", ("c",), {}, 5, "r")

    async def run():
        new, old = (
            Service(toy(decoder=gate) if arm == slower else toy(), keep=rows.append, label=Label(arm, "shadow"))
            for arm in ("new", "fallback")
        )
        async with Arms(new, old, STAGES["shadow"]) as arms:
            first = asyncio.create_task(arms.answer(request))
            quick = new if slower == "fallback" else old
            while not gate.reached.is_set() or quick.calls or not rows:
                await asyncio.wait([first], timeout=0.01)  # until the quicker arm is done and the slower one is not
            again = await asyncio.gather(arms.answer(request), return_exceptions=True)
            gate.gate.set()
            await first
            return again[0], new.counts.refused, old.counts.refused

    again, *refused = asyncio.run(run())
    assert [row.error for row in rows] == [None] * len(rows)
    told = {arm: sum(row.arm == arm for row in rows) for arm in ("new", "fallback")}
    if slower == "new":
        assert (again.request_id, told) == ("r", {"new": 1, "fallback": 2})
        assert refused == [{}, {}]  # it was not even asked to listen
    else:
        assert (again.code, told) == ("duplicate", {"new": 1, "fallback": 1})


def test_shares_are_kept_on_the_whole_and_grow_into_each_other():
    names = [f"request {number}" for number in range(4000)]
    chosen = {share: {name for name in names if takes_new(name, share)} for share in (0.05, 0.25, 0.5)}
    for share, found in chosen.items():
        assert abs(len(found) / 4000 - share) < 0.03
    assert chosen[0.05] < chosen[0.25] < chosen[0.5]


@pytest.mark.parametrize(("share", "shadow"), [(-0.1, False), (1.5, False), (0.5, True), (float("nan"), False)])
def test_a_stage_that_makes_no_sense_is_refused(share, shadow):
    with pytest.raises(InputError, match="share"):
        Stage("s", share, shadow)
