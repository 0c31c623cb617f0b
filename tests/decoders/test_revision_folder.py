"""Revision folders come from strangers: only a whole, plain, unaltered one is opened."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch

from auditlib.decoders.guarded_folder import read_file
from auditlib.decoders.revision import Manifest, open_revision, write_revision
from auditlib.decoders.tensor_file import read_tensors, write_tensors
from auditlib.errors import DecoderError, EventMapError, IntegrityError, PrefixgateError, RevisionError
from auditlib.events.event_map import EventMap
from tests.small_gpt import (
    EVENT_MAP,
    EVENT_ORDER,
    everywhere,
    small_config,
    small_gpt,
    some_events,
    write_small_revision,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path):
    return write_small_revision(tmp_path / "revision").folder


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and list it, so that what reads it next is reached."""
    (folder / name).write_bytes(content)
    relist(folder)


def relist(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "revision.json").read_text())
    manifest["files"] = {
        path.name: f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.iterdir())
        if path.name != "revision.json"
    }
    (folder / "revision.json").write_text(json.dumps({**manifest, **changes}))


def test_what_was_written_is_what_is_opened(folder):
    revision = open_revision(folder)
    assert revision.event_map == EVENT_MAP
    assert revision.event_order == EVENT_ORDER
    assert revision.digest == f"sha256:{hashlib.sha256((folder / 'revision.json').read_bytes()).hexdigest()}"
    assert {path.name for path in folder.iterdir()} == {*revision.manifest.files, "revision.json"}
    decoder, events = revision.decoder(), some_events(2, 5)
    assert decoder.revision == small_gpt().revision
    assert torch.equal(decoder.full(events, everywhere(events)), small_gpt().full(events, everywhere(events)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_dtype_loads(folder, dtype):
    assert open_revision(folder).decoder(dtype=dtype).dtype == dtype


def test_a_dtype_or_device_that_is_not_there_is_refused(folder):
    with pytest.raises(DecoderError, match="float16"):
        open_revision(folder).decoder(dtype=torch.float16)
    for device in ("toaster", "cuda:99", "meta"):
        with pytest.raises(DecoderError, match=device):
            open_revision(folder).decoder(device=device)


def test_equal_contents_make_equal_revisions(tmp_path):
    digests = {write_small_revision(tmp_path / name).digest for name in ("one", "two")}
    assert len(digests) == 1
    assert write_small_revision(tmp_path / "three", seed=1).digest not in digests


@pytest.mark.parametrize("name", ["model.safetensors", "event_map.json", "event_order.json", "reference.safetensors"])
def test_any_altered_file_fails_its_digest(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(IntegrityError, match=name):
        open_revision(folder)


def test_a_file_that_changes_after_opening_is_not_loaded(folder):
    revision = open_revision(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        revision.decoder()


def link(path: Path) -> None:
    path.rename(path.parent.parent / "outside")
    path.symlink_to(path.parent.parent / "outside")


def hard_link(path: Path) -> None:
    os.link(path, path.parent.parent / "second name")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def subfolder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [link, hard_link, pipe, subfolder, Path.unlink])
@pytest.mark.parametrize("name", ["model.safetensors", "revision.json"])
def test_links_pipes_folders_and_missing_files_are_refused(folder, spoil, name):
    spoil(folder / name)
    with pytest.raises(RevisionError, match=str(folder)):
        open_revision(folder)


@pytest.mark.parametrize("name", ["extra.bin", ".hidden", "model.pkl", "REVISION.JSON", "naïve.json", "a b"])
def test_a_file_too_many_is_refused(folder, name):
    (folder / name).write_bytes(b"")
    with pytest.raises(RevisionError, match="does not list"):
        open_revision(folder)


HOSTILE = [
    "../escape", "..", ".", "a/b", "/etc/passwd", "a\\b", "..\\up", "\\\\host\\share", "C:", "C:\\x", "c:x", "", " ",
    "nul", "CON.json", "com1", "lpt9.bin", "x.", "x\0y", "x\ny", "\u202ejson.exe", "ﬁle", "é", "x" * 121, "-rf", "~",
    "*", "$HOME", "revision.json", "Revision.JSON", "MODEL.SAFETENSORS",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_refused_wherever_they_stand(folder, name):
    manifest = json.loads((folder / "revision.json").read_text())
    manifest["files"][name] = "sha256:" + "0" * 64
    (folder / "revision.json").write_text(json.dumps(manifest))
    with pytest.raises(RevisionError, match=r"revision\.json"):
        open_revision(folder)
    del manifest["files"][name]
    manifest["event_map"] = name
    (folder / "revision.json").write_text(json.dumps(manifest))
    with pytest.raises(RevisionError, match=r"revision\.json"):
        open_revision(folder)


@pytest.mark.parametrize("name", ["../escape", "a/b", "nul", "Model.safetensors"])
def test_hostile_names_are_not_written_either(tmp_path, name):
    with pytest.raises(RevisionError):
        write_small_revision(tmp_path / "inner" / "revision", files={name: b"x"})
    assert not list(tmp_path.rglob("*escape*"))
    assert not (tmp_path / "inner" / "revision").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format"),
        ({"format": "1"}, "format"),
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"config": []}, "config"),
        ({"files": {}}, "event_map"),
        ({"files": {"a": "md5:0"}}, "sha256"),
        ({"files": {"a": "sha256:" + "0" * 63}}, "sha256"),
        ({"files": ["a"]}, "files"),
        ({"event_order": "other.json"}, "event_order"),
        ({"signature": "x"}, "signature"),
    ],
)
def test_a_malformed_manifest_is_refused_with_the_place(folder, change, message):
    manifest = json.loads((folder / "revision.json").read_text())
    (folder / "revision.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(RevisionError, match=message):
        open_revision(folder)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"null", b'{"format": NaN}', b"[" * 50_000, b" " * (2 << 20)]
)
def test_a_manifest_that_is_no_manifest_is_refused(folder, content):
    (folder / "revision.json").write_bytes(content)
    with pytest.raises(RevisionError, match=r"revision\.json"):
        open_revision(folder)


