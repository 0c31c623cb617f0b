"""Adapter `onnx` and the export from `event_gpt`: the same numbers in another runtime, and no file but its own."""

from __future__ import annotations

import sys
import types
from dataclasses import asdict

import pytest
import torch

from auditlib.cli.main import main
from auditlib.decoders.adapters import Source
from auditlib.decoders.capabilities import Described, Fingerprinted, Inspectable
from auditlib.decoders.onnx import load_onnx
from auditlib.decoders.onnx_export import onnx_config, onnx_network
from auditlib.decoders.onnx_revision import export_onnx
from auditlib.decoders.revision import open_revision
from auditlib.errors import DecoderError, IntegrityError, RevisionError
from tests.small_adapters import need, write_folder, write_markov_folder, write_onnx_folder
from tests.small_gpt import CONTEXT, everywhere, small_gpt, some_events, write_small_revision

need("onnx", "onnxruntime")
import onnx  # noqa: E402 - not before it is known to be there

KINDS = [(positions, kind) for positions in ("rotary", "learned") for kind in ("layer", "rms")]


def altered(change):
    """A network's bytes after `change` was done to its protobuf."""
    model = onnx.load_model_from_string(onnx_network(small_gpt()))
    change(model)
    return model.SerializeToString()


def folder_of(folder, model, **config):
    return write_folder(folder, "onnx", {**asdict(onnx_config(small_gpt().config)), **config}, {"model.onnx": model})


@pytest.mark.parametrize(("positions", "normalisation"), KINDS)
def test_the_exported_network_computes_what_the_torch_model_does(positions, normalisation, tmp_path):
    shape = {"positions": positions, "normalisation": normalisation}
    decoder, wanted = write_onnx_folder(tmp_path / "it", **shape).decoder(), small_gpt(torch.float64, **shape)
    events = some_events(3, CONTEXT)
    logits = wanted.full(events, everywhere(events))
    assert (decoder.full(events, everywhere(events)) - logits).abs().max() <= 2e-5
    first, cache = decoder.prefill(events[:, :4], everywhere(events[:, :4]))
    rest, _ = decoder.extend(events[:, 4:], everywhere(events[:, 4:]), cache)
    assert (torch.cat([first[:, None], rest], 1) - logits[:, 3:]).abs().max() <= 2e-5


def test_the_export_gives_the_same_bytes_for_the_same_weights_only():
    assert onnx_network(small_gpt()) == onnx_network(small_gpt())
    assert onnx_network(small_gpt()) != onnx_network(small_gpt(seed=1))


def test_stored_keys_and_values_are_those_of_the_torch_model(tmp_path):
    decoder, wanted = write_onnx_folder(tmp_path / "it").decoder(), small_gpt()
    events, valid = some_events(2, 6), everywhere(some_events(2, 6))
    valid[0, :2] = False
    keys, values, lengths = decoder.stored(decoder.prefill(events, valid)[1])
    own_keys, own_values, own_lengths = wanted.stored(wanted.prefill(events, valid)[1])
    assert lengths.tolist() == own_lengths.tolist() == [4, 6]
    for row, length in enumerate(lengths.tolist()):
        assert (keys - own_keys[..., :6, :])[:, row, :, :length].abs().max() <= 1e-5
        assert (values - own_values[..., :6, :])[:, row, :, :length].abs().max() <= 1e-5


def test_a_window_of_the_cached_path_is_exported_too(tmp_path):
    decoder = write_onnx_folder(tmp_path / "it", cached_attention_window=3).decoder()
    wanted = small_gpt(cached_attention_window=3)
    events = some_events(2, 12)
    found = [
        one.extend(events[:, 5:], everywhere(events[:, 5:]), one.prefill(events[:, :5], everywhere(events[:, :5]))[1])[
            0
        ]
        for one in (decoder, wanted)
    ]
    assert decoder.block_ends == wanted.block_ends == (3,)
    assert (found[0] - found[1]).abs().max() <= 2e-5
    assert (found[0] - decoder.full(events, everywhere(events))[:, 5:]).abs().max() > 1e-2


