"""The passphrase of a key, for every verb that signs."""

from __future__ import annotations

import argparse
import getpass
import os

from auditlib.cli.output import add_json_option
from auditlib.errors import InputError


def add_passphrase(parser: argparse.ArgumentParser) -> None:
    """Options of a verb that opens a key, `--json` among them."""
    parser.add_argument("--passphrase-env", metavar="VAR", help="environment variable that holds the passphrase")
    add_json_option(parser)


def passphrase(options: argparse.Namespace, *, new: bool = False) -> bytes:
    """The key's passphrase from the named variable, else asked for on the terminal."""
    if options.passphrase_env is not None:
        text = os.environ.get(options.passphrase_env)
        if not text:
            raise InputError(f"--passphrase-env: the variable {options.passphrase_env} is not set or empty")
        return text.encode()
    first = getpass.getpass("passphrase: ")
    if new and getpass.getpass("once more: ") != first:
        raise InputError("the two passphrases differ; nothing was written")
    return first.encode()
