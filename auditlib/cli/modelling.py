"""Verbs on revisions: train, register, demo.

What loads torch is imported inside the verbs: asking for help, or for another verb, should not wait for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from auditlib.cli.output import ProgressLine, add_json_option, emit, say, table
from auditlib.errors import InputError
from auditlib.sessions.store import SessionStore

if TYPE_CHECKING:
    from auditlib.runs.train import TrainReport

_SHAPE = ("width", "layers", "heads", "context_length", "positions", "normalisation", "dropout")
_PLAN = ("epochs", "sessions", "learning_rate", "patience", "seed", "seconds")


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `train`, `register` and `demo`."""
    train = verbs.add_parser("train", help="train the bundled decoder on the training side of a store")
    train.add_argument("--store", type=Path, required=True)
    train.add_argument("--rules", type=Path, required=True, metavar="event_order.json")
    train.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    train.add_argument("--name", help="name of the revision (default: the folder's)")
    train.add_argument("--snapshot", metavar="DIGEST", help="frozen snapshot to train on (default: the latest)")
    train.add_argument("--event-map", type=Path, metavar="FILE", help="versioned ids to keep (default: new ones)")
    train.add_argument("--checkpoint", type=Path, metavar="FILE", help="go on from here after an interruption")
    for name, kind in (("epochs", int), ("sessions", int), ("patience", int), ("seed", int)):
        train.add_argument(f"--{name}", type=kind, metavar="N")
    for name in ("learning-rate", "seconds", "dropout"):
        train.add_argument(f"--{name}", type=float, metavar="X")
    for name in ("width", "layers", "heads", "context-length"):
        train.add_argument(f"--{name}", type=int, metavar="N")
    train.add_argument("--positions", choices=["rotary", "learned"])
    train.add_argument("--normalisation", choices=["layer", "rms"])
    add_json_option(train)
    train.set_defaults(run=_train)
    register = verbs.add_parser("register", help="note a revision in a store, so that the dashboard lists it")
    register.add_argument("--store", type=Path, required=True)
    register.add_argument("folder", type=Path, metavar="FOLDER")
    add_json_option(register)
    register.set_defaults(run=_register)
    demo = verbs.add_parser("demo", help="make the demo's store and first run where they are missing")
    demo.add_argument("--home", type=Path, default=Path("var"), metavar="FOLDER")
    demo.add_argument("--rebuild", action="store_true", help="make the log and the revisions that ship in data/ anew")
    add_json_option(demo)
    demo.set_defaults(run=_demo)


def _train(options: argparse.Namespace) -> int:
    """Train, and print how the decoder does on held-out sessions."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415
    from auditlib.decoders.training_plan import TrainingPlan  # noqa: PLC0415
    from auditlib.runs.train import TrainRequest, train_revision  # noqa: PLC0415

    settle_threads()
    given = {name: getattr(options, name) for name in (*_SHAPE, *_PLAN) if getattr(options, name) is not None}
    request = TrainRequest(
        options.store,
        options.rules,
        options.out,
        name=options.name,
        snapshot=options.snapshot,
        event_map=options.event_map,
        plan=TrainingPlan(**{name: given[name] for name in _PLAN if name in given}),
        config={name: given[name] for name in _SHAPE if name in given},
        checkpoint=options.checkpoint,
    )
    if options.out.exists():
        raise InputError(f"{options.out} is there already; a revision is never overwritten, choose another --out")
    progress = ProgressLine()
    try:
        report = train_revision(request, progress)
    finally:
        progress.close()
    say(options, _in_words(report))
    figures = {"figures": dict(report.figures), "record": report.trained.record()}
    emit(options, {"format": 1, "revision": report.revision.digest, "folder": str(options.out), **figures})
    return 0


def _in_words(report: TrainReport) -> str:
    """Accuracy and NLL beside the look-up table and the ceiling, and what the figures rest on."""
    found = report.figures
    rows = [
        ("held-out", "next-event accuracy", "nats an event"),
        (report.revision.manifest.name, f"{found['accuracy']:.4f}", f"{found['nll']:.4f}"),
        ("look-up table of prefixes", f"{found['lookup_accuracy']:.4f}", f"{found['lookup_nll']:.4f}"),
        ("ceiling (best by prefix)", f"{found['ceiling']:.4f}", "–"),
    ]
    fresh = found.get("accuracy_without_duplicates")
    notes = [f"{found['predictions']:,.0f} predictions; {found['near_ties']:.1%} after prefixes that are nearly tied"]
    notes += [] if fresh is None else [f"on sessions unlike any in training: {fresh:.4f}"]
    rounds = report.trained.history
    ended = f"stopped after {rounds[-1].epoch:.1f} epochs ({report.trained.stopped})"
    return "\n".join([table(rows), *notes, ended, f"revision {report.revision.digest} in {report.revision.folder}"])


def _register(options: argparse.Namespace) -> int:
    """Check a revision whole and note it."""
    from auditlib.decoders.revision import open_revision  # noqa: PLC0415

    revision = open_revision(options.folder)
    with SessionStore.open(options.store, read_only=False) as store:
        store.add_revision(revision.manifest.name, options.folder.absolute(), revision.digest)
    say(options, f"{options.store}: knows {revision.manifest.name}, {revision.digest}")
    emit(options, {"format": 1, "name": revision.manifest.name, "digest": revision.digest})
    return 0


def _demo(options: argparse.Namespace) -> int:
    """Make the demo, or first what it ships with."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415
    from auditlib.demo.build import ensure_demo  # noqa: PLC0415
    from auditlib.demo.rebuild import rebuild  # noqa: PLC0415

    settle_threads()
    progress = ProgressLine()
    try:
        if options.rebuild:
            rebuild(progress)
        demo = ensure_demo(options.home, progress)
    finally:
        progress.close()
    say(options, f"demo: store {demo.store}, runs {demo.runs}")
    emit(options, {"format": 1, "store": str(demo.store), "runs": str(demo.runs)})
    return 0
