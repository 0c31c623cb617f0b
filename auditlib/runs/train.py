"""From a frozen snapshot to a revision: trained on one side, reported on the other, saved with logits to reproduce."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditlib.decoders.evaluation import evaluate
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.lookup import LookupTable, ceiling, near_ties
from auditlib.decoders.reference import REFERENCE, make_reference
from auditlib.decoders.revision import Revision, write_revision
from auditlib.decoders.training import train
from auditlib.decoders.training_plan import Trained, TrainingPlan
from auditlib.errors import ContextExceededError
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.progress import Progress, silent
from auditlib.sessions.session import Session
from auditlib.sessions.snapshot import Snapshot
from auditlib.sessions.store import SessionStore

Rows = Sequence[tuple[int, ...]]

_SPARE_CONTEXT = 16  # events that a decoder may still propose after the longest session that was seen


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to train, on what, and how. `config` overrides entries of the decoder's shape."""

    store: Path
    rules: Path
    out: Path
    name: str | None = None
    snapshot: str | None = None
    event_map: Path | None = None
    plan: TrainingPlan = field(default_factory=TrainingPlan)
    config: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Path | None = None


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The revision that came out, and how it does on held-out sessions beside what simpler predictors reach."""

    revision: Revision
    trained: Trained
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Sides:
    """Rows of both sides as ids from start to end."""

    training: Rows
    held_out: Rows


def train_revision(request: TrainRequest, progress: Progress = silent) -> TrainReport:
    """Train an `event_gpt` on the training side of a snapshot and write it as a revision folder.

    Raises OrderError for rules that do not fit the log's events, EventMapError for events that a given map lacks,
    RevisionError when the folder is taken; nothing is then written. The event map is the log's vocabulary, which
    tells nothing of how held-out sessions went.
    """
    with SessionStore.open(request.store) as store:
        snapshot = store.snapshot(request.snapshot)
        store.verify(snapshot)
        event_map = _event_map(store, request.event_map)
        sides = _Sides(
            _rows(store.sessions(snapshot, "training"), event_map),
            _rows(store.sessions(snapshot, "held-out"), event_map),
        )
    order = EventOrder.read(request.rules)
    order.compile(event_map)  # refused now rather than after the training
    trained = train(
        sides.training,
        _config(request, event_map, sides),
        request.plan,
        progress=progress,
        checkpoint=request.checkpoint,
    )
    figures = held_out_figures(trained, sides.training, sides.held_out)
    files = {
        "model.safetensors": trained.weights(),
        REFERENCE: make_reference(trained.exact_decoder(), sides.held_out),
        "training.json": _record(trained, figures, snapshot),
    }
    revision = write_revision(
        request.out,
        name=request.name or request.out.name,
        decoder="event_gpt",
        config=trained.config.to_mapping(),
        event_map=event_map,
        event_order=order,
        files=files,
    )
    return TrainReport(revision, trained, figures)


def held_out_figures(trained: Trained, training: Rows, held_out: Rows) -> dict[str, float]:
    """Accuracy and NLL (nats an event) on held-out rows: of the decoder, of a look-up table, and the ceiling."""
    decoder = trained.decoder()
    known = set(training)
    fresh = [row for row in held_out if row not in known]
    found, table = evaluate(decoder, held_out), LookupTable(training).evaluate(held_out)
    ties = near_ties(training, held_out)
    figures = {
        "accuracy": found.accuracy,
        "nll": found.nll,
        "lookup_accuracy": table.accuracy,
        "lookup_nll": table.nll,
        "ceiling": ceiling(held_out),
        "near_ties": ties.share,
        "largest_near_tie": ties.largest,
        "predictions": float(found.events),
    }
    if fresh:
        figures["accuracy_without_duplicates"] = evaluate(decoder, fresh).accuracy
    return figures


def _event_map(store: SessionStore, given: Path | None) -> EventMap:
    """The given map, or a new one over every event name of the store."""
    return EventMap.build(store.event_names()) if given is None else EventMap.read(given)


def _rows(sessions: Any, event_map: EventMap) -> Rows:
    """Sessions as ids from start to end."""
    return [_row(session, event_map) for session in sessions]


def _row(session: Session, event_map: EventMap) -> tuple[int, ...]:
    """One session as ids."""
    return (event_map.start, *event_map.encode(session.events), event_map.end)


def _config(request: TrainRequest, event_map: EventMap, sides: _Sides) -> EventGptConfig:
    """The decoder's shape: room for the longest session and some events more, unless the request says otherwise."""
    # Of both sides: a decoder that cannot hold a held-out session could not be audited on it.
    longest = max(len(row) for rows in (sides.training, sides.held_out) for row in rows)
    shape = {"vocabulary_size": event_map.size, "context_length": longest - 1 + _SPARE_CONTEXT, **request.config}
    config = EventGptConfig.from_mapping(shape)
    # A training session is cut to the context; a held-out one is measured whole, which would fail after the training.
    needed = max((len(row) - 1 for row in sides.held_out), default=0)
    if needed > config.context_length:
        raise ContextExceededError(
            f"a held-out session has {needed} events, start included, the context only {config.context_length}; "
            f"give --context-length {needed} or more, or leave it out"
        )
    return config


def _record(trained: Trained, figures: Mapping[str, float], snapshot: Snapshot) -> bytes:
    """`training.json`: how the weights came about, on which snapshot, and what they reach on its other side."""
    document = {**trained.record(), **figures, "snapshot": snapshot.digest, "split": snapshot.to_dict()}
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
