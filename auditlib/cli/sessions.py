"""Verbs on sessions: import, split, rules."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from auditlib.cli.accounts import manifest_in_words, split_in_words
from auditlib.cli.output import ProgressLine, add_json_option, emit, say, table
from auditlib.events.event_map import EventMap
from auditlib.events.mining import propose
from auditlib.events.order import EventOrder
from auditlib.files import write_whole
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import leakage, split
from auditlib.sessions.staging import MISSING
from auditlib.sessions.store import SessionStore


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `import`, `split` and `rules`."""
    log = verbs.add_parser("import", help="read an event log into a session store")
    log.add_argument("log", type=Path, metavar="LOG", help="CSV, XES or Parquet, plain or compressed")
    log.add_argument("--store", type=Path, required=True)
    log.add_argument("--format", choices=["csv", "xes", "parquet"], help="default: by the file's name")
    for role in ("session", "event", "time", "customer", "asset"):
        log.add_argument(f"--{role}", metavar="COL", help=_COLUMN_HELP[role])
    log.add_argument(
        "--attribute", metavar="COL", action="append", default=[], help="session attribute to keep (repeatable)"
    )
    log.add_argument("--time-format", metavar="FORMAT", help="how times are written, such as %%d/%%m/%%Y %%H:%%M")
    log.add_argument(
        "--time-zone", metavar="ZONE", help="zone of times that carry none (default: all alike, taken as UTC)"
    )
    log.add_argument("--encoding", metavar="NAME", help="text encoding of a CSV that is not UTF-8, such as cp1252")
    log.add_argument("--delimiter", metavar="C", help="column separator of a CSV (default: found out)")
    log.add_argument("--missing", metavar="TEXT", action="append", help="what stands for a missing value (repeatable)")
    add_json_option(log)
    log.set_defaults(run=_import)
    undo = verbs.add_parser("undo-import", help="take the sessions of one import out again; snapshots keep theirs")
    undo.add_argument("--store", type=Path, required=True)
    undo.add_argument("--import-id", type=int, required=True, metavar="N", help="as the import's manifest gives it")
    add_json_option(undo)
    undo.set_defaults(run=_undo)
    parts = verbs.add_parser("split", help="freeze a training and a held-out side")
    parts.add_argument("--store", type=Path, required=True)
    parts.add_argument(
        "--by", default="session", metavar="session,customer,asset", help="what must not stand on both sides"
    )
    parts.add_argument("--held-out", type=float, default=0.2, metavar="SHARE")
    parts.add_argument("--seed", type=int, default=0)
    parts.add_argument("--chronological", action="store_true", help="hold out the latest sessions")
    parts.add_argument("--quarantine", action="store_true", help="leave out the sessions that join the two sides")
    add_json_option(parts)
    parts.set_defaults(run=_split)
    _add_rules(verbs)


_COLUMN_HELP = {
    "session": "column that names the session",
    "event": "column that names the event; several, joined by +, make one event",
    "time": "column with the event's time",
    "customer": "column that names the customer",
    "asset": "column that names the asset",
}


