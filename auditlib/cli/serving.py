"""The verbs that run what was packaged: serve, rehearse."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from auditlib.cli.output import add_json_option, emit, printable, say, table
from auditlib.errors import InputError
from auditlib.files import write_whole

if TYPE_CHECKING:
    from socket import socket

    from auditlib.serving.arms import Stage
    from auditlib.serving.opening import OpenService, ServiceOptions
    from auditlib.serving.rehearsal import Rehearsal

UNREHEARSED = 1
PORT = 8600
_OF_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve` and `rehearse`."""
    serve = verbs.add_parser("serve", help="answer requests from an artifact over HTTP")
    _add_artifact(serve)
    serve.add_argument("--digest", metavar="sha256:…", help="serve only the artifact of this digest")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    serve.add_argument("--port", type=int, default=PORT, help=f"port to listen on, 0 for any (default: {PORT})")
    serve.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a further name that callers may ask under"
    )
    serve.add_argument("--log", type=Path, metavar="FOLDER", help="keep one row a request there")
    serve.add_argument("--stage", metavar="NAME", help="stage of a rollout: artifact and fallback as its two arms")
    serve.add_argument("--share", type=float, metavar="S", help="share of the requests that the new arm answers")
    serve.add_argument("--shadow", action="store_true", help="the new arm answers along, unheard")
    serve.add_argument(
        "--chain", type=Path, metavar="FILE", help="take the stage from this rollout, and follow it while serving"
    )
    serve.add_argument("--trust", type=Path, metavar="trust.json", help="whose signatures count on the chain")
    serve.add_argument(
        "--compare", type=float, default=0.0, metavar="SHARE", help="share of answers to hold against full prefixes"
    )
    serve.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds that a path may take")
    add_json_option(serve)
    serve.set_defaults(run=_serve)
    rehearse = verbs.add_parser("rehearse", help="make an artifact fail in each way; 1 unless its fallback answers")
    _add_artifact(rehearse)
    rehearse.add_argument(
        "--timeout", type=float, default=5.0, metavar="S", help="seconds after which it counts as hung"
    )
    rehearse.add_argument("--out", type=Path, metavar="FILE", help="write the evidence there, to be signed")
    add_json_option(rehearse)
    rehearse.set_defaults(run=_rehearse)


