"""Where the command line writes: people read stdout, machines read the JSON, progress goes to stderr."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from auditlib.files import write_whole


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Give a verb its `--json FILE` option."""
    parser.add_argument("--json", metavar="FILE", help="write machine-readable JSON there (- for stdout)")


def say(options: argparse.Namespace, text: str) -> None:
    """Print for people: on stdout, or on stderr where stdout belongs to the JSON. No control character gets through."""
    print(printable(text), file=sys.stderr if options.json == "-" else sys.stdout)


def emit(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    """Write the verb's JSON document where `--json` says, if it says so."""
    if options.json is None:
        return
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    else:
        write_whole(Path(options.json), text.encode())


def printable(text: str) -> str:
    """Text with control and direction-changing characters escaped: names from a log must not steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


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