def _add_rules(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `rules propose` and `rules check`."""
    rules = verbs.add_parser("rules", help="event-order rules").add_subparsers(dest="action", required=True)
    mined = rules.add_parser("propose", help="mine candidate rules from the training side, with their support")
    mined.add_argument("--store", type=Path, required=True)
    mined.add_argument("--out", type=Path, required=True, metavar="event_order.json")
    mined.add_argument("--min-support", type=float, default=0.995, metavar="SHARE")
    add_json_option(mined)
    mined.set_defaults(run=_propose)
    check = rules.add_parser("check", help="list the held-out sessions that break a rule")
    check.add_argument("--store", type=Path, required=True)
    check.add_argument("--rules", type=Path, required=True, metavar="event_order.json")
    check.add_argument("--show", type=int, default=20, metavar="N", help="sessions to print (JSON holds all)")
    add_json_option(check)
    check.set_defaults(run=_check)


def _import(options: argparse.Namespace) -> int:
    """Import a log and print its manifest."""
    roles = {role: getattr(options, role) for role in _COLUMN_HELP if getattr(options, role) is not None}
    if options.attribute:
        roles["attributes"] = tuple(options.attribute)
    progress = ProgressLine()
    try:
        manifest = import_log(
            options.log,
            options.store,
            format=options.format,
            mapping=roles,
            time_format=options.time_format,
            time_zone=options.time_zone,
            encoding=options.encoding,
            delimiter=options.delimiter,
            missing=MISSING if options.missing is None else tuple(options.missing),
            progress=progress,
        )
    finally:
        progress.close()
    say(options, manifest_in_words(manifest))
    emit(options, manifest.to_dict())
    return 0


def _undo(options: argparse.Namespace) -> int:
    """Take one import out of the store."""
    with SessionStore.open(options.store, read_only=False) as store:
        store.undo_import(options.import_id)
        left = store.summary()
    say(options, f"{options.store}: {left.sessions:,} sessions, {left.events:,} events are left")
    emit(options, {"format": 1, "undone": options.import_id, "sessions": left.sessions, "events": left.events})
    return 0


def _split(options: argparse.Namespace) -> int:
    """Freeze a snapshot and print its leakage report."""
    by = tuple(key.strip() for key in options.by.split(",") if key.strip())
    progress = ProgressLine()
    with SessionStore.open(options.store, read_only=False) as store:
        snapshot = split(
            store,
            by=by,
            held_out=options.held_out,
            seed=options.seed,
            chronological=options.chronological,
            quarantine=options.quarantine,
            progress=progress,
        )
        report = leakage(store, snapshot)
    progress.close()
    say(options, split_in_words(snapshot, report))
    emit(options, {"format": 1, "snapshot": snapshot.to_dict(), "leakage": report.to_dict()})
    return 0


def _propose(options: argparse.Namespace) -> int:
    """Mine rules from the training side and write them."""
    with SessionStore.open(options.store) as store:
        snapshot = store.snapshot()
        sequences = [session.events for session in store.sessions(snapshot, "training")]
    proposals = propose(sequences, min_support=options.min_support)
    order = EventOrder(version="1", rules=tuple(p.rule for p in proposals), reopening=None)
    write_whole(options.out, order.to_json().encode())
    rows = [("rule", "applies to", "holds in", "support")]
    rows += [(p.rule.name, str(p.applies), str(p.holds), f"{100 * p.support:.2f} %") for p in proposals]
    say(
        options,
        f"{table(rows)}\n{options.out}: {len(proposals)} rules to accept or strike out, from {len(sequences)} sessions",
    )
    found = [{"rule": p.rule.name, "applies": p.applies, "holds": p.holds, "support": p.support} for p in proposals]
    emit(options, {"format": 1, "out": str(options.out), "sessions": len(sequences), "proposals": found})
    return 0


def _check(options: argparse.Namespace) -> int:
    """Hold the held-out sessions against the rules."""
    order = EventOrder.read(options.rules)
    with SessionStore.open(options.store) as store:
        snapshot = store.snapshot()
        event_map = EventMap.build(store.event_names())
        compiled = order.compile(event_map)
        broken: list[dict[str, Any]] = []
        total = 0
        for session in store.sessions(snapshot, "held-out"):
            total += 1
            wrong = compiled.automaton(session.attributes).first_wrong(event_map.encode(session.events), ended=True)
            if wrong is not None:
                at = {"position": wrong.position, "event": event_map.name(wrong.event), "rules": list(wrong.rules)}
                broken.append({"session": session.session_id, "kind": wrong.kind, **at})
    rows = [("session", "position", "event", "rules")]
    rows += [(b["session"], str(b["position"]), b["event"], ", ".join(b["rules"])) for b in broken[: options.show]]
    say(options, f"{len(broken)} of {total} held-out sessions break a rule" + (f"\n{table(rows)}" if broken else ""))
    emit(options, {"format": 1, "snapshot": snapshot.digest, "sessions": total, "broken": broken})
    return 0  # a list to read, not a gate: the event grammar is judged by `audit`
