"""The README's tour, run as printed: on the demo's log, and on real ones where PREFIXGATE_LOGS names their folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REAL = {"uci": "uci-servicenow-incidents.zip", "helpdesk": "helpdesk.xes.gz"}


def block(name: str) -> str:
    """Commands of the README behind the comment that begins with `name`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(rf"<!-- {name}.*?-->\n```sh\n(.*?)```", text, re.DOTALL)[1]


def run_tour(log: Path, folder: Path, commands: str) -> str:
    """What the tour prints, in a folder where `.venv` and the package are found as a reader would find them."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "LOG": str(log), "PASSPHRASE": "a tour's passphrase", "PYTHONPATH": str(ROOT)}
    command = ["bash", "-euo", "pipefail", "-c", commands]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_tour_runs_as_printed_on_the_demos_log(tmp_path):
    said = run_tour(ROOT / "data" / "demo" / "sessions.csv.gz", tmp_path, block("tour") + block("serving"))
    assert "approved:" in said
    assert said.count("result: PASSED") == 2
    assert "compared with: artifact, evidence" in said
    assert (tmp_path / "report.html").stat().st_size < 6e6


@pytest.mark.slow
@pytest.mark.parametrize("log", REAL.values(), ids=list(REAL))
def test_the_tour_runs_as_printed_on_a_real_log(log, tmp_path):
    folder = os.environ.get("PREFIXGATE_LOGS")
    if folder is None:
        pytest.skip(f"set PREFIXGATE_LOGS to the folder that holds {log}")
    said = run_tour(Path(folder) / log, tmp_path, block("tour") + block("serving"))
    assert said.count("result: PASSED") == 2


def test_every_file_that_the_readme_links_to_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
