"""The commands of docs/serving.md, run as printed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq

from auditlib.runs.origins import note_origin
from auditlib.serving.http import STATUS
from tests.packed import judged_run
from tests.small_gpt import write_small_revision

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_the_guide_runs_as_printed(tmp_path):
    revision = write_small_revision(tmp_path / "decoder-1")
    run = judged_run(tmp_path / "runs", revision)
    note_origin(run, SimpleNamespace(revision=revision.folder, store=tmp_path / "desk.duckdb"))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    [block] = re.findall(r"<!-- guide.*?-->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    environment = {**os.environ, "RUN": str(run.folder), "PORT": str(port), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            said, wrong = shell.communicate(timeout=120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # a server must not outlive a page that forgot to end it
    assert shell.returncode == 0, said[-3000:] + wrong[-3000:]
    answer = next(json.loads(line) for line in said.splitlines() if line.startswith('{"request_id"'))
    table = re.findall(r"^\| `(\w+)` \|", PAGE.partition("The answer:")[2].partition("Every answer")[0], re.MULTILINE)
    assert set(answer) == {"request_id", *table}
    assert json.loads((tmp_path / "rehearsal.json").read_bytes())["status"] == "passed"
    assert json.loads((tmp_path / "health.json").read_bytes())["status"] == "ok"
    assert 'prefixgate_requests_total{arm="new",outcome="answered"} 1' in (tmp_path / "metrics.txt").read_text()
    [part] = (tmp_path / "requests").glob("part-*.parquet")
    assert pq.read_table(part)["request_id"].to_pylist() == ["r-1"]
    assert "ended: 1 requests, 1 rows written" in said


def test_the_guide_names_every_code_with_its_status():
    rows = re.findall(r"^\| ([0-9, ]+) \| (.*) \|$", PAGE, re.MULTILINE)
    named = {}
    for statuses, text in rows:
        codes = [code for code in re.findall(r"`([a-zA-Z -]+)`", text) if code != "Retry-After"]
        each = [int(status) for status in statuses.split(",")]
        named |= dict(zip(codes, each if len(each) == len(codes) else each * len(codes), strict=False))
    silent = {"caller left"}  # who left reads no answer
    assert named == {code: status for code, status in {**STATUS, "internal": 500}.items() if code not in silent}
