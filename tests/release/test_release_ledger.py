"""The line of verdicts: the newest and the next are taken, everything else is a replay."""

from __future__ import annotations

import json
import threading

import pytest

from auditlib.cli.main import main
from auditlib.errors import InputError, IntegrityError
from auditlib.release.ledger import read_ledger, remember
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import sign_run, verify_verdict
from tests.release.cases import NOW, PASSPHRASE, key_file, trusted, write_run

TRUST = trusted("ada", "bob")


@pytest.fixture
def line(tmp_path):
    """Three verdicts signed in a line, and the ledger that they were signed with."""
    run, key, ledger = write_run(tmp_path), key_file(tmp_path, "ada"), tmp_path / "ledger.jsonl"
    paths = [tmp_path / f"verdict-{number}.json" for number in (1, 2, 3)]
    for path in paths:
        sign_run(run.folder, run.report, run.manifest, key, PASSPHRASE, None, path.name, path, ledger=ledger, now=NOW)
    return run, paths, ledger


def statement(path):
    return verify_verdict(path, TRUST, now=NOW).statement


def test_signing_with_a_ledger_numbers_and_chains_the_verdicts(line):
    _, paths, ledger = line
    entries = read_ledger(ledger)
    assert [entry.sequence for entry in entries] == [1, 2, 3]
    assert [entry.verdict for entry in entries] == [statement(path).digest for path in paths]
    assert [entry.previous for entry in entries] == [None, entries[0].verdict, entries[1].verdict]


@pytest.mark.parametrize(("known", "shown", "taken"), [
    ([], 1, True), ([], 3, True), ([1], 1, True), ([1], 2, True), ([1, 2], 3, True), ([1, 2, 3], 3, True),
    ([1], 3, False), ([1, 2], 1, False), ([1, 2, 3], 1, False), ([1, 2, 3], 2, False), ([3], 2, False),
])  # fmt: skip
def test_a_verifier_that_remembers_takes_the_newest_and_the_next_only(line, tmp_path, known, shown, taken):
    _, paths, _ = line
    mine = tmp_path / "mine.jsonl"
    for number in known:
        remember(mine, statement(paths[number - 1]))
    if taken:
        assert verify_verdict(paths[shown - 1], TRUST, ledger=mine, now=NOW).compared == ("ledger",)
        remember(mine, statement(paths[shown - 1]))
        assert read_ledger(mine)[-1].sequence == shown
        return
    before = mine.read_bytes()
    reason = "came after it" if shown < known[-1] else "does not follow"
    with pytest.raises(RefusedError, match=f"^replayed: .*{reason}"):
        verify_verdict(paths[shown - 1], TRUST, ledger=mine, now=NOW)
    with pytest.raises(RefusedError, match="replayed"):
        remember(mine, statement(paths[shown - 1]))
    assert mine.read_bytes() == before


def test_a_fork_of_the_line_is_a_replay(line, tmp_path):
    run, paths, ledger = line
    fork = tmp_path / "fork.json"
    key = key_file(tmp_path, "bob")
    sign_run(run.folder, run.report, run.manifest, key, PASSPHRASE, None, "fork", fork, previous=paths[1], now=NOW)
    with pytest.raises(RefusedError, match="replayed"):
        verify_verdict(fork, TRUST, ledger=ledger, now=NOW)


@pytest.mark.parametrize("number", [1, 3])
def test_a_second_reviewer_joins_any_verdict_of_the_line_and_adds_none(line, tmp_path, number):
    run, paths, ledger = line
    before, key = ledger.read_bytes(), key_file(tmp_path, "bob")
    more = {"append": True, "ledger": ledger, "now": NOW}
    sign_run(run.folder, run.report, run.manifest, key, PASSPHRASE, None, "", paths[number - 1], **more)
    assert ledger.read_bytes() == before
    assert len(verify_verdict(paths[number - 1], TRUST, now=NOW).signers) == 2


def test_nobody_joins_a_verdict_that_is_not_of_the_line(line, tmp_path):
    run, _, ledger = line
    foreign, key = tmp_path / "foreign.json", key_file(tmp_path, "bob")
    signing = (run.folder, run.report, run.manifest)
    sign_run(*signing, key_file(tmp_path, "ada"), PASSPHRASE, None, "elsewhere", foreign, now=NOW)
    before = foreign.read_bytes()
    with pytest.raises(RefusedError, match="replayed"):
        sign_run(*signing, key, PASSPHRASE, None, "", foreign, append=True, ledger=ledger, now=NOW)
    assert foreign.read_bytes() == before


