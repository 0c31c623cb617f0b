"""What an adapter may do wrong beside computing wrongly: each is a named result, never a crash and never a pass."""

from __future__ import annotations

import pytest
import torch

from auditlib.decoders.revision import open_revision, write_revision
from auditlib.demo.build import fill_store
from tests.desk import SOUND_REVISION, audit

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def demo_store(tmp_path_factory):
    store = tmp_path_factory.mktemp("demo") / "sessions.duckdb"
    fill_store(store)
    return store


def bad_revision(folder, factory, files=None):
    sound = open_revision(SOUND_REVISION)
    write_revision(
        folder, name=factory, decoder=f"tests.bad_decoders:{factory}", config={}, event_map=sound.event_map,
        event_order=sound.event_order, files=files or {"note.txt": b"the weights are the demo's"},
    )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("factory", "named"),
    [
        ("raises_in_the_middle", "the device ran away"),
        ("short_logits", "extend gave"),
        ("whole_numbers", "int64"),
        ("no_logits", "NoneType"),
        ("mutates", "changed the events"),
        ("mutates_full", "changed the events"),
        ("mutates_valid", "changed"),
        ("small_vocabulary", "vocabulary"),
        ("short_context", "context length of 3"),
        ("nonsense", "TypeError"),
        ("exits", "SystemExit"),
        ("exits_at_once", "SystemExit"),
        ("recurses", "RecursionError"),
    ],
)
def test_what_an_adapter_cannot_do_is_not_measured_with_the_reason(factory, named, demo_store, tmp_path):
    code, report = audit(demo_store, bad_revision(tmp_path / factory, factory), tmp_path, "--audits", "cache parity")
    assert code == 1
    assert report["audits"]["cache parity"]["status"] == "not measured"
    assert named in report["audits"]["cache parity"]["problem"]
    assert "cache parity" in report["not_measured"]
    assert report["decision"]["cache_acceleration"] == "blocked"


@pytest.mark.parametrize("factory", ["no_context", "no_reorder", "gives_nothing"])
def test_what_is_no_decoder_is_refused_before_anything_is_measured(factory, demo_store, tmp_path, capsys):
    code, report = audit(demo_store, bad_revision(tmp_path / factory, factory), tmp_path, "--audits", "cache parity")
    assert (code, report) == (2, {})
    assert f"tests.bad_decoders:{factory}" in capsys.readouterr().err


@pytest.mark.parametrize("record", [b"{", b"", b"\xff\xfe", b"[" * 100_000])
def test_a_record_of_training_that_nobody_can_read_is_bad_input(record, demo_store, tmp_path, capsys):
    """Passed over, it could hide that the decoder was trained on what is held out."""
    folder = bad_revision(tmp_path / "r", "short_logits", {"training.json": record})
    code, _ = audit(demo_store, folder, tmp_path, "--audits", "training")
    assert code == 2
    assert "training.json is no JSON" in capsys.readouterr().err


@pytest.mark.parametrize("factory", ["nan_in_the_cache", "nan_everywhere"])
def test_logits_that_are_no_numbers_fail_cache_parity(factory, demo_store, tmp_path):
    code, report = audit(demo_store, bad_revision(tmp_path / factory, factory), tmp_path, "--audits", "cache parity")
    assert (code, report["failures"]) == (1, ["cache parity"])
    checks = {check["name"]: check["status"] for check in report["audits"]["cache parity"]["checks"]}
    assert checks["not finite logits"] == "failed"
    assert report["decision"]["cache_acceleration"] == "blocked"


@pytest.mark.parametrize("factory", ["small_vocabulary", "short_context", "refuses"])
def test_a_misfit_leaves_every_audit_unmeasured(factory, demo_store, tmp_path):
    if factory == "refuses":
        sound = open_revision(SOUND_REVISION)
        revision = tmp_path / factory
        write_revision(
            revision, name=factory, decoder="tests.faulty:refuses_dtype", config={}, event_map=sound.event_map,
            event_order=sound.event_order, files={"note.txt": b"-"},
        )  # fmt: skip
    else:
        revision = bad_revision(tmp_path / factory, factory)
    code, report = audit(demo_store, revision, tmp_path)
    assert code == 1
    assert {result["status"] for result in report["audits"].values()} == {"not measured"}
    assert all(result["problem"] for result in report["audits"].values())


def test_a_cache_that_says_nothing_of_its_size_passes_parity_which_does_not_rest_on_it(demo_store, tmp_path):
    """Serving limits do; until they are measured they are no pass either."""
    revision = bad_revision(tmp_path / "bytes_lie", "bytes_lie")
    code, report = audit(demo_store, revision, tmp_path, "--audits", "cache parity")
    assert code == 1
    assert report["failures"] == []
    assert report["not_measured"]
