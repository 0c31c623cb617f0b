"""The parser over all verbs, and the one place where an error becomes an exit code."""

from __future__ import annotations

import argparse
import sys
import traceback

from auditlib import __version__
from auditlib.cli import (
    auditing,
    exporting,
    measuring,
    modelling,
    packaging,
    reproducing,
    rolling,
    serving,
    sessions,
    verdicts,
)
from auditlib.cli.output import printable
from auditlib.errors import PrefixgateError

FAULT_OF_OUR_OWN = 4

_EPILOGUE = """exit codes: 0 done and approved · 1 a gate refused, or a valid verdict that says no ·
2 wrong use or bad input · 3 a signature, digest or age that does not hold · 4 a fault of our own"""


def build_parser() -> argparse.ArgumentParser:
    """Parser of `python -m auditlib`."""
    parser = argparse.ArgumentParser(
        prog="python -m auditlib",
        description="Prefixgate: release audits for incremental service-event decoders.",
        epilog=_EPILOGUE,
    )
    parser.add_argument("--version", action="version", version=f"prefixgate {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for module in (
        sessions,
        modelling,
        exporting,
        auditing,
        reproducing,
        packaging,
        measuring,
        rolling,
        serving,
        verdicts,
    ):
        module.add_verbs(verbs)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Exit code of one command (contract 2). Errors are one message on stderr, never a traceback for bad input."""
    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except PrefixgateError as error:
        print(printable(f"{options.verb}: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{options.verb}: stopped; nothing half-written was left behind", file=sys.stderr)
        return 2
    except (Exception, SystemExit):  # noqa: BLE001 - a revision's code may try to leave: with code 0 that were a yes
        traceback.print_exc()
        print(f"{options.verb}: a fault of our own; please report it with the lines above", file=sys.stderr)
        return FAULT_OF_OUR_OWN