@pytest.mark.parametrize("place", ["missing", "file", "nul\0byte"])
def test_a_folder_that_is_none_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RevisionError):
        open_revision(str(tmp_path / place))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder": "transformer9"}, "neither built in"),
        ({"decoder": "os:system"}, "--allow-code"),
        ({"decoder": "os.path:join; rm"}, "neither built in"),
        ({"config": {**small_config().to_mapping(), "width": 32}}, "calls for"),
        ({"config": {**small_config().to_mapping(), "layers": 3}}, "lacks tensors"),
        ({"config": {**small_config().to_mapping(), "positions": "learned"}}, "place"),
        ({"config": {}}, "vocabulary_size"),
    ],
)
def test_what_does_not_fit_the_weights_is_not_loaded(folder, change, message):
    relist(folder, **change)
    with pytest.raises(RevisionError, match=message):
        open_revision(folder).decoder()


def test_a_config_that_lets_the_cached_path_forget_still_reproduces_its_reference(tmp_path):
    write_small_revision(tmp_path / "faulty", cached_attention_window=3).decoder()  # the full path is what is saved


@pytest.mark.parametrize("spoil", ["nan", "double", "missing", "extra", "shape"])
def test_weights_that_are_not_exactly_the_expected_ones_are_refused(folder, spoil):
    tensors = read_tensors((folder / "model.safetensors").read_bytes(), "x")
    if spoil == "nan":
        tensors["head"][0, 0] = float("nan")
    elif spoil == "double":
        tensors["head"] = tensors["head"].double()
    elif spoil == "missing":
        del tensors["head"]
    elif spoil == "extra":
        tensors["<script>"] = torch.zeros(1)
    else:
        tensors["head"] = tensors["head"].T.contiguous()
    rewrite(folder, "model.safetensors", write_tensors(tensors))
    with pytest.raises(RevisionError, match=r"model\.safetensors"):
        open_revision(folder).decoder()


def test_an_event_map_beyond_the_vocabulary_is_refused(folder):
    wider = EventMap.build([*EVENT_MAP.events, "zoned"])
    rewrite(folder, "event_map.json", wider.to_json().encode())
    with pytest.raises(EventMapError, match="vocabulary size is 7"):
        open_revision(folder).decoder()


def test_weights_that_do_not_reproduce_the_saved_logits_are_refused(folder):
    tensors = read_tensors((folder / "model.safetensors").read_bytes(), "x")
    tensors["blocks.1.attention_out"][0, 0] *= 1.001
    rewrite(folder, "model.safetensors", write_tensors(tensors))
    with pytest.raises(IntegrityError, match=r"reference\.safetensors"):
        open_revision(folder).decoder()


def test_a_reference_file_without_sense_is_refused(folder):
    rewrite(folder, "reference.safetensors", write_tensors({"events": torch.ones(1, 1, dtype=torch.int64)}))
    with pytest.raises(RevisionError, match=r"reference\.safetensors"):
        open_revision(folder).decoder()


def test_a_revision_without_reference_logits_loads(tmp_path):
    write_small_revision(tmp_path / "bare", reference=False).decoder()


