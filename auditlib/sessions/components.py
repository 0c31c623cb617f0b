"""Which sessions hang together: two sessions are joined when they share a key, and so on transitively."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# The keys a session may be split by; "session" ties a session to nothing but itself.
KEYS = ("session", "customer", "asset")


class Keyed(Protocol):
    """A session with the keys that it names."""

    @property
    def session_id(self) -> str:
        """Its id."""

    @property
    def customers(self) -> tuple[str, ...]:
        """Every customer it names; empty when there is none, which joins it to nobody."""

    @property
    def assets(self) -> tuple[str, ...]:
        """Every asset it names; empty when there is none, which joins it to nobody."""


@dataclass(frozen=True, slots=True)
class KeyedSession:
    """A session of the store with its keys and where it stands in time (microseconds since 1970) and in its log."""

    session_id: str
    customers: tuple[str, ...]
    assets: tuple[str, ...]
    first_time: int
    last_time: int
    import_id: int
    first_row: int


@dataclass(frozen=True, slots=True)
class Components:
    """Groups of sessions that must stay together: `label` [N] numbers the group of each, `sizes` [groups]."""

    label: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def largest(self) -> int:
        """Sessions of the largest group, 0 when there is none."""
        return int(self.sizes.max(initial=0))

    @property
    def largest_share(self) -> float:
        """Share of all sessions that stands in the largest group."""
        return self.largest / max(1, int(self.sizes.sum()))


def key_values(row: Keyed, key: str) -> tuple[str, ...]:
    """Values of one key of a session; a session id is no link to other sessions."""
    if key == "customer":
        return row.customers
    return row.assets if key == "asset" else ()


def components(rows: Sequence[Keyed], by: Sequence[str]) -> Components:
    """Groups under the keys `by`, numbered in the order of their first session.

    Union-find with path halving; every value of a key counts, so a session that changed its customer joins both.
    """
    parent = list(range(len(rows)))
    for key in by:
        owner: dict[str, int] = {}
        for number, row in enumerate(rows):
            for value in key_values(row, key):
                _join(parent, owner.setdefault(value, number), number)
    roots = np.fromiter((_root(parent, number) for number in range(len(rows))), np.int64, len(rows))
    # The root is the smallest number of its group, so sorting the roots sorts groups by first session.
    _, label, sizes = np.unique(roots, return_inverse=True, return_counts=True)
    return Components(label.astype(np.int64), sizes.astype(np.int64))


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _join(parent: list[int], one: int, other: int) -> None:
    low, high = sorted((_root(parent, one), _root(parent, other)))
    parent[high] = low  # the smaller number becomes the root, which `components` relies on
