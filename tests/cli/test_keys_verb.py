"""Keys for people who sign in: the account stands in the entry, and the keeper of the trust file adds it."""

from __future__ import annotations

import json

import pytest

from auditlib.cli.main import main
from auditlib.release.identity import Identity
from auditlib.release.trust import load_trust

ISSUER = "https://login.example.test"


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSPHRASE", "correct horse")
    start = ["keys", "new", "--out", str(tmp_path / "ada.pem"), "--person", "Ada", "--passphrase-env", "PASSPHRASE"]
    return lambda *more: main([*start, *map(str, more)])


def test_a_key_made_for_an_account_says_so_in_the_trust_file(make, tmp_path):
    assert make("--trust", tmp_path / "trust.json", "--identity", ISSUER, "u-1") == 0
    (key,) = load_trust(tmp_path / "trust.json").keys.values()
    assert key.identity == Identity(ISSUER, "u-1")


@pytest.mark.parametrize("account", [("login.example.test", "u-1"), (ISSUER, "")])
def test_an_account_that_no_provider_sends_is_wrong_use_and_makes_no_key(make, tmp_path, account, capsys):
    assert make("--identity", *account) == 2
    assert "--identity" in capsys.readouterr().err
    assert not (tmp_path / "ada.pem").exists()


def test_a_request_is_added_by_the_keeper_who_is_told_whose_it_is(make, tmp_path, capsys):
    request, trust = tmp_path / "ada.request.json", tmp_path / "trust.json"
    assert make("--identity", ISSUER, "u-1", "--request", request) == 0
    assert not trust.exists()
    assert main(["keys", "add", str(request), "--trust", str(trust), "--json", str(tmp_path / "added.json")]) == 0
    said = json.loads((tmp_path / "added.json").read_text())
    assert said["person"] == "Ada"
    assert said["identity"] == {"issuer": ISSUER, "subject": "u-1"}
    assert set(load_trust(trust).keys) == {said["keyid"]}
    assert f"Ada, who signs in as u-1 at {ISSUER}" in capsys.readouterr().out
    assert main(["keys", "add", str(request), "--trust", str(trust)]) == 2
