"""An artifact folder: what is in it, and that nothing else is ever taken for it."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditlib.errors import ArtifactError, IntegrityError, RevisionError
from auditlib.serving.artifact import open_artifact
from auditlib.serving.artifact_document import FULL_PREFIX
from tests.packed import policy_of, put, replaced, rewritten, small_artifact
from tests.small_gpt import CONTEXT, EVENT_MAP

REFUSED = (ArtifactError, IntegrityError)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("packed"))


@pytest.fixture
def folder(packed, tmp_path):
    """A copy to do harm to."""
    shutil.copytree(packed.folder, tmp_path / "artifact")
    return tmp_path / "artifact"


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_an_artifact_is_read_back_as_it_was_packed(packed):
    artifact = open_artifact(packed.folder, packed.digest)
    assert files_of(packed.folder) == [
        "answers.json",
        "artifact.json",
        "fixed_batch.safetensors",
        "policy.json",
        "revision/event_map.json",
        "revision/event_order.json",
        "revision/model.safetensors",
        "revision/reference.safetensors",
        "revision/revision.json",
    ]
    assert (artifact.serves, artifact.setting.name, artifact.strategy) == (True, "greedy", "cached")
    assert (artifact.dtype, artifact.fallback, artifact.tolerance) == ("float32", "full-prefix", 4e-5)
    assert (artifact.bounds.max_prefix_events, artifact.bounds.max_new_events) == (CONTEXT - 1, 3)
    assert artifact.policy.settings == tuple(sorted(policy_of().settings, key=lambda one: one.name))
    assert artifact.blocked.cache_acceleration == ()


def test_a_loaded_artifact_is_what_an_engine_needs(packed):
    served = packed.load()
    assert served.digest == packed.digest
    assert (served.setting, served.strategy, served.bounds) == (packed.setting, packed.strategy, packed.bounds)
    assert (served.event_map, served.tolerance, served.device) == (EVENT_MAP, 4e-5, "cpu")
    assert served.decoder.context_length == CONTEXT


def test_no_path_and_no_time_of_this_machine_is_in_an_artifact(packed):
    for name in files_of(packed.folder):
        content = (packed.folder / name).read_bytes()
        assert str(packed.folder.parent).encode() not in content
        assert b"2026-11-30" not in content


def test_every_byte_of_the_document_belongs_to_the_digest_that_names_the_artifact(folder, packed):
    path = folder / "artifact.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(IntegrityError):
            open_artifact(folder, packed.digest)


def test_a_changed_document_is_refused_or_bears_another_name_where_nobody_says_which_is_meant(folder, packed):
    path = folder / "artifact.json"
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        try:
            assert open_artifact(folder).digest != packed.digest
        except REFUSED:
            refused += 1
    assert refused > 0.5 * len(whole) / 5


def test_a_flip_anywhere_in_any_other_file_is_refused(folder):
    for name in files_of(folder):
        path = folder / name
        whole = path.read_bytes()
        for place in sorted({0, len(whole) - 1, *range(0, len(whole), max(1, len(whole) // 24))}):
            if name != "artifact.json":
                path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
                with pytest.raises((*REFUSED, RevisionError)):
                    open_artifact(folder)
        path.write_bytes(whole)
    assert open_artifact(folder).serves


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b + b"\n", lambda b: b"", lambda b: b"\xef\xbb\xbf" + b]
)
def test_a_file_cut_or_lengthened_is_refused(folder, change):
    for name in files_of(folder):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(change(whole))
        with pytest.raises(REFUSED):
            open_artifact(folder)
        (folder / name).write_bytes(whole)


STAND_INS = {
    "nothing": lambda path, content: None,
    "a link": lambda path, content: path.symlink_to(content),
    "a second name": lambda path, content: path.hardlink_to(content),
    "a pipe": lambda path, content: os.mkfifo(path),
    "a folder": lambda path, content: path.mkdir(),
}


@pytest.mark.parametrize("stand_in", STAND_INS)
def test_what_stands_in_for_a_file_is_refused_whatever_the_file(folder, tmp_path, stand_in):
    content = tmp_path / "content"
    for name in files_of(folder):
        path = folder / name
        path.rename(content)
        STAND_INS[stand_in](path, content)
        with pytest.raises(REFUSED):
            open_artifact(folder)
        if stand_in == "a folder":
            path.rmdir()
        path.unlink(missing_ok=True)
        content.rename(path)
    assert open_artifact(folder).serves


@pytest.mark.parametrize(
    "name", ["extra", ".hidden", "revision/extra", "answers.json.bak", "ANSWERS.json", "a\nb", "\u202ex"]
)
def test_a_file_too_many_is_refused(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(REFUSED):
        open_artifact(folder)


def test_a_revision_folder_that_is_a_link_is_refused(folder, tmp_path):
    (folder / "revision").rename(tmp_path / "elsewhere")
    (folder / "revision").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="no folder of its own"):
        open_artifact(folder)


def test_nothing_is_no_artifact(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "empty", "file", "a\0b"):
        with pytest.raises(ArtifactError):
            open_artifact(tmp_path / name)


@pytest.mark.parametrize(
    "name", ["../policy.json", "/etc/passwd", "revision/../policy.json", "revision/a/b", "", "policy.json "]
)
def test_a_listed_name_that_leaves_the_folder_is_refused(folder, name):
    (folder.parent / "policy.json").write_bytes((folder / "policy.json").read_bytes())
    rewritten(folder, lambda document: document["files"].__setitem__(name, document["files"]["policy.json"]))
    with pytest.raises(REFUSED):
        open_artifact(folder)


@pytest.mark.parametrize(
    "change",
    [
        put("format", 2),
        put("serves", False),
        put("serves", 1),
        put("decoding", "served", None),
        put("decoding", "served", "beam without order mask"),
        put("decoding", "asked", "luck"),
        put("decoding", "settings", "greedy", "order_mask", False),
        put("decoding", "settings", {}),
        put("strategy", "served", None),
        put("strategy", "served", "turbo"),
        put("strategy", "asked", []),
        put("blocked", "cache_acceleration", ["cache parity: single events: over limit"]),
        put("blocked", "decoding", "greedy", ["decoding policy: greedy: invalid sequences: over limit"]),
        put("blocked", "decoding", {}),
        put("bounds", "slots", 0),
        put("bounds", "queue", -1),
        put("bounds", "max_prefix_events", 10**400),
        put("bounds", "max_prefix_events", True),
        put("bounds", "max_new_events", 4),
        put("stopping", "max_new_events", 4),
        put("stopping", "stop_on", "never"),
        put("tolerance", "value", -1e-9),
        put("tolerance", "value", 1),
        put("tolerance", "unit", "nat"),
        put("tolerance", "device", "cpu"),
        put("dtype", "float16"),
        put("fallback", "the old one"),
        put("fallback", "sha256:00"),
        put("report", "sha256:" + "A" * 64),
        put("revision", "digest", "sha256:" + "0" * 64),
        put("revision", "name", "another"),
        put("event_map", "digest", "sha256:" + "0" * 64),
        put("event_order", "version", "7"),
        put("code", "version", None),
        put("files", {}),
        put("files", "answers.json", "sha256:" + "0" * 64),
        put("files", "revision/revision.json", "sha256:" + "0" * 64),
        put("extra", 1),
        lambda document: document.pop("tolerance"),
        lambda document: document["bounds"].pop("max_new_events"),
        lambda document: document["files"].pop("answers.json"),
    ],
)
def test_a_document_that_contradicts_itself_or_what_lies_there_is_refused(folder, change):
    rewritten(folder, change)
    with pytest.raises(REFUSED):
        open_artifact(folder)


def test_bounds_of_two_files_that_agree_with_each_other_still_have_to_fit_the_decoder(folder):
    rewritten(folder, put("bounds", "max_prefix_events", CONTEXT))
    with pytest.raises(ArtifactError, match="context length"):
        open_artifact(folder).load()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"format":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": NaN}',
        b'{"format":1,"format":1}',
        b" " * (4 << 20) + b"{}",
    ],
)
def test_a_document_that_is_none_is_refused_without_harm(folder, content):
    (folder / "artifact.json").write_bytes(content)
    with pytest.raises(ArtifactError):
        open_artifact(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b + b" ",
        lambda b: b.replace(b'"unit":', b'"unit": '),
        lambda b: b.replace(b"cpu", b"\\ud800"),
        lambda b: b.replace(b"cpu", b"c\\u0070u"),
    ],
)
def test_a_document_in_another_form_than_the_one_is_refused(folder, spoil):
    path = folder / "artifact.json"
    content = path.read_bytes()
    assert spoil(content) != content
    path.write_bytes(spoil(content))
    with pytest.raises(ArtifactError, match="one form"):
        open_artifact(folder)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=9),
    st.just([]), st.just({}), st.just([[[]]]), st.just({"": 0}),
)  # fmt: skip


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_anywhere_in_a_document_it_is_refused_or_says_nothing_that_is_acted_on(packed, folder, data):
    document = json.loads((packed.folder / "artifact.json").read_bytes())
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    value = data.draw(JUNK)
    (folder / "artifact.json").write_bytes((packed.folder / "artifact.json").read_bytes())
    try:
        rewritten(folder, put(*path, value))
    except UnicodeEncodeError:
        return
    try:
        artifact = open_artifact(folder)
    except REFUSED:
        return
    known = packed.setting, packed.strategy, packed.bounds.max_new_events, packed.revision.digest, packed.dtype
    assert known == (
        artifact.setting,
        artifact.strategy,
        artifact.bounds.max_new_events,
        artifact.revision.digest,
        artifact.dtype,
    )
    free = {"name", "run", "device", "fallback", "bounds", "tolerance", "asked", "blocked", "version"}
    assert free & set(path) or artifact.digest == packed.digest


def test_an_artifact_that_is_swapped_after_it_was_opened_is_not_loaded(folder):
    artifact = open_artifact(folder)
    weights = folder / "revision" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(IntegrityError):
        artifact.load()


def test_a_file_that_is_swapped_after_opening_is_not_read(folder):
    artifact = open_artifact(folder)
    (folder / "answers.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError):
        artifact.read("answers.json")
    with pytest.raises(ArtifactError, match="lists no file"):
        artifact.read("../artifact.json")


def test_a_policy_that_proposes_other_settings_is_refused_although_its_digest_is_listed(folder):
    document = json.loads((folder / "policy.json").read_bytes())
    document["decoding"]["greedy"]["order_mask"] = False
    replaced(folder, "policy.json", json.dumps(document).encode())
    with pytest.raises(ArtifactError, match="settings"):
        open_artifact(folder)


def test_the_strategy_that_is_asked_for_is_served_where_nothing_blocks_it(tmp_path):
    assert small_artifact(tmp_path, strategy=FULL_PREFIX).strategy == FULL_PREFIX
