"""Evidence must hold every check of its kind: one that was taken out, doubled, renamed or eased is a no, in words."""

from __future__ import annotations

import json

import pytest

from auditlib.cli.main import main
from auditlib.errors import InputError
from auditlib.release.evidence import KINDS, held_to, parse_entry, read_evidence
from auditlib.release.serving_limits import LIMITS_OF
from auditlib.release.verdict import sign_run, verify_verdict
from auditlib.serving.planted_failures import FAILURES
from tests.release.cases import (
    NOW,
    PASSPHRASE,
    evidence_document,
    key_file,
    trusted,
    whole_checks,
    write_artifact,
    write_evidence,
    write_run,
)

EVERY = [(kind, number) for kind in KINDS for number in range(len(whole_checks(kind)))]


class Desk:
    """A run whose policy asks nothing of serving, its artifact, and a key."""

    def __init__(self, root):
        self.root, self.run, self.artifact = root, write_run(root), root / "artifact"
        write_artifact(self.artifact, self.run)
        self.key, self.out = key_file(root, "ada"), root / "verdict.dsse.json"

    def evidence(self, kind, checks, **fields):
        document = evidence_document(self.artifact, kind, checks=checks, **fields)
        return write_evidence(self.root / f"{kind}.json", document)

    def sign(self, *evidence, decision=None):
        return sign_run(
            self.run.folder, self.run.report, self.run.manifest, self.key, PASSPHRASE, decision, "", self.out,
            artifact=self.artifact, evidence=evidence, now=NOW,
        )  # fmt: skip

    def refuses(self, path, said):
        """Nobody can approve with it, and who signs without saying how signs a no that names the reason."""
        kind = path.stem
        verb = {"rehearsal": "rehearse"}.get(kind, kind)
        with pytest.raises(InputError) as refusal:
            self.sign(path, decision="approve")
        assert f"serving limits not measured: {path} has not the checks of a {kind} ({said}" in str(refusal.value)
        assert f"run {verb} again" in str(refusal.value)
        signed = self.sign(path)
        assert signed.result == "FAILED"
        assert said in signed.shortfalls[0]
        found = verify_verdict(self.out, trusted("ada"), now=NOW).statement.predicate
        assert (found["not_measured"], found["evidence"][0]["status"]) == (["serving limits"], "not measured")


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_evidence_of_every_kind_is_signed_as_passed(desk, kind):
    signed = desk.sign(desk.evidence(kind, whole_checks(kind)))
    assert (signed.result, signed.shortfalls) == ("PASSED", ())


@pytest.mark.parametrize(("kind", "number"), EVERY)
def test_evidence_without_any_one_of_its_checks_approves_nothing(desk, kind, number):
    checks = whole_checks(kind)
    gone = checks.pop(number)
    desk.refuses(desk.evidence(kind, checks), f'"{gone["name"]}" is missing')


@pytest.mark.parametrize(("kind", "number"), EVERY)
def test_a_check_that_stands_twice_counts_as_none(desk, kind, number):
    checks = whole_checks(kind)
    desk.refuses(desk.evidence(kind, [*checks, checks[number]]), f'"{checks[number]["name"]}" stands 2 times')


@pytest.mark.parametrize("field", ["name", "audit"])
@pytest.mark.parametrize(("kind", "number"), EVERY)
def test_a_check_under_another_name_is_missing(desk, kind, number, field):
    checks = whole_checks(kind)
    name = checks[number]["name"]
    checks[number] = {**checks[number], field: "something else"}
    desk.refuses(desk.evidence(kind, checks), f'"{name}" is missing')


@pytest.mark.parametrize(("kind", "number"), EVERY)
def test_a_check_that_was_held_against_more_than_its_limit_counts_as_none(desk, kind, number):
    checks = whole_checks(kind)
    name, limit = checks[number]["name"], checks[number]["limit"]
    if name == "saved logits":
        return  # held against a tolerance, see below
    checks[number] = {**checks[number], "limit": limit + 1, "value": limit + 0.5}
    desk.refuses(desk.evidence(kind, checks), f'"{name}" was held against {limit + 1} instead of {limit}')


def test_saved_logits_are_held_against_the_tolerance_of_the_run_and_no_wider_one(desk):
    eased = [{**one, "limit": 5e-5} if one["name"] == "saved logits" else one for one in whole_checks("replay")]
    desk.refuses(desk.evidence("replay", eased), '"saved logits" was held against 5e-05 instead of 4e-05')


