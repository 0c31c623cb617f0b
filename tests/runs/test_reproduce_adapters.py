"""Counterexamples are played on revisions of every kind that is served, not only on native ones."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save

from auditlib.audits.counterexample import Case, Side, Step, alone
from auditlib.cli.main import main
from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.onnx_export import onnx_config, onnx_network
from auditlib.decoders.tensor_file import write_tensors
from tests.small_adapters import Made, library_config, library_model, library_weights, need, write_folder
from tests.small_gpt import small_gpt

need("transformers", "onnx", "onnxruntime")
torch.set_num_threads(1)

ROW = (1, 3, 4, 5, 6)
ADAPTERS = ("event_gpt", "gpt2, dynamic, sdpa", "llama, static, sdpa", "onnx", "paired, torch and onnx")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("revisions"))


def asked(row):
    """The last event appended to a cache of the others."""
    shown = ((True,) * (len(row) - 1),)
    return Side((Step("prefill", (row[:-1],), shown), Step("extend", (row[-1:],), ((True,),))), 0, 0)


def reproduced(revision, tmp_path):
    """Exit code and JSON of the verb."""
    case = Case("cache parity", "single events", "another", "float32", "same", asked(ROW), alone(asked(ROW)), 1.0, 1e-4)
    (tmp_path / "case.json").write_text(case.to_json())
    arguments = ["reproduce", str(tmp_path / "case.json"), "--revision", str(revision)]
    code = main([*arguments, "--json", str(tmp_path / "out.json")])
    return code, json.loads((tmp_path / "out.json").read_text())["fails"]


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_sound_revision_of_any_adapter_does_not_fail_the_case(name, made, tmp_path):
    assert reproduced(made.folder(name), tmp_path) == (0, False)


def library_pair(folder):
    """Two models of the library, whose weights differ."""
    config = library_config("gpt2")
    halves, files = {}, {"config.json": json.dumps(config).encode()}
    for seed, half in enumerate(("full", "cached")):
        files[f"{half}.safetensors"] = save(library_weights(library_model(config, seed)))
        named = {"config.json": "config.json", "model.safetensors": f"{half}.safetensors"}
        halves[half] = {"decoder": "transformers", "config": {}, "files": named}
    write_folder(folder, "paired", halves, files)


def onnx_pair(folder):
    """A network exported from other weights than those of the full path."""
    decoder = small_gpt(seed=1)
    network = {"decoder": "onnx", "config": asdict(onnx_config(decoder.config))}
    halves = {"full": {"decoder": "event_gpt", "config": decoder.config.to_mapping()}, "cached": network}
    weights = write_tensors(fresh_tensors(decoder.config, 0))
    files = {"model.onnx": onnx_network(decoder), "model.safetensors": weights}
    write_folder(folder, "paired", halves, files)


@pytest.mark.parametrize("make", [library_pair, onnx_pair])
def test_a_faulty_revision_of_any_adapter_still_fails_it(make, tmp_path):
    make(tmp_path / "revision")
    assert reproduced(tmp_path / "revision", tmp_path) == (1, True)


@pytest.mark.parametrize("name", ["onnx", "paired, torch and onnx"])
def test_a_case_in_a_dtype_that_the_adapter_refuses_is_bad_input(name, made, tmp_path, capsys):
    case = Case("cache parity", "x", "another", "bfloat16", "same", asked(ROW), alone(asked(ROW)), 1.0, 1e-4)
    (tmp_path / "case.json").write_text(case.to_json())
    assert main(["reproduce", str(tmp_path / "case.json"), "--revision", str(made.folder(name))]) == 2
    assert "float32" in capsys.readouterr().err
