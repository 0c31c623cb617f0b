"""Adapter `transformers`: the library's own numbers, from checked files alone, and no code or download."""

from __future__ import annotations

import json
import socket
import sys

import pytest
import torch
from safetensors.torch import load, save

from auditlib.decoders.capabilities import Described, Differentiable, Fingerprinted, Inspectable
from auditlib.decoders.revision import open_revision
from auditlib.errors import ContextExceededError, DecoderError, RevisionError
from tests.small_adapters import (
    WINDOW,
    library_config,
    library_model,
    library_weights,
    need,
    write_folder,
    write_library_folder,
)
from tests.small_gpt import CONTEXT, everywhere, some_events

need("transformers")
FAMILIES = ("gemma2", "gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3")


def folder_of(folder, config=None, weights=None, settings=None, name="model.safetensors"):
    """A Llama folder, changed as told; the files always carry right digests."""
    config = library_config("llama") if config is None else config
    if weights is None:
        weights = save(library_weights(library_model(library_config("llama"))))
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    return write_folder(folder, "transformers", settings or {}, {"config.json": text, name: weights})


def changed(**changes):
    """The small Llama's weights with some tensors replaced, or left out where None."""
    tensors = library_weights(library_model(library_config("llama"))) | changes
    return save({name: tensor for name, tensor in tensors.items() if tensor is not None})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_full_path_gives_the_librarys_own_logits(family, tmp_path):
    decoder = write_library_folder(tmp_path / "it", family).decoder()
    events = some_events(3, CONTEXT)
    with torch.no_grad():
        wanted = library_model(library_config(family))(input_ids=events).logits
    assert (decoder.full(events, everywhere(events)) - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_left_padding_gives_what_the_library_gives_with_its_own_masks(family, tmp_path):
    decoder = write_library_folder(tmp_path / "it", family).decoder()
    events, valid = some_events(3, 12), everywhere(some_events(3, 12))
    valid[0, :5], valid[1, :1] = False, False
    positions = (valid.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        model = library_model(library_config(family))
        wanted = model(input_ids=events, attention_mask=valid.long(), position_ids=positions).logits
    assert (decoder.full(events, valid) - wanted)[valid].abs().max() <= 1e-5


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "mistral", "qwen2", "qwen3"])
def test_a_sliding_window_is_felt_and_counts_events_not_columns(family, tmp_path):
    decoder = write_library_folder(tmp_path / "it", family, num_hidden_layers=2).decoder(dtype=torch.float64)
    wide = write_library_folder(tmp_path / "wide", family, sliding_window=CONTEXT).decoder(dtype=torch.float64)
    events = some_events(1, CONTEXT)
    gap = (decoder.full(events, everywhere(events)) - wide.full(events, everywhere(events))).abs().amax(-1)[0]
    assert gap[:WINDOW].max() <= 1e-12
    assert gap[WINDOW:].min() > 1e-6


def test_float64_is_float64_all_the_way(tmp_path):
    decoder = write_library_folder(tmp_path / "it", "llama", {"attention": "eager"}).decoder(dtype=torch.float64)
    events = some_events(2, CONTEXT)
    logits, cache = decoder.prefill(events[:, :1], everywhere(events[:, :1]))
    logits, _ = decoder.extend(events[:, 1:], everywhere(events[:, 1:]), cache)
    apart = (logits - decoder.full(events, everywhere(events))[:, 1:]).abs().max()
    assert logits.dtype == torch.float64
    assert apart <= 1e-12  # one norm, angle or softmax in float32 would show at 1e-7


def test_weights_in_bfloat16_load_as_they_are(tmp_path):
    tensors = {name: tensor.bfloat16() for name, tensor in load(changed()).items()}
    exact = folder_of(tmp_path / "it", weights=save(tensors)).decoder(dtype=torch.float64)
    assert torch.equal(exact.module.lm_head.weight, tensors["lm_head.weight"].double())


def test_weights_in_several_files_are_put_together_and_none_twice(tmp_path):
    tensors = load(changed())
    names = sorted(tensors)
    files = {
        "config.json": json.dumps(library_config("llama")).encode(),
        "one.safetensors": save({name: tensors[name] for name in names[:5]}),
        "two.safetensors": save({name: tensors[name] for name in names[5:]}),
    }
    settings = {"weights": ["one.safetensors", "two.safetensors"]}
    parts = write_folder(tmp_path / "parts", "transformers", settings, files).decoder()
    assert torch.equal(parts.module.lm_head.weight, tensors["lm_head.weight"])
    with pytest.raises(RevisionError, match="earlier file"):
        write_folder(
            tmp_path / "twice", "transformers", {"weights": ["one.safetensors", "one.safetensors"]}, files
        ).decoder()


def test_building_a_model_draws_from_nobodys_chances(tmp_path):
    revision = write_library_folder(tmp_path / "it", "llama")
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    revision.decoder()
    assert torch.equal(torch.rand(4), wanted)


