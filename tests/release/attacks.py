"""What a dishonest or careless person may hand to a verifier: one function a case, each with the word it is refused by.

A case gives (verdict, trust document, what else is in hand). Cases that are refused for the trust file itself carry
`TRUST` in place of a reason.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from auditlib.release.documents import canonical
from auditlib.release.envelope import PAYLOAD_TYPE
from tests.release.cases import entry, keyid, private_key, signed, trusted, write_revision

TRUST = "trust file"
ATTACKS: dict[str, tuple[str, Callable]] = {}


@dataclass(frozen=True)
class World:
    """A sound verdict by Ada, and what it is about."""

    root: Path
    payload: bytes
    verdict: bytes
    revision: Path
    artifact: Path
    report: Path
    bench: Path
    older: bytes
    newer: bytes

    @property
    def document(self) -> dict:
        return json.loads(self.payload)

    @property
    def envelope(self) -> dict:
        return json.loads(self.verdict)


def attack(reason: str) -> Callable:
    """Enter a case under its function's name."""

    def enter(case: Callable) -> Callable:
        ATTACKS[case.__name__.replace("_", " ")] = (reason, case)
        return case

    return enter


def packed(envelope: object) -> bytes:
    return json.dumps(envelope).encode()


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pae(payload: bytes, kind: str = PAYLOAD_TYPE) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)


def resigned(world: World, change: Callable[[dict], object], *people: str) -> tuple:
    """A statement that trusted people signed although it does not hold together."""
    document = world.document
    change(document)
    return signed(canonical(document), *(people or ("ada",))), trusted("ada", "bob"), {}


def all_of(*changes: Callable[[dict], object]) -> Callable[[dict], object]:
    """Several changes of the statement."""

    def change(document: dict) -> None:
        for one in changes:
            one(document)

    return change


def said(path: str, value: object) -> Callable[[dict], object]:
    """A change of one place in the statement."""
    *outer, last = path.split("/")

    def change(document: dict) -> None:
        for part in outer:
            document = document[int(part) if part.isdigit() else part]
        document[int(last) if last.isdigit() else last] = value

    return change


def with_payload(world: World, payload: bytes) -> tuple:
    return packed({**world.envelope, "payload": base64_of(payload)}), trusted("ada"), {}


def with_signature(world: World, **fields) -> tuple:
    (one,) = world.envelope["signatures"]
    return packed({**world.envelope, "signatures": [{**one, **fields}]}), trusted("ada", "bob"), {}


def with_signatures(world: World, *signatures: dict, trust: dict | None = None) -> tuple:
    return packed({**world.envelope, "signatures": list(signatures)}), trust or trusted("ada", "bob"), {}


def signature(data: bytes, person: str, algorithm: hashes.HashAlgorithm | None = None) -> dict:
    made = private_key(person).sign(data, ec.ECDSA(algorithm or hashes.SHA256()))
    return {"keyid": keyid(person), "sig": base64_of(made)}


# --- the content is changed


@attack("altered")
def a_payload_with_one_bit_flipped(world):
    middle = len(world.payload) // 2
    return with_payload(
        world, world.payload[:middle] + bytes([world.payload[middle] ^ 1]) + world.payload[middle + 1 :]
    )


@attack("altered")
def a_result_turned_round(world):
    return with_payload(world, world.payload.replace(b'"PASSED"', b'"FAILED"'))


@attack("altered")
def a_comment_put_into_the_reviewers_mouth(world):
    return with_payload(world, world.payload.replace(b'"comment":""', b'"comment":"splendid"'))


@attack("altered")
def a_payload_cut_short(world):
    return with_payload(world, world.payload[:-1])


@attack("altered")
def a_payload_with_a_space_added(world):
    return with_payload(world, world.payload + b" ")


@attack("altered")
def a_payload_serialised_again(world):
    return with_payload(world, json.dumps(world.document, indent=1).encode())


@attack("altered")
def the_signature_of_another_verdict(world):
    return with_signature(world, sig=json.loads(world.older)["signatures"][0]["sig"])


# --- the signature is not one


@attack("altered")
def a_signature_with_one_bit_flipped(world):
    made = bytearray(base64.b64decode(world.envelope["signatures"][0]["sig"]))
    made[-1] ^= 1
    return with_signature(world, sig=base64_of(bytes(made)))


@attack("malformed")
def an_empty_signature(world):
    return with_signature(world, sig="")


