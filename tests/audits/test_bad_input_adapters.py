"""Bad input on every adapter that fits: each is a refusal in words or a named result, never a crash, never a pass."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save

from auditlib.audits import AUDITS
from auditlib.audits.base import Subject
from auditlib.audits.battery import run_audit
from auditlib.audits.faults.wrapping import Planted
from auditlib.cli.main import main
from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.onnx_export import onnx_config, onnx_network
from auditlib.decoders.tensor_file import write_tensors
from auditlib.decoding.policies import DEFAULT_SETTINGS
from auditlib.events.event_map import EventMap
from auditlib.release.checks import Measured
from auditlib.release.judge import approved, judge
from auditlib.release.limits import limits_from
from auditlib.sessions.session import Session
from tests.desk import audit
from tests.small_adapters import (
    MAKERS,
    WITHOUT_BFLOAT16,
    Made,
    library_config,
    library_model,
    library_weights,
    need,
    write_folder,
    write_library_folder,
    write_native_folder,
    write_onnx_folder,
)
from tests.small_gpt import EVENT_MAP, EVENT_ORDER, small_config, small_gpt

need("transformers", "onnx", "onnxruntime")
torch.set_num_threads(1)

LOG = "session,event,time\n" + "".join(
    f"s{session},{sorted(EVENT_MAP.events)[(session + step) % 4]},2026-01-{session + 1:02}T0{step}:00:00Z\n"
    for session in range(12)
    for step in range(1 + session % 5)
)
ADAPTERS = (
    "event_gpt",
    "gpt2, dynamic, sdpa",
    "llama, static, sdpa",
    "onnx",
    "paired, torch and onnx",
    "examples.markov",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "log.csv").write_text(LOG)
    place = str(folder / "sessions.duckdb")
    assert main(["import", str(folder / "log.csv"), "--store", place]) == 0
    assert main(["split", "--store", place, "--held-out", "0.5"]) == 0
    return folder / "sessions.duckdb"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("revisions"))


def poisoned(weights):
    """The same tensors, one number of each not a number."""
    weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
    for tensor in weights.values():
        tensor.view(-1)[0] = float("nan")
    return weights


def nan_native(folder):
    config = small_config()
    weights = save(poisoned(fresh_tensors(config, 0)))  # our own writer refuses it
    write_folder(folder, "event_gpt", config.to_mapping(), {"model.safetensors": weights})


def nan_library(folder):
    config = library_config("llama")
    weights = save(poisoned(library_weights(library_model(config))))
    write_folder(folder, "transformers", {}, {"config.json": json.dumps(config).encode(), "model.safetensors": weights})


def nan_onnx(folder):
    decoder = small_gpt()
    with torch.no_grad():
        next(iter(decoder.module.parameters())).view(-1)[0] = float("nan")
    write_folder(folder, "onnx", asdict(onnx_config(decoder.config)), {"model.onnx": onnx_network(decoder)})


def nan_paired(folder):
    config = small_config()
    named = {"decoder": "event_gpt", "config": config.to_mapping()}
    halves = {half: {**named, "files": {"model.safetensors": f"{half}.safetensors"}} for half in ("full", "cached")}
    sound = fresh_tensors(config, 0)
    files = {"full.safetensors": write_tensors(sound), "cached.safetensors": save(poisoned(sound))}
    write_folder(folder, "paired", halves, files)


def nan_markov(folder):
    table = torch.zeros(EVENT_MAP.size, EVENT_MAP.size, dtype=torch.float64)
    table[3, 4] = float("nan")
    write_folder(folder, "examples.markov:factory", {}, {"table.safetensors": save({"table": table})})


NAN = {"event_gpt": nan_native, "llama": nan_library, "onnx": nan_onnx, "paired": nan_paired, "markov": nan_markov}


@pytest.mark.parametrize("name", NAN)
def test_weights_that_are_no_numbers_are_refused_or_fail(name, store, tmp_path, capsys):
    NAN[name](tmp_path / "revision")
    code, report = audit(store, tmp_path / "revision", tmp_path, "--audits", "cache parity,causality")
    if code == 2:
        assert "finite" in capsys.readouterr().err
        return
    assert code == 1
    for audited in ("cache parity", "causality"):
        found = report["audits"][audited]
        checks = {check["name"]: check["status"] for check in found["checks"]}
        assert found["problem"] or checks["not finite logits"] == "failed"
        assert found["status"] != "passed"
    assert report["decision"]["cache_acceleration"] == "blocked"


def small_vocabulary(name):
    few = EVENT_MAP.size - 2
    return {
        "event_gpt": lambda folder: write_native_folder(folder, vocabulary_size=few),
        "gpt2": lambda folder: write_library_folder(folder, "gpt2", vocab_size=few),
        "llama": lambda folder: write_library_folder(folder, "llama", vocab_size=few),
        "onnx": lambda folder: write_onnx_folder(folder, vocabulary_size=few),
    }[name]


@pytest.mark.parametrize("name", ["event_gpt", "gpt2", "llama", "onnx"])
def test_a_vocabulary_that_does_not_hold_the_event_map_is_named(name, store, tmp_path, capsys):
    small_vocabulary(name)(tmp_path / "revision")
    says_so(*audit(store, tmp_path / "revision", tmp_path), capsys, "vocabulary")


def short_context(name):
    return {
        "event_gpt": lambda folder: write_native_folder(folder, context_length=3),
        "gpt2": lambda folder: write_library_folder(folder, "gpt2", n_positions=3),
        "llama": lambda folder: write_library_folder(folder, "llama", max_position_embeddings=3),
        "onnx": lambda folder: write_onnx_folder(folder, context_length=3),
    }[name]


@pytest.mark.parametrize("name", ["event_gpt", "gpt2", "llama", "onnx"])
def test_a_context_shorter_than_the_longest_session_is_named(name, store, tmp_path, capsys):
    short_context(name)(tmp_path / "revision")
    says_so(*audit(store, tmp_path / "revision", tmp_path), capsys, "context length of 3")


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("name", sorted(set(ADAPTERS) & WITHOUT_BFLOAT16))
def test_a_dtype_that_the_adapter_refuses_is_named(name, dtype, made, store, tmp_path, capsys):
    says_so(*audit(store, made.folder(name), tmp_path, "--dtype", dtype), capsys, "float32")


def says_so(code, report, capsys, words):
    """The audits are all "not measured", or nothing ran at all, and either says why."""
    if code == 2:
        assert words in capsys.readouterr().err
        return
    assert code == 1
    assert {found["status"] for found in report["audits"].values()} == {"not measured"}
    assert all(words in found["problem"] for found in report["audits"].values())
    assert report["decision"]["cache_acceleration"] == "blocked"


class Breaks(Planted):
    """Raises from one call of one verb on."""

    def __init__(self, inner, verb, after):
        super().__init__(inner)
        self.verb, self.after, self.calls = verb, after, 0

    def _count(self, verb):
        self.calls += verb == self.verb
        if self.calls > self.after:
            raise RuntimeError("the device is gone")

    def prefill(self, events, valid):
        self._count("prefill")
        return super().prefill(events, valid)

    def extend(self, events, valid, cache):
        self._count("extend")
        return super().extend(events, valid, cache)

    def reorder(self, cache, parents):
        self._count("reorder")
        return super().reorder(cache, parents)


def subject_of(made, name, verb, after):
    """The adapter's decoder, and a few sessions; it breaks in every dtype alike."""
    sessions = tuple(
        Session(f"s{number}", tuple(sorted(EVENT_MAP.events)[(number + step) % 4] for step in range(1 + number % 4)))
        for number in range(6)
    )

    def load(dtype):
        return Breaks(made.fresh(name, dtype), verb, after)

    return Subject(
        name, "sha256:0", load(torch.float32), load, EVENT_MAP, EVENT_ORDER.compile(EVENT_MAP), sessions, None,
        DEFAULT_SETTINGS, 4,
    )  # fmt: skip


@pytest.mark.parametrize("verb", ["prefill", "extend", "reorder"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_that_raises_in_the_middle_is_not_measured_and_says_why(name, verb, made):
    subject = subject_of(made, name, verb, after=3)
    results = [run_audit(one, subject) for one in AUDITS if one.name in ("cache parity", "numerics", "cache identity")]
    broken = {result.audit: result.problem for result in results if result.problem is not None}
    assert "cache parity" in broken
    assert all("the device is gone" in problem for problem in broken.values())
    measured = {one.audit: Measured(one.findings.measurements, {}, one.problem) for one in results}
    report = judge(measured, {"greedy": "greedy"}, {}, limits_from()).to_report()
    assert report["audits"]["cache parity"]["status"] == "not measured"
    assert report["decision"]["cache_acceleration"] == "blocked"
    assert not approved(report)


def test_the_adapters_are_those_of_the_contract_suite():
    assert set(ADAPTERS) <= set(MAKERS)
    assert isinstance(EVENT_MAP, EventMap)
