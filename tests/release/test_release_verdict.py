"""Signing: what a reviewer may say, who may join, what is refused before anything is written."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest

from auditlib.errors import InputError, IntegrityError, KeyFileError, RunError
from auditlib.release.envelope import read_envelope
from auditlib.release.facts import facts_of
from auditlib.release.reading import parse_statement
from auditlib.release.refusals import RefusedError
from auditlib.release.signing import sign
from auditlib.release.statement import Place, Review
from auditlib.release.verdict import sign_run, verify_verdict
from tests.release.cases import (
    NOW,
    PASSPHRASE,
    changed,
    digest,
    entry,
    key_file,
    keyid,
    private_key,
    signed,
    sound,
    trusted,
    write_artifact,
    write_run,
)

LISTED = {"revision/event_order.json": digest("{}"), "policy.json": digest('{"format":1,"max_new_events":32}')}


class Desk:
    """Where reviewers sign."""

    def __init__(self, root, measured=None):
        self.root, self.run, self.out = root, write_run(root, measured), root / "verdict.dsse.json"
        self.keys = {person: key_file(root, person) for person in ("ada", "bob")}

    def sign(self, person="ada", decision="approve", comment="", out=None, append=False, **more):
        more = {"now": NOW, **more}
        return sign_run(
            self.run.folder, self.run.report, self.run.manifest, self.keys[person], PASSPHRASE,
            decision, comment, out or self.out, append, **more,
        )  # fmt: skip


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


@pytest.fixture
def faulty(tmp_path):
    return Desk(tmp_path, changed(sound(), "cache parity", "reordered rows", value=2.0))


def test_a_signed_verdict_says_what_the_run_found_and_who_decided(desk):
    made = desk.sign(comment="looked at the worst prefixes")
    found = verify_verdict(desk.out, trusted("ada"), revision=desk.run.revision, now=NOW + timedelta(hours=2))
    said = found.statement.predicate
    assert (made.result, made.sequence, made.signatures, made.keyid) == ("PASSED", 1, 1, keyid("ada"))
    assert made.digest == found.statement.digest
    assert found.says_yes
    assert [signer.person for signer in found.signers] == ["Ada"]
    assert found.age == timedelta(hours=2)
    assert found.compared == ("revision",)
    assert said["review"] == {"decision": "approve", "comment": "looked at the worst prefixes", "keyid": keyid("ada")}
    assert said["run"] == desk.run.report["run"]
    assert said["decision"]["decoding"]["beam"] == "allowed"
    assert said["tolerance"]["cache parity"]["value"] == 4e-5
    assert {one["name"] for one in said["configuration"]} == {
        "event order", "event map", "code", "policy", "held-out snapshot", "session store",
    }  # fmt: skip
    assert set(found.statement.subjects) == {"revision.json", "report.json"}
    checks = sum(len(audit["checks"]) for audit in desk.run.report["audits"].values())
    assert len(said["checks"]) == checks


def test_the_envelope_is_dsse_around_a_statement_of_in_toto(desk):
    desk.sign()
    envelope = json.loads(desk.out.read_bytes())
    assert set(envelope) == {"payload", "payloadType", "signatures"}
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(read_envelope(desk.out.read_bytes()).payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["predicate"]["warnedTests"] == []
    assert all(set(one["digest"]) == {"sha256"} for one in statement["subject"])


def test_the_same_run_gives_the_same_bytes(desk):
    one, other = desk.sign(), desk.sign(out=desk.root / "again.json")
    assert one.digest == other.digest


def test_a_reviewer_may_refuse_what_the_gate_let_through(desk):
    assert desk.sign(decision="refuse", comment="too few sessions").result == "FAILED"
    found = verify_verdict(desk.out, trusted("ada"), now=NOW)
    assert not found.says_yes
    assert found.statement.predicate["failedTests"] == ["reviewer's decision"]


@pytest.mark.parametrize("decision", ["refuse", None])
def test_a_refused_run_is_signed_as_a_no_that_verifies(faulty, decision):
    assert faulty.sign(decision=decision).result == "FAILED"
    found = verify_verdict(faulty.out, trusted("ada"), now=NOW)
    assert (found.result, found.says_yes) == ("FAILED", False)
    assert "cache parity: reordered rows" in found.statement.predicate["failedTests"]
    assert found.statement.predicate["failures"] == ["cache parity"]


def test_nobody_can_approve_what_the_gate_refused(faulty):
    with pytest.raises(InputError, match="the gate refused this run \\(cache parity\\)"):
        faulty.sign(decision="approve")
    assert not faulty.out.exists()


def test_nobody_can_approve_a_run_that_left_an_audit_out(tmp_path):
    measured = sound()
    del measured["numerics"]
    with pytest.raises(InputError, match="numerics not measured"):
        Desk(tmp_path, measured).sign(decision="approve")


def test_a_statement_made_past_the_desk_still_says_no_where_the_gate_does(faulty):
    facts = facts_of(faulty.run.folder, faulty.run.report, faulty.run.manifest)
    payload = facts.statement(Review("approve", "", keyid("ada")), Place("2026-11-30T12:00:00Z"))
    assert json.loads(payload)["predicate"]["result"] == "FAILED"
    with pytest.raises(RefusedError, match="malformed"):  # and nobody takes it for a verdict: it contradicts itself
        verify_verdict(signed(payload, "ada"), trusted("ada"), now=NOW)


def test_a_signature_is_not_added_to_another_payload():
    with pytest.raises(RefusedError, match="altered"):
        sign(b"mine", private_key("ada"), signed(b"theirs", "bob"))


@pytest.mark.parametrize(("decision", "result"), [(None, "PASSED"), ("approve", "PASSED"), ("refuse", "FAILED")])
def test_without_a_decision_the_gates_is_signed(desk, decision, result):
    assert desk.sign(decision=decision).result == result


def test_a_decision_is_approve_or_refuse(desk):
    with pytest.raises(InputError, match="'perhaps'"):
        desk.sign(decision="perhaps")


def test_two_reviewers_sign_the_same_bytes(desk):
    first = desk.sign(comment="fine")
    second = desk.sign("bob", None, append=True, trust=trusted("ada", "bob"))
    assert (second.digest, second.signatures) == (first.digest, 2)
    found = verify_verdict(desk.out, trusted("ada", "bob", threshold=2), now=NOW)
    assert {signer.person for signer in found.signers} == {"Ada", "Bob"}
    assert found.statement.review.comment == "fine"


@pytest.mark.parametrize("trust", [None, trusted("ada", "bob")], ids=["without trust file", "with trust file"])
def test_the_same_key_does_not_sign_twice(desk, trust):
    desk.sign()
    before = desk.out.read_bytes()
    with pytest.raises(KeyFileError, match="has signed this verdict already"):
        desk.sign(append=True, trust=trust)
    assert desk.out.read_bytes() == before


def test_the_same_person_does_not_sign_twice_with_another_key(desk):
    desk.sign()
    trust = {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("bob", person="ada ")]}
    with pytest.raises(KeyFileError, match="has signed this verdict already"):
        desk.sign("bob", append=True, trust=trust)


def test_a_key_outside_the_trust_file_does_not_sign(desk):
    with pytest.raises(KeyFileError, match="not in the trust file"):
        desk.sign(trust=trusted("bob"))
    assert not desk.out.exists()


@pytest.mark.parametrize(("decision", "comment"), [("refuse", ""), ("approve", "another opinion")])
def test_who_joins_cannot_say_anything_else(desk, decision, comment):
    desk.sign(comment="fine")
    with pytest.raises(InputError, match="sign"):
        desk.sign("bob", decision, comment, append=True)


def test_who_joins_signs_only_what_the_own_run_says(desk, tmp_path_factory):
    desk.sign()
    other = Desk(tmp_path_factory.mktemp("other"), changed(sound(), "cache parity", "padded left", value=1e-5))
    with pytest.raises(RefusedError, match="does not say what the run in hand says"):
        other.sign("bob", None, out=desk.out, append=True)


def test_who_joins_a_broken_envelope_is_told(desk):
    desk.sign()
    envelope = json.loads(desk.out.read_bytes())
    envelope["signatures"][0]["sig"] = "AAAA"
    desk.out.write_text(json.dumps(envelope))
    with pytest.raises(RefusedError, match="altered"):
        desk.sign("bob", append=True, trust=trusted("ada", "bob"))


def test_a_verdict_is_not_overwritten(desk):
    desk.sign()
    before = desk.out.read_bytes()
    with pytest.raises(InputError, match="is there already"):
        desk.sign("bob")
    assert desk.out.read_bytes() == before


def test_joining_needs_a_verdict(desk):
    with pytest.raises(InputError, match="cannot be read"):
        desk.sign(append=True)


def test_a_wrong_passphrase_signs_nothing(desk):
    with pytest.raises(KeyFileError, match="passphrase is wrong"):
        sign_run(desk.run.folder, desk.run.report, desk.run.manifest, desk.keys["ada"], b"no", None, "", desk.out)
    assert not desk.out.exists()


def _touch(folder, name, change):
    document = json.loads((folder / name).read_bytes())
    change(document)
    (folder / name).write_text(json.dumps(document))


def test_a_run_that_changed_since_it_was_shown_is_not_signed(desk):
    _touch(desk.run.folder, "report.json", lambda report: report.update(failures=["numerics"]))
    with pytest.raises(IntegrityError, match="not what was shown"):
        desk.sign()


def test_a_report_that_is_not_the_manifests_is_not_signed(desk):
    _touch(desk.run.folder, "report.json", lambda report: report.update(snapshot="sha256:" + "0" * 64))
    desk.run.report["snapshot"] = "sha256:" + "0" * 64
    with pytest.raises(IntegrityError, match="do not belong together"):
        desk.sign()


def test_a_run_that_lacks_something_is_not_signed(desk):
    desk.run.manifest.pop("files")
    (desk.run.folder / "manifest.json").write_text(json.dumps(desk.run.manifest))
    with pytest.raises(RunError, match="lacks"):
        desk.sign()


def test_a_run_without_its_files_is_not_signed(desk):
    (desk.run.folder / "report.json").unlink()
    with pytest.raises(RunError, match="cannot be read"):
        desk.sign()


def test_text_that_json_cannot_carry_is_not_signed(desk):
    with pytest.raises(RunError, match="cannot be put into a verdict"):
        desk.sign(comment="\ud800")
    assert not desk.out.exists()


def test_a_comment_has_an_end(desk):
    with pytest.raises(InputError, match="at most 4000"):
        desk.sign(comment="x" * 4001)


def test_hostile_comments_and_names_survive_unchanged(desk):
    comment = "<script>alert(1)</script>\u202e\0 =1+1\n\x1b[2J"
    desk.sign(comment=comment)
    assert verify_verdict(desk.out, trusted("ada"), now=NOW).statement.review.comment == comment


def test_a_verdict_follows_the_one_before(desk):
    first = desk.sign()
    second = desk.sign(out=desk.root / "second.json", previous=desk.out, trust=trusted("ada"))
    assert (first.sequence, second.sequence) == (1, 2)
    found = verify_verdict(second.path, trusted("ada"), previous=desk.out, now=NOW)
    assert found.statement.place.previous == first.digest
    assert found.compared == ("previous",)


def test_a_predecessor_by_a_stranger_is_refused_where_people_are_known(desk):
    desk.sign()
    with pytest.raises(RefusedError, match="foreign key"):
        desk.sign("bob", out=desk.root / "second.json", previous=desk.out, trust=trusted("bob"))


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_a_verdict_that_cannot_be_read_is_bad_input_and_no_refusal(tmp_path, name):
    with pytest.raises(InputError, match="cannot be read"):
        verify_verdict(tmp_path / name, trusted("ada"))


@pytest.mark.parametrize("hand", ["revision", "artifact", "report"])
def test_something_in_hand_that_is_not_there_is_bad_input(desk, hand):
    out, artifact = desk.root / "with.json", desk.root / "artifact"
    write_artifact(artifact, desk.run)
    desk.sign(out=out, artifact=artifact)
    with pytest.raises(InputError, match="nowhere"):
        verify_verdict(out, trusted("ada"), now=NOW, **{hand: desk.root / "nowhere"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run": "20261130T120000Z-00000000"}, "another run"),
        ({"report": digest("another report")}, "another run"),
        ({"revision": {"digest": digest("another revision")}}, "another run"),
        ({"files": {}}, "is not listed"),
        ({"files": {**LISTED, "revision/event_order.json": digest("[]")}}, "was changed"),
        ({"files": {**LISTED, "answers.json": digest("")}}, "is missing"),
        ({"files": None}, "does not say"),
        ({"report": "a report"}, "does not say"),
        ({"tolerance": {"value": 1e6, "device": {"device": "cpu", "processor": "test"}}}, "another tolerance"),
        ({"tolerance": {"value": 1e-5, "device": {"device": "cuda"}}}, "another device"),
        ({"dtype": "bfloat16"}, "another dtype"),
        ({"policy": digest("another policy")}, "another policy"),
        ({"snapshot": digest("other rows")}, "another snapshot"),
        ({"code": {"version": "0.1.0", "digest": digest("other code")}}, "another code"),
        ({"blocked": {"cache_acceleration": ["why"], "decoding": {}}}, "another decision"),
        ({"blocked": None}, "do not both say"),
    ],
)
def test_an_artifact_that_was_not_packaged_from_the_run_is_not_signed(desk, changed, said):
    write_artifact(desk.root / "artifact", desk.run, **changed)
    with pytest.raises(RefusedError, match=said):
        desk.sign(artifact=desk.root / "artifact")
    assert not desk.out.exists()


def test_a_folder_without_an_artifact_in_it_is_bad_input_at_signing(desk):
    (desk.root / "artifact").mkdir()
    with pytest.raises(InputError, match="package"):
        desk.sign(artifact=desk.root / "artifact")


def test_a_comparison_stands_in_the_checks_and_in_neither_list(tmp_path):
    name = "beam without order mask: invalid sequences"
    desk = Desk(tmp_path, changed(sound(), "decoding policy", name, value=3.0))
    desk.sign()
    said = verify_verdict(desk.out, trusted("ada"), now=NOW).statement.predicate
    assert said["result"] == "PASSED"
    assert not any(name in one for one in [*said["passedTests"], *said["failedTests"]])
    (shown,) = [one for one in said["checks"] if one["name"] == name]
    assert (shown["status"], shown["comparison"]) == ("failed", True)


def test_a_statement_is_read_from_its_bytes_alone(desk):
    desk.sign()
    payload = read_envelope(desk.out.read_bytes()).payload
    assert parse_statement(payload).run == desk.run.report["run"]


def test_an_artifact_whose_policy_was_exchanged_is_not_signed(desk):
    """Its setting without the order mask is one that no audit saw."""
    folder = desk.root / "artifact"
    write_artifact(folder, desk.run)
    (folder / "policy.json").write_text('{"format": 1}')
    document = json.loads((folder / "artifact.json").read_text())
    document["files"]["policy.json"] = digest('{"format": 1}')
    (folder / "artifact.json").write_text(json.dumps(document))
    with pytest.raises(RefusedError, match="another policy"):
        desk.sign(artifact=folder)


@pytest.mark.parametrize("ledger", [False, True])
def test_of_two_who_sign_at_once_neither_is_lost(desk, ledger):
    keys = {**desk.keys, "cid": key_file(desk.root, "cid")}
    more = {"trust": trusted(*keys), "ledger": desk.root / "ledger.jsonl" if ledger else None}
    desk.sign("ada", **more)
    desk.keys, together = keys, threading.Barrier(2)

    def join(person):
        together.wait()
        desk.sign(person, None, append=True, **more)

    people = [threading.Thread(target=join, args=(person,)) for person in ("bob", "cid")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert len(read_envelope(desk.out.read_bytes()).signatures) == 3


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"revoked": True}, "was revoked"),
        ({"roles": ["reader"]}, "has not the role"),
        ({"not_after": "2026-01-01T00:00:00Z"}, "not valid at this time"),
    ],
)
def test_a_key_whose_signature_counts_for_nobody_does_not_sign(desk, fields, why):
    with pytest.raises(KeyFileError, match=why):
        desk.sign(trust={"format": 1, "threshold": 1, "keys": [entry("ada", **fields)]})
    assert not desk.out.exists()
