"""A real server through what servers meet: kills, signals, crowds, clients that leave, and other bytes on its disk."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from auditlib.cli.main import main
from tests.serving.processes import ROOT, environment, pair_of_artifacts, rows_in, serving


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return pair_of_artifacts(tmp_path_factory.mktemp("desk"))


def copied(desk, tmp_path):
    """The same artifacts, to be tampered with."""
    for name in ("artifact", "earlier"):
        shutil.copytree(desk / name, tmp_path / name)
    return tmp_path


def in_background(count, call):
    """Futures of `call(number)`, each in a thread of its own."""
    pool = ThreadPoolExecutor(count)
    futures = [pool.submit(call, number) for number in range(count)]
    pool.shutdown(wait=False)
    return futures


def outcome(future):
    """Status of a call, or the kind of error that its client saw."""
    try:
        return future.result(timeout=60)[0]
    except (OSError, http.client.HTTPException) as problem:
        return type(problem).__name__


@pytest.mark.slow
def test_a_kill_in_mid_batch_loses_only_what_was_under_way_and_a_term_loses_nothing(desk, tmp_path):
    log = tmp_path / "log"
    with serving(desk, "--log", log) as server:
        done = [server.next(f"s{n}", request_id=f"before-{n}")[0] for n in range(12)]
        assert done == [200] * 12
        server.behave("slow")
        calls = in_background(8, lambda n: server.next(f"k{n}", request_id=f"killed-{n}"))
        server.wait_for(lambda found: found["in_flight"] == 8, "8 requests under way")
        server.process.kill()
        assert {outcome(call) for call in calls} <= {"RemoteDisconnected", "ConnectionResetError"}
        server.process.wait(10)
    [journal] = log.glob("journal-*.jsonl")
    with journal.open("ab") as file:
        file.write(b'{"request_id": "torn", "arri')
    with serving(desk, "--log", log) as server:
        assert server.health()["log"]["recovered"] == {"rows": 12, "broken_lines": 1}
        server.behave("slow")
        calls = in_background(6, lambda n: server.next(f"t{n}", request_id=f"drained-{n}"))
        idle = socket.create_connection(("127.0.0.1", server.port))
        server.wait_for(lambda found: found["in_flight"] == 6, "6 requests under way")
        server.process.send_signal(signal.SIGTERM)
        assert [outcome(call) for call in calls] == [200] * 6
        _, err = server.process.communicate(timeout=30)
        idle.close()
        assert (server.process.returncode, err.count("Traceback")) == (0, 0)
        with pytest.raises(ConnectionRefusedError):
            server.next()
    assert not list(log.glob("journal-*"))
    ids = Counter(row["request_id"] for row in rows_in(log))
    assert ids == Counter([*(f"before-{n}" for n in range(12)), *(f"drained-{n}" for n in range(6))])


def test_other_bytes_on_disk_change_no_answer_are_told_and_are_refused_at_the_next_start(desk, tmp_path, capsys):
    root = copied(desk, tmp_path)
    folder = root / "artifact"
    with serving(root) as server:
        before = server.next()[1]
        assert server.health()["on_disk"] == {"artifact": "same", "fallback": "same"}
        weights = folder / "revision" / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        told = server.health()
        assert (told["status"], told["on_disk"]) == ("degraded", {"artifact": "changed", "fallback": "same"})
        assert "artifact on disk is changed" in told["reasons"][0]
        shutil.rmtree(folder)
        assert server.health()["on_disk"]["artifact"] == "missing"
        shutil.copytree(root / "earlier", folder)
        assert server.health()["on_disk"]["artifact"] == "changed"
        after = server.next()[1]
        assert {**after, "request_id": ""} == {**before, "request_id": ""}
    refused = ["serve", str(folder), "--fallback", str(root / "earlier"), "--port", "0", "--allow-code"]
    assert main([*refused, "--digest", before["artifact"]]) == 3  # another one, whole
    shutil.rmtree(folder)
    shutil.copytree(desk / "artifact", folder)
    weights.write_bytes(content)
    assert main(refused) == 3
    assert capsys.readouterr().out == ""


def test_two_hundred_callers_at_once_are_answered_or_told_and_none_is_lost(desk, tmp_path):
    log = tmp_path / "log"
    with serving(desk, "--log", log) as server:
        calls = in_background(200, lambda n: server.next(f"s{n}", request_id=f"r{n}"))
        statuses = Counter(outcome(call) for call in calls)
        assert sum(statuses.values()) == 200
        assert set(statuses) <= {200, 429}
        assert statuses[200] >= 8
        answered = {call.result()[1]["request_id"]: call.result()[1] for call in calls if outcome(call) == 200}
        alone = server.next("later")[1]
        assert all(answer["events"] == alone["events"] for answer in answered.values())
        slow_heads = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for one in slow_heads:
            one.sendall(b"POST /v1/next HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nContent-Type: app")
        assert server.next("beside dawdlers")[0] == 200
        assert server.health()["in_flight"] == 0
        server.behave("slow")
        leaver = socket.create_connection(("127.0.0.1", server.port))
        body = json.dumps({"session": "leaver", "events": ["opened"], "request_id": "leaver"}).encode()
        head = (
            b"POST /v1/next HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        leaver.sendall(head % len(body) + body)
        server.wait_for(lambda found: found["in_flight"] == 1, "the leaver under way")
        leaver.close()
        server.wait_for(lambda found: found["in_flight"] == 0, "the leaver's slot free")
        server.behave("")
        assert server.next("after the leaver")[0] == 200
        for one in slow_heads:
            one.close()
        code, _, err = server.end()
    assert code == 0
    assert "Traceback" not in err
    assert "ended: 204 requests, 204 rows written" in err
    found = {row["request_id"]: row["error"] for row in rows_in(log)}
    assert {name: error for name, error in found.items() if name.startswith("r") and name[1:].isdigit()} == {
        f"r{n}": None if f"r{n}" in answered else "busy" for n in range(200)
    }
    assert found["leaver"] == "caller left"


def test_an_artifact_that_fails_in_service_is_stood_in_for_at_every_request(desk):
    """First its caches are not its own any more, then it does not answer at all."""
    with serving(desk, "--timeout", 2) as server:
        sound = server.next(max_new=3)[1]
        assert (sound["path"], sound["fallback"]) == ("cached", None)
        time.sleep(1.1)  # weights are named anew after a second
        server.behave("other weights")
        replies = [call.result(60) for call in in_background(8, lambda n: server.next(f"s{n}", max_new=3))]
        assert [status for status, _ in replies] == [200] * 8
        assert {(answer["path"], answer["fallback"]) for _, answer in replies} == {("full prefix", "rejected cache")}
        assert {tuple(answer["events"]) for _, answer in replies} == {tuple(sound["events"])}
        told = server.health()
        assert (told["status"], len(told["rejected_caches"])) == ("degraded", 1)
        server.behave("hangs")
        replies = [call.result(60) for call in in_background(8, lambda n: server.next(f"h{n}", max_new=3))]
        replies += [server.next(f"late {n}", max_new=3) for n in range(3)]
        assert [status for status, _ in replies] == [200] * 11
        assert {answer["path"] for _, answer in replies} == {"fallback artifact"}
        assert {answer["artifact"] for _, answer in replies} == {told["fallback"]}
        told = server.health()
        assert (told["status"], len(told["failures"])) == ("degraded", 2)
        assert 'path="fallback artifact"} 11' in server.ask("GET", "/metrics")[1]
        assert server.end()[0] == 0


@pytest.mark.parametrize("sent", ["SIGTERM", "SIGINT"])
def test_a_signal_that_comes_as_soon_as_the_service_listens_ends_it(sent):
    script = (
        "import os, signal, sys\n"
        "from auditlib.serving.server import bind, serve\n"
        "from tests.serving.asking import opened\n"
        "from tests.serving.test_serving_engine import toy\n"
        "service = opened(toy())\n"
        "with bind('127.0.0.1', 0) as bound:\n"
        "    serve(service, bound, listening=lambda: os.kill(os.getpid(), getattr(signal, sys.argv[1])))\n"
        "print('ended, draining', service.draining)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, sent], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "ended, draining True\n"), ended.stderr


def test_a_port_that_is_taken_is_one_message(desk, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(desk / "artifact"), "--port", str(port)]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"port {port}" in said.err