@attack("altered")
def a_signature_of_zeros(world):
    return with_signature(world, sig=base64_of(utils.encode_dss_signature(0, 0)))


@attack("altered")
def a_signature_as_two_plain_numbers(world):
    r, s = utils.decode_dss_signature(base64.b64decode(world.envelope["signatures"][0]["sig"]))
    return with_signature(world, sig=base64_of(r.to_bytes(32) + s.to_bytes(32)))


@attack("altered")
def a_signature_with_bytes_behind_it(world):
    return with_signature(world, sig=base64_of(base64.b64decode(world.envelope["signatures"][0]["sig"]) + b"\0"))


@attack("altered")
def a_signature_over_the_bare_payload(world):
    return with_signatures(world, signature(world.payload, "ada"))


@attack("altered")
def a_signature_over_another_payload_type(world):
    return with_signatures(world, signature(pae(world.payload, "application/json"), "ada"))


@attack("altered")
def a_signature_with_another_hash(world):
    return with_signatures(world, signature(pae(world.payload), "ada", hashes.SHA384()))


@attack("malformed")
def no_signature(world):
    return with_signatures(world)


@attack("malformed")
def the_same_signature_twice(world):
    return with_signatures(world, *world.envelope["signatures"] * 2)


# --- the wrong key


@attack("foreign key")
def a_strangers_signature(world):
    return with_signatures(world, signature(pae(world.payload), "mallory"))


@attack("altered")
def a_strangers_signature_under_a_trusted_id(world):
    return with_signature(world, sig=signature(pae(world.payload), "mallory")["sig"])


@attack("altered")
def a_trusted_signature_under_another_trusted_id(world):
    return with_signature(world, keyid=keyid("bob"))


@attack("foreign key")
def a_trusted_signature_under_a_strangers_id(world):
    return with_signature(world, keyid=keyid("mallory"))


@attack("foreign key")
def a_strangers_signature_beside_a_trusted_one(world):
    return with_signatures(world, *world.envelope["signatures"], signature(pae(world.payload), "mallory"))


@attack("altered")
def a_broken_signature_beside_a_trusted_one(world):
    return with_signatures(world, *world.envelope["signatures"], signature(world.payload, "bob"))


@attack("malformed")
def a_signature_without_key_id(world):
    return with_signatures(world, {"sig": world.envelope["signatures"][0]["sig"]})


@attack("malformed")
def a_key_id_in_capitals(world):
    return with_signature(world, keyid=keyid("ada").upper())


@attack("malformed")
def a_key_id_that_says_PASSED(world):
    return with_signature(world, keyid="PASSED approved")


# --- who may sign


@attack("revoked")
def a_revoked_key(world):
    return world.verdict, trusted("ada", revoked=True), {}


@attack("threshold")
def a_key_without_the_role(world):
    return world.verdict, trusted("ada", roles=["auditor"]), {}


@attack("threshold")
def a_key_that_was_not_valid_yet(world):
    return world.verdict, trusted("ada", not_before="2026-12-01T00:00:00Z"), {}


@attack("threshold")
def a_key_that_was_no_longer_valid(world):
    return world.verdict, trusted("ada", not_after="2026-11-29T00:00:00Z"), {}


@attack("threshold")
def a_second_key_that_was_no_longer_valid(world):
    keys = [entry("ada"), entry("bob", not_after="2026-11-29T00:00:00Z")]
    return signed(world.payload, "ada", "bob"), {"format": 1, "threshold": 2, "keys": keys}, {}


@attack("threshold")
def one_signature_where_two_are_asked_for(world):
    return world.verdict, trusted("ada", "bob", threshold=2), {}


@attack("threshold")
def one_person_with_two_keys_where_two_people_are_asked_for(world):
    trust = {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("bob", person="Ada")]}
    return signed(world.payload, "ada", "bob"), trust, {}


@attack("threshold")
def one_person_spelt_in_two_ways(world):
    trust = {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("bob", person=" ADA ")]}
    return signed(world.payload, "ada", "bob"), trust, {}


@attack("revoked")
def a_revoked_key_where_two_people_are_asked_for(world):
    trust = {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("bob", revoked=True)]}
    return signed(world.payload, "ada", "bob"), trust, {}


@attack("revoked")
def a_decision_by_somebody_whose_key_was_revoked(world):
    trust = {"format": 1, "threshold": 1, "keys": [entry("ada", revoked=True), entry("bob")]}
    return signed(world.payload, "ada", "bob"), trust, {}


