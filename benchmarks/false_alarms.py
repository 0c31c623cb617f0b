"""Whether sound decoders pass: all audits on decoders of several adapters, sizes and dtypes, in batches of 1 to 64.

`python benchmarks/false_alarms.py --seeds 20` prints Markdown; `--json FILE` writes the same as JSON. Seeds change the
weights, the sessions, the rows that probes make up, and how many rows are read together: by the sweeps over held-out
prefixes on both paths, by the study of the noise floor, and by generation. Odd seeds of the smaller decoders are
trained for a moment on sessions like the held-out ones; all others have random weights. Whatever an audit fails, or
does not measure, on these decoders is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - the path above comes first
from safetensors.torch import save  # noqa: E402

from auditlib.audits import AUDITS  # noqa: E402
from auditlib.audits.base import Subject  # noqa: E402
from auditlib.audits.battery import run_battery  # noqa: E402
from auditlib.audits.device import NAMES_OF_DTYPES  # noqa: E402
from auditlib.audits.subject import Loading, load_decoder  # noqa: E402
from auditlib.decoders.event_gpt import EventGpt  # noqa: E402
from auditlib.decoders.gpt_config import EventGptConfig  # noqa: E402
from auditlib.decoders.gpt_weights import fresh_tensors, module_from  # noqa: E402
from auditlib.decoders.onnx_export import onnx_config, onnx_network  # noqa: E402
from auditlib.decoders.revision import Revision, write_revision  # noqa: E402
from auditlib.decoders.targets import event_loss, shifted_targets  # noqa: E402
from auditlib.decoders.tensor_file import write_tensors  # noqa: E402
from auditlib.decoding.policies import DEFAULT_SETTINGS, read_policy  # noqa: E402
from auditlib.events.event_map import EventMap  # noqa: E402
from auditlib.events.order import EventOrder  # noqa: E402
from auditlib.events.prefixes import pad  # noqa: E402
from auditlib.runs.execute import _judge, _limits  # noqa: E402 - the gate of a run, without a store
from auditlib.sessions.split import LeakageReport  # noqa: E402
from benchmarks.detection import NAMES, RULES, SIZES, _sessions  # noqa: E402
from tests.small_adapters import library_config, library_model, library_weights  # noqa: E402

MAP = EventMap.build(NAMES)
ORDER = EventOrder.from_json(RULES)
POLICY = read_policy(None)
BATCHES = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 40, 48, 56, 63, 64)
STEPS, LEARNING_RATE = 40, 3e-3
# Few and short, so that twenty seeds of every decoder end within half an hour.
SESSIONS, NEW_EVENTS, CONTEXT = 8, 6, 32
# Ten times what the library starts from. From 0.5, a random Llama rounds so much in bfloat16 that none of its choices
# is beyond twice the tolerance: its decisions are then not measured, which is a finding and no false alarm.
SPREAD = 0.2
SPLIT = LeakageReport(("session",), 80, 20, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass
class Line:
    """All subjects of one decoder in one dtype."""

    decoder: str
    dtype: str
    parameters: int = 0
    subjects: int = 0
    trained: int = 0
    audits: int = 0
    checks: int = 0
    alarms: list[str] = field(default_factory=list)
    not_applicable: set[str] = field(default_factory=set)
    seconds: float = 0.0


@dataclass(frozen=True)
class Maker:
    """Writes the revision of one seed, with weights that were trained where asked, and says how many there are."""

    make: Callable[[Path, int, bool], tuple[Revision, int]]
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    trains: bool = True


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of decoders and dtypes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--decoder", action="append", choices=sorted(MAKERS), help="default: all")
    options.add_argument("--dtype", action="append", choices=("float32", "bfloat16"), help="default: both")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args(arguments)
    torch.set_num_threads(1)
    lines = []
    for name in chosen.decoder or MAKERS:
        for dtype in MAKERS[name].dtypes:
            if dtype in (chosen.dtype or (dtype,)):
                lines.append(sweep(name, dtype, range(chosen.seeds)))
                print(markdown(lines).splitlines()[-1], file=sys.stderr, flush=True)
                if chosen.json:
                    chosen.json.write_text(json.dumps(as_json(lines), indent=1) + "\n", encoding="utf-8")
    print(markdown(lines))


def sweep(name: str, dtype: str, seeds: Sequence[int]) -> Line:
    """All audits on one decoder in one dtype, once a seed."""
    line = Line(name, dtype)
    for seed in seeds:
        begun = time.process_time()
        trained = MAKERS[name].trains and seed % 2 == 1
        with tempfile.TemporaryDirectory() as home:
            revision, line.parameters = MAKERS[name].make(Path(home) / "revision", seed, trained)
            audit(line, subject_of(revision, dtype, seed), f"seed {seed}{', trained' if trained else ''}")
        line.subjects += 1
        line.trained += trained
        line.seconds += time.process_time() - begun
    return line


def audit(line: Line, subject: Subject, where: str) -> None:
    """Run all audits on a subject and note what the gate does not let through."""
    results = run_battery(AUDITS, subject)
    report: Any = _judge(_limits(POLICY, line.dtype), POLICY, results).to_report()
    line.audits += len(results)
    for name, found in report["audits"].items():
        counted = [check for check in found["checks"] if not check.get("comparison")]
        # faults are not planted here: that is for the benchmark of detection
        counted = [check for check in counted if check["name"] != "planted faults missed"]
        line.checks += len(counted)
        line.not_applicable |= {f"{name}: {check}" for check in found["not_applicable"]}
        line.alarms += [f"{where}, {subject.most_rows} rows: {name}: {words}" for words in _wrong(found, counted)]


def _wrong(found: dict[str, Any], counted: Sequence[dict[str, Any]]) -> Iterator[str]:
    if found["problem"]:
        yield found["problem"]
    for check in counted:
        if check["status"] != "passed":
            yield f"{check['name']} {check['status']}: {check['value']} of {check['limit']}"


def subject_of(revision: Revision, dtype: str, seed: int) -> Subject:
    """A revision with held-out sessions of its seed, read in batches of its seed's size."""
    loading = Loading("cpu", NAMES_OF_DTYPES[dtype])
    return Subject(
        revision.manifest.name, revision.digest, load_decoder(revision, loading),
        lambda wanted: load_decoder(revision, loading, wanted), revision.event_map,
        revision.event_order.compile(revision.event_map), tuple(_sessions(seed)[:SESSIONS]), SPLIT, DEFAULT_SETTINGS,
        NEW_EVENTS,
        dtype=loading.dtype, seed=seed, most_rows=BATCHES[seed % len(BATCHES)],
    )  # fmt: skip


