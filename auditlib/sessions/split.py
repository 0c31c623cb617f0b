"""From the sessions of a store to a frozen split, and a report on what its two sides still share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from auditlib.errors import StoreError
from auditlib.progress import Progress, silent
from auditlib.sessions.components import KEYS, components, key_values
from auditlib.sessions.sides import choose_sides
from auditlib.sessions.snapshot import FrozenSession, Snapshot, Terms
from auditlib.sessions.store import SessionStore

_SHOWN_COMPONENTS = 20


@dataclass(frozen=True, slots=True)
class LeakageReport:
    """What training and held-out sessions of a snapshot share. Counts are held-out sessions unless said otherwise.

    `shared_sessions`: whose id stands in training too; `prefix_in_training` those of them where one side's events begin
    the other's, so that a session was cut in two. `shared_customers`, `shared_assets`: that name one which training
    names. `crossing_keys`: for the customer and asset of `by`, how many of their values stand on both sides.
    For information, no leak: `duplicate_sequences` went exactly the way of some training session (repetition is what
    makes sessions predictable); `twin_sessions` have also its times and customers. `training_after_start` counts
    training sessions with an event after the first held-out session began. `component_sizes`: sessions in the largest
    groups that the keys of `by` tie together, over both sides.
    """

    by: tuple[str, ...]
    training_sessions: int
    held_out_sessions: int
    quarantined: int
    shared_sessions: int
    prefix_in_training: int
    shared_customers: int
    shared_assets: int
    duplicate_sequences: int
    twin_sessions: int
    training_after_start: int
    crossing_keys: Mapping[str, int] = field(default_factory=dict)
    component_sizes: tuple[int, ...] = ()

    def share(self, count: int) -> float:
        """A count of held-out sessions as a share of them."""
        return count / max(1, self.held_out_sessions)

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the fields, and the shares of held-out sessions that they stand for."""
        counted = ("shared_customers", "shared_assets", "duplicate_sequences")
        shares = {f"{name}_share": self.share(getattr(self, name)) for name in counted}
        lists = {"by": list(self.by), "component_sizes": list(self.component_sizes)}
        return {**asdict(self), **lists, **shares}


def split(
    store: SessionStore,
    by: Sequence[str] = ("session",),
    held_out: float = 0.2,
    seed: int = 0,
    chronological: bool = False,
    quarantine: bool = False,
    progress: Progress = silent,
) -> Snapshot:
    """A frozen snapshot whose sides share no key of `by`: at random by `seed`, or the latest sessions held out.

    Sessions that share a key, directly or through others, stay together; a missing key joins nobody. With `quarantine`,
    where that is impossible, the sessions that would join the sides are left out of both; in a chronological split
    these are also the training sessions still running when the first held-out one begins.
    StoreError, with the sizes of the groups and the ways out, when nothing near the share keeps the sides apart.
    """
    terms = _checked_terms(by, held_out, seed, chronological=chronological, quarantine=quarantine)
    progress(0, 3, "reading keys")
    rows = store.keyed_sessions()
    if len(rows) < 2:
        raise StoreError(f"{store.path.name} holds {len(rows)} sessions, a split needs two; import a log first")
    for key in terms.by:
        if key != "session" and not any(key_values(row, key) for row in rows):
            raise StoreError(f"no session has a value for {key!r}; name its column at import, or split without it")
    progress(1, 3, "choosing sides")
    sides = choose_sides(rows, terms)
    progress(2, 3, "freezing the snapshot")
    snapshot = store.freeze(terms, sides.by_session, (len(sides.components.sizes), sides.components.largest))
    progress(3, 3, "done")
    return snapshot


def _checked_terms(by: Sequence[str], held_out: float, seed: int, *, chronological: bool, quarantine: bool) -> Terms:
    unknown = [by] if isinstance(by, str) else [key for key in by if key not in KEYS]
    if unknown:
        raise StoreError(f"cannot split by {', '.join(unknown)}; the keys are some of {', '.join(KEYS)}, as a list")
    if not 0 < held_out < 1:
        raise StoreError(f"the held-out share is {held_out}, it must lie between 0 and 1, such as 0.2")
    # One order whatever was typed, because the terms are part of the digest.
    chosen = tuple(key for key in KEYS if key in by or key == "session")
    return Terms(chosen, float(held_out), int(seed), chronological, quarantine)


def group_sizes(store: SessionStore, by: Sequence[str]) -> tuple[int, ...]:
    """Sessions in each group that the keys of `by` tie together, largest first: what a split keeps whole."""
    terms = _checked_terms(by, 0.5, 0, chronological=False, quarantine=False)
    sizes: list[int] = components(store.keyed_sessions(), terms.by).sizes.tolist()
    return tuple(sorted(sizes, reverse=True))


def leakage(store: SessionStore, snapshot: Snapshot) -> LeakageReport:
    """What the sides of a snapshot share, counted from its frozen rows: a split is measured, never believed."""
    rows = list(store.frozen(snapshot))
    training = [row for row in rows if row.side == "training"]
    held = [row for row in rows if row.side == "held-out"]
    by_id = {row.session_id: row for row in training}
    ways = {row.events for row in training}
    exact = {_twin(row) for row in training}
    begin = min((row.first_time for row in held), default=0)
    sizes = sorted(components(training + held, snapshot.by).sizes.tolist(), reverse=True)
    return LeakageReport(
        by=snapshot.by,
        training_sessions=len(training),
        held_out_sessions=len(held),
        quarantined=len(rows) - len(training) - len(held),
        shared_sessions=sum(row.session_id in by_id for row in held),
        prefix_in_training=sum(row.session_id in by_id and _begins(row, by_id[row.session_id]) for row in held),
        shared_customers=_sharing(training, held, "customer"),
        shared_assets=_sharing(training, held, "asset"),
        duplicate_sequences=sum(row.events in ways for row in held),
        twin_sessions=sum(_twin(row) in exact for row in held),
        training_after_start=sum(row.last_time > begin for row in training),
        crossing_keys={
            key: len(_values(training, key) & _values(held, key)) for key in snapshot.by if key != "session"
        },
        component_sizes=tuple(sizes[:_SHOWN_COMPONENTS]),
    )


def _values(rows: Sequence[FrozenSession], key: str) -> set[str]:
    return {value for row in rows for value in key_values(row, key)}


def _sharing(training: Sequence[FrozenSession], held: Sequence[FrozenSession], key: str) -> int:
    known = _values(training, key)
    return sum(not known.isdisjoint(key_values(row, key)) for row in held)


def _begins(one: FrozenSession, other: FrozenSession) -> bool:
    shorter = min(len(one.events), len(other.events))
    return one.events[:shorter] == other.events[:shorter]


def _twin(row: FrozenSession) -> tuple[object, ...]:
    return row.events, row.first_time, row.last_time, row.customers