@attack("threshold")
def a_decision_by_somebody_who_did_not_sign(world):
    return signed(world.payload, "bob"), trusted("ada", "bob"), {}


@attack(TRUST)
def one_key_listed_for_two_people(world):
    return world.verdict, {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("ada", person="Grace")]}, {}


@attack(TRUST)
def one_key_under_two_ids(world):
    return world.verdict, {"format": 1, "threshold": 2, "keys": [entry("ada"), entry("ada", keyid="0" * 64)]}, {}


@attack(TRUST)
def a_threshold_of_nobody(world):
    return world.verdict, trusted("ada", threshold=0), {}


@attack(TRUST)
def a_misspelt_revocation(world):
    trust = trusted("ada")
    trust["keys"][0]["revokd"] = trust["keys"][0].pop("revoked")
    return world.verdict, trust, {}


@attack(TRUST)
def a_key_of_another_curve(world):
    public = ec.generate_private_key(ec.SECP384R1()).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    return world.verdict, trusted("ada", public_key=pem), {}


# --- the file is not exactly one envelope


@attack("malformed")
def an_empty_file(world):
    return b"", trusted("ada"), {}


@attack("malformed")
def a_file_cut_short(world):
    return world.verdict[:-3], trusted("ada"), {}


@attack("malformed")
def two_envelopes_in_one_file(world):
    return world.verdict * 2, trusted("ada"), {}


@attack("malformed")
def a_list_of_envelopes(world):
    return packed([world.envelope]), trusted("ada"), {}


@attack("malformed")
def another_payload_type(world):
    return packed({**world.envelope, "payloadType": "text/plain"}), trusted("ada"), {}


@attack("malformed")
def another_payload_type_that_was_signed(world):
    envelope = {**world.envelope, "payloadType": "application/json"}
    envelope["signatures"] = [signature(pae(world.payload, "application/json"), "ada")]
    return packed(envelope), trusted("ada"), {}


@attack("malformed")
def two_payloads(world):
    first = b'{"payload": "' + base64_of(world.payload.replace(b'"PASSED"', b'"FAILED"')).encode() + b'", '
    return first + world.verdict[1:], trusted("ada"), {}


@attack("malformed")
def a_name_that_no_envelope_has(world):
    return packed({**world.envelope, "result": "PASSED"}), trusted("ada"), {}


@attack("malformed")
def a_name_that_no_signature_has(world):
    return with_signature(world, person="Ada")


@attack("malformed")
def no_payload(world):
    return packed({name: value for name, value in world.envelope.items() if name != "payload"}), trusted("ada"), {}


@attack("malformed")
def a_payload_that_is_a_number(world):
    return packed({**world.envelope, "payload": float("nan")}), trusted("ada"), {}


@attack("malformed")
def base64_without_its_padding(world):
    payload = world.payload + b" " * ((1 - len(world.payload)) % 3)  # so that there is padding to leave out
    envelope = json.loads(signed(payload, "ada"))
    return packed({**envelope, "payload": envelope["payload"].rstrip("=")}), trusted("ada"), {}


@attack("malformed")
def base64_with_a_line_break(world):
    payload = world.envelope["payload"]
    return packed({**world.envelope, "payload": payload[:76] + "\n" + payload[76:]}), trusted("ada"), {}


@attack("malformed")
def base64_with_bits_that_decode_to_nothing(world):
    payload = world.payload + b" " * ((1 - len(world.payload)) % 3)  # one byte in the last group: four idle bits
    envelope = json.loads(signed(payload, "ada"))
    text = envelope["payload"]
    assert text.endswith("==")
    idle = {"A": "B", "Q": "R", "g": "h", "w": "x"}[text[-3]]
    return packed({**envelope, "payload": text[:-3] + idle + "=="}), trusted("ada"), {}


@attack("malformed")
def base64_in_the_alphabet_for_addresses(world):
    made = signed(world.payload, "ada")
    while not {"+", "/"} & set(json.loads(made)["signatures"][0]["sig"]):
        made = signed(world.payload, "ada")  # each signature is another one, and nearly all hold such a character
    envelope = json.loads(made)
    envelope["signatures"][0]["sig"] = envelope["signatures"][0]["sig"].translate(str.maketrans("+/", "-_"))
    return packed(envelope), trusted("ada"), {}


