"""Adapter `paired`: one half computes the full path, the other serves; both from listed files of one folder."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from auditlib.decoders.capabilities import Described, Differentiable, Fingerprinted, Inspectable
from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.paired import PairedDecoder
from auditlib.decoders.revision import open_revision
from auditlib.decoders.tensor_file import write_tensors
from auditlib.decoding.cache_guard import GuardedDecoder
from auditlib.errors import CacheRejectedError, DecoderError, IntegrityError, RevisionError
from tests.doubles import ToyDecoder
from tests.small_adapters import write_folder, write_pair_folder
from tests.small_gpt import CONTEXT, EVENT_MAP, everywhere, small_config, small_gpt, some_events


def half(**changes):
    return {"decoder": "event_gpt", "config": small_config().to_mapping(), **changes}


def pair_of(folder, full, cached, **files):
    weights = {"model.safetensors": write_tensors(fresh_tensors(small_config(), 0))}
    return write_folder(folder, "paired", {"full": full, "cached": cached}, {**weights, **files})


def test_each_half_computes_with_its_own_file(tmp_path):
    decoder = write_pair_folder(tmp_path / "it", seeds=(0, 1)).decoder()
    events = some_events(2, 6)
    assert torch.equal(decoder.full(events, everywhere(events)), small_gpt().full(events, everywhere(events)))
    other = small_gpt(seed=1)
    logits, cache = decoder.prefill(events, everywhere(events))
    wanted, own = other.prefill(events, everywhere(events))
    assert torch.equal(logits, wanted)
    assert decoder.cache_bytes(cache) == other.cache_bytes(own)
    assert torch.equal(decoder.stored(cache)[0], other.stored(own)[0])


def test_halves_may_share_a_file(tmp_path):
    decoder = pair_of(tmp_path / "it", half(), half()).decoder(dtype=torch.float64)
    events = some_events(2, 6)
    logits, _ = decoder.prefill(events, everywhere(events))
    assert (logits - decoder.full(events, everywhere(events))[:, -1]).abs().max() <= 1e-12


def test_a_pair_is_named_by_both_halves(tmp_path):
    names = {
        write_pair_folder(tmp_path / f"{seeds}", seeds=seeds).decoder().revision
        for seeds in ((0, 0), (0, 1), (1, 0), (1, 1))
    }
    assert len(names) == 4
    decoder = write_pair_folder(tmp_path / "it").decoder()
    decoder.module.head.view(torch.uint8).view(-1)[0] ^= 1
    assert decoder.fingerprint() != decoder.revision


def test_what_it_offers_to_the_audits_comes_from_the_half_that_has_it(tmp_path):
    decoder = write_pair_folder(tmp_path / "it", seeds=(0, 1)).decoder()
    assert all(isinstance(decoder, kind) for kind in (Described, Differentiable, Fingerprinted, Inspectable))
    events = some_events(1, 5)
    logits = decoder.full_from_embeddings(decoder.embed(events), everywhere(events))
    assert torch.equal(logits, decoder.full(events, everywhere(events)))


@pytest.mark.parametrize("bare_reference", [True, False])
@pytest.mark.parametrize("bare_deployed", [True, False])
def test_a_pair_offers_what_its_halves_offer_and_no_more(bare_reference, bare_deployed):
    bare, rich = ToyDecoder(EVENT_MAP.size, CONTEXT), small_gpt()
    decoder = PairedDecoder(bare if bare_reference else rich, bare if bare_deployed else rich)
    assert isinstance(decoder, Differentiable) is not bare_reference
    assert isinstance(decoder, Inspectable) is not bare_deployed
    again = copy.deepcopy(decoder)
    assert (isinstance(again, Differentiable), isinstance(again, Inspectable)) == (
        not bare_reference,
        not bare_deployed,
    )


def test_a_pair_that_shows_no_store_is_guarded_like_what_it_deploys():
    guard = GuardedDecoder(
        PairedDecoder(small_gpt(), ToyDecoder(EVENT_MAP.size, CONTEXT)),
        "map",
        "order",
        dtype=torch.float32,
        device="cpu",
    )
    events = some_events(2, 6)
    _, cache = guard.prefill(events[:, :5], everywhere(events[:, :5]))
    turned = guard.reorder(cache, torch.tensor([1, 0]))
    _, cache = guard.extend(events[:, 5:], everywhere(events[:, 5:]), cache)
    assert guard.require(cache, guard.identity(events.tolist())) is cache
    with pytest.raises(CacheRejectedError, match="row 0, event"):
        guard.require(turned, guard.identity(events[:, :5].tolist()))


@pytest.mark.parametrize(
    ("full", "cached", "says"),
    [
        (half(decoder="paired"), half(), "a half is one of event_gpt, onnx, transformers"),
        (half(decoder="os:system"), half(), "a half is one of"),
        (half(), half(decoder="nothing"), "a half is one of"),
        (half(), half(files={"model.safetensors": "other.safetensors"}), "lists no file 'other.safetensors'"),
        (half(), half(files={"model.safetensors": "../model.safetensors"}), "lists no file"),
        (half(), half(files={"model.safetensors": "/etc/passwd"}), "lists no file"),
        (half(), half(files={"model.safetensors": 3}), "write a string"),
        (half(), half(files={"model.safetensor": "model.safetensors"}), "asks for no such file, only for model.safe"),
        (half(files={"weights": "nowhere.safetensors"}), half(), "asks for no such file, only for model.safetensors"),
        (half(), half(files=["model.safetensors"]), "write an object"),
        (half(), half(folder="elsewhere"), "folder"),
        (half(), {"decoder": "event_gpt"}, "lacks 'config'"),
        (half(), 3, "write an object"),
    ],
)
def test_a_half_that_is_code_a_pair_or_reaches_out_of_the_folder_is_refused(full, cached, says, tmp_path):
    revision = pair_of(tmp_path / "it", full, cached)
    with pytest.raises(RevisionError) as refused:
        revision.decoder()
    assert says in str(refused.value)


@pytest.mark.parametrize(("name", "value"), [("vocabulary_size", 9), ("context_length", 19)])
def test_halves_of_different_shape_are_refused(name, value, tmp_path):
    config = small_config(**{name: value})
    other = {"decoder": "event_gpt", "config": config.to_mapping(), "files": {"model.safetensors": "other.safetensors"}}
    files = {"other.safetensors": write_tensors(fresh_tensors(config, 0))}
    with pytest.raises(DecoderError, match=f"paired: {name} is"):
        pair_of(tmp_path / "it", half(), other, **files).decoder()


def test_a_changed_file_of_either_half_is_refused(tmp_path):
    for name in ("full", "cached"):
        folder = tmp_path / name
        write_pair_folder(folder)
        file = folder / f"{name}.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
        with pytest.raises(IntegrityError, match=file.name):
            open_revision(folder)


def test_the_manifest_says_which_file_stands_for_which(tmp_path):
    write_pair_folder(tmp_path / "it")
    config = json.loads((tmp_path / "it" / "revision.json").read_text())["config"]
    assert config["cached"]["files"] == {"model.safetensors": "cached.safetensors"}
