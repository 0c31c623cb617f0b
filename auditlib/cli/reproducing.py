"""The verb on counterexamples: reproduce."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from auditlib.cli.output import add_json_option, emit, say
from auditlib.errors import DecoderError, PrefixgateError

STILL_FAILS = 1


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `reproduce`."""
    verb = verbs.add_parser("reproduce", help="play a counterexample of a run; 1 when it still fails, else 0")
    verb.add_argument("case", type=Path, metavar="CASE.json", help="a file from a run's counterexamples folder")
    verb.add_argument("--revision", type=Path, required=True, metavar="FOLDER", help="revision folder")
    verb.add_argument("--device", default="cpu")
    verb.add_argument(
        "--allow-code", action="store_true", help="run the code that a revision names (package.module:factory)"
    )
    add_json_option(verb)
    verb.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    """Play the case on the revision, in the dtype in which it was found."""
    from auditlib.audits.counterexample_replay import read_case, replay  # noqa: PLC0415 - these load torch
    from auditlib.audits.device import NAMES_OF_DTYPES  # noqa: PLC0415
    from auditlib.audits.subject import Loading, load_decoder  # noqa: PLC0415
    from auditlib.decoders.revision import open_revision  # noqa: PLC0415

    case = read_case(options.case)
    revision = open_revision(options.revision)
    decoder = load_decoder(revision, Loading(options.device, NAMES_OF_DTYPES[case.dtype], options.allow_code))
    try:
        gap = replay(case, decoder, options.device)
    except PrefixgateError:
        raise
    except Exception as problem:  # the code of a stranger's adapter may raise anything
        raise DecoderError(
            f"{options.case}: {revision.folder} does not serve these calls ({type(problem).__name__}: {problem})"
        ) from problem
    fails = not gap <= case.limit
    others = "" if decoder.revision == case.revision else " (found on another revision)"
    verdict = "still fails" if fails else "does not fail any more"
    say(
        options,
        f"{case.sentence()}\n{case.audit}, {case.check}: {verdict}{others}: gap {gap:.6g}, limit {case.limit:.6g}",
    )
    emit(options, {
        "format": 1, "audit": case.audit, "check": case.check, "fails": fails,
        "gap": gap if math.isfinite(gap) else None, "limit": case.limit,
        "revision": revision.digest, "same_decoder": decoder.revision == case.revision,
    })  # fmt: skip
    return STILL_FAILS if fails else 0
