"""Counterexamples leave a run as files, and come back through the command line and the script beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auditlib.audits.counterexample import Case, Side, Step, alone
from auditlib.cli.main import main
from auditlib.demo.places import FAULTY, SHIPPED, SOUND
from auditlib.errors import IntegrityError
from auditlib.files import sha256_of
from auditlib.runs.counterexamples import files_of, read_cases
from auditlib.runs.folder import write_run

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
ROW = (1, 3, 4, 3, 4, 3, 4, 3)  # longer than the window of the demo's faulty revision
ASKED = Side((Step("prefill", (ROW[:-1],), ((True,) * 7,)), Step("extend", (ROW[-1:],), ((True,),))), 0, 0)
CASE = Case("cache parity", "single events", "another", "float32", "same", ASKED, alone(ASKED), 1.0, 1e-4)


def written(folder: Path) -> SimpleNamespace:
    """A run folder with one counterexample, as far as reading it asks."""
    files = files_of({"cache parity: single events": CASE})
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return SimpleNamespace(folder=folder, manifest={"files": {name: sha256_of(folder / name) for name in files}})


def test_a_case_is_written_with_its_script_and_read_back_equal(tmp_path):
    run = written(tmp_path)
    assert sorted(path.suffix for path in (tmp_path / "counterexamples").iterdir()) == [".json", ".py"]
    assert read_cases(run) == {"cache parity: single events": CASE}


def test_a_run_folder_takes_them_as_further_files(tmp_path):
    manifest = {"created": "2026-01-01T00:00:00+00:00", "revision": {"digest": "r", "name": "n"}, "run": "one",
                "snapshot": {"digest": "s"}, "dtype": "float32"}  # fmt: skip
    report = {"run": "one", "revision": "r", "audits": {}, "failures": [], "not_measured": []}
    extras = files_of({"cache parity: single events": CASE})
    run = write_run(tmp_path, "one", manifest=manifest, report=report, tables={}, policy=b"{}", extras=extras)
    run.verify()
    assert read_cases(run) == {"cache parity: single events": CASE}


def test_an_altered_case_is_refused(tmp_path):
    run = written(tmp_path)
    (path,) = (tmp_path / "counterexamples").glob("*.json")
    path.write_text(path.read_text().replace('"limit": 0.0001', '"limit": 100'))
    with pytest.raises(IntegrityError, match="audit again"):
        read_cases(run)


def test_a_run_without_counterexamples_has_none():
    assert read_cases(SimpleNamespace(folder=Path(), manifest={"files": {"report.json": "sha256:0"}})) == {}


@pytest.mark.parametrize(("revision", "code"), [(FAULTY, 1), (SOUND, 0)])
def test_the_verb_says_by_its_exit_code_whether_the_case_still_fails(revision, code, tmp_path, capsys):
    (tmp_path / "case.json").write_text(CASE.to_json())
    arguments = ["reproduce", str(tmp_path / "case.json"), "--revision", str(SHIPPED / "revisions" / revision)]
    assert main([*arguments, "--json", str(tmp_path / "out.json")]) == code
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["fails"] is bool(code)
    assert (report["gap"] > 1e-4) is bool(code)
    assert ("still fails" if code else "does not fail any more") in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", '{"format": 1}', "[1, 2]"])
def test_the_verb_refuses_what_is_no_case(content, tmp_path, capsys):
    (tmp_path / "case.json").write_text(content)
    arguments = ["reproduce", str(tmp_path / "case.json"), "--revision", str(SHIPPED / "revisions" / SOUND)]
    assert main(arguments) == 2
    assert "case.json" in capsys.readouterr().err


def test_the_verb_refuses_events_that_the_revision_does_not_have(tmp_path, capsys):
    other = Side((Step("full", ((1, 999),), ((True, True),)),), 0, 1)
    case = Case("cache parity", "x", "another", "float32", "same", other, alone(other), 1.0, 1e-4)
    (tmp_path / "case.json").write_text(case.to_json())
    arguments = ["reproduce", str(tmp_path / "case.json"), "--revision", str(SHIPPED / "revisions" / SOUND)]
    assert main(arguments) == 2
    assert "999" in capsys.readouterr().err


@pytest.mark.parametrize(("revision", "code"), [(FAULTY, 1), (SOUND, 0)])
def test_the_script_beside_a_case_reproduces_it(revision, code, tmp_path):
    written(tmp_path)
    (script,) = (tmp_path / "counterexamples").glob("*.py")
    done = subprocess.run(
        [sys.executable, str(script), str(SHIPPED / "revisions" / revision)],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "gap" in done.stdout
