"""What planted faults each probe catches, beside what the common greedy test would have caught.

`python benchmarks/detection.py --size small --seeds 3` prints Markdown; `--json FILE` writes the same as JSON. The
common test: one prompt, greedy decoding, token ids compared cached against uncached. Decoders are `event_gpt` with
random weights.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - the path above comes first

from auditlib.audits.base import AuditResult, Findings, Measurement, Subject  # noqa: E402
from auditlib.audits.faults.catalogue import FAULTS  # noqa: E402
from auditlib.audits.faults.planting import World  # noqa: E402
from auditlib.audits.self_check import small_world  # noqa: E402
from auditlib.audits.tolerance import study  # noqa: E402
from auditlib.decoders.event_gpt import EventGpt  # noqa: E402
from auditlib.decoders.gpt_config import EventGptConfig  # noqa: E402
from auditlib.decoders.gpt_weights import fresh_tensors, module_from  # noqa: E402
from auditlib.decoders.protocol import Decoder  # noqa: E402
from auditlib.decoding.policies import DEFAULT_SETTINGS  # noqa: E402
from auditlib.events.event_map import EventMap  # noqa: E402
from auditlib.events.order import EventOrder  # noqa: E402
from auditlib.release.limits import LIMITS, limits_from  # noqa: E402
from auditlib.runs.self_check import Judged, run_self_check  # noqa: E402
from auditlib.sessions.session import Session  # noqa: E402
from auditlib.sessions.split import LeakageReport  # noqa: E402

SIZES = {
    "small": {"context_length": 32, "width": 32, "layers": 2, "heads": 2},
    "medium": {"context_length": 64, "width": 96, "layers": 3, "heads": 4},
    "1M": {"context_length": 128, "width": 144, "layers": 4, "heads": 6},
}
NAMES = ["assigned", "closed", "escalated", "opened", "reopened", "repaired", "waiting"]
RULES = (
    '{"format": 1, "version": "1", "reopening": null, "rules": '
    '[{"template": "not succession", "first": "closed", "then": "assigned"}, {"template": "init", "event": "opened"}]}'
)
NEW_EVENTS = 12


@dataclass(frozen=True)
class Run:
    """One decoder and what became of every fault planted in it."""

    size: str
    seed: int
    parameters: int
    seconds: float
    judged: tuple[Judged, ...]
    greedy: dict[str, bool]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of faults and probes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--size", action="append", choices=sorted(SIZES), help="default: all")
    options.add_argument("--seeds", type=int, default=3, help="random decoders of each size")
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args(arguments)
    torch.set_num_threads(1)
    runs = [measure(size, seed) for size in chosen.size or SIZES for seed in range(chosen.seeds)]
    print(markdown(runs))
    if chosen.json:
        chosen.json.write_text(json.dumps(as_json(runs), indent=1) + "\n", encoding="utf-8")


def measure(size: str, seed: int) -> Run:
    """Plant every fault in one random decoder."""
    subject = subject_of(size, seed)
    noise = study(subject).tolerance
    found = Findings((Measurement("tolerance", noise, "logit", 1),))
    results = [AuditResult(audit, found, 0.0) for audit in dict.fromkeys(limit.audit for limit in LIMITS)]
    begun = time.process_time()
    checked = run_self_check(subject, results, limits_from(self_check=True))
    seconds = time.process_time() - begun
    if checked.problem:
        raise SystemExit(checked.problem)
    world = small_world(subject, noise)
    greedy = {fault.name: greedy_sees(fault.plant(world)) for fault in FAULTS}
    parameters = sum(weight.numel() for weight in subject.decoder.module.parameters())  # type: ignore[attr-defined]
    return Run(size, seed, parameters, seconds, checked.judged, greedy)


def greedy_sees(world: World) -> bool:
    """The common test: whether greedy decoding of one prompt gives other ids with the cache than without."""
    decoder, row = world.subject.decoder, world.rows.rows(1, 6, "the one prompt")[0]
    try:
        return _greedy(decoder, row, cached=True) != _greedy(decoder, row, cached=False)
    except Exception:  # noqa: BLE001  # a decoder that stops is seen by any test
        return True


@torch.no_grad()
def _greedy(decoder: Decoder, row: tuple[int, ...], *, cached: bool) -> list[int]:
    events = list(row)
    logits, cache = decoder.prefill(*_one(events)) if cached else (decoder.full(*_one(events))[:, -1], None)
    for _ in range(min(NEW_EVENTS, decoder.context_length - len(row))):
        events.append(int(logits[0].argmax()))
        if cached:
            more, cache = decoder.extend(*_one(events[-1:]), cache)
            logits = more[:, -1]
        else:
            logits = decoder.full(*_one(events))[:, -1]
    return events


def _one(events: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([events]), torch.ones(1, len(events), dtype=torch.bool)


def subject_of(size: str, seed: int) -> Subject:
    """A random decoder with sessions that it half keeps to: their events come from its own rules."""
    events = EventMap.build(NAMES)
    config = EventGptConfig(vocabulary_size=events.size, **SIZES[size])  # type: ignore[arg-type]
    tensors = fresh_tensors(config, seed)

    def load(dtype: torch.dtype) -> Decoder:
        return EventGpt(module_from(config, dict(tensors), "cpu", dtype))

    split = LeakageReport(("session",), 80, 20, 0, 0, 0, 0, 0, 0, 0, 0)
    plain = Subject(
        f"{size} {seed}", "sha256:0", load(torch.float32), load, events, EventOrder.from_json(RULES).compile(events),
        tuple(_sessions(seed)), split, DEFAULT_SETTINGS, NEW_EVENTS,
    )  # fmt: skip
    return replace(plain, seed=seed)


def _sessions(seed: int) -> list[Session]:
    chance = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 14, (20,), generator=chance).tolist()
    middle = [name for name in NAMES if name not in ("assigned", "opened")]
    drawn = [torch.randint(len(middle), (length,), generator=chance).tolist() for length in lengths]
    return [Session(f"s{place}", ("opened", *(middle[n] for n in one))) for place, one in enumerate(drawn)]


def as_json(runs: Sequence[Run]) -> dict[str, Any]:
    """Every fault in every decoder."""
    return {
        "format": 1,
        "decoders": [
            {
                "size": run.size, "seed": run.seed, "parameters": run.parameters, "cpu_seconds": round(run.seconds, 2),
                "faults": [
                    {
                        "fault": one.planting.fault.name, "kind": one.planting.fault.kind,
                        "audit": one.planting.fault.audit,
                        "check": one.planting.check, "outcome": one.outcome, "margin": one.margin,
                        "greedy": run.greedy[one.planting.fault.name],
                    }
                    for one in run.judged
                ],
            }
            for run in runs
        ],
    }  # fmt: skip


def markdown(runs: Sequence[Run]) -> str:
    """A table of decoders, and one of faults: how often the claimed probe saw each, and how often the common test."""
    lines = [
        "| decoder | parameters | CPU s | planted | caught | missed | false alarms |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for run in runs:
        count = [sum(one.outcome == name for one in run.judged) for name in ("caught", "missed", "false alarm")]
        lines.append(
            f"| {run.size}, seed {run.seed} | {run.parameters:,} | {run.seconds:.1f} | {count[0] + count[1]} | "
            f"{count[0]} | {count[1]} | {count[2]} |"
        )
    lines += ["", "| fault | kind | probe | caught | least margin | greedy test |", "|---|---|---|--:|--:|--:|"]
    for place, fault in enumerate(FAULTS):
        mine = [run.judged[place] for run in runs]
        planted = [one for one in mine if one.outcome in ("caught", "missed")]
        if not planted:
            lines.append(f"| {fault.name} | {fault.kind} | {mine[0].planting.check} | {mine[0].outcome} | | |")
            continue
        caught = sum(one.outcome == "caught" for one in planted)
        least = min((one.margin for one in planted if one.margin is not None), default=float("inf"))
        greedy = sum(run.greedy[fault.name] for run in runs)
        lines.append(
            f"| {fault.name} | {fault.kind} | {fault.audit}: {planted[0].planting.check} | {caught}/{len(planted)} | "
            f"{least:.3g} | {greedy}/{len(runs)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
