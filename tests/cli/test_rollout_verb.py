"""The verb `rollout`, from an artifact with its verdict to a release, and what its exit codes say."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from auditlib.cli.main import main
from auditlib.release.refusals import RefusedError
from auditlib.release.rollout_verdict import require_verdict
from auditlib.release.verdict import sign_run
from auditlib.runs.package import PackageRequest, package_run
from auditlib.serving.log_row import to_table
from tests.packed import judged_run
from tests.release.cases import PASSPHRASE, key_file, trusted, whole_checks
from tests.release.rollout_world import OLD, PLAN, canary, row, shadow
from tests.small_gpt import write_small_revision


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A packaged artifact whose verdict says yes, with key, trust file and plan."""
    root = tmp_path_factory.mktemp("rollout")
    revision = write_small_revision(root / "revision")
    run = judged_run(root / "runs", revision)
    packaged = package_run(PackageRequest(run.folder, root / "artifact", revision.folder)).artifact
    key = key_file(root, "ada")
    (root / "trust.json").write_text(json.dumps(trusted("ada", "bob")))
    signed = (run.folder, run.report, run.manifest)
    sign_run(*signed, key, PASSPHRASE, None, "", root / "verdict.json", artifact=root / "artifact",
             ledger=root / "ledger.jsonl")  # fmt: skip
    (root / "first.jsonl").write_bytes((root / "ledger.jsonl").read_bytes())
    sign_run(*signed, key, PASSPHRASE, "refuse", "no", root / "refusal.json", artifact=root / "artifact",
             ledger=root / "ledger.jsonl")  # fmt: skip
    bob, month_ago = key_file(root, "bob"), datetime.now(UTC) - timedelta(days=31)
    sign_run(*signed, bob, PASSPHRASE, None, "", root / "old.json", artifact=root / "artifact", now=month_ago)
    sign_run(*signed, bob, PASSPHRASE, None, "", root / "bobs.json", artifact=root / "artifact")
    (root / "plan.json").write_text(json.dumps(PLAN))
    checks = whole_checks("replay")
    replay = {"format": 1, "kind": "replay", "artifact": packaged.digest, "status": "passed", "checks": checks}
    (root / "replay.json").write_text(json.dumps(replay))
    return root, packaged.digest


@pytest.fixture
def desk(made, tmp_path, monkeypatch):
    root, digest = made
    monkeypatch.setenv("PASS", PASSPHRASE.decode())
    return Desk(root, digest, tmp_path)


class Desk:
    """One chain and log, and the verb at work on them."""

    def __init__(self, root, digest, folder):
        self.root, self.digest, self.folder = root, digest, folder
        self.trust = root / "trust.json"
        self.log = folder / "log"
        self.log.mkdir()

    def __call__(self, action, *options, signs=True):
        chain = ["--chain", self.folder / "c.jsonl", "--trust", self.trust, "--json", self.folder / "out"]
        key = ["--key", self.root / "ada.pem", "--passphrase-env", "PASS"] if signs else []
        code = main(list(map(str, ["rollout", action, *chain, *key, *options])))
        return code, json.loads((self.folder / "out").read_text()) if (self.folder / "out").exists() else None

    def start(self, fallback="full-prefix"):
        options = ["--artifact", self.root / "artifact", "--fallback", fallback, "--plan", self.root / "plan.json"]
        return self("start", *options)

    def replayed(self):
        self.start()
        return self("advance", "--replay", self.root / "replay.json")

    def to_shadow(self, verdict="verdict.json", *options):
        self.replayed()
        return self("advance", "--verdict", self.root / verdict, *options)

    def revoke(self, person):
        """From now on a trust file in which the key of this person is revoked."""
        document = json.loads(self.trust.read_text())
        for key in document["keys"]:
            key["revoked"] |= key["person"] == person.title()
        self.trust = self.folder / "trust.json"
        self.trust.write_text(json.dumps(document))

    def write(self, name, rows, **changed):
        """Rows as they would be written now, by this artifact."""
        newest, now = max(one.end for one in rows), time.time_ns() // 1000
        times = ("arrival", "start", "first_event", "end")
        moved = [replace(one, **{n: getattr(one, n) - newest + now for n in times}) for one in rows]
        moved = [replace(one, **({"artifact": self.digest} | (changed if one.arm == "new" else {}))) for one in moved]
        pq.write_table(to_table(moved), self.log / f"part-{name}.parquet")


