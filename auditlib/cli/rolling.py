"""The verb `rollout`: start, status, advance, pause, resume, roll-back, check."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from auditlib.cli.output import add_json_option, emit, say
from auditlib.cli.passphrase import add_passphrase, passphrase
from auditlib.cli.verdicts import max_age
from auditlib.errors import InputError
from auditlib.release.evidence import read_evidence
from auditlib.release.keys import load_key
from auditlib.release.rollout_chain import Chain, read_chain
from auditlib.release.rollout_decision import Decision, describe, to_json
from auditlib.release.rollout_evidence import LiveEvidence
from auditlib.release.rollout_moves import (
    ByHand,
    Signer,
    advance,
    by_hand,
    look,
    open_on,
    require_passed,
    start,
)
from auditlib.release.rollout_plan import read_plan
from auditlib.release.rollout_served import read_health, what_is_wrong
from auditlib.release.rollout_verdict import MAX_AGE, Document, Newest, require_verdict, verdict_doubts
from auditlib.release.trust import load_trust
from auditlib.runs.live_log import LiveLog, read_live_log
from auditlib.serving.artifact import open_artifact

SPEAKS_AGAINST = 1

_BY_HAND: dict[str, ByHand] = {"pause": "pause", "resume": "resume", "roll-back": "roll back"}

_LOG_HELP = "live request log: a Parquet file, a folder of Parquet parts, a CSV or a DuckDB file"


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `rollout` with its actions."""
    rollout = verbs.add_parser("rollout", help="take a packaged artifact into service, step by step, or back")
    actions = rollout.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = _signing(actions, "start", "begin the chain of a new rollout; only the fallback serves then", _start)
    new.add_argument("--artifact", type=Path, required=True, metavar="FOLDER", help="the new artifact")
    new.add_argument("--fallback", required=True, metavar="FOLDER", help="the earlier artifact, or full-prefix")
    new.add_argument("--plan", type=Path, required=True, metavar="P.json", help="stages, sample sizes, limits")
    new.add_argument("--comment", default="", help="words to sign with it")
    status = _reading(actions, "status", "what the log shows of each arm, and what may be done next", _status)
    status.add_argument("--log", type=Path, metavar="LOG", help=_LOG_HELP)
    status.add_argument("--ledger", type=Path, metavar="FILE", help="list whose newest verdict must be the rollout's")
    onwards = _signing(actions, "advance", "do exactly what the evidence allows", _advance)
    onwards.add_argument("--log", type=Path, metavar="LOG", help=_LOG_HELP)
    onwards.add_argument("--replay", type=Path, metavar="replay.json", help="a passed replay, to leave the fallback")
    onwards.add_argument("--bench", type=Path, metavar="bench.json", help="also name this bench beside the replay")
    onwards.add_argument(
        "--verdict", type=Path, metavar="FILE",
        help="a verdict that says yes, to open the shadow stage; in a stage, to rest on it from there on",
    )  # fmt: skip
    _add_newest(onwards, f"refuse a verdict older than this (s, m, h, d, w; default {MAX_AGE.days}d)")
    for action, does in (("pause", "stop for now"), ("resume", "go on after a pause"), ("roll-back", "stop for good")):
        by_person = _signing(actions, action, f"{does}, by a person, with a reason", _by_hand)
        by_person.add_argument("--comment", required=True, help="the reason, signed with the move")
        by_person.add_argument(
            "--log", type=Path, metavar="LOG", help="on resume: accept the faults this log shows now"
        )
    check = _reading(actions, "check", "after the release: is what is served what the verdict names?", _check)
    check.add_argument("--log", type=Path, required=True, metavar="LOG", help=_LOG_HELP)
    check.add_argument("--verdict", type=Path, required=True, metavar="FILE", help="the verdict of the artifact")
    _add_newest(check, "refuse a verdict older than this (s, m, h, d, w)")
    check.add_argument("--health", type=Path, metavar="FILE", help="what the service's /health answers, saved")


