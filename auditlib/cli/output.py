"""Where the command line writes: people read stdout, machines read the JSON, progress goes to stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from auditlib.errors import InputError
from auditlib.files import write_whole


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Give a verb its `--json FILE` option."""
    parser.add_argument("--json", metavar="FILE", help="write machine-readable JSON there (- for stdout)")


def say(options: argparse.Namespace, text: str) -> None:
    """Print for people: on stdout, or on stderr where stdout belongs to the JSON. No control character gets through."""
    stream = sys.stderr if options.json == "-" else sys.stdout
    print(_fitting(printable(text), stream), file=stream)


def emit(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Write the verb's JSON document where `--json` says, if it says so; InputError where nothing can be written."""
    if options.json is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    if options.json == "-":
        # JSON has its own escapes for what the stream's encoding cannot write.
        plain = _fitting(text, sys.stdout) == text
        sys.stdout.write(text if plain else json.dumps(document, indent=1, allow_nan=False, default=str) + "\n")
    else:
        write_out(Path(options.json), text)


def require_targets(*targets: Path | str | None) -> None:
    """InputError for files that could not be written: asked before long work, whose result would be lost."""
    for target in (Path(one) for one in targets if one is not None and str(one) != "-"):
        nearest = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
        if target.is_dir():
            raise InputError(f"{target} is a folder; name a file in it")
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise InputError(f"{target} cannot be written: {nearest} is no folder that may be written to; name another")


def write_out(target: Path, text: str) -> None:
    """Write a file that an option named, whole or not at all; InputError with the reason where that fails."""
    try:
        write_whole(target, text.encode(errors="backslashreplace"))
    except OSError as problem:
        raise InputError(f"{target} cannot be written ({problem.strerror or problem}); name another file") from problem


def printable(text: str) -> str:
    """Text with control and direction-changing characters escaped: names from a log must not steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _fitting(text: str, stream: TextIO) -> str:
    """Text with what the stream's encoding cannot write escaped."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns; the first row is the heading."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


class ProgressLine:
    """Progress on stderr, after a first silent second: one line rewritten on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.started = time.monotonic()
        self.last = self.started + 1.0 - self._pause()
        self.drawn = False

    def __call__(self, done: int, total: int, note: str) -> None:
        """Show the share done, the time left by extrapolation, and what is going on."""
        now = time.monotonic()
        if now - self.last < self._pause():
            return
        self.last = now
        share = done / total if total > 0 else 0.0
        left = f", about {(now - self.started) * (1 - share) / share:.0f} s left" if 0.02 < share < 1 else ""
        text = printable(f"{100 * share:3.0f} %  {note}{left}")
        self.stream.write(f"\r\x1b[K{text[:110]}" if self.stream.isatty() else f"{text}\n")
        self.stream.flush()
        self.drawn = True

    def close(self) -> None:
        """Clear the rewritten line, so that what follows starts clean."""
        if self.drawn and self.stream.isatty():
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def _pause(self) -> float:
        """Seconds between two lines."""
        return 0.2 if self.stream.isatty() else 3.0
