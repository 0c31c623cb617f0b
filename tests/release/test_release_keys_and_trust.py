"""Keys are encrypted, private to their owner and never overwritten; a trust file means one thing or is refused."""

from __future__ import annotations

import copy
import json
import stat
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from auditlib.errors import KeyFileError
from auditlib.release.identity import Identity
from auditlib.release.keys import key_id, load_key, read_public_pem
from auditlib.release.signing import new_key
from auditlib.release.trust import TrustedKey, add_entry, load_trust, read_entry
from tests.release.cases import PASSPHRASE, entry, key_file, private_key, trusted


def test_a_new_key_is_encrypted_pkcs8_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "keys" / "ada.pem"
    keyid = new_key(path, "Ada", PASSPHRASE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert key_id(load_key(path, PASSPHRASE).public_key()) == keyid


def test_openssl_reads_the_key_and_finds_the_same_id(tmp_path):
    keyid = new_key(tmp_path / "ada.pem", "Ada", PASSPHRASE)
    opened = ["openssl", "pkey", "-in", tmp_path / "ada.pem", "-passin", f"pass:{PASSPHRASE.decode()}"]
    der = subprocess.run([*opened, "-pubout", "-outform", "DER"], check=True, capture_output=True).stdout
    found = subprocess.run(["openssl", "dgst", "-sha256", "-r"], input=der, check=True, capture_output=True).stdout
    assert found.split()[0].decode() == keyid


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "ada.pem"
    path.write_text("something dear")
    with pytest.raises(KeyFileError, match="never overwritten"):
        new_key(path, "Ada", PASSPHRASE, tmp_path / "trust.json")
    assert path.read_text() == "something dear"
    assert not (tmp_path / "trust.json").exists()


@pytest.mark.parametrize(
    ("person", "passphrase"), [("Ada", b""), ("", PASSPHRASE), (" ", PASSPHRASE), ("A\nB", PASSPHRASE)]
)
def test_a_key_needs_a_person_and_a_passphrase(tmp_path, person, passphrase):
    with pytest.raises(KeyFileError):
        new_key(tmp_path / "k.pem", person, passphrase, tmp_path / "trust.json")
    assert list(tmp_path.iterdir()) == []


def test_new_keys_make_a_trust_file_and_join_it(tmp_path):
    trust = tmp_path / "trust.json"
    ids = [new_key(tmp_path / f"{name}.pem", name, PASSPHRASE, trust) for name in ("Ada", "Grace")]
    read = load_trust(trust)
    assert list(read.keys) == ids
    assert [key.person for key in read.keys.values()] == ["Ada", "Grace"]
    assert read.threshold == 1
    document = json.loads(trust.read_text())
    assert set(document) == {"format", "threshold", "keys"}
    assert set(document["keys"][0]) == {"keyid", "public_key", "person", "roles", "not_before", "not_after", "revoked"}


def test_a_trust_file_that_cannot_be_read_stops_a_new_key_before_it_is_made(tmp_path):
    (tmp_path / "trust.json").write_text("{}")
    with pytest.raises(KeyFileError):
        new_key(tmp_path / "ada.pem", "Ada", PASSPHRASE, tmp_path / "trust.json")
    assert not (tmp_path / "ada.pem").exists()


def test_a_key_file_gives_its_key_only_for_its_passphrase(tmp_path):
    path = key_file(tmp_path, "ada")
    assert key_id(load_key(path, PASSPHRASE).public_key()) == key_id(private_key("ada").public_key())
    for wrong in (b"", b"wrong", PASSPHRASE + b" "):
        with pytest.raises(KeyFileError, match="passphrase is wrong"):
            load_key(path, wrong)


@pytest.mark.parametrize(("mode", "encrypted", "taken"), [
    (0o600, False, True), (0o604, False, False), (0o640, False, False), (0o644, True, True), (0o400, False, True),
])  # fmt: skip
def test_an_unencrypted_key_that_others_may_read_is_refused(tmp_path, mode, encrypted, taken):
    path = key_file(tmp_path, "ada", encrypted=encrypted)
    path.chmod(mode)
    if taken:
        assert load_key(path, PASSPHRASE)
    else:
        with pytest.raises(KeyFileError, match="chmod 600"):
            load_key(path, PASSPHRASE)


def _pem(key, form=serialization.PrivateFormat.PKCS8):
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00" * 90, b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        _pem(ec.generate_private_key(ec.SECP384R1())), _pem(ed25519.Ed25519PrivateKey.generate()),
        _pem(ec.generate_private_key(ec.SECP256R1()), serialization.PrivateFormat.TraditionalOpenSSL),
    ],
    ids=["empty", "noise", "damaged", "P-384", "Ed25519", "not PKCS#8"],
)  # fmt: skip
def test_what_is_no_p256_key_in_pkcs8_is_refused(tmp_path, content):
    path = tmp_path / "k.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=r"k\.pem"):
        load_key(path, PASSPHRASE)


