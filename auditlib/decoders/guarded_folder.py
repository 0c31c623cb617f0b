"""Files of a folder that a stranger may have filled: plain files directly inside it, and nothing else."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from auditlib.errors import RevisionError
from auditlib.events.documents import shown

LARGEST_FILE = 4 << 30
_MOST_FILES = 256
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")
# Names that Windows takes for devices whatever their ending: a folder must mean the same on every machine.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def name_problem(name: str) -> str:
    """Why a file may not be called `name`; empty when it may."""
    if not _NAME.fullmatch(name) or name.endswith("."):
        return "is no plain file name: letters, digits, dot, dash and underscore, at most 120, no folder in it"
    return "is the name of a device" if _DEVICES.fullmatch(name) else ""


def colliding(names: list[str]) -> list[str]:
    """Names that differ only in upper and lower case from another one."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name.casefold()] = seen.get(name.casefold(), 0) + 1
    return sorted(name for name in names if seen[name.casefold()] > 1)


def list_files(folder: Path) -> list[str]:
    """Names in the folder, sorted; RevisionError for a folder that cannot be read or holds very many."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(_MOST_FILES + 1), entries, strict=False)]
    except OSError as problem:
        raise RevisionError(f"{folder}: cannot be read as a folder ({problem.strerror}); check the path") from problem
    if len(names) > _MOST_FILES:
        raise RevisionError(f"{folder}: holds more than {_MOST_FILES} files; a revision folder holds a handful")
    return sorted(names)


def read_file(folder: Path, name: str, most: int = LARGEST_FILE) -> bytes:
    """Bytes of the plain file `name` in `folder`, at most `most`.

    RevisionError for links, hard links, devices, pipes, folders, larger files and names that leave the folder.
    """
    if reason := name_problem(name):
        raise RevisionError(f"{folder}: {shown(name)[:120]!r} {reason}")
    try:
        with os.fdopen(_open(folder, name), "rb") as file:
            size = _check_plain(os.fstat(file.fileno()), folder / name, most)
            data = file.read(size + 1)  # no more than is there: what is asked for is allocated before it is read
    except ValueError as problem:  # a NUL in the path
        raise RevisionError(f"{str(folder)!r}: is no path ({problem})") from problem
    except OSError as problem:
        why = "it is a link" if problem.errno == errno.ELOOP else problem.strerror
        raise RevisionError(f"{folder / name}: cannot be read ({why}); put a plain file there") from problem
    if len(data) > size:
        raise RevisionError(f"{folder / name}: grew while it was read; wait until nobody writes there")
    return data


def _open(folder: Path, name: str) -> int:
    """Descriptor of a file, found relative to the opened folder so that no swapped link on the way is followed."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Without O_NONBLOCK a pipe of that name would keep us waiting for ever.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
    finally:
        os.close(inside)


def _check_plain(facts: os.stat_result, path: Path, most: int) -> int:
    """Bytes of an opened file, when it is a plain one of at most `most`."""
    if not stat.S_ISREG(facts.st_mode):
        raise RevisionError(f"{path}: is no plain file; put a plain file there")
    if facts.st_nlink > 1:
        raise RevisionError(f"{path}: has a second name (hard link), through which it can change; copy it instead")
    if facts.st_size > most:
        raise RevisionError(f"{path}: is {facts.st_size} bytes, more than the {most} that it may have")
    return facts.st_size
