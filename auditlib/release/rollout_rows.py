"""Rows of a live log as columns of plain numbers, which is all that evidence is counted from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEW, FALLBACK = 1, 0
"""Arms as numbers."""


@dataclass(frozen=True, slots=True)
class LiveRows:
    """Columns of N rows, in the order in which each file holds them.

    `request`, `session`, `stage` and `artifact` are numbers that are equal where the texts are; `stages` and
    `artifacts` give the texts, by number. `file` numbers the file a row came from. `arrival` and `end` are microseconds
    since 1970. `whole`: nothing is missing that the log must say of such a row. `fell_back`: another path than the
    artifact's own answered. `left`: the caller did not wait for the answer. `compared`: held against the full prefix
    path, and `differs`: the events were not the same; `margin` (logits, NaN unknown) is the full path's at the first
    differing step. `unread` counts rows that are no rows of the log at all, by reason; `unfinished` counts files that
    somebody has not written to their end.
    """

    request: NDArray[np.int64]
    session: NDArray[np.int64]
    arm: NDArray[np.int8]
    stage: NDArray[np.int64]
    artifact: NDArray[np.int64]
    file: NDArray[np.int64]
    arrival: NDArray[np.int64]
    end: NDArray[np.int64]
    cached: NDArray[np.bool_]
    whole: NDArray[np.bool_]
    invalid: NDArray[np.bool_]
    error: NDArray[np.bool_]
    fell_back: NDArray[np.bool_]
    left: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    differs: NDArray[np.bool_]
    margin: NDArray[np.float64]
    stages: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unfinished: int = 0

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.request)

    def take(self, places: Any) -> LiveRows:
        """The rows at the given places (indices, a mask or a slice)."""
        return replace(self, **{name: getattr(self, name)[places] for name in COLUMNS})


COLUMNS = tuple(entry.name for entry in fields(LiveRows))[:17]
"""Names of the columns of `LiveRows`."""