@pytest.mark.parametrize("path", ["nowhere.pem", "."])
def test_a_key_that_is_not_there_is_said_to_be_unreadable(tmp_path, path):
    with pytest.raises(KeyFileError, match="cannot be read"):
        load_key(tmp_path / path, PASSPHRASE)


def test_a_trust_document_is_read_as_it_stands():
    trust = load_trust(trusted("ada", "grace", threshold=2))
    assert trust.threshold == 2
    assert [key.person for key in trust.keys.values()] == ["Ada", "Grace"]


P384 = ec.generate_private_key(ec.SECP384R1()).public_key()
P384_PEM = P384.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("format",), 2), (("threshold",), 0), (("threshold",), True), (("threshold",), "1"), (("threshold",), 1.0),
        (("threshold",), None), (("keys",), {}), (("more",), 1), (("keys", 0), "ada"), (("keys", 0, "revokd"), True),
        (("keys", 0, "revoked"), "no"), (("keys", 0, "revoked"), None), (("keys", 0, "roles"), "release-signer"),
        (("keys", 0, "roles"), [1]), (("keys", 0, "person"), ""), (("keys", 0, "person"), "A\u202eda"),
        (("keys", 0, "person"), 7), (("keys", 0, "keyid"), "ada"), (("keys", 0, "keyid"), "0" * 64),
        (("keys", 0, "public_key"), "PEM"), (("keys", 0, "public_key"), None), (("keys", 0, "public_key"), P384_PEM),
        (("keys", 0, "not_before"), "soon"), (("keys", 0, "not_after"), 0),
        (("keys", 0, "not_after"), "0001-01-01T00:00:00+14:00"),
    ],
    ids=lambda value: "P-384" if value == P384_PEM else str(value),
)  # fmt: skip
def test_a_trust_file_with_anything_doubtful_is_refused_as_a_whole(tmp_path, where, value):
    document = copy.deepcopy(trusted("ada", "grace"))
    inner = document
    for part in where[:-1]:
        inner = inner[part]
    inner[where[-1]] = value
    path = tmp_path / "trust.json"
    path.write_text(json.dumps(document))
    for source in (path, document):
        with pytest.raises(KeyFileError, match="mend the trust file"):
            load_trust(source)


@pytest.mark.parametrize("name", ["keyid", "public_key", "person", "roles", "not_before", "not_after", "revoked"])
def test_an_entry_that_lacks_a_field_is_refused(name):
    document = trusted("ada")
    del document["keys"][0][name]
    with pytest.raises(KeyFileError, match="key 1 must have exactly"):
        load_trust(document)


def test_one_key_under_two_names_is_refused():
    document = trusted("ada")
    document["keys"].append({**entry("ada"), "person": "Grace"})
    with pytest.raises(KeyFileError, match="stands twice"):
        load_trust(document)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format":1,"format":1,"threshold":1,"keys":[]}', '{"threshold":NaN}', "\ufeff{}"]
)
def test_a_trust_file_that_two_readers_could_take_differently_is_refused(tmp_path, text):
    path = tmp_path / "trust.json"
    path.write_text(text)
    with pytest.raises(KeyFileError):
        load_trust(path)


def test_a_trust_file_that_is_not_there_is_said_to_be_unreadable(tmp_path):
    with pytest.raises(KeyFileError, match="cannot be read"):
        load_trust(tmp_path / "trust.json")


@pytest.mark.parametrize(("one", "other", "same"), [
    ("Ada", " ADA ", True), ("Ada  Lovelace", "ada lovelace", True), ("Ａｄａ", "ada", True), ("Ada", "Adam", False),
])  # fmt: skip
def test_people_are_told_apart_by_name_and_not_by_spelling(one, other, same):
    first, second = (load_trust({**trusted("ada"), "keys": [entry("ada", person=name)]}) for name in (one, other))
    holders = {key.holder for trust in (first, second) for key in trust.keys.values()}
    assert (len(holders) == 1) == same


def test_a_key_of_another_curve_is_no_public_key_here():
    with pytest.raises(ValueError, match="P-256"):
        read_public_pem(P384_PEM)


