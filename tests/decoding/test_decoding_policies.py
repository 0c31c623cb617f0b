from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from auditlib.decoding.policies import DEFAULT_SETTINGS, Setting, read_policy, settings_from
from auditlib.errors import PolicyError


def document(**changes: object) -> dict[str, object]:
    return {"format": 1, "max_new_events": 8, "decoding": {"greedy": {"kind": "greedy"}}} | changes


def test_the_default_policy_proposes_every_kind_with_the_order_mask():
    policy = read_policy(None)
    assert policy.settings == DEFAULT_SETTINGS
    assert [setting.kind for setting in policy.settings] == ["greedy", "sampled", "beam"]
    assert all(setting.order_mask for setting in policy.settings)
    assert (policy.max_new_events, policy.fallback) == (32, "full-prefix")


def test_a_policy_is_named_by_the_bytes_of_its_file(tmp_path):
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document()))
    policy = read_policy(file)
    assert policy.digest == "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
    assert policy.max_new_events == 8
    assert read_policy(file).document == json.loads(file.read_text())


@pytest.mark.parametrize("setting", [*DEFAULT_SETTINGS, Setting("s", "sampled", False, 0.5, 3, 0.9, 7, 2)])
def test_a_setting_survives_its_document(setting):
    assert settings_from({setting.name: setting.to_json()}) == (setting,)


@pytest.mark.parametrize(("order_mask", "name"), [(True, "x without order mask"), (False, "x with order mask")])
def test_a_twin_differs_in_the_order_mask_alone(order_mask, name):
    setting = Setting("x", "sampled", order_mask, top_k=4, seed=9)
    twin = setting.twin()
    assert (twin.name, twin.order_mask) == (name, not order_mask)
    assert (twin.kind, twin.top_k, twin.seed) == ("sampled", 4, 9)
    assert setting.masked().order_mask
    assert not setting.unmasked().order_mask
    assert setting in (setting.masked(), setting.unmasked())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format": 2}, "format 1"),
        ({"format": True}, "format 1"),
        ({"format": 1.0}, "format 1"),
        ({"max_new_event": 3}, "max_new_event"),
        ({"max_new_events": 0}, "max_new_events"),
        ({"max_new_events": True}, "max_new_events"),
        ({"max_new_events": 2.5}, "max_new_events"),
        ({"decoding": {}}, "decoding"),
        ({"decoding": {"a": {"kind": "best"}}}, "'best'"),
        ({"decoding": {"a": []}}, "'a'"),
        ({"decoding": {"a": {"kind": "greedy", "order_mask": 1}}}, "order_mask"),
        ({"decoding": {"a": {"kind": "greedy", "top_k": 3}}}, "top_k"),
        ({"decoding": {"a": {"kind": "beam", "width": 2, "temperature": 2}}}, "temperature"),
        ({"decoding": {"a": {"kind": "sampled", "top_p": 0}}}, "top_p"),
        ({"decoding": {"a": {"kind": "sampled", "top_p": 1.1}}}, "top_p"),
        ({"decoding": {"a": {"kind": "sampled", "top_k": -1}}}, "top_k"),
        ({"decoding": {"a": {"kind": "sampled", "top_k": 1.0}}}, "top_k"),
        ({"decoding": {"a": {"kind": "sampled", "top_k": 10**20}}}, "policy.json, decoding: setting 'a': top_k"),
        ({"decoding": {"a": {"kind": "sampled", "temperature": 0}}}, "policy.json, decoding: setting 'a': temperature"),
        ({"decoding": {"a": {"kind": "sampled", "temperature": 10**400}}}, "temperature"),
        ({"decoding": {"a": {"kind": "sampled", "seed": "7"}}}, "seed"),
        ({"decoding": {"a": {"kind": "beam", "width": 0}}}, "width"),
        ({"decoding": {"a": {"kind": "beam", "length_penalty": 11}}}, "length_penalty"),
        ({"decoding": {"a: b": {"kind": "greedy"}}}, "a: b"),
        ({"decoding": {"": {"kind": "greedy"}}}, "name"),
        ({"decoding": {"n" * 62: {"kind": "greedy"}}}, "at most 61 characters here"),
        ({"decoding": {"a": {"kind": "greedy"}, "a without order mask": {"kind": "greedy"}}}, "a without order mask"),
        ({"limits": []}, "limits"),
        ({"fallback": ""}, "fallback"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_place(tmp_path, changes, named):
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(document(**changes)))
    with pytest.raises(PolicyError) as refusal:
        read_policy(file)
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": 1, "format": 1}', '{"format": 1, "max_new_events": NaN}', "[" * 100_000, "\xff"]
)
def test_a_file_that_is_no_policy_is_refused_by_name(tmp_path, text):
    file = tmp_path / "policy.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(PolicyError, match=r"policy\.json"):
        read_policy(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PolicyError, match="nowhere"):
        read_policy(tmp_path / "nowhere.json")


def test_a_path_that_is_none_is_named_with_what_is_wrong():
    with pytest.raises(PolicyError, match=r"cannot read the policy 'a\\x00b'"):
        read_policy(Path("a\0b"))


def test_the_longest_name_leaves_room_for_its_twin():
    (setting,) = settings_from({"n" * 61: {"kind": "greedy"}})
    assert len(setting.twin().name) == 80
