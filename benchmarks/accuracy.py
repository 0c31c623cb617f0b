"""Next-event accuracy on published splits, beside the look-up table and the ceiling.

    python benchmarks/accuracy.py FOLDER [--seeds 3] [--threads 1] [--json FILE]

FOLDER holds NAME_80.csv (training) and NAME_20.csv (held out), one row a case with the columns CaseID, trace
("<BOS>, A, B, <EOS>") and length. Metric: the next event from the first event on, end included, over every prefix.
Prints a Markdown table and writes JSON; exits with 1 when the first seed misses a goal or its minute of CPU time.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402 - the path above comes first

from auditlib.decoders.evaluation import evaluate  # noqa: E402
from auditlib.decoders.gpt_config import EventGptConfig  # noqa: E402
from auditlib.decoders.lookup import LookupTable, ceiling, near_ties  # noqa: E402
from auditlib.decoders.training import train  # noqa: E402
from auditlib.decoders.training_plan import TrainingPlan  # noqa: E402
from auditlib.errors import LogError, PrefixgateError  # noqa: E402
from auditlib.events.event_map import EventMap  # noqa: E402

GOALS = {"helpdesk": 0.71, "bpi13_incident": 0.70, "domestic": 0.905}
MOST_SECONDS = 60.0
FIRST, LAST = "<BOS>", "<EOS>"
Rows = list[tuple[int, ...]]


@dataclass(frozen=True)
class Outcome:
    """One training on one split. Times are seconds of the processor and of the clock."""

    log: str
    seed: int
    goal: float
    accuracy: float
    nll: float
    lookup_accuracy: float
    lookup_nll: float
    ceiling: float
    near_ties: float
    largest_near_tie: float
    predictions: int
    parameters: int
    cpu_seconds: float
    seconds: float
    stopped: str

    @property
    def met(self) -> bool:
        """Whether goal and time were kept."""
        return self.accuracy >= self.goal and self.cpu_seconds <= MOST_SECONDS


def read_cases(path: Path) -> list[tuple[str, ...]]:
    """Events of each case, without the marks of start and end; LogError where a row does not add up."""
    if not path.is_file():
        raise LogError(f"{path}: no such file; give the folder that holds the published splits")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [_case(row, f"{path}, line {line}") for line, row in enumerate(csv.DictReader(file), start=2)]


def _case(row: dict[str, str], where: str) -> tuple[str, ...]:
    names = (row.get("trace") or "").split(", ")
    if len(names) < 3 or names[0] != FIRST or names[-1] != LAST:
        raise LogError(f"{where}: the trace must run from {FIRST} to {LAST}, parted by a comma and a space")
    # A name with a comma in it would fall apart here; the stated length tells.
    if row.get("length") != str(len(names) - 2):
        raise LogError(f"{where}: {len(names) - 2} events were found, the row states {row.get('length')}")
    return tuple(names[1:-1])


def read_split(folder: Path, log: str) -> tuple[EventMap, Rows, Rows]:
    """Event map of a log, and its training and held-out cases as ids from start to end."""
    sides = [read_cases(folder / f"{log}_{share}.csv") for share in ("80", "20")]
    event_map = EventMap.build({name for side in sides for case in side for name in case})
    training, held_out = (
        [(event_map.start, *event_map.encode(case), event_map.end) for case in side] for side in sides
    )
    return event_map, training, held_out


def measure(folder: Path, log: str, seed: int) -> Outcome:
    """Train on a log's training cases, and compare on its held-out ones."""
    event_map, training, held_out = read_split(folder, log)
    longest = max(map(len, (*training, *held_out)))
    began, began_cpu = time.perf_counter(), time.process_time()
    trained = train(training, EventGptConfig(event_map.size, longest + 16), TrainingPlan(seed=seed))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    found, table = evaluate(trained.decoder(), held_out), LookupTable(training).evaluate(held_out)
    ties = near_ties(training, held_out)
    return Outcome(
        log,
        seed,
        GOALS[log],
        found.accuracy,
        found.nll,
        table.accuracy,
        table.nll,
        ceiling(held_out),
        ties.share,
        ties.largest,
        found.events,
        sum(tensor.numel() for tensor in trained.tensors.values()),
        cpu_seconds,
        seconds,
        trained.stopped,
    )


def table(outcomes: list[Outcome]) -> str:
    """Markdown table of the outcomes."""
    heads = ("log", "seed", "goal", "accuracy", "look-up", "ceiling", "NLL", "look-up NLL", "near ties", "largest tie")
    lines = [f"| {' | '.join((*heads, 'CPU s', 'clock s', 'met'))} |", "|" + "---|" * (len(heads) + 3)]
    for each in outcomes:
        shares = (each.goal, each.accuracy, each.lookup_accuracy, each.ceiling, each.nll, each.lookup_nll)
        cells = [each.log, str(each.seed), *(f"{share:.4f}" for share in shares)]
        cells += [
            f"{each.near_ties:.1%}",
            f"{each.largest_near_tie:.1%}",
            f"{each.cpu_seconds:.1f}",
            f"{each.seconds:.1f}",
        ]
        lines.append(f"| {' | '.join([*cells, 'yes' if each.met else 'NO'])} |")
    return "\n".join(lines)


def surroundings() -> dict[str, object]:
    """What the figures depend on beside the code."""
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load_average": os.getloadavg(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 when the first seed met every goal in its time, 1 when not, 2 when the data cannot be read."""
    parser = argparse.ArgumentParser(description="Next-event accuracy on published splits.")
    parser.add_argument("folder", type=Path, help="folder with NAME_80.csv and NAME_20.csv")
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings per log, seeds 0, 1, …")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (1 wastes least on small models)")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "out" / "accuracy.json")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    before = surroundings()
    try:
        outcomes = [measure(asked.folder, log, seed) for log in GOALS for seed in range(max(1, asked.seeds))]
    except PrefixgateError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    print(table(outcomes))
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    document = {"before": before, "after": surroundings(), "outcomes": [asdict(each) for each in outcomes]}
    asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(each.met for each in outcomes if each.seed == 0) else 1


if __name__ == "__main__":
    sys.exit(main())