ISSUER = "https://login.example.test/realm"


def test_a_key_may_say_which_account_its_person_signs_in_with(tmp_path):
    trust = tmp_path / "trust.json"
    keyid = new_key(tmp_path / "ada.pem", "Ada", PASSPHRASE, trust, identity=Identity(ISSUER, "u-1"))
    new_key(tmp_path / "grace.pem", "Grace", PASSPHRASE, trust)
    found = load_trust(trust).keys
    assert {key.person: key.identity for key in found.values()} == {"Ada": Identity(ISSUER, "u-1"), "Grace": None}
    assert json.loads(trust.read_text())["keys"][0]["identity"] == {"issuer": ISSUER, "subject": "u-1"}
    assert found[keyid].person == "Ada"


@pytest.mark.parametrize(
    "identity",
    [
        None, "u-1", {}, {"issuer": ISSUER}, {"subject": "u-1"}, {"issuer": ISSUER, "subject": 1},
        {"issuer": ISSUER, "subject": ""}, {"issuer": ISSUER, "subject": " u-1"},
        {"issuer": ISSUER, "subject": "\u202e"},
        {"issuer": ISSUER, "subject": "u" * 256}, {"issuer": ISSUER, "subject": "u-1", "email": "ada@example.test"},
        {"issuer": "http://login.example.test", "subject": "u-1"}, {"issuer": "login", "subject": "u-1"},
        {"issuer": f"{ISSUER}?x=1", "subject": "u-1"}, {"issuer": f"{ISSUER}#x", "subject": "u-1"},
        {"issuer": "https://", "subject": "u-1"}, {"issuer": "https://[", "subject": "u-1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_doubtful_identity_refuses_the_trust_file(identity):
    document = trusted("ada")
    document["keys"][0]["identity"] = identity
    with pytest.raises(KeyFileError, match='"identity" of key 1'):
        load_trust(document)


@pytest.mark.parametrize(
    ("first", "second", "refused"), [("Ada", "Grace", True), ("Ada", " ADA ", False)], ids=["two people", "one"]
)
def test_one_account_is_one_person(first, second, refused):
    account = {"issuer": ISSUER, "subject": "u-1"}
    keys = [{**entry("ada", person=first), "identity": account}, {**entry("grace", person=second), "identity": account}]
    document = {**trusted("ada"), "keys": keys}
    if not refused:
        assert len({key.holder for key in load_trust(document).keys.values()}) == 1
        return
    with pytest.raises(KeyFileError, match="stands under two names"):
        load_trust(document)


def test_a_person_may_have_two_accounts_and_letters_make_them_differ():
    one, other = Identity(ISSUER, "u-1"), Identity(ISSUER, "U-1")
    keys = [{**entry("ada"), "identity": one.to_dict()}, {**entry("grace"), "identity": other.to_dict()}]
    assert len(load_trust({**trusted("ada"), "keys": keys}).keys) == 2


def test_a_key_that_is_asked_for_counts_only_once_the_keeper_has_added_it(tmp_path):
    trust, request = tmp_path / "trust.json", tmp_path / "ada.request.json"
    keyid = new_key(tmp_path / "ada.pem", "Ada", PASSPHRASE, identity=Identity(ISSUER, "u-1"), request=request)
    assert not trust.exists()
    added = add_entry(trust, read_entry(request))
    assert (added.keyid, added.person, added.identity) == (keyid, "Ada", Identity(ISSUER, "u-1"))
    assert set(load_trust(trust).keys) == {keyid}
    before = trust.read_bytes()
    for broken in (read_entry(request), {**read_entry(request), "keyid": "0" * 64}, {}):
        with pytest.raises(KeyFileError):
            add_entry(trust, broken)
    assert trust.read_bytes() == before


def test_a_request_that_is_there_is_not_overwritten(tmp_path):
    request = tmp_path / "ada.request.json"
    request.write_text("mine")
    with pytest.raises(KeyFileError, match="not overwritten"):
        new_key(tmp_path / "ada.pem", "Ada", PASSPHRASE, request=request)
    assert request.read_text() == "mine"
    assert not (tmp_path / "ada.pem").exists()


@pytest.mark.parametrize("hidden", ["\u034f", "\ufe0f", "\u3164", "\u200b", "\u00ad"])
def test_a_name_with_characters_that_nobody_sees_is_the_same_person(hidden):
    people = [TrustedKey("k", private_key("ada").public_key(), name, ()) for name in ("Ada", f"A{hidden}da")]
    assert people[0].holder == people[1].holder