def test_code_runs_only_when_it_is_allowed(folder, tmp_path, monkeypatch):
    (tmp_path / "strangers_code.py").write_text(
        "from tests.small_gpt import small_gpt\n"
        "CALLS = []\n"
        "def make(folder, device, dtype):\n    CALLS.append((folder, device))\n    return small_gpt(dtype)\n"
        "def useless(folder, device, dtype):\n    return object()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    relist(folder, decoder="strangers_code:make")
    with pytest.raises(RevisionError, match="--allow-code"):
        open_revision(folder).decoder()
    assert "strangers_code" not in sys.modules
    assert open_revision(folder).decoder(allow_code=True).revision == small_gpt().revision
    assert [(folder, "cpu"), (folder, "cpu")] == sys.modules["strangers_code"].CALLS  # once more for the reference
    refused = {
        "useless": "lacks parts of Decoder",
        "nobody": "cannot be imported",
        "CALLS": "is a list; name a function",
    }
    for name, message in refused.items():
        relist(folder, decoder=f"strangers_code:{name}")
        with pytest.raises(RevisionError, match=message):
            open_revision(folder).decoder(allow_code=True)
    relist(folder, decoder="no_such_module:make")
    with pytest.raises(RevisionError, match="cannot be imported"):
        open_revision(folder).decoder(allow_code=True)


@pytest.mark.parametrize(
    ("error", "refused"), [("ValueError", None), ("KeyError", None), ("IntegrityError", IntegrityError)]
)
def test_code_that_has_float32_only_loads_with_a_reference_too(error, refused, folder, tmp_path, monkeypatch):
    """Its first load has shown that it runs; what it raises for float64 is its own, unless it blames the folder."""
    (tmp_path / "narrow_code.py").write_text(
        "import torch\nfrom auditlib.errors import IntegrityError\nfrom tests.small_gpt import small_gpt\n"
        "def make(folder, device, dtype):\n"
        f"    if dtype != torch.float32:\n        raise {error}('float32 only')\n"
        "    return small_gpt()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "narrow_code", raising=False)
    relist(folder, decoder="narrow_code:make")
    if refused is None:
        assert open_revision(folder).decoder(allow_code=True).revision == small_gpt().revision
        return
    with pytest.raises(refused, match="float32 only"):
        open_revision(folder).decoder(allow_code=True)


def test_a_folder_is_never_written_over(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RevisionError, match="is there already"):
        write_small_revision(folder, seed=5)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_name_that_cannot_be_stored_is_refused_before_anything_is_written(tmp_path):
    for name in ("", "\ud800"):
        with pytest.raises(RevisionError, match="name"):
            write_revision(
                tmp_path / "r",
                name=name,
                decoder="event_gpt",
                config={},
                event_map=EVENT_MAP,
                event_order=EVENT_ORDER,
                files={},
            )
    assert not list(tmp_path.iterdir())


def test_a_killed_write_leaves_no_revision(tmp_path):
    code = (
        "import os, sys, pathlib\n"
        "from auditlib import files\n"
        "from tests.small_gpt import write_small_revision\n"
        "files.sync_folder = lambda folder: os.kill(os.getpid(), 9)\n"
        "write_small_revision(pathlib.Path(sys.argv[1]))\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], cwd=ROOT, check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "r").exists()
    with pytest.raises(RevisionError):
        open_revision(tmp_path / "r")
    write_small_revision(tmp_path / "r").decoder()


def test_a_manifest_survives_the_round_trip(folder):
    manifest = open_revision(folder).manifest
    assert Manifest.from_json(manifest.to_json(), "x") == manifest


def damage(folder: Path, chance: random.Random) -> None:
    """Spoil a few bytes of one file; usually list it anew, so that the damage gets past the digests."""
    name = chance.choice(["revision.json", "revision.json", "model.safetensors", "event_map.json", "event_order.json"])
    name = chance.choice([name, "reference.safetensors"])
    data = bytearray((folder / name).read_bytes())
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(min(len(data), 1500))
        kind = chance.randrange(3)
        if kind == 0:
            data[place] = chance.choice(b'{}[]",:0123456789eE-.ntf\\/\0\xff')
        elif kind == 1:
            del data[place : place + chance.randint(1, 20)]
        else:
            data[place:place] = chance.choice(
                [b"[" * 50, b"1e999", b'"', b"null", b"-1", b"\\ud800", b"../", b"{", b"9" * 40]
            )
    (folder / name).write_bytes(data)
    if name != "revision.json" and chance.random() < 0.9:
        relist(folder)


def refusal(folder: Path) -> PrefixgateError | None:
    """The error that opening and loading the folder ends with; every other exception passes through."""
    try:
        open_revision(folder).decoder()
    except PrefixgateError as problem:
        if str(folder) not in str(problem):
            raise AssertionError(f"the message names no file: {problem}") from problem
        return problem
    return None


def test_a_thousand_damaged_revisions_raise_only_errors_of_ours(tmp_path):
    folder = write_small_revision(tmp_path / "revision").folder
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    chance = random.Random(2026)
    refused = 0
    for _ in range(1000):
        damage(folder, chance)
        refused += refusal(folder) is not None
        for name, content in sound.items():
            (folder / name).write_bytes(content)
    assert refused > 900
    open_revision(folder).decoder()


def test_reading_a_file_sets_no_more_memory_aside_than_it_has_bytes(tmp_path):
    (tmp_path / "small").write_bytes(b"12345678")
    tracemalloc.start()
    try:
        assert read_file(tmp_path, "small", 256 << 20) == b"12345678"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_between_the_two_looks_is_refused(tmp_path, monkeypatch):
    (tmp_path / "log").write_bytes(b"12345678")
    sound = os.fstat

    def then_written(descriptor):
        facts = sound(descriptor)
        with (tmp_path / "log").open("ab") as file:
            file.write(b"9")
        return facts

    monkeypatch.setattr(os, "fstat", then_written)
    with pytest.raises(RevisionError, match="grew while it was read"):
        read_file(tmp_path, "log", 1 << 20)