def _reading(actions: Any, name: str, does: str, run: Any) -> argparse.ArgumentParser:
    """An action that reads a chain."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=does)
    _add_chain(parser)
    parser.add_argument("--head", metavar="sha256:…", help="a transition that the chain must still hold")
    add_json_option(parser)
    parser.set_defaults(run=run)
    return parser


def _signing(actions: Any, name: str, does: str, run: Any) -> argparse.ArgumentParser:
    """An action that signs a move."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=does)
    _add_chain(parser)
    parser.add_argument("--key", type=Path, required=True, metavar="K.pem")
    add_passphrase(parser)
    parser.set_defaults(run=run)
    return parser


def _add_chain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chain", type=Path, required=True, metavar="C.jsonl", help="signed transitions, one a line")
    parser.add_argument("--trust", type=Path, required=True, metavar="trust.json", help="whose moves count")


def _add_newest(parser: argparse.ArgumentParser, age: str) -> None:
    """The options by which `verify` tells an old verdict from the newest."""
    parser.add_argument("--max-age", metavar="30d", help=age)
    parser.add_argument("--previous", type=Path, metavar="FILE", help="the verdict that this one must follow")
    parser.add_argument(
        "--ledger", type=Path, metavar="FILE", help="list of verdicts that this one must stand at the end of"
    )


def _signer(options: argparse.Namespace) -> Signer:
    trust = load_trust(options.trust)
    return Signer(load_key(options.key, passphrase(options)), trust)


def _start(options: argparse.Namespace) -> int:
    """Begin a chain, once artifact, fallback and plan were found to fit."""
    artifact = open_artifact(options.artifact)
    fallback = options.fallback if options.fallback == "full-prefix" else open_artifact(Path(options.fallback)).digest
    if fallback != artifact.fallback:
        raise InputError(
            f"--fallback: the artifact names {artifact.fallback} as its fallback; give that, or package anew"
        )
    chain = start(
        options.chain, _signer(options), read_plan(options.plan),
        artifact=artifact.digest, fallback=fallback, tolerance=artifact.tolerance, comment=options.comment,
    )  # fmt: skip
    return _tell(options, chain)


def _status(options: argparse.Namespace) -> int:
    """Show the evidence; exit code 1 when it says pause or roll back."""
    chain = read_chain(options.chain, load_trust(options.trust), options.head)
    if options.log is None:
        return _tell(options, chain)
    log = read_live_log(options.log)
    evidence, decision = look(chain, log)
    return _tell(options, chain, _held_back(options, chain, decision), evidence, log)


def _held_back(options: argparse.Namespace, chain: Chain, decision: Decision) -> Decision:
    """The decision, held where the verdict that the chain rests on no longer carries a step onwards."""
    if decision.action != "promote":
        return decision
    doubts = tuple(map(str, verdict_doubts(chain, load_trust(options.trust), datetime.now(UTC), options.ledger)))
    return replace(decision, action="hold", to=chain.standing.state, reasons=doubts) if doubts else decision


def _advance(options: argparse.Namespace) -> int:
    """Move on, back or to a pause as the evidence says; exit code 1 unless that is onwards."""
    signer = _signer(options)
    if options.log is None:
        return _tell(options, open_on(options.chain, signer, _documents(options)))
    if options.replay is not None or options.bench is not None:
        raise InputError("--replay and --bench are for before the first stage, --log for in one; leave one of them out")
    verdict = _verdict(options, read_chain(options.chain, signer.trust).standing.artifact)
    log = read_live_log(options.log)
    chain, decision = advance(options.chain, signer, log, verdict=verdict, ledger=options.ledger)
    _tell(options, chain, decision, None, log)
    return 0 if decision.action == "promote" else SPEAKS_AGAINST


def _documents(options: argparse.Namespace) -> list[Document]:
    """The documents named, each verified to be about the artifact of the chain."""
    standing = read_chain(options.chain, load_trust(options.trust)).standing
    found = []
    for kind, path in (("replay", options.replay), ("bench", options.bench)):
        if path is not None:
            found.append(require_passed(read_evidence(path), kind, standing.artifact, standing.tolerance))
    found += _verdict(options, standing.artifact)
    if not found:
        raise InputError("nothing to go by; give --log in a stage, --replay before the first, --verdict to open it")
    return found