def quick(rows):
    """The same requests within a second, so that they lie after the opening of their stage."""
    first = rows[0].arrival
    offsets = ((first + n, first + n + 10, first + n + 20, first + n + 100 + (7 * n) % 13) for n in range(len(rows)))
    times = ("arrival", "start", "first_event", "end")
    return [replace(one, **dict(zip(times, found, strict=True))) for one, found in zip(rows, offsets, strict=True)]


def test_a_rollout_goes_from_start_to_release_and_is_checked_there(desk, capsys):
    assert desk.start()[0] == 0
    assert desk("status", signs=False)[1]["state"] == "fallback"
    assert desk("advance", "--replay", desk.root / "replay.json")[1]["state"] == "replay passed"
    assert desk("advance", "--verdict", desk.root / "verdict.json")[1]["state"] == "shadow"
    desk.write("1", quick(shadow()[:20]))
    code, said = desk("advance", "--log", desk.log)
    assert (code, said["state"], said["decision"]["action"]) == (1, "shadow", "hold")
    assert {"what": "whole rows of the new arm", "have": 10, "need": 40} in said["decision"]["needed"]
    desk.write("2", quick(shadow()[20:]))
    code, said = desk("status", "--log", desk.log, signs=False)
    assert (code, said["decision"]["action"], said["decision"]["to"]) == (0, "promote", "canary 5")
    assert "shadow, new: 60 requests" in capsys.readouterr().out
    assert desk("advance", "--log", desk.log)[:1] == (0,)
    desk.write("3", quick(canary("canary 5", 25, 475)))
    assert desk("advance", "--log", desk.log)[1]["state"] == "canary 50"
    desk.write("4", quick(canary("canary 50", 400, 400)))
    code, said = desk("advance", "--log", desk.log)
    assert (code, said["state"], said["transitions"]) == (0, "released", 6)
    verdict = ["--log", desk.log, "--verdict", desk.root / "verdict.json"]
    code, said = desk("check", *verdict, signs=False)
    assert (code, said["as_released"]) == (1, False)
    assert "was not seen" in said["wrong"][0]


def test_harm_is_rolled_back_with_exit_code_1_and_signed(desk):
    desk.to_shadow()
    desk.write("1", quick(shadow()), valid=False, rule="init")
    code, said = desk("status", "--log", desk.log, signs=False)
    assert (code, said["state"], said["decision"]["action"]) == (1, "shadow", "roll back")
    code, said = desk("advance", "--log", desk.log)
    assert (code, said["state"]) == (1, "rolled back")
    assert desk("status", "--log", desk.log, signs=False)[0] == 0
    assert desk("resume", "--comment", "again")[0] == 2


def test_a_person_pauses_resumes_and_rolls_back(desk):
    desk.to_shadow()
    assert desk("pause", "--comment", "lunch")[1]["paused"] is True
    assert desk("pause", "--comment", "again")[0] == 2
    assert desk("resume", "--comment", "back")[1]["paused"] is False
    assert desk("roll-back", "--comment", "enough")[1]["state"] == "rolled back"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--replay", "nowhere.json"], 2, "nowhere.json"),
        (["--verdict", "{root}/verdict.json"], 3, "rests on no replay"),
        (["--replay", "{root}/plan.json"], 2, "no evidence document"),
        ([], 2, "nothing to go by"),
    ],
)
def test_the_fallback_is_left_only_on_a_passed_replay(desk, capsys, options, code, said):
    desk.start()
    assert desk("advance", *(option.format(root=desk.root) for option in options))[0] == code
    assert said in capsys.readouterr().err
    assert desk("status", signs=False)[1]["state"] == "fallback"