@attack("malformed")
def a_byte_order_mark(world):
    return b"\xef\xbb\xbf" + world.verdict, trusted("ada"), {}


@attack("malformed")
def another_encoding(world):
    return world.verdict.decode().encode("utf-16"), trusted("ada"), {}


@attack("malformed")
def brackets_without_end(world):
    return b"[" * 200_000, trusted("ada"), {}


@attack("malformed")
def a_file_of_nine_megabytes(world):
    return world.verdict + b" " * (9 << 20), trusted("ada"), {}


# --- old, or not the next one


@attack("stale")
def a_verdict_older_than_allowed(world):
    return world.verdict, trusted("ada"), {"max_age": timedelta(minutes=59)}


@attack("stale")
def a_verdict_from_the_future(world):
    return resigned(world, said("predicate/time", "2026-11-30T13:05:01Z"))


@attack("replayed")
def an_older_verdict_after_a_newer_one(world):
    return world.older, trusted("ada"), {"previous": world.verdict}


@attack("replayed")
def a_verdict_as_its_own_predecessor(world):
    return world.verdict, trusted("ada"), {"previous": world.verdict}


@attack("replayed")
def a_verdict_with_one_in_between_kept_back(world):
    return world.newer, trusted("ada"), {"previous": world.older}


@attack("replayed")
def a_verdict_that_skips_a_number(world):
    data, trust, _ = resigned(world, said("predicate/sequence", 3))
    return data, trust, {"previous": world.older}


@attack("replayed")
def a_verdict_of_another_line(world):
    twin = world.document
    twin["predicate"]["run"] = "another run"
    return world.newer, trusted("ada"), {"previous": signed(canonical(twin), "ada")}


# --- about something else


@attack("wrong artifact")
def another_revision(world):
    write_revision(world.root / "other", b"other weights")
    return world.verdict, trusted("ada"), {"revision": world.root / "other"}


def _copied(world: World, what: str, name: str) -> Path:
    folder = world.root / name
    for path in getattr(world, what).rglob("*"):
        target = folder / path.relative_to(getattr(world, what))
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
    return folder


@attack("wrong artifact")
def a_revision_with_changed_weights(world):
    folder = _copied(world, "revision", "changed")
    (folder / "model.safetensors").write_bytes(b"Weights")
    return world.verdict, trusted("ada"), {"revision": folder}


@attack("wrong artifact")
def a_revision_with_a_file_more(world):
    folder = _copied(world, "revision", "more")
    (folder / "extra.bin").write_bytes(b"")
    return world.verdict, trusted("ada"), {"revision": folder}


@attack("wrong artifact")
def a_revision_with_a_file_less(world):
    folder = _copied(world, "revision", "less")
    (folder / "model.safetensors").unlink()
    return world.verdict, trusted("ada"), {"revision": folder}


@attack("wrong artifact")
def a_revision_with_a_link(world):
    folder = _copied(world, "revision", "linked")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(world.revision / "model.safetensors")
    return world.verdict, trusted("ada"), {"revision": folder}


@attack("wrong artifact")
def an_artifact_with_a_changed_file(world):
    folder = _copied(world, "artifact", "swapped")
    (folder / "revision" / "event_order.json").write_bytes(b"[]")
    return world.verdict, trusted("ada"), {"artifact": folder}


@attack("wrong artifact")
def an_artifact_with_a_file_more(world):
    folder = _copied(world, "artifact", "fuller")
    (folder / "hook.py").write_bytes(b"")
    return world.verdict, trusted("ada"), {"artifact": folder}


def without_artifact(document: dict) -> None:
    """A statement on the run alone, under a policy that asks nothing of serving."""
    kept = ("revision.json", "report.json")
    document["subject"] = [one for one in document["subject"] if one["name"] in kept]
    said = document["predicate"]
    gone = [f"{check['audit']}: {check['name']}" for one in said["evidence"] for check in one["checks"]]
    said |= {"evidence": [], "passedTests": [name for name in said["passedTests"] if name not in gone]}
    (policy,) = [one["annotations"]["document"] for one in said["configuration"] if one["name"] == "policy"]
    del policy["serving"]


@attack("wrong artifact")
def an_artifact_that_the_verdict_does_not_name(world):
    document = world.document
    without_artifact(document)
    return signed(canonical(document), "ada"), trusted("ada"), {"artifact": world.artifact}


