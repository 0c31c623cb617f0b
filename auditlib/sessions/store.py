"""The session store: what happened, read through typed questions.

All SQL on sessions stands in this file and its `store_*` siblings.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from auditlib.errors import IntegrityError, StoreError
from auditlib.sessions import store_counts, store_import, store_snapshot
from auditlib.sessions.components import KeyedSession
from auditlib.sessions.manifest import ImportManifest, Reject
from auditlib.sessions.session import Session
from auditlib.sessions.snapshot import FrozenSession, Side, Snapshot, Terms, content_digest
from auditlib.sessions.store_counts import Transition, Variant
from auditlib.sessions.store_file import attach, rewriting
from auditlib.sessions.store_times import SessionTimes, times


@dataclass(frozen=True, slots=True)
class StoreSummary:
    """How much a store holds; times are None when it is empty.

    `imports` counts those not undone, `customers` and `assets` the sessions that have one.
    """

    sessions: int
    events: int
    event_counts: dict[str, int]
    first_time: datetime | None
    last_time: datetime | None
    imports: int
    customers: int
    assets: int


@dataclass(frozen=True, slots=True)
class RegisteredRevision:
    """A revision that the store knows: where its folder is and what it must contain."""

    name: str
    folder: str
    digest: str
    registered: str


class SessionStore:
    """A read-only view of one store file. Safe to share between threads: each call takes its own cursor.

    The view is of the file as it was when opened: a writer puts a new file in its place. The methods that change the
    store (`add_revision`, `undo_import`, `freeze`) need `read_only=False` and leave this view on the new file.
    Times are in UTC where the log stated zones, else on the log's own clock.
    """

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._connection = connection

    @classmethod
    def open(cls, path: Path | str, read_only: bool = True) -> Self:
        """The store at `path`; StoreError when there is none, or the file is damaged or something else."""
        path = Path(path)
        return cls(path, attach(path), read_only=read_only)

    @classmethod
    def create(cls, path: Path | str) -> Self:
        """A new empty store, open for changes; StoreError when something is there already."""
        path = Path(path)
        if path.exists():
            raise StoreError(f"{path} exists already; open it, or choose another path")
        with rewriting(path):
            pass  # making the tables is all
        return cls.open(path, read_only=False)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor of one caller, for the `store_*` modules only."""
        return self._connection.cursor()

    def _rows(self, query: str, values: list[Any] | None = None) -> list[tuple[Any, ...]]:
        return store_counts.rows(self._connection.cursor(), query, values)

    def summary(self) -> StoreSummary:
        """What the store holds now."""
        counts = self._rows("select name, count(*) from store.main.events group by name order by count(*) desc, name")
        sessions, first, last, customers, assets = self._rows(
            "select count(*), min(first_time), max(last_time), count(*) filter (len(customers) > 0), "
            "count(*) filter (len(assets) > 0) from store.main.sessions order by 1"
        )[0]
        total = sum(count for _, count in counts)
        return StoreSummary(sessions, total, dict(counts), first, last, len(self.imports()), customers, assets)

    def event_names(self) -> tuple[str, ...]:
        """Every event name of the store, sorted."""
        return tuple(name for (name,) in self._rows("select distinct name from store.main.events order by name"))

    def imports(self) -> tuple[ImportManifest, ...]:
        """Manifests of the imports that were not undone, oldest first."""
        found = self._rows("select manifest from store.main.imports where undone is null order by import_id")
        return tuple(_manifest(text, self.path) for (text,) in found)

    def rejects(self, import_id: int | None = None, limit: int = 1000, offset: int = 0) -> tuple[Reject, ...]:
        """Rows that an import (or any) left out, in the order of the log, at most `limit` from `offset` on."""
        found = self._rows(
            "select source_row, session_id, reason, text from store.main.rejects "
            "where (? is null or import_id = ?) order by import_id, source_row, reason limit ? offset ?",
            [import_id, import_id, limit, offset],
        )
        return tuple(Reject(*row) for row in found)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Frozen splits, oldest first."""
        return store_snapshot.snapshots(self.cursor())

    def snapshot(self, digest: str | None = None) -> Snapshot:
        """The split of that digest, or the latest one. StoreError when there is none."""
        found = self.snapshots()
        if not found:
            raise StoreError(f"{self.path.name} has no split yet; run `python -m auditlib split --store {self.path}`")
        if digest is None:
            return found[-1]
        for snapshot in found:
            if snapshot.digest == digest:
                return snapshot
        raise StoreError(f"{self.path.name} has no snapshot {digest}; it has {', '.join(one.digest for one in found)}")

    def sessions(self, snapshot: Snapshot, side: Side = "held-out", limit: int | None = None) -> Iterator[Session]:
        """Yield sessions of one side by id, events in time order (ties in file order). At most `limit` when given."""
        for row in store_snapshot.frozen(self.cursor(), snapshot, side, limit):
            yield _session(row)

    def session(self, snapshot: Snapshot, session_id: str) -> Session:
        """One session of a snapshot, whatever its side; StoreError when it is not there."""
        return self.named(snapshot, (session_id,))[0]

    def named(self, snapshot: Snapshot, session_ids: Sequence[str]) -> tuple[Session, ...]:
        """The sessions of these ids in this order, whatever their sides; StoreError when one is not there.

        One query for all: asked for one by one, some hundred sessions cost more than all that is done with them.
        """
        frozen = store_snapshot.frozen(self.cursor(), snapshot, None, None, session_ids)
        found = {row.session_id: _session(row) for row in frozen}
        for missing in (name for name in session_ids if name not in found):
            raise StoreError(
                f"snapshot {snapshot.digest} has no session {missing!r}; list them with SessionStore.sessions"
            )
        return tuple(found[name] for name in session_ids)

    def frozen(self, snapshot: Snapshot, side: Side | None = None) -> Iterator[FrozenSession]:
        """Yield the rows of a snapshot by side and id, with all their customers and assets."""
        return store_snapshot.frozen(self.cursor(), snapshot, side, None)

    def verify(self, snapshot: Snapshot) -> None:
        """IntegrityError unless the frozen rows and terms still give the digest of `snapshot`."""
        found = content_digest(snapshot.terms(), self.frozen(snapshot))
        if found != snapshot.digest:
            raise IntegrityError(
                f"{self.path.name}: the rows of snapshot {snapshot.digest} give {found}; "
                "they were changed after the split, so split again and audit again"
            )

    def freeze(self, terms: Terms, sides: dict[str, Side], components: tuple[int, int] = (0, 0)) -> Snapshot:
        """Copy the sessions named in `sides` into a snapshot that never changes, and give it.

        `components` are the number of key components and the sessions of the largest. The same sessions under the same
        terms give the snapshot that is there already. StoreError for sessions that the store does not hold.
        """
        with self._rewriting() as connection:
            return store_snapshot.freeze(connection, terms, sides, components)

    def keyed_sessions(self) -> list[KeyedSession]:
        """Every session of the store now, by id, with its keys: what a split works on."""
        found = self._rows(
            "select session_id, customers, assets, epoch_us(first_time), epoch_us(last_time), import_id, first_row "
            "from store.main.sessions order by session_id"
        )
        return [KeyedSession(name, tuple(customers), tuple(assets), *rest) for name, customers, assets, *rest in found]

    def variants(
        self, snapshot: Snapshot | None = None, side: Side | None = None, limit: int = 100
    ) -> tuple[Variant, ...]:
        """Event sequences with how many sessions have each, most frequent first: of a snapshot, or of the store now."""
        return store_counts.variants(self.cursor(), snapshot, side, limit)

    def transitions(self, snapshot: Snapshot | None = None, side: Side | None = None) -> tuple[Transition, ...]:
        """How often each event directly follows each; None stands for the start and the end of a session."""
        return store_counts.transitions(self.cursor(), snapshot, side)

    def lengths(self, snapshot: Snapshot | None = None, side: Side | None = None) -> dict[int, int]:
        """Number of events in a session → how many sessions have it, shortest first."""
        return store_counts.lengths(self.cursor(), snapshot, side)

    def times(self, snapshot: Snapshot) -> SessionTimes:
        """When the sessions of a snapshot began, and how long they took."""
        return times(self.cursor(), snapshot)

    def add_revision(self, name: str, folder: Path | str, digest: str) -> None:
        """Note a revision; the same name and digest again only moves its folder. StoreError when opened read-only."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._rewriting() as connection:
            connection.execute("delete from store.main.revisions where name = ? and digest = ?", [name, digest])
            values = [name, str(folder), digest, now]
            connection.execute("insert into store.main.revisions values (?, ?, ?, ?)", values)

    def revisions(self) -> tuple[RegisteredRevision, ...]:
        """Revisions that were registered, oldest first."""
        found = self._rows(
            "select name, folder, digest, registered from store.main.revisions order by registered, name, digest"
        )
        return tuple(RegisteredRevision(*row) for row in found)

    def undo_import(self, import_id: int) -> None:
        """Take the events, sessions and rejects of one import out again; snapshots keep what they froze."""
        with self._rewriting() as connection:
            store_import.undo(connection, import_id)

    @contextlib.contextmanager
    def _rewriting(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self.read_only:
            raise StoreError(f"{self.path.name} is open read-only; open it with read_only=False to change it")
        with rewriting(self.path) as connection:
            yield connection
        # The old connection is dropped, not closed: another thread may be in the middle of reading from it.
        self._connection = attach(self.path)


def _session(row: FrozenSession) -> Session:
    customer = row.customers[0] if row.customers else None
    return Session(row.session_id, row.events, customer, row.assets[0] if row.assets else None, row.attributes)


def _manifest(text: str, path: Path) -> ImportManifest:
    try:
        return ImportManifest.from_dict(json.loads(text))
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path.name}: a manifest is damaged ({error}); import the log again into a new store"
        ) from error