@pytest.mark.parametrize(("tolerance", "status"), [(4e-5, "passed"), (3e-5, "not measured"), (None, "not measured")])
def test_evidence_is_held_to_the_tolerance_in_hand(desk, tolerance, status):
    found = held_to(read_evidence(desk.evidence("replay", whole_checks("replay"))), tolerance)
    assert (found.status, bool(found.lacks)) == (status, status != "passed")
    bench = read_evidence(desk.evidence("bench", whole_checks("bench")))
    assert held_to(bench, tolerance) == bench


def test_a_percentile_of_too_few_requests_counts_as_none(desk):
    first, *others = whole_checks("bench")
    desk.refuses(desk.evidence("bench", [{**first, "count": 58}, *others]), '"first event p95" rests on 58 of 59')


@pytest.mark.parametrize("reason", [None, "", " ", 3, {}])
@pytest.mark.parametrize(
    ("kind", "check", "named"),
    [
        ("bench", "cache bytes beside the formula", "cache bytes beside the formula"),
        ("rehearsal", "cache is rejected: answers wrong or missing", "cache is rejected"),
    ],
)
def test_what_is_not_applicable_may_be_left_out_for_a_reason_only(desk, kind, check, named, reason):
    checks = [one for one in whole_checks(kind) if one["name"] != check]
    path = desk.evidence(kind, checks, not_applicable={named: "it serves without a cache"})
    assert desk.sign(path).result == "PASSED"
    desk.out.unlink()
    desk.refuses(desk.evidence(kind, checks, not_applicable={named: reason}), f'"{check}" is missing')


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_check_can_be_declared_not_applicable(desk, kind):
    needed = next(limit.check for limit in LIMITS_OF[kind] if limit.required)
    checks = [one for one in whole_checks(kind) if one["name"] != needed]
    reasons = {needed: "why not", needed.partition(":")[0]: "why not"}
    desk.refuses(desk.evidence(kind, checks, not_applicable=reasons), f'"{needed}" is missing')


@pytest.mark.parametrize(
    "fields", [{"not_applicable": []}, {"stated": []}, {"stated": {"third event p95": 1}}], ids=str
)
def test_evidence_whose_own_lists_are_odd_passes_nothing(desk, fields):
    checks = [one for one in whole_checks("bench") if one["name"] != "cache bytes beside the formula"]
    assert read_evidence(desk.evidence("bench", checks, **fields)).status == "not measured"


def test_a_failure_stays_one_whatever_else_is_missing(desk):
    first, *others = whole_checks("replay")
    assert read_evidence(desk.evidence("replay", [{**first, "status": "failed"}, *others[1:]])).status == "failed"


def test_what_a_verdict_said_before_a_check_was_known_is_read_and_what_it_lacks_is_known(desk):
    whole = read_evidence(desk.evidence("replay", whole_checks("replay"))).to_json()
    assert parse_entry(whole).lacks == ()
    old = parse_entry({**whole, "checks": whole["checks"][1:]})
    assert (old.status, old.lacks) == ("passed", ('"requests without an answer" is missing',))


def test_every_failure_that_is_planted_has_its_check():
    assert [limit.check for limit in LIMITS_OF["rehearsal"]] == [f"{one}: answers wrong or missing" for one in FAILURES]
    assert [limit.check for limit in LIMITS_OF["rehearsal"] if not limit.required] == [
        "cache is rejected: answers wrong or missing"
    ]


def test_the_command_line_says_why_it_signs_a_no(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path)
    path = desk.evidence("replay", whole_checks("replay")[1:])
    monkeypatch.setenv("PASS", PASSPHRASE.decode())
    monkeypatch.setattr("auditlib.cli.verdicts.open_run", lambda _: Opened(desk.run))
    options = ["--run", desk.run.folder, "--key", desk.key, "--out", desk.out, "--passphrase-env", "PASS"]
    more = ["--artifact", desk.artifact, "--evidence", path]
    assert main(["sign", *map(str, options + more)]) == 0
    said = capsys.readouterr().out
    assert "verdict FAILED" in said
    assert f'{path} has not the checks of a replay ("requests without an answer" is missing)' in said
    assert main(["verify", str(desk.out), "--trust", str(trust_file(tmp_path))]) == 1
    assert main(["sign", *map(str, options + more), "--append", "--decision", "approve"]) == 2


class Opened:
    """A run as the command line opens it."""

    def __init__(self, run):
        self.folder, self.report, self.manifest, self.id = run.folder, run.report, run.manifest, run.report["run"]

    def verify(self):
        """Its files were written a moment ago."""


def trust_file(root):
    path = root / "trust.json"
    path.write_text(json.dumps(trusted("ada")))
    return path
