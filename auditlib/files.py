"""Files that appear only when they are whole: written aside, flushed to disk, then renamed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sha256_of(path: Path) -> str:
    """`sha256:<hex>` of a file's bytes."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write `content` to `path` so that a crash leaves the old file or the new one, never half of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target: a rename is one step only within one file system.
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Held by one writer of a folder at a time, threads included; the system lets go of it when the process dies.

    OSError or ValueError when the folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it takes the name `target` when the block ends well, and vanishes when it does not.

    Raises FileExistsError, with nothing changed, when `target` is there already.
    """
    if target.exists():
        raise FileExistsError(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    aside.mkdir()
    try:
        yield aside
        # Content before names: after a power cut a folder must not stand there with empty files.
        for path in sorted(aside.rglob("*")):
            sync_file(path)
        sync_folder(aside)
        # Where `target` has come to hold anything meanwhile, the system refuses: nothing is overwritten.
        aside.rename(target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    sync_folder(target.parent)


def sync_file(path: Path) -> None:
    """Flush a file's (or folder's) content to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to disk, so that a rename in it survives a power cut."""
    sync_file(folder)