def test_no_connection_is_tried(tmp_path, monkeypatch):
    revision = write_library_folder(tmp_path / "it", "qwen3")

    def refuse(*_):
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert revision.decoder().vocabulary_size


def test_a_missing_library_is_one_line_that_says_what_to_install(tmp_path, monkeypatch):
    revision = write_library_folder(tmp_path / "it", "llama")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DecoderError, match=r"pip install -r requirements-adapters\.txt") as refused:
        revision.decoder()
    assert "\n" not in str(refused.value)


NAN = torch.full((16,), float("nan"))


@pytest.mark.parametrize(
    ("config", "weights", "settings", "says"),
    [
        ({"model_type": "bloom"}, None, {}, "model_type is 'bloom'"),
        ({}, None, {}, "model_type is 'None'"),
        ({"model_type": []}, None, {}, "model_type is '[]'"),
        ({"rope_parameters": {"rope_type": [], "rope_theta": 1e4}}, None, {}, "config.json"),
        (b"[]", None, {}, "no JSON object"),
        (b"{", None, {}, "config.json"),
        ({"auto_map": {"AutoConfig": "x.Y"}}, None, {}, "auto_map would load code"),
        ({"quantization_config": {"quant_method": "x"}}, None, {}, "quantization_config"),
        ({"_attn_implementation": "someone/kernel"}, None, {}, "_attn_implementation"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, None, {}, "depends on"),
        ({"num_hidden_layers": 100_000}, None, {}, "layers"),
        ({"hidden_size": "many"}, None, {}, "transformers"),
        ({"hidden_size": 32}, None, {}, "config.json wants"),
        ({}, {"model.norm.weight": None}, {}, "lacks tensors"),
        ({}, {"model.extra": torch.ones(1)}, {}, "model.extra"),
        ({}, {"model.norm.weight": NAN}, {}, "not finite"),
        ({}, {"model.norm.weight": torch.ones(16, dtype=torch.int64)}, {}, "int64"),
        ({}, b"\x80\x04pickle", {}, "no safetensors file"),
        ({}, None, {"cache": "sliding"}, "one of dynamic, static"),
        ({}, None, {"attention": "flash"}, "one of sdpa, eager"),
        ({}, None, {"sliding_layers": "ring"}, "one of kept, rolling"),
        ({}, None, {"sliding_layers": "rolling"}, "no layer has a sliding window"),
        ({}, None, {"context_length": 0}, "at least 1"),
        ({}, None, {"trust_remote_code": True}, "trust_remote_code"),
        ({}, None, {"weights": ["pytorch_model.bin"]}, "pytorch_model.bin"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value,
)
def test_what_does_not_fit_or_would_load_more_is_refused_with_the_place(config, weights, settings, says, tmp_path):
    if isinstance(config, dict):
        whole = config if config in ({"model_type": "bloom"}, {}) and says.startswith("model_type") else None
        config = whole if whole is not None else {**library_config("llama"), **config}
    data = changed(**weights) if isinstance(weights, dict) else weights
    revision = folder_of(tmp_path / "it", config, data, settings)
    with pytest.raises(RevisionError) as refused:
        revision.decoder()
    assert says in str(refused.value)
    assert len(str(refused.value)) < 800


def test_a_pickle_beside_the_weights_is_never_opened(tmp_path):
    files = {"config.json": json.dumps(library_config("llama")).encode(), "pytorch_model.bin": b"\x80\x04."}
    revision = write_folder(tmp_path / "it", "transformers", {}, files)
    with pytest.raises(RevisionError, match=r"model\.safetensors"):
        revision.decoder()


def test_a_context_may_be_shortened_but_not_stretched(tmp_path):
    decoder = write_library_folder(tmp_path / "short", "llama", {"context_length": 6}).decoder()
    events = some_events(1, 7)
    assert decoder.context_length == 6
    with pytest.raises(ContextExceededError, match="context length of 6"):
        decoder.full(events, everywhere(events))
    with pytest.raises(DecoderError, match="more than the 20 positions"):
        write_library_folder(tmp_path / "long", "llama", {"context_length": 21}).decoder()


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64])
def test_a_dtype_without_a_path_is_refused(dtype, tmp_path):
    with pytest.raises(DecoderError, match="has no"):
        write_library_folder(tmp_path / "it", "gpt2").decoder(dtype=dtype)


