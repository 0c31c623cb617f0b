"""Run folders: whole or not there, and never changed without notice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pandas as pd
import pytest

from auditlib.errors import IntegrityError, RunError
from auditlib.runs.folder import checks_of_all_runs, list_runs, open_run, write_run

CHECK = {"name": "single events", "value": 1e-6, "limit": 1e-5, "unit": "logit", "count": 40, "status": "passed"}


def a_run(root, run_id="r1", *, created="2026-11-30T10:00:00+00:00", value=1e-6):
    manifest = {
        "format": 1,
        "run": run_id,
        "created": created,
        "revision": {"name": "demo", "digest": "sha256:aa"},
        "snapshot": {"digest": "sha256:bb"},
    }
    report = {
        "format": 1,
        "run": run_id,
        "revision": "sha256:aa",
        "failures": [],
        "not_measured": [],
        "audits": {"cache parity": {"status": "passed", "checks": [{**CHECK, "value": value}]}},
    }
    gaps = pd.DataFrame({"events": ["1-3", "1-3-4"], "gap": [1e-7, 2e-7]})
    return write_run(
        root, run_id, manifest=manifest, report=report, tables={("cache parity", "gaps"): gaps}, policy=b"{}"
    )


def test_a_run_is_read_back_as_it_was_written(tmp_path):
    run = a_run(tmp_path)
    assert run.id == "r1"
    assert run.table("cache parity", "gaps")["gap"].tolist() == [1e-7, 2e-7]
    assert run.table("cache parity", "no such table").empty
    assert run.checks["name"].tolist() == ["single events"]
    run.verify()


def test_a_run_id_is_never_written_twice(tmp_path):
    a_run(tmp_path)
    with pytest.raises(FileExistsError):
        a_run(tmp_path, value=9.0)
    assert open_run(tmp_path / "r1").report["audits"]["cache parity"]["checks"][0]["value"] == 1e-6


@pytest.mark.parametrize("keep", [True, False])
def test_a_report_that_lacks_audits_is_not_an_approval_although_nothing_failed(keep, tmp_path):
    run = a_run(tmp_path)
    report = {**run.report, "run": "r2", "audits": run.report["audits"] if keep else {}}
    manifest = {key: value for key, value in run.manifest.items() if key != "files"}
    empty = write_run(tmp_path, "r2", manifest={**manifest, "run": "r2"}, report=report, tables={}, policy=b"{}")
    assert not empty.approved


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("report.json", lambda b: b.replace(b"passed", b"failed")),
        ("report.json", lambda b: b[:-1]),
        ("tables/cache_parity.gaps.parquet", lambda b: b + b"x"),
        ("policy.json", lambda b: b"{ }"),
    ],
)
def test_an_altered_file_of_a_run_is_noticed(tmp_path, file, change):
    run = a_run(tmp_path)
    path = run.folder / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(IntegrityError, match=r"audit again"):
        open_run(run.folder).verify()


def test_a_file_that_the_run_did_not_write_is_noticed(tmp_path):
    run = a_run(tmp_path)
    (run.folder / "extra.txt").write_text("x")
    with pytest.raises(IntegrityError, match=r"extra\.txt"):
        run.verify()


def test_a_run_under_another_name_is_refused(tmp_path):
    run = a_run(tmp_path)
    run.folder.rename(tmp_path / "r9")
    with pytest.raises(IntegrityError):
        open_run(tmp_path / "r9")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"files": {}}', b"\xff"])
def test_a_damaged_manifest_is_bad_input_and_not_a_crash(tmp_path, content):
    run = a_run(tmp_path)
    (run.folder / "manifest.json").write_bytes(content)
    with pytest.raises(RunError, match="audit again"):
        open_run(run.folder)


@pytest.mark.parametrize(
    ("manifest", "report"),
    [
        ({"files": {}}, {}),
        ({"files": []}, {}),
        ({"created": None}, {}),
        ({"created": "yesterday"}, {}),
        ({"revision": {"digest": "sha256:aa", "name": 7}}, {}),
        ({}, []),
        ({}, {"audits": []}),
        ({}, {"audits": {"cache parity": {"checks": ["passed"]}}}),
        ({}, {"failures": None}),
        ({}, {"run": 7}),
    ],
)
def test_a_run_whose_json_is_whole_but_odd_is_bad_input_and_not_a_crash(manifest, report, tmp_path):
    run = a_run(tmp_path)
    content = json.dumps({**run.report, **report} if isinstance(report, dict) else report).encode()
    (run.folder / "report.json").write_bytes(content)
    files = {**run.manifest["files"], "report.json": f"sha256:{hashlib.sha256(content).hexdigest()}"}
    (run.folder / "manifest.json").write_text(json.dumps({**run.manifest, "files": files, **manifest}))
    with pytest.raises(RunError, match="audit again"):
        open_run(run.folder)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no more PAR1"])
def test_a_damaged_table_is_bad_input_that_names_the_file(tmp_path, content):
    run = a_run(tmp_path)
    for name in ("cache_parity.gaps", "checks"):
        (run.folder / "tables" / f"{name}.parquet").write_bytes(content)
    with pytest.raises(RunError, match=r"cache_parity\.gaps\.parquet.*audit again"):
        run.table("cache parity", "gaps")
    with pytest.raises(RunError, match=r"checks\.parquet.*audit again"):
        checks_of_all_runs(tmp_path)


def test_runs_are_listed_newest_first_and_half_written_ones_are_passed_over(tmp_path):
    a_run(tmp_path, "old", created="2026-11-29T10:00:00+00:00")
    a_run(tmp_path, "new", created="2026-11-30T10:00:00+00:00", value=2e-6)
    (tmp_path / ".half.tmp").mkdir()
    (tmp_path / "killed").mkdir()
    assert [run.id for run in list_runs(tmp_path)] == ["new", "old"]
    assert checks_of_all_runs(tmp_path)["value"].tolist() == [1e-6, 2e-6]


@pytest.mark.parametrize("folder", ["runs", "runs[1]", "runs*?"])
def test_what_is_being_written_and_what_a_kill_left_are_no_part_of_the_trend(folder, tmp_path):
    runs = tmp_path / folder
    a_run(runs)
    for name, content in ((".r2.1a2b3c4d.tmp", None), (".r3.1a2b3c4d.tmp", b"PAR1half")):
        shutil.copytree(runs / "r1", runs / name)
        (runs / name / "manifest.json").unlink()
        if content is not None:
            (runs / name / "tables" / "checks.parquet").write_bytes(content)
    assert checks_of_all_runs(runs)["value"].tolist() == [1e-6]


def test_no_runs_is_an_empty_list_and_an_empty_table(tmp_path):
    assert list_runs(tmp_path / "nowhere") == ()
    assert checks_of_all_runs(tmp_path / "nowhere").empty


def test_a_killed_writer_leaves_whole_runs_only(tmp_path):
    script = textwrap.dedent("""
        import itertools, sys
        from pathlib import Path
        from tests.runs.test_run_folder import a_run
        for n in itertools.count():
            a_run(Path(sys.argv[1]), f"run{n}")
            print(n, flush=True)
    """)
    # `-c` puts the working folder on the path, so the script finds this very file through the tests package
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        child.stdout.readline()
        time.sleep(0.03)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        for run in list_runs(tmp_path):
            run.verify()
        assert list_runs(tmp_path)
        for folder in tmp_path.iterdir():
            if not folder.name.startswith("."):
                assert json.loads((folder / "manifest.json").read_bytes())
                folder.rename(tmp_path / f".seen-{time.monotonic_ns()}")