@pytest.mark.parametrize("number", range(len(whole_checks("replay"))))
def test_the_fallback_is_not_left_on_a_replay_that_lacks_a_check(desk, capsys, number):
    document = json.loads((desk.root / "replay.json").read_text())
    gone = document["checks"].pop(number)["name"]
    path = desk.folder / "less.json"
    path.write_text(json.dumps(document))
    desk.start()
    assert desk("advance", "--replay", path)[0] == 3
    said = f'{path} has not the checks of a replay ("{gone}" is missing), so it counts as not measured; run replay'
    assert said in capsys.readouterr().err
    assert desk("status", signs=False)[1]["state"] == "fallback"


def test_a_verdict_whose_evidence_lacks_a_check_that_is_known_today_opens_nothing():
    golden = Path(__file__).parents[1] / "golden" / "verdict-2"
    artifact = f"sha256:{hashlib.sha256((golden / 'artifact' / 'artifact.json').read_bytes()).hexdigest()}"
    with pytest.raises(RefusedError, match=r'verdict.s evidence/bench.json has not .*"requests without an answer" is'):
        require_verdict(golden / "verdict.dsse.json", golden / "trust.json", artifact)


def test_the_fallback_must_be_the_one_that_the_artifact_names(desk, capsys):
    assert desk.start(fallback=str(desk.root / "artifact"))[0] == 2
    assert "names full-prefix as its fallback" in capsys.readouterr().err
    assert not (desk.folder / "c.jsonl").exists()


def test_a_cut_off_chain_is_exit_code_3_and_says_nothing_of_a_release(desk, capsys):
    desk.to_shadow()
    chain = desk.folder / "c.jsonl"
    chain.write_bytes(b"".join(line + b"\n" for line in chain.read_bytes().splitlines()[:-1]))
    assert desk("status", signs=False)[0] == 3
    said = capsys.readouterr()
    assert "replayed" in said.err
    assert "released" not in said.out


def test_the_old_version_under_a_new_name_pauses_the_rollout(desk):
    desk.to_shadow()
    desk.write("1", quick(shadow()), artifact=OLD)
    code, said = desk("advance", "--log", desk.log)
    assert (code, said["paused"], said["decision"]["action"]) == (1, True, "pause")
    assert "unknown artifact" in said["decision"]["reasons"][0]


def test_a_log_from_which_counted_rows_were_taken_is_exit_code_3(desk):
    desk.to_shadow()
    desk.write("1", quick(shadow()))
    assert desk("advance", "--log", desk.log)[0] == 0
    desk.write("1", quick([row(n, "shadow", arm, n) for n in range(59) for arm in ("fallback", "new")]))
    assert desk("status", "--log", desk.log, signs=False)[0] == 3


@pytest.mark.parametrize(
    ("verdict", "options", "code", "said"),
    [
        ("old.json", [], 3, "stale: it was signed"),
        ("old.json", ["--max-age", "60d"], 0, ""),
        ("old.json", ["--max-age", "30d"], 3, "stale: it was signed"),
        ("verdict.json", ["--max-age", "0s"], 3, "stale: it was signed"),
        ("verdict.json", ["--max-age", "soon"], 2, "is no span of time"),
        ("verdict.json", ["--ledger", "{root}/first.jsonl"], 0, ""),
        ("verdict.json", ["--ledger", "{root}/ledger.jsonl"], 3, "replayed: it is number 1; number 2"),
        ("verdict.json", ["--ledger", "{root}/nowhere.jsonl"], 2, "there is no ledger, or nothing in it"),
        ("verdict.json", ["--previous", "{root}/bobs.json"], 3, "replayed: it is number 1 and does not follow"),
        ("refusal.json", ["--ledger", "{root}/ledger.jsonl"], 3, "says no"),
    ],
    ids=str,
)
def test_the_shadow_stage_is_opened_on_the_newest_verdict_only_and_on_none_that_is_old(
    desk, capsys, verdict, options, code, said
):
    assert desk.to_shadow(verdict, *(one.format(root=desk.root) for one in options))[0] == code
    assert said in capsys.readouterr().err
    assert desk("status", signs=False)[1]["state"] == ("replay passed" if code else "shadow")


