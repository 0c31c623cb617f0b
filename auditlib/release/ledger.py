"""The line of verdicts that one place has signed or accepted: numbered, each naming the one before it.

A ledger is a file of JSON lines that only grows. Against it, an older verdict shown again, a verdict out of order and
a verdict whose predecessor was kept back are all told from the next one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from auditlib.errors import InputError, IntegrityError
from auditlib.files import write_whole
from auditlib.release.digests import hex_of
from auditlib.release.documents import canonical, read_object
from auditlib.release.reading import Statement
from auditlib.release.refusals import RefusedError


@dataclass(frozen=True, slots=True)
class Entry:
    """One verdict in a ledger."""

    sequence: int
    verdict: str
    previous: str | None
    time: str
    run: str


def read_ledger(path: Path, *, begun: bool = False) -> tuple[Entry, ...]:
    """Entries of a ledger, oldest first; none when there is no file yet. IntegrityError when the chain is broken.

    `begun`: InputError when there are none. Against a ledger that knows of nothing every verdict is the newest, so a
    misspelt path would let all of them in.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise InputError(f"{path}: the ledger cannot be read: {error.strerror}; give the path of a file") from error
    if begun and not lines:
        raise InputError(f"{path}: there is no ledger, or nothing in it; give the file that `sign --ledger` writes")
    entries = tuple(_entry(path, number, line) for number, line in enumerate(lines, 1))
    for before, after in pairwise(entries):
        if (after.sequence, after.previous) != (before.sequence + 1, before.verdict):
            raise IntegrityError(
                f"{path}: entry {after.sequence} does not follow {before.sequence}; restore the ledger from a copy"
            )
    return entries


def require_next(entries: tuple[Entry, ...], statement: Statement) -> None:
    """Raise RefusedError ("replayed") unless a verdict is the newest one of a ledger, or the next after it."""
    # An empty ledger knows of nothing: the first verdict that it is shown is where its line begins.
    if not entries or statement.digest == entries[-1].verdict:
        return
    head = entries[-1]
    if statement.place.sequence <= head.sequence:
        raise RefusedError(
            "replayed", f"it is number {statement.place.sequence}; number {head.sequence} of {head.time} came after it"
        )
    require_follows(statement, head.sequence, head.verdict)


def require_follows(statement: Statement, sequence: int, digest: str) -> None:
    """Raise RefusedError ("replayed") unless a verdict is the one right after number `sequence`."""
    place = statement.place
    if (place.sequence, place.previous) != (sequence + 1, digest):
        raise RefusedError(
            "replayed", f"it is number {place.sequence} and does not follow the verdict known here, number {sequence}"
        )


def remember(path: Path, statement: Statement) -> None:
    """Add a verified verdict to a ledger, unless it is its newest already; RefusedError when it is not the next."""
    with held(path):
        take_up(path, statement)


def take_up(path: Path, statement: Statement) -> None:
    """`remember` for a caller that holds the ledger."""
    entries = read_ledger(path)
    require_next(entries, statement)
    if not entries or entries[-1].verdict != statement.digest:
        _write(path, (*entries, _entry_of(statement)))


def holds(path: Path, statement: Statement) -> bool:
    """Whether a verdict has a line in a ledger, as its newest or an earlier one."""
    return statement.digest in {entry.verdict for entry in read_ledger(path)}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Keep other processes and threads from adding to a ledger; the lock vanishes with its holder, also by a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file of its own: the ledger is replaced at each writing, and a lock on it would go with the old one.
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _entry(path: Path, number: int, line: bytes) -> Entry:
    try:
        entry = Entry(**read_object(line))
        hex_of(entry.verdict)
        if entry.previous is not None:
            hex_of(entry.previous)
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{path}: line {number} is no ledger entry; restore the ledger from a copy") from error
    # true equals 1 and is no number: 2 would follow it
    if type(entry.sequence) is not int or entry.sequence < 1 or not isinstance(entry.time, str):
        raise IntegrityError(f"{path}: line {number} has no number or no time; restore the ledger from a copy")
    return entry


def _entry_of(statement: Statement) -> Entry:
    place = statement.place
    return Entry(place.sequence, statement.digest, place.previous, place.time, statement.run)


def _write(path: Path, entries: tuple[Entry, ...]) -> None:
    lines = [canonical({name: getattr(entry, name) for name in Entry.__slots__}) for entry in entries]
    write_whole(path, b"".join(line + b"\n" for line in lines))
