"""The accuracy benchmark reads published splits strictly, and says no when a goal is missed."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

from auditlib.errors import LogError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def accuracy():
    spec = importlib.util.spec_from_file_location("accuracy_benchmark", ROOT / "benchmarks" / "accuracy.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_split(folder: Path, name: str, cases: list[list[str]]) -> None:
    lines = [f'c{number},"<BOS>, {", ".join(case)}, <EOS>",{len(case)}' for number, case in enumerate(cases)]
    (folder / name).write_text("\n".join(["CaseID,trace,length", *lines]) + "\n")


def cases(count: int, seed: int, rule: bool) -> list[list[str]]:
    """Cases that a rule determines, or that nothing does."""
    chance = random.Random(seed)
    if rule:
        return [["open", "work", "close"] for _ in range(count)]
    return [chance.choices(["a", "b", "c", "d"], k=4) for _ in range(count)]


@pytest.mark.parametrize(("rule", "code"), [(True, 0), (False, 1)])
def test_goals_are_met_by_a_process_and_missed_by_noise(accuracy, tmp_path, capsys, monkeypatch, rule, code):
    for log in accuracy.GOALS:
        write_split(tmp_path, f"{log}_80.csv", cases(80, 1, rule))
        write_split(tmp_path, f"{log}_20.csv", cases(40, 2, rule))
    out = tmp_path / "out.json"
    assert accuracy.main([str(tmp_path), "--json", str(out), "--threads", "1"]) == code
    document = json.loads(out.read_text())
    assert {entry["log"] for entry in document["outcomes"]} == set(accuracy.GOALS)
    assert document["before"]["threads"] == 1
    assert len(document["after"]["load_average"]) == 3
    table = capsys.readouterr().out
    assert table.count("\n") == 2 + len(accuracy.GOALS)
    assert ("NO" in table) == bool(code)


@pytest.mark.parametrize(
    ("trace", "length", "message"),
    [
        ("<BOS>, a, b, <EOS>", "3", "2 events were found, the row states 3"),  # such as a name with a comma in it
        ("a, b, <EOS>", "2", "from <BOS> to <EOS>"),
        ("<BOS>, a", "1", "from <BOS> to <EOS>"),
        ("<BOS>, <EOS>", "0", "from <BOS> to <EOS>"),
    ],
)
def test_rows_that_do_not_add_up_are_refused_with_their_line(accuracy, tmp_path, trace, length, message):
    path = tmp_path / "x.csv"
    path.write_text(f'CaseID,trace,length\nc0,"<BOS>, a, <EOS>",1\nc1,"{trace}",{length}\n')
    with pytest.raises(LogError, match=f"line 3.*{message}"):
        accuracy.read_cases(path)


def test_a_missing_folder_is_one_message_and_exit_code_2(accuracy, tmp_path, capsys):
    assert accuracy.main([str(tmp_path / "nowhere"), "--json", str(tmp_path / "out.json")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()