def test_the_shadow_stage_is_not_opened_on_a_verdict_by_a_key_that_was_revoked(desk, capsys):
    desk.replayed()
    desk.revoke("bob")
    assert desk("advance", "--verdict", desk.root / "bobs.json")[0] == 3
    assert "revoked: Bob" in capsys.readouterr().err
    assert desk("status", signs=False)[1]["state"] == "replay passed"


def test_a_stage_is_not_left_once_the_key_under_the_verdict_was_revoked_until_another_verdict_is_shown(desk, capsys):
    desk.to_shadow("bobs.json")
    desk.write("1", quick(shadow()))
    assert desk("status", "--log", desk.log, signs=False)[1]["decision"]["action"] == "promote"
    desk.revoke("bob")
    code, said = desk("status", "--log", desk.log, signs=False)
    assert (code, said["decision"]["action"], said["decision"]["to"]) == (0, "hold", "shadow")
    assert "revoked: the key of Bob" in said["decision"]["reasons"][0]
    assert desk("advance", "--log", desk.log)[0] == 3
    assert desk("advance", "--log", desk.log, "--verdict", desk.root / "bobs.json")[0] == 3
    assert "revoked: Bob" in capsys.readouterr().err
    assert desk("status", signs=False)[1]["state"] == "shadow"
    code, said = desk("advance", "--log", desk.log, "--verdict", desk.root / "verdict.json")
    assert (code, said["state"]) == (0, "canary 5")


def test_a_stage_is_not_left_once_the_ledger_has_a_newer_verdict(desk, capsys):
    desk.to_shadow()
    desk.write("1", quick(shadow()))
    newest = ["--log", desk.log, "--ledger", desk.root / "ledger.jsonl"]
    assert desk("status", *newest, signs=False)[1]["decision"]["action"] == "hold"
    assert desk("advance", *newest)[0] == 3
    assert desk("advance", *newest, "--verdict", desk.root / "verdict.json")[0] == 3
    said = capsys.readouterr().err
    assert "replayed: the newest verdict of" in said
    assert "replayed: it is number 1; number 2" in said
    assert desk("advance", "--log", desk.log, "--ledger", desk.root / "first.jsonl")[1]["state"] == "canary 5"


@pytest.mark.parametrize(
    "options",
    [
        ["--log", "{log}", "--max-age", "30d"], ["--log", "{log}", "--previous", "{root}/verdict.json"],
        ["--replay", "{root}/replay.json", "--ledger", "{root}/ledger.jsonl"],
        ["--log", "{log}", "--replay", "{root}/replay.json"],
    ],
    ids=str,
)  # fmt: skip
def test_what_would_be_passed_over_is_refused(desk, capsys, options):
    desk.to_shadow()
    assert desk("advance", *(one.format(root=desk.root, log=desk.log) for one in options))[0] == 2
    said = capsys.readouterr().err
    assert "--verdict too" in said or "leave one of them out" in said


@pytest.mark.parametrize(
    ("verdict", "options", "code", "said"),
    [
        ("old.json", [], 1, ""),
        ("old.json", ["--max-age", "30d"], 3, "stale"),
        ("verdict.json", ["--ledger", "{root}/ledger.jsonl"], 3, "replayed"),
        ("verdict.json", ["--ledger", "{root}/nowhere.jsonl"], 2, "there is no ledger"),
        ("refusal.json", [], 3, "says no"),
    ],
    ids=str,
)
def test_a_check_bounds_the_verdict_as_it_is_asked_to(desk, capsys, verdict, options, code, said):
    desk.to_shadow()
    desk.write("1", quick(shadow()))
    asked = ["--log", desk.log, "--verdict", desk.root / verdict, *(one.format(root=desk.root) for one in options)]
    assert desk("check", *asked, signs=False)[0] == code
    assert said in capsys.readouterr().err
