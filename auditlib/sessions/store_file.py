"""The store as a file: opened like a stranger's, changed only by a whole new file that takes its place.

DuckDB gives a second `connect` to a path the instance of the first, even after the file was replaced. So the file is
attached to a fresh in-memory database each time, which sees what is there now, and whose own catalogue keeps names that
a hostile store may define from ever being looked up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from auditlib.errors import StoreError
from auditlib.files import locked_folder
from auditlib.sessions.regular import open_regular
from auditlib.sessions.store_schema import check_layout, create_layout

# Readable by every DuckDB from 1.5 on; 2.0 alone would write files that 1.5 cannot open.
_STORAGE = "v1.5.0"
_WRITER_MEMORY = "512MB"


def attach(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection in which the store is the read-only database `store`.

    Files, extensions and settings are out of reach from then on. StoreError when the file is missing, is no regular
    file, is no DuckDB file, has a write-ahead log beside it, or lacks an expected table.
    """
    _check_file(path)
    connection = _connect(path, "read_only")
    try:
        _lock_down(connection)
        check_layout(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def rewriting(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a copy of the store, as the database `store`; on leaving, the copy takes the store's place.

    The change is there as a whole or not at all: an error, a cancellation or a kill leaves the store's bytes as they
    were. A store that does not exist is made. Readers that are open keep what they had. Writers wait for each other.
    """
    try:
        with _folder_lock(path), tempfile.TemporaryDirectory(prefix=_prefix(path), dir=path.parent) as scratch:
            copy = Path(scratch) / "store.duckdb"
            connection = _copied(path, copy)
            try:
                check_layout(connection, path)
                yield connection
                connection.execute("checkpoint store")
            finally:
                connection.close()
            _replace(copy, path)  # inside the lock, or a second writer could copy the old store meanwhile
    except (OSError, duckdb.Error) as error:
        raise StoreError(f"{path.name} could not be changed, and was left as it was: {error}") from error


def _copied(path: Path, copy: Path) -> duckdb.DuckDBPyConnection:
    """A connection that may write to a copy of the store, or to an empty one where there is no store yet."""
    fresh = not path.exists()
    if not fresh:
        _check_file(path)
        shutil.copy(path, copy)
    connection = _connect(copy, f"storage_version '{_STORAGE}'" if fresh else "read_write")
    connection.execute(f"set temp_directory = {_quoted(copy.with_name('spill'))}")
    connection.execute(f"set memory_limit = '{_WRITER_MEMORY}'")
    connection.execute("set preserve_insertion_order = false")  # costs memory, and every query says its order
    if fresh:
        create_layout(connection)
    _lock_down(connection)
    return connection


def _connect(path: Path, option: str) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",  # no Python variable is ever taken for a table
        "temp_directory": "",  # else a large query would spill into the folder that the process was started in
    }
    connection = duckdb.connect(":memory:", config=settings)
    try:
        connection.execute(f"attach {_quoted(path)} as store ({option})")
    except duckdb.Error as error:
        connection.close()
        raise StoreError(
            f"{path.name} cannot be opened as a session store: {error}; import the log again into a new store"
        ) from error
    return connection


def _lock_down(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _quoted(path: Path) -> str:
    text = os.fspath(path)
    if "\0" in text:
        raise StoreError(f"the path {text!r} holds a NUL character; give another")
    return "'" + text.replace("'", "''") + "'"


def _check_file(path: Path) -> None:
    try:
        with open_regular(path) as file:
            magic = file.read(12)[8:]
    except FileNotFoundError:
        raise StoreError(
            f"no session store at {path}; make one with `python -m auditlib import LOG --store {path}`"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be opened: {error}; check the path and its permissions") from error
    if magic != b"DUCK":
        raise StoreError(f"{path} is not a DuckDB file; give the path of a store that `import` made")
    if path.with_name(path.name + ".wal").exists():
        raise StoreError(
            f"beside {path} lies {path.name}.wal: another program is changing the store, or died doing so; "
            "close that program, or import the log again into a new store"
        )


@contextlib.contextmanager
def _folder_lock(path: Path) -> Iterator[None]:
    """Held by one writer per folder, which begins by sweeping up after those that were killed."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked_folder(path.parent))
        except (OSError, ValueError) as error:
            raise StoreError(f"the folder of {path} cannot be opened: {error}; make it first") from error
        _sweep(path)
        yield


def _prefix(path: Path) -> str:
    return f".{path.name}.new-"


def _sweep(path: Path) -> None:
    """Remove what a killed writer left; nobody else writes while the folder is locked."""
    for leftover in path.parent.glob(f"{_glob_escaped(_prefix(path))}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _glob_escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def _replace(copy: Path, path: Path) -> None:
    with copy.open("rb+") as file:
        os.fsync(file.fileno())
    copy.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