def test_signing_goes_on_after_a_crash_between_file_and_line(line, tmp_path):
    run, paths, ledger = line
    ledger.write_bytes(b"".join(_lines(ledger)[:2]))  # the third file is there, its line is not
    more = {"append": True, "ledger": ledger, "now": NOW}
    sign_run(run.folder, run.report, run.manifest, key_file(tmp_path, "bob"), PASSPHRASE, None, "", paths[2], **more)
    assert [entry.sequence for entry in read_ledger(ledger)] == [1, 2, 3]


def test_a_predecessor_that_is_not_the_ledgers_newest_is_refused(line, tmp_path):
    run, paths, ledger = line
    with pytest.raises(InputError, match="not the newest"):
        sign_run(
            run.folder, run.report, run.manifest, key_file(tmp_path, "bob"), PASSPHRASE, None, "", tmp_path / "v.json",
            previous=paths[0], ledger=ledger, now=NOW,
        )  # fmt: skip


def _lines(ledger):
    return ledger.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [lines[0], lines[2]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines, b"{}\n"],
        lambda lines: [*lines[:2], lines[2][:-9]],
        lambda lines: [*lines, lines[2]],
        lambda lines: [json.dumps({**json.loads(lines[0]), "sequence": "1"}).encode() + b"\n"],
        lambda lines: [json.dumps({**json.loads(lines[0]), "more": 1}).encode() + b"\n"],
    ],
    ids=["one cut out", "reordered", "a line that is none", "cut short", "repeated", "a number as text", "a name more"],
)
def test_a_ledger_whose_chain_is_broken_is_not_used(line, damage):
    _, paths, ledger = line
    ledger.write_bytes(b"".join(damage(_lines(ledger))))
    with pytest.raises(IntegrityError, match=r"ledger\.jsonl"):
        verify_verdict(paths[2], TRUST, ledger=ledger, now=NOW)


def test_a_ledger_cut_at_its_end_takes_what_it_had_lost_again(line):
    # a truncated chain cannot be told from a younger one: that is what the other places' ledgers are for
    _, paths, ledger = line
    ledger.write_bytes(b"".join(_lines(ledger)[:2]))
    remember(ledger, statement(paths[2]))
    assert [entry.sequence for entry in read_ledger(ledger)] == [1, 2, 3]


def test_a_ledger_that_cannot_be_read_is_bad_input(line, tmp_path):
    _, paths, _ = line
    with pytest.raises(InputError, match="cannot be read"):
        verify_verdict(paths[0], TRUST, ledger=tmp_path, now=NOW)


def test_reviewers_who_sign_at_once_never_share_a_number(tmp_path):
    run, key, ledger = write_run(tmp_path), key_file(tmp_path, "ada"), tmp_path / "ledger.jsonl"
    paths = [tmp_path / f"verdict-{number}.json" for number in range(6)]

    def one(path):
        sign_run(run.folder, run.report, run.manifest, key, PASSPHRASE, None, path.name, path, ledger=ledger, now=NOW)

    threads = [threading.Thread(target=one, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.sequence for entry in read_ledger(ledger)] == [1, 2, 3, 4, 5, 6]
    assert sorted(statement(path).place.sequence for path in paths) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "fields",
    [
        {"sequence": True}, {"sequence": 0}, {"sequence": 1.0}, {"verdict": "abc"}, {"verdict": None},
        {"previous": "abc"}, {"previous": 3}, {"time": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_entry_of_another_form_is_no_entry(line, fields):
    _, paths, ledger = line
    first = json.loads(ledger.read_bytes().splitlines()[0])
    ledger.write_text(json.dumps({**first, **fields}) + "\n")
    with pytest.raises(IntegrityError, match="line 1"):
        verify_verdict(paths[0], TRUST, ledger=ledger, now=NOW)


@pytest.mark.parametrize("content", [None, b""])
def test_the_command_line_takes_no_ledger_that_knows_of_nothing(line, tmp_path, capsys, content):
    _, paths, _ = line
    mine, trust = tmp_path / "misspelt.jsonl", tmp_path / "trust.json"
    trust.write_text(json.dumps(TRUST))
    if content is not None:
        mine.write_bytes(content)
    assert main(["verify", str(paths[0]), "--trust", str(trust), "--ledger", str(mine)]) == 2
    said = capsys.readouterr()
    assert "misspelt.jsonl: there is no ledger, or nothing in it" in said.err
    assert said.out == ""