def _add_artifact(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("artifact", type=Path, metavar="ARTIFACT", help="folder of the artifact")
    parser.add_argument("--fallback", type=Path, metavar="FOLDER", help="the artifact that it names as its fallback")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of the decoder (default: 1)")
    parser.add_argument("--device", default="cpu", metavar="D", help="device of the decoder (default: cpu)")
    parser.add_argument(
        "--allow-code", action="store_true", help="run the code that a revision names (package.module:factory)"
    )


def _serve(options: argparse.Namespace) -> int:
    """Listen until told to end. Whatever can be refused is refused before anybody can connect."""
    from auditlib.serving.opening import open_service  # noqa: PLC0415 - these load torch
    from auditlib.serving.server import bind, serve  # noqa: PLC0415

    hosts = _hosts(options)
    look = _look(options)
    how = _how(options, None if look is None else look())
    _settle(options)
    with bind(options.host, options.port) as bound:
        opened = open_service(options.artifact, options.fallback, how, digest=options.digest)
        serve(opened, bound, hosts=hosts, listening=lambda: _tell(options, opened, bound), stage=look)
    say(options, _farewell(opened))
    return 0


def _hosts(options: argparse.Namespace) -> tuple[str, ...]:
    """Names that callers may ask under."""
    from auditlib.serving.http import LOOPBACK  # noqa: PLC0415

    allowed = tuple(name.lower() for name in options.allow_host)
    if options.host not in _OF_THIS_MACHINE and not allowed:
        raise InputError(
            f"--host {options.host} lets other machines ask; name with --allow-host what they will call this one, "
            "and put it behind something that knows who may"
        )
    return (*LOOPBACK, *allowed)


def _look(options: argparse.Namespace) -> Callable[[], Stage] | None:
    """How to see where the rollout stands; None where the stage is named by hand, or there is none."""
    if options.chain is None and options.trust is None:
        return None
    if options.chain is None or options.trust is None or options.stage is not None:
        raise InputError("a rollout is followed by --chain with --trust, and names its stage itself: leave out --stage")
    from auditlib.runs.rollout_stage import watched_stage  # noqa: PLC0415

    return watched_stage(options.chain, options.trust, options.artifact)


def _how(options: argparse.Namespace, followed: Stage | None) -> ServiceOptions:
    from auditlib.serving.arms import Stage  # noqa: PLC0415
    from auditlib.serving.opening import ServiceOptions  # noqa: PLC0415

    rest = options.compare, options.timeout, options.device, options.allow_code
    if followed is not None:
        return ServiceOptions(options.log, followed, *rest)
    if options.stage is None and (options.share is not None or options.shadow):
        raise InputError("--share and --shadow belong to a stage of a rollout; name it with --stage")
    if options.stage is not None and options.share is None and not options.shadow:
        raise InputError("--stage: say which requests the new arm answers, with --share S or --shadow")
    stage = None if options.stage is None else Stage(options.stage, options.share or 0.0, options.shadow)
    return ServiceOptions(options.log, stage, *rest)


def _settle(options: argparse.Namespace) -> None:
    from auditlib.audits.device import settle_threads  # noqa: PLC0415

    if options.threads < 1:
        raise InputError(f"--threads {options.threads}: give at least 1")
    settle_threads(options.threads)


def _tell(options: argparse.Namespace, opened: OpenService, bound: socket) -> None:
    """Say where to ask and how, and give scripts the same as one line of JSON."""
    host, port = bound.getsockname()[:2]
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - no address to ask under
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    served = opened.main.served
    first = next(event for event in served.event_map.domain if served.order.automaton({}).state_after((event,)) >= 0)
    question = json.dumps({"session": "s-1", "events": [served.event_map.name(first)]})
    saved = opened.keeper.to_json()
    lines = [
        f"serves {served.setting.name}, {served.strategy}, of artifact {served.digest}",
        f"listens on {address} (GET /health, /ready, /metrics; SIGTERM or Ctrl-C ends it in order)",
        f"ask: curl -s {address}/v1/next -H 'Content-Type: application/json' -d {shlex.quote(question)}",
    ]
    if saved is not None and any(saved["recovered"].values()):
        rows, broken = saved["recovered"].values()
        lines.append(f"the log held what an earlier process left: {rows:,} rows saved, {broken:,} broken lines")
    say(options, "\n".join(lines))
    if options.json is not None:
        line = json.dumps({"format": 1, "address": address, "pid": os.getpid(), "artifact": served.digest}) + "\n"
        if options.json == "-":
            sys.stdout.write(line)
        else:
            write_whole(Path(options.json), line.encode())
    sys.stdout.flush()


def _farewell(opened: OpenService) -> str:
    keeper = opened.keeper
    if keeper.failure is not None:
        return f"ended; {keeper.lost:,} rows were lost: {keeper.failure}"
    return f"ended: {sum(keeper.tally.outcomes.values()):,} requests, {keeper.written:,} rows written"


def _rehearse(options: argparse.Namespace) -> int:
    """Plant each failure in turn, and say who answered."""
    from auditlib.audits.device import fingerprint  # noqa: PLC0415
    from auditlib.runs.evidence import write_evidence  # noqa: PLC0415
    from auditlib.serving.rehearsal import rehearse  # noqa: PLC0415

    _settle(options)
    rehearsal = rehearse(
        options.artifact, options.fallback,
        timeout=options.timeout, device=options.device, allow_code=options.allow_code,
    )  # fmt: skip
    say(options, _in_words(rehearsal))
    document = rehearsal.to_json(fingerprint(options.device))
    if options.out is not None:
        write_evidence(options.out, document)
    emit(options, document)
    return 0 if rehearsal.passed else UNREHEARSED


def _in_words(rehearsal: Rehearsal) -> str:
    rows = [("failure", "answered by", "right", "wrong", "unanswered", "")]
    for one in rehearsal.trials:
        by = ", ".join(f"{path} {count}" for path, count in one.paths.items()) or "nobody"
        verdict = "passed" if one.passed else "FAILED"
        rows.append((one.failure, by, str(one.right), str(one.wrong), str(one.unanswered), verdict))
    end = "the fallback is rehearsed" if rehearsal.passed else "not rehearsed: do not count on this fallback"
    return printable(f"{table(rows)}\n{end}: {len(rehearsal.trials)} failures, {rehearsal.requests} requests each")
