"""Real server processes, and clients that ask them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from auditlib.runs.package import PackageRequest, package_run
from tests.controlled import write_controlled_revision
from tests.packed import judged_run, policy_of
from tests.small_gpt import write_small_revision

ROOT = Path(__file__).parents[2]
SERVING = {"slots": 2, "queue": 6, "residents": 2}


def pair_of_artifacts(root: Path) -> Path:
    """`artifact`, whose decoder can be told to fail, and `earlier`, its fallback of other weights, in `root`."""
    policy = policy_of(serving=SERVING)
    old = write_small_revision(root / "old", seed=3)
    run = judged_run(root / "runs", old, policy=policy, name="20261130T110000000Z-0a1b2c3d")
    package_run(PackageRequest(run.folder, root / "earlier", root / "old"))
    new = write_controlled_revision(root / "new")
    run = judged_run(root / "runs", new, policy=policy)
    request = PackageRequest(run.folder, root / "artifact", root / "new", fallback=root / "earlier", allow_code=True)
    package_run(request)
    return root


class Server:
    """A process that serves, asked over its port."""

    def __init__(self, process: subprocess.Popen[str], port: int, said: list[str], behaviour: Path) -> None:
        self.process, self.port, self.said, self.behaviour = process, port, said, behaviour

    def ask(self, method: str, path: str, body: Any = None, timeout: float = 20) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read().decode()
            return reply.status, json.loads(text) if "json" in reply.headers["Content-Type"] else text
        finally:
            connection.close()

    def next(self, session: str = "s", events=("opened",), **more: Any) -> tuple[int, Any]:
        return self.ask("POST", "/v1/next", {"session": session, "events": list(events), **more})

    def health(self) -> dict[str, Any]:
        return self.ask("GET", "/health")[1]

    def behave(self, word: str) -> None:
        self.behaviour.write_text(word, encoding="utf-8")

    def wait_for(self, true_of, what: str, seconds: float = 20) -> Any:
        """The health report as soon as `true_of` holds of it."""
        until = time.monotonic() + seconds
        while not true_of(found := self.health()):
            assert time.monotonic() < until, f"{what}: {found}"
            time.sleep(0.02)
        return found

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, "".join(self.said) + out, err


def command(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "auditlib", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


@contextmanager
def serving(root: Path, *arguments: Any):
    """A server of the artifact in `root`, on a port of its own; killed at the end, if it still runs."""
    behaviour = root / "behaviour"
    behaviour.unlink(missing_ok=True)
    listed = command(
        "serve",
        root / "artifact",
        "--fallback",
        root / "earlier",
        "--port",
        0,
        "--allow-code",
        "--json",
        "-",
        *arguments,
    )
    process = subprocess.Popen(
        listed, cwd=root, env=environment(PREFIXGATE_BEHAVIOUR=str(behaviour)), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        first = process.stdout.readline()
        assert first, process.communicate()[1]
        at = json.loads(first)
        assert at["pid"] == process.pid
        yield Server(process, int(at["address"].rpartition(":")[2]), [first], behaviour)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Rows of all parts of a request log."""
    return [row for part in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(part).to_pylist()]