def _verdict(options: argparse.Namespace, artifact: str) -> tuple[Document, ...]:
    """The verdict named and its signers, as young and new as asked for; nothing where none is named."""
    age = max_age(options.max_age)
    if options.verdict is not None:
        asked = Newest(MAX_AGE if age is None else age, options.previous, options.ledger)
        return require_verdict(options.verdict, options.trust, artifact, asked)
    # What the chain noted of its verdict cannot answer these: passed over, they would be taken as held.
    unanswered = {"--max-age": age, "--previous": options.previous}
    unanswered |= {"--ledger": options.ledger} if options.log is None else {}
    if given := [name for name, value in unanswered.items() if value is not None]:
        raise InputError(f"{', '.join(given)}: these are about a verdict; name its file with --verdict too")
    return ()


def _by_hand(options: argparse.Namespace) -> int:
    """Sign a person's move."""
    kind = _BY_HAND[options.action]
    log = None if options.log is None else read_live_log(options.log)
    return _tell(options, by_hand(options.chain, _signer(options), kind, options.comment, log))


def _check(options: argparse.Namespace) -> int:
    """Compare what is served with what was released; exit code 1 when anything differs."""
    chain = read_chain(options.chain, load_trust(options.trust), options.head)
    # No age unless asked for: a verdict grows old while what it released goes on serving, and nothing is wrong then.
    asked = Newest(max_age(options.max_age), options.previous, options.ledger)
    require_verdict(options.verdict, options.trust, chain.standing.artifact, asked)
    health = None if options.health is None else read_health(options.health)
    log = read_live_log(options.log)
    wrong = list(what_is_wrong(chain, log.rows, health))
    say(options, "\n".join(wrong) or f"served as released: {chain.standing.artifact}, by {log.rows.count:,} rows")
    emit(options, {"format": 1, "artifact": chain.standing.artifact, "as_released": not wrong, "wrong": wrong})
    return SPEAKS_AGAINST if wrong else 0


def _tell(
    options: argparse.Namespace, chain: Chain, decision: Decision | None = None,
    evidence: LiveEvidence | None = None, log: LiveLog | None = None,
) -> int:  # fmt: skip
    """Print where a rollout stands; exit code 1 when the evidence speaks against it."""
    standing = chain.standing
    paused = " (paused)" if standing.paused else ""
    lines = [f"{options.chain}: {standing.state}{paused}, {len(chain.moves)} transitions, head {chain.head}"]
    document: dict[str, Any] = {
        "format": 1, "state": standing.state, "paused": standing.paused, "transitions": len(chain.moves),
        "head": chain.head, "artifact": standing.artifact, "fallback": standing.fallback,
    }  # fmt: skip
    if evidence is not None:
        lines += _arms(evidence)
        document["evidence"] = evidence.to_json()
    if log is not None:
        lines += [f"not whole: {reason} in {count:,} rows" for reason, count in log.lacking.items()]
        lines += [f"unreadable: {reason} in {count:,} rows" for reason, count in log.rows.unread.items() if count]
        document |= {"not_whole": dict(log.lacking), "unread": dict(log.rows.unread)}
    if decision is not None:
        lines += [f"next: {decision.action}" + (f" to {decision.to}" if decision.action == "promote" else "")]
        lines += [f"  {reason}" for reason in decision.reasons]
        lines += [f"  needs {describe(need)}" for need in decision.needed]
        document["decision"] = to_json(decision)
    say(options, "\n".join(lines))
    emit(options, document)
    return SPEAKS_AGAINST if decision is not None and decision.speaks_against else 0


def _arms(evidence: LiveEvidence) -> list[str]:
    lines = []
    for name, stage in evidence.stages.items():
        for arm, counts in (("new", stage.new), ("fallback", stage.fallback)):
            if counts.requests:
                bad = f"{counts.invalid:,} invalid, {counts.error:,} errors, {counts.slow:,} slow"
                lines.append(f"  {name}, {arm}: {counts.requests:,} requests, {counts.units:,} units, of them {bad}")
        if stage.compared:
            lines.append(f"  {name}: {stage.compared:,} compared, {stage.mismatches:,} differ, {stage.ties:,} at a tie")
    lines += [f"  fault: {name}, {count:,}" for name, count in evidence.faults.items()]
    return lines