@attack("wrong artifact")
def an_empty_artifact_where_the_verdict_names_none(world):
    document = world.document
    without_artifact(document)
    (world.root / "empty").mkdir()
    return signed(canonical(document), "ada"), trusted("ada"), {"artifact": world.root / "empty"}


@attack("wrong artifact")
def another_report(world):
    other = world.root / "other-report.json"
    other.write_bytes(world.report.read_bytes() + b" ")
    return world.verdict, trusted("ada"), {"report": other}


# --- signed by trusted people, and yet no verdict


def _statement(path: str, value: object) -> Callable:
    return lambda world: resigned(world, said(path, value))


_BROKEN_STATEMENTS = {
    "a statement of an older in-toto": ("_type", "https://in-toto.io/Statement/v0.1"),
    "a predicate of another type": ("predicateType", "https://slsa.dev/provenance/v1"),
    "a version from the future": ("predicate/version", 3),
    "a version of nought": ("predicate/version", 0),
    "a version that is true": ("predicate/version", True),
    "evidence in a version that knew none": ("predicate/version", 1),
    "evidence that is left out": ("predicate/evidence", []),
    "evidence with another digest": ("predicate/evidence/0/digest", "sha256:" + "0" * 64),
    "evidence of another artifact": ("predicate/evidence/0/artifact", "sha256:" + "0" * 64),
    "evidence of no kind": ("predicate/evidence/0/kind", "rumour"),
    "evidence under another name": ("predicate/evidence/0/name", "evidence/replay.json"),
    "a yes although the evidence failed": ("predicate/evidence/0/status", "failed"),
    "a yes although the evidence measured nothing": ("predicate/evidence/1/status", "not measured"),
    "a yes on evidence without checks": ("predicate/evidence/0/checks", []),
    "a yes although a check of the evidence failed": ("predicate/evidence/0/checks/0/status", "failed"),
    "a yes although the evidence is over its limit": ("predicate/evidence/0/checks/0/value", 50.5),
    "a yes on evidence without a value": ("predicate/evidence/0/checks/0/value", None),
    "a yes on evidence of no observation": ("predicate/evidence/1/checks/0/count", 0),
    "a yes on a wider limit than the policy's": ("predicate/evidence/0/checks/0/limit", 51),
    "a yes on a limit that nobody asked for": ("predicate/evidence/0/checks/0/name", "third event p95"),
    "evidence with a word more": ("predicate/evidence/0/checks/0/comment", "splendid"),
    "a planted fault more": ("predicate/planted_faults/audits/causality/caught", 3),
    "a planted fault that was missed after all": ("predicate/planted_faults/faults/0/outcome", "missed"),
    "a planted fault of no outcome": ("predicate/planted_faults/faults/0/outcome", "overlooked"),
    "a planted fault that stands twice": ("predicate/planted_faults/faults/0/fault", "no mask"),
    "planted faults that were not planted": ("predicate/planted_faults/ran", False),
    "no planted faults": ("predicate/planted_faults/faults", []),
    "a result that is none": ("predicate/result", "WARNED"),
    "a yes although a test failed": ("predicate/failedTests", ["causality: jacobian"]),
    "a yes although an audit failed": ("predicate/failures", ["causality"]),
    "a yes although an audit is missing": ("predicate/not_measured", ["training"]),
    "a yes although a check failed": ("predicate/checks/0/status", "failed"),
    "a yes although a value is over its limit": ("predicate/checks/0/value", 1.0),
    "a yes on no observation": ("predicate/checks/0/count", 0),
    "a yes without a value": ("predicate/checks/0/value", None),
    "a yes without checks": ("predicate/checks", []),
    "a yes although the cache is blocked": ("predicate/decision/cache_acceleration", "blocked"),
    "a yes although a setting is blocked": ("predicate/decision/decoding/greedy", "blocked"),
    "a yes to nothing": ("predicate/decision/proposed", []),
    "a yes that the reviewer did not give": ("predicate/review/decision", "refuse"),
    "a decision that is none": ("predicate/review/decision", "maybe"),
    "a no without a reason": ("predicate/result", "FAILED"),
    "a yes that lists no test": ("predicate/passedTests", []),
    "a first verdict that follows another": ("predicate/sequence", 1),
    "a sequence number of nought": ("predicate/sequence", 0),
    "a sequence number that is true": ("predicate/sequence", True),
    "a sequence number with a fraction": ("predicate/sequence", 2.0),
    "a second verdict that follows none": ("predicate/previous", None),
    "a time without a zone": ("predicate/time", "2026-11-30T11:00:00"),
    "a time that is none": ("predicate/time", "PASSED"),
    "a revision that is not its subject": ("predicate/revision/digest", "sha256:" + "0" * 64),
    "a subject without digest": ("subject/0/digest", {}),
    "a subject with half a digest": ("subject/0/digest", {"sha256": "ab" * 16 + "g"}),
    "no subjects": ("subject", []),
    "a predicate that is a list": ("predicate", []),
}
for _name, (_path, _value) in _BROKEN_STATEMENTS.items():
    ATTACKS[_name] = ("malformed", _statement(_path, _value))