def test_a_static_cache_sets_the_context_aside_at_once_and_a_dynamic_one_grows(tmp_path):
    events = some_events(2, 6)
    one_column = 2 * 2 * 2 * 2 * 4 * 4  # rows, layers, keys and values, heads, channels, bytes
    for cache, columns in (("static", (CONTEXT, CONTEXT)), ("dynamic", (5, 6))):
        decoder = write_library_folder(tmp_path / cache, "llama", {"cache": cache}).decoder()
        _, held = decoder.prefill(events[:, :5], everywhere(events[:, :5]))
        assert decoder.cache_bytes(held) == columns[0] * one_column
        _, held = decoder.extend(events[:, 5:], everywhere(events[:, 5:]), held)
        assert decoder.cache_bytes(held) == columns[1] * one_column


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_stored_keys_and_values_are_those_of_the_row_alone_and_writing_into_them_is_felt(cache, tmp_path):
    decoder = write_library_folder(tmp_path / "it", "mistral", {"cache": cache}).decoder(dtype=torch.float64)
    events, valid = some_events(2, 6), everywhere(some_events(2, 6))
    valid[0, 4:] = False
    _, held = decoder.prefill(events, valid)
    keys, values, lengths = decoder.stored(held)
    _, alone = decoder.prefill(events[:1, :4], valid[:1, :4])
    own_keys, own_values, _ = decoder.stored(alone)
    assert lengths.tolist() == [4, 6]
    assert (keys[:, :1, :, :4] - own_keys[:, :, :, :4]).abs().max() <= 1e-12
    assert (values[:, :1, :, :4] - own_values[:, :, :, :4]).abs().max() <= 1e-12
    step = torch.tensor([[3], [3]])
    clean, _ = decoder.extend(step, everywhere(step), decoder.reorder(held, torch.tensor([0, 1])))
    values[:, 0, :, 3] += 1.0
    dirty, _ = decoder.extend(step, everywhere(step), held)
    assert (dirty[0] - clean[0]).abs().max() > 1e-3
    assert (dirty[1] - clean[1]).abs().max() <= 1e-12


def test_left_padding_is_left_out_of_what_is_stored(tmp_path):
    decoder = write_library_folder(tmp_path / "it", "llama").decoder(dtype=torch.float64)
    events, valid = some_events(2, 6), everywhere(some_events(2, 6))
    valid[0, :3] = False
    keys, _, lengths = decoder.stored(decoder.prefill(events, valid)[1])
    own, _, _ = decoder.stored(decoder.prefill(events[:1, 3:], valid[:1, 3:])[1])
    assert lengths.tolist() == [3, 6]
    assert (keys[:, :1, :, :3] - own).abs().max() <= 1e-12


def test_gradients_by_embeddings_reach_earlier_events_only(tmp_path):
    decoder = write_library_folder(tmp_path / "it", "gpt2").decoder(dtype=torch.float64)
    events = some_events(1, 6)
    embeddings = decoder.embed(events).requires_grad_()
    logits = decoder.full_from_embeddings(embeddings, everywhere(events))
    assert torch.equal(logits, decoder.full(events, everywhere(events)))
    (gradient,) = torch.autograd.grad(logits[0, 3].sum(), embeddings)
    felt = gradient.abs().amax(-1)[0]
    assert felt[:4].min() > 0
    assert felt[4:].max() == 0


def test_the_name_of_the_weights_follows_one_flipped_bit_and_the_kind_of_cache(tmp_path):
    decoder = write_library_folder(tmp_path / "it", "llama").decoder()
    assert all(isinstance(decoder, kind) for kind in (Described, Differentiable, Fingerprinted, Inspectable))
    before = decoder.fingerprint()
    decoder.module.lm_head.weight.view(torch.uint8).view(-1)[0] ^= 1
    assert decoder.fingerprint() != before == decoder.revision
    other = write_library_folder(tmp_path / "static", "llama", {"cache": "static"}).decoder()
    assert other.revision != before


def test_the_folder_is_checked_as_every_revision_is(tmp_path):
    write_library_folder(tmp_path / "it", "llama")
    (tmp_path / "it" / "modeling_evil.py").write_text("raise SystemExit")
    with pytest.raises(RevisionError, match="modeling_evil"):
        open_revision(tmp_path / "it")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_head_beside_tied_embeddings_must_be_equal_to_them(family, tmp_path):
    config = library_config(family, tie_word_embeddings=True)
    model = library_model(config)
    tied = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    events = some_events(2, 6)
    once = folder_of(tmp_path / "once", config, save(library_weights(model))).decoder()
    twice = folder_of(tmp_path / "twice", config, save(tied)).decoder()
    assert torch.equal(*(decoder.full(events, everywhere(events)) for decoder in (once, twice)))
    tied["lm_head.weight"][0, 0] += 1
    with pytest.raises(RevisionError, match=r"lm_head\.weight differs from .*set tie_word_embeddings to false"):
        folder_of(tmp_path / "differs", config, save(tied)).decoder()
    apart = folder_of(tmp_path / "apart", {**config, "tie_word_embeddings": False}, save(tied)).decoder()
    assert not torch.equal(apart.full(events, everywhere(events)), once.full(events, everywhere(events)))


def test_the_form_of_the_librarys_answers_is_not_for_the_file_to_choose(tmp_path):
    events = some_events(2, 6)
    plain, tuples = (
        folder_of(tmp_path / f"{given}", library_config("llama", return_dict=given)).decoder()
        for given in (True, False)
    )
    assert torch.equal(tuples.full(events, everywhere(events)), plain.full(events, everywhere(events)))