def _written(folder: Path, decoder: str, config: dict[str, Any], files: dict[str, bytes]) -> Revision:
    return write_revision(
        folder, name=folder.name, decoder=decoder, config=config, event_map=MAP, event_order=ORDER, files=files
    )


def _gpt(size: str, seed: int, trained: bool) -> EventGpt:
    config = EventGptConfig(vocabulary_size=MAP.size, **{**SIZES[size], "context_length": CONTEXT})  # type: ignore[arg-type]
    decoder = EventGpt(module_from(config, fresh_tensors(config, seed), "cpu", torch.float32))
    if trained:
        _train(decoder.module, decoder.full, seed)
    return decoder


def _native(size: str) -> Callable[[Path, int, bool], tuple[Revision, int]]:
    def make(folder: Path, seed: int, trained: bool) -> tuple[Revision, int]:
        decoder = _gpt(size, seed, trained)
        weights = write_tensors({name: tensor.detach().clone() for name, tensor in decoder.module.state_dict().items()})
        revision = _written(folder, "event_gpt", decoder.config.to_mapping(), {"model.safetensors": weights})
        return revision, _parameters(decoder.module)

    return make


def _onnx(folder: Path, seed: int, trained: bool) -> tuple[Revision, int]:
    decoder = _gpt("small", seed, trained)
    files = {"model.onnx": onnx_network(decoder)}
    return _written(folder, "onnx", asdict(onnx_config(decoder.config)), files), _parameters(decoder.module)


def _library(family: str) -> Callable[[Path, int, bool], tuple[Revision, int]]:
    def make(folder: Path, seed: int, trained: bool) -> tuple[Revision, int]:
        config = library_config(family, vocab_size=MAP.size, initializer_range=SPREAD)
        model = library_model(config, seed)
        if trained:
            _train(model, lambda events, valid: model(input_ids=events, attention_mask=valid.long()).logits, seed)
        files = {"config.json": json.dumps(config).encode(), "model.safetensors": save(library_weights(model))}
        return _written(folder, "transformers", {}, files), _parameters(model)

    return make


def _parameters(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _train(module: torch.nn.Module, logits: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], seed: int) -> None:
    """A moment of training on sessions like the held-out ones, of other seeds."""
    rows = [(MAP.start, *MAP.encode(one.events), MAP.end) for more in range(8) for one in _sessions(1000 + seed + more)]
    events, valid = map(torch.as_tensor, pad(rows, MAP.padding))
    targets, weight = shifted_targets(events, valid)
    module.requires_grad_(requires_grad=True).train()
    optimiser = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        event_loss(logits(events, valid), targets, weight).backward()
        optimiser.step()
    module.requires_grad_(requires_grad=False).eval()


MAKERS: dict[str, Maker] = {
    "event_gpt small": Maker(_native("small")),
    "transformers llama": Maker(_library("llama")),
    "transformers gpt2": Maker(_library("gpt2")),
    "transformers gemma3": Maker(_library("gemma3_text")),
    "onnx": Maker(_onnx, ("float32",)),
    "event_gpt medium": Maker(_native("medium")),
    "event_gpt 1M": Maker(_native("1M"), trains=False),
}


def as_json(lines: Sequence[Line]) -> dict[str, Any]:
    """Every line of the table, with each alarm in words."""
    return {
        "format": 1,
        "batches": list(BATCHES),
        "decoders": [
            {**asdict(line), "not_applicable": sorted(line.not_applicable), "seconds": round(line.seconds, 1)}
            for line in lines
        ],
    }


def markdown(lines: Sequence[Line]) -> str:
    """One line a decoder and dtype, and below it what was alarmed about."""
    table = [
        "| decoder | parameters | dtype | subjects | of them trained | audits run | checks | false alarms | CPU s |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    table += [
        f"| {one.decoder} | {one.parameters:,} | {one.dtype} | {one.subjects} | {one.trained} | {one.audits} | "
        f"{one.checks} | {len(one.alarms)} | {one.seconds:.0f} |"
        for one in lines
    ]
    alarms = [f"- {one.decoder}, {one.dtype}, {words}" for one in lines for words in one.alarms]
    return "\n".join([*alarms, "", *table] if alarms else table)


if __name__ == "__main__":
    main()