@pytest.mark.parametrize("full", ["torch", "onnx"])
def test_the_command_writes_a_revision_that_proves_itself_at_every_load(full, tmp_path, capsys):
    write_small_revision(tmp_path / "from")
    out = tmp_path / "out"
    assert main(["export-onnx", "--revision", str(tmp_path / "from"), "--out", str(out), "--full", full]) == 0
    assert "out: sha256:" in capsys.readouterr().out
    revision = open_revision(out)
    assert revision.manifest.decoder == ("paired" if full == "torch" else "onnx")
    assert "reference.safetensors" in revision.manifest.files
    decoder, events = revision.decoder(), some_events(2, 9)
    if full == "torch":
        assert torch.equal(decoder.full(events, everywhere(events)), small_gpt().full(events, everywhere(events)))
    assert main(["export-onnx", "--revision", str(tmp_path / "from"), "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_an_export_of_other_weights_does_not_reproduce_the_reference(tmp_path):
    sound = write_small_revision(tmp_path / "from")
    reference = sound.read("reference.safetensors")
    decoder = small_gpt(seed=1)
    files = {"model.onnx": onnx_network(decoder), "reference.safetensors": reference}
    with pytest.raises(IntegrityError, match="differ from the saved ones"):
        write_folder(tmp_path / "it", "onnx", asdict(onnx_config(decoder.config)), files).decoder()


def test_only_an_event_gpt_is_exported(tmp_path):
    with pytest.raises(RevisionError, match="export-onnx takes event_gpt"):
        export_onnx(write_markov_folder(tmp_path / "markov"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _elsewhere(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")


def _elsewhere_inside(model):
    tensor = onnx.numpy_helper.from_array(torch.zeros(1).numpy(), "hidden")
    tensor.external_data.add(key="location", value="/etc/passwd")
    node = onnx.helper.make_node("Constant", [], ["deep"], value=tensor)
    body = onnx.helper.make_graph([node], "body", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["visible"], [], then_branch=body, else_branch=body))


def _not_finite(model):
    first = model.graph.initializer[0]
    array = onnx.numpy_helper.to_array(first).copy()
    array[..., 0] = float("nan")
    first.CopyFrom(onnx.numpy_helper.from_array(array, first.name))


def _renamed(model):
    model.graph.input[0].name = "tokens"
    for node in model.graph.node:
        node.input[:] = ["tokens" if name == "events" else name for name in node.input]


def _unknown_node(model):
    model.graph.node[0].op_type = "Telephone"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_elsewhere, "lies in another file"),
        (_elsewhere_inside, "lies in another file"),
        (_not_finite, "not finite"),
        (_renamed, "inputs lack"),
        (_unknown_node, "ONNX Runtime refuses it"),
    ],
)
def test_a_network_that_reaches_out_or_does_not_fit_is_refused(change, says, tmp_path):
    with pytest.raises(RevisionError, match=says):
        folder_of(tmp_path / "it", altered(change)).decoder()


@pytest.mark.parametrize("model", [b"", b"no network at all", b"\x80\x04."])
def test_bytes_that_are_no_network_are_refused(model, tmp_path):
    with pytest.raises(RevisionError, match=r"model\.onnx"):
        folder_of(tmp_path / "it", model).decoder()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"layers": 3}, "inputs lack"),
        ({"layers": 0}, "at least 1"),
        ({"providers": ["x"]}, "providers"),
        ({"cached_attention_window": 0}, "at least 1"),
        ({"vocabulary_size": True}, "whole number"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_with_the_place(config, says, tmp_path):
    with pytest.raises(RevisionError, match=says):
        folder_of(tmp_path / "it", onnx_network(small_gpt()), **config).decoder()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"vocabulary_size": 40}, "does not run at the sizes of its config: onnx: ONNX Runtime cannot run the network"),
        ({"vocabulary_size": 6}, r"logits is \[1, 2, 7\] where its config calls for \[1, 2, 6\]"),
        ({"heads": 1}, "does not run at the sizes of its config"),
        ({"head_size": 4}, "does not run at the sizes of its config"),
        ({"context_length": 64}, "does not run at the sizes of its config"),  # learned positions end at 20
    ],
)
def test_a_network_of_other_sizes_than_its_config_is_refused_at_load(config, says, tmp_path):
    with pytest.raises(RevisionError, match=says):
        folder_of(tmp_path / "it", onnx_network(small_gpt(positions="learned")), **config).decoder()


def test_what_the_runtime_cannot_compute_is_an_error_of_the_decoder(tmp_path):
    decoder = folder_of(tmp_path / "it", onnx_network(small_gpt())).decoder()
    decoder._session = types.SimpleNamespace(run=lambda *_: (_ for _ in ()).throw(RuntimeError("no memory\nat all")))
    with pytest.raises(DecoderError, match=r"cannot run the network \(no memory\)"):
        decoder.full(some_events(1, 4), everywhere(some_events(1, 4)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_runtime_offers_float32_and_says_so(dtype, tmp_path):
    with pytest.raises(DecoderError, match=r"only torch\.float32"):
        write_onnx_folder(tmp_path / "it").decoder(dtype=dtype)


def test_another_device_is_refused(tmp_path):
    with pytest.raises(DecoderError, match="runs on the CPU"):
        revision = write_onnx_folder(tmp_path / "it")
        load_onnx(Source(revision.folder, revision.manifest.config, revision.read, "meta", torch.float32))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_one_line_that_says_what_to_install(package, tmp_path, monkeypatch):
    revision = write_onnx_folder(tmp_path / "it")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DecoderError, match=r"pip install -r requirements-adapters\.txt") as refused:
        revision.decoder()
    assert "\n" not in str(refused.value)


def test_what_it_offers_to_the_audits(tmp_path):
    decoder = write_onnx_folder(tmp_path / "it").decoder()
    assert all(isinstance(decoder, kind) for kind in (Described, Fingerprinted, Inspectable))
    assert decoder.fingerprint() == decoder.revision
