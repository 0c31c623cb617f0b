"""Contract 2: verbs, exit codes, JSON, and the evidence that a refusal leaves behind."""

from __future__ import annotations

import json
import shutil
import sys
from argparse import Namespace
from io import BytesIO, TextIOWrapper
from xml.etree import ElementTree as ET

import pytest

from auditlib.cli.auditing import _write_evidence
from auditlib.cli.main import build_parser, main
from auditlib.cli.output import ProgressLine, emit, printable, say, table
from auditlib.cli.verdicts import max_age
from auditlib.errors import CancelledError, InputError, IntegrityError, LogError, PrefixgateError, VerdictError
from auditlib.runs.folder import open_run
from tests.desk import RULES, SOUND_REVISION, audit, revision_with


def run(*arguments, capsys=None):
    return main([str(argument) for argument in arguments])


def test_every_verb_of_the_contract_is_there():
    verbs = build_parser()._subparsers._group_actions[0].choices
    assert {"import", "split", "rules", "train", "register", "audit", "keys", "sign", "verify", "report"} <= set(verbs)


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError, 2), (LogError, 2), (IntegrityError, 3), (VerdictError, 3), (PrefixgateError, 4), (CancelledError, 2)],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert error.exit_code == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["import", "nowhere.csv", "--store", "s.duckdb"], "nowhere.csv"),
        (["split", "--store", "nowhere.duckdb"], "nowhere.duckdb"),
        (["audit", "--store", "nowhere.duckdb", "--revision", "r"], "nowhere.duckdb"),
        (["report", "--run", "nowhere", "--out", "r.html"], "audit again"),
        (["verify", "nowhere.json", "--trust", "t.json"], "t.json"),
        (["sign", "--run", "nowhere", "--key", "k.pem", "--out", "v.json"], "audit again"),
        (["keys", "new", "--out", "k.pem", "--person", "A", "--passphrase-env", "UNSET_VARIABLE"], "UNSET_VARIABLE"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_audit_is_refused_with_the_names_there_are(demo_store, tmp_path, capsys):
    code = run("audit", "--store", demo_store, "--revision", SOUND_REVISION, "--runs", tmp_path, "--audits", "luck")
    assert code == 2
    assert "cache parity" in capsys.readouterr().err


def test_a_fault_of_our_own_is_exit_code_4(monkeypatch, capsys):
    monkeypatch.setattr("auditlib.cli.sessions.import_log", lambda *_, **__: 1 / 0)
    assert main(["import", "log.csv", "--store", "s.duckdb"]) == 4
    assert "fault of our own" in capsys.readouterr().err


@pytest.mark.parametrize("left_with", [None, 0, 1])
def test_code_that_tries_to_leave_is_a_fault_and_never_a_yes(left_with, monkeypatch, capsys):
    monkeypatch.setattr("auditlib.cli.sessions.import_log", lambda *_, **__: sys.exit(left_with))
    assert main(["import", "log.csv", "--store", "s.duckdb"]) == 4
    assert "fault of our own" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_the_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("auditlib.runs.execute.run_audits", lambda *_: pytest.fail("the audit began"))
    (tmp_path / "file").write_text("x")
    asked = ["audit", "--store", "s", "--revision", "r"]
    for option, target in (("--json", tmp_path), ("--junit", tmp_path / "file" / "j.xml"), ("--markdown", tmp_path)):
        assert run(*asked, option, target) == 2
        assert str(target) in capsys.readouterr().err


def test_evidence_that_cannot_be_written_keeps_no_other_back(signed, tmp_path):
    finished = open_run(signed[0])
    options = Namespace(json=str(tmp_path), junit=tmp_path / "j.xml", markdown=tmp_path / "m.md")
    with pytest.raises(InputError, match="The run itself is whole"):
        _write_evidence(options, finished)
    assert (tmp_path / "j.xml").is_file()
    assert (tmp_path / "m.md").is_file()


def test_a_report_at_a_folder_is_wrong_use(signed, tmp_path, capsys):
    assert run("report", "--run", signed[0], "--out", tmp_path) == 2
    assert "is a folder" in capsys.readouterr().err


def test_stdout_of_a_small_encoding_gets_escapes(monkeypatch):
    narrow = TextIOWrapper(BytesIO(), encoding="latin-1")
    monkeypatch.setattr("sys.stdout", narrow)
    say(Namespace(json=None), "geöffnet → 閉")
    emit(Namespace(json="-"), {"event": "閉"})
    narrow.flush()
    lines = narrow.buffer.getvalue().decode("latin-1").split("\n", 1)
    assert lines[0] == "geöffnet \\u2192 \\u9589"
    assert json.loads(lines[1]) == {"event": "閉"}


def test_a_refused_audit_leaves_its_evidence_and_what_was_left_out_is_not_measured(demo_store, tmp_path, capsys):
    revision = revision_with(tmp_path / "stale_cache", "stale_cache")
    evidence = ["--audits", "cache parity", "--junit", tmp_path / "j.xml", "--markdown", tmp_path / "m.md"]
    code, report = audit(demo_store, revision, tmp_path, *map(str, evidence))
    assert code == 1
    assert report["format"] == 1
    assert report["failures"] == ["cache parity"]
    assert {"causality", "training", "event grammar"} <= set(report["not_measured"])
    for check in report["audits"]["cache parity"]["checks"]:
        assert {"name", "value", "limit", "unit", "count", "status"} <= set(check)
    suites = ET.parse(tmp_path / "j.xml").getroot()
    assert int(suites.get("failures")) > 0
    assert int(suites.get("errors")) > 0
    assert "refused for cache parity" in (tmp_path / "m.md").read_text()
    assert "refused for cache parity" in capsys.readouterr().out.splitlines()[-1]
    assert (tmp_path / "runs" / report["run"] / "manifest.json").is_file()


def test_json_on_stdout_is_json_and_nothing_else(demo_store, tmp_path, capsys):
    assert run("rules", "check", "--store", demo_store, "--rules", RULES, "--json", "-") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["broken"] == []
    assert "held-out sessions break a rule" in captured.err


def test_code_of_a_revision_is_refused_unless_it_is_allowed(demo_store, tmp_path, capsys):
    revision = revision_with(tmp_path / "sound", "sound")
    code = run("audit", "--store", demo_store, "--revision", revision, "--runs", tmp_path / "runs")
    assert code == 2
    assert "--allow-code" in capsys.readouterr().err


def test_an_altered_revision_is_exit_code_3(demo_store, tmp_path, capsys):
    revision = tmp_path / "altered"
    shutil.copytree(SOUND_REVISION, revision)
    weights = revision / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert run("audit", "--store", demo_store, "--revision", revision, "--runs", tmp_path / "runs") == 3
    assert "model.safetensors" in capsys.readouterr().err


@pytest.fixture
def signed(demo_store, tmp_path, monkeypatch):
    """A refused run, signed by Alice, whom the trust file knows."""
    monkeypatch.setenv("ALICES", "correct horse")
    key, trust, verdict = tmp_path / "alice.pem", tmp_path / "trust.json", tmp_path / "verdict.dsse.json"
    _, report = audit(demo_store, SOUND_REVISION, tmp_path, "--audits", "training")
    folder = tmp_path / "runs" / report["run"]
    passphrase = ("--passphrase-env", "ALICES")
    assert run("keys", "new", "--out", key, "--person", "Alice", "--trust", trust, *passphrase) == 0
    assert run("sign", "--run", folder, "--key", key, "--out", verdict, *passphrase) == 0
    return folder, key, trust, verdict


def test_a_valid_verdict_that_says_no_is_exit_code_1(signed, capsys):
    _, _, trust, verdict = signed
    assert run("verify", verdict, "--trust", trust, "--revision", SOUND_REVISION, "--max-age", "1d") == 1
    said = capsys.readouterr().out
    assert "Alice" in said
    assert "FAILED" in said


def test_an_altered_or_foreign_verdict_is_exit_code_3_and_prints_no_result(signed, tmp_path, capsys):
    _, _, trust, verdict = signed
    document = json.loads(verdict.read_text())
    document["payload"] = document["payload"][:-8] + "AAAA" + document["payload"][-4:]
    verdict.write_text(json.dumps(document))
    assert run("verify", verdict, "--trust", trust) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "PASSED" not in captured.err


def test_a_verdict_on_another_revision_is_exit_code_3(signed, tmp_path):
    _, _, trust, verdict = signed
    other = revision_with(tmp_path / "other", "sound")
    assert run("verify", verdict, "--trust", trust, "--revision", other) == 3


def test_a_second_reviewer_signs_the_same_verdict(signed, tmp_path, monkeypatch, capsys):
    folder, _, trust, verdict = signed
    monkeypatch.setenv("BOBS", "battery staple")
    key, passphrase = tmp_path / "bob.pem", ("--passphrase-env", "BOBS")
    assert run("keys", "new", "--out", key, "--person", "Bob", "--trust", trust, *passphrase) == 0
    assert run("sign", "--run", folder, "--key", key, "--out", verdict, "--append", *passphrase) == 0
    assert run("verify", verdict, "--trust", trust) == 1
    assert "Alice, Bob" in capsys.readouterr().out


def test_the_gates_refusal_cannot_be_signed_as_an_approval(signed, tmp_path, capsys):
    folder, key, _, _ = signed
    out = tmp_path / "approved.dsse.json"
    code = run(
        "sign", "--run", folder, "--key", key, "--out", out, "--decision", "approve", "--passphrase-env", "ALICES"
    )
    assert code == 2
    assert not out.exists()


def test_a_report_is_one_file_that_needs_no_network(signed, tmp_path):
    folder, *_ = signed
    assert run("report", "--run", folder, "--out", tmp_path / "report.html") == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script src=" not in page
    assert "UNSIGNED<" not in page  # plotly.js knows an UNSIGNED_BYTE
    assert "not given here<" in page
    assert len(page) < 6e6


@pytest.mark.parametrize(("text", "days"), [("30d", 30), ("48h", 2), ("1w", 7)])
def test_ages_are_read(text, days):
    assert max_age(text).total_seconds() == days * 86400


@pytest.mark.parametrize("text", ["", "d", "-1d", "1y", "1d2h", "1.5d"])
def test_what_is_no_age_is_refused(text):
    with pytest.raises(InputError):
        max_age(text)


def test_control_characters_from_a_log_do_not_reach_the_terminal():
    assert printable("a\x1b[2Jb\u202ec\td") == "a\\x1b[2Jb\\u202ec\td"


def test_tables_are_aligned():
    assert table([("a", "bb"), ("ccc", "d")]) == "a    bb\n---  --\nccc  d"


def test_progress_is_silent_in_the_first_second(capsys):
    line = ProgressLine()
    line(1, 2, "work")
    line.last -= 60
    line(1, 2, "work \x1b")
    line.close()
    said = capsys.readouterr().err
    assert said.count("work") == 1
    assert "\x1b" not in said


def test_an_import_can_be_taken_out_again(tmp_path, capsys):
    log, store = tmp_path / "log.csv", tmp_path / "s.duckdb"
    log.write_bytes("case;event;time\n1;geöffnet;2026-01-31 10:00\n1;none;2026-01-31 11:00\n".encode("cp1252"))
    imported = ["import", log, "--store", store, "--session", "case", "--time", "time", "--event", "event"]
    assert run(*imported) == 2
    assert "--encoding" in capsys.readouterr().err
    assert run(*imported, "--encoding", "cp1252", "--missing", "none", "--json", tmp_path / "m.json") == 0
    manifest = json.loads((tmp_path / "m.json").read_text())
    assert (manifest["events"], manifest["rejects"]) == (1, 1)
    assert run("undo-import", "--store", store, "--import-id", manifest["import_id"]) == 0
    assert "0 sessions" in capsys.readouterr().out