@attack("malformed")
def a_no_by_the_reviewer_without_a_reason(world):
    return resigned(world, all_of(said("predicate/result", "FAILED"), said("predicate/review/decision", "refuse")))


@attack("malformed")
def a_first_verdict_whose_number_is_true(world):
    return resigned(world, all_of(said("predicate/sequence", True), said("predicate/previous", None)))


@attack("malformed")
def a_subject_that_stands_twice(world):
    return resigned(world, lambda document: document["subject"].append(copy.deepcopy(document["subject"][0])))


@attack("malformed")
def a_name_that_stands_twice_in_the_statement(world):
    payload = world.payload.replace(b'"result":"PASSED"', b'"result":"FAILED","result":"PASSED"')
    assert payload != world.payload
    return signed(payload, "ada"), trusted("ada"), {}


@attack("malformed")
def a_statement_with_a_number_that_is_none(world):
    payload = world.payload.replace(b'"seed":0', b'"seed":NaN')
    assert payload != world.payload
    return signed(payload, "ada"), trusted("ada"), {}


@attack("malformed")
def a_limit_without_end(world):
    payload = world.payload.replace(b'"limit":0.0', b'"limit":1e999', 1)
    assert payload != world.payload
    return signed(payload, "ada"), trusted("ada"), {}


@attack("malformed")
def a_value_of_the_evidence_that_is_none(world):
    payload = world.payload.replace(b'"value":40.0', b'"value":NaN', 1)
    assert payload != world.payload
    return signed(payload, "ada"), trusted("ada"), {}


@attack("malformed")
def a_value_of_the_evidence_below_everything(world):
    payload = world.payload.replace(b'"value":40.0', b'"value":-1e999', 1)
    assert payload != world.payload
    return signed(payload, "ada"), trusted("ada"), {}


def without_bench(document: dict) -> None:
    document["subject"] = [one for one in document["subject"] if one["name"] != "evidence/bench.json"]
    kept = [one for one in document["predicate"]["evidence"] if one["kind"] != "bench"]
    gone = [f"serving limits: {check['name']}" for check in document["predicate"]["evidence"][0]["checks"]]
    document["predicate"]["evidence"] = kept
    passed = document["predicate"]["passedTests"]
    document["predicate"]["passedTests"] = [name for name in passed if name not in gone]


@attack("malformed")
def a_yes_without_the_bench_that_the_policy_asks_for(world):
    return resigned(world, without_bench)


@attack("malformed")
def a_missed_fault_that_is_counted_as_missed_and_not_by_the_gate(world):
    counts = "predicate/planted_faults/audits/causality/"
    return resigned(world, all_of(
        said("predicate/planted_faults/faults/0/outcome", "missed"), said(counts + "missed", 1),
        said(counts + "caught", 1),
    ))  # fmt: skip


@attack("wrong artifact")
def evidence_that_was_altered(world):
    other = world.root / "other-bench.json"
    other.write_bytes(world.bench.read_bytes().replace(b"40.0", b"39.0"))
    return world.verdict, trusted("ada"), {"evidence": [other]}


@attack("wrong artifact")
def evidence_cut_short(world):
    other = world.root / "short-bench.json"
    other.write_bytes(world.bench.read_bytes()[:-1])
    return world.verdict, trusted("ada"), {"evidence": [world.bench, other]}


@attack("wrong artifact")
def something_else_for_evidence(world):
    return world.verdict, trusted("ada"), {"evidence": [world.report]}


@attack("malformed")
def a_signed_text_that_is_no_statement(world):
    return signed(b"PASSED", "ada"), trusted("ada"), {}
