"""How emitted sequences compare with the log they continue: information beside the checks, never averaged with them."""

from __future__ import annotations

from collections.abc import Sequence

from auditlib.audits.held_out import Row


def duplicate_share(rows: Sequence[Row]) -> float:
    """Share of rows that repeat an earlier one; 0 of none."""
    return 1 - len(set(rows)) / len(rows) if rows else 0.0


def similarity(left: Row, right: Row) -> float:
    """1 minus the edit distance (insert, delete, replace, swap neighbours) over the longer length; 1 of two empty rows.

    The distance is the optimal string alignment form of Damerau 1964 (CACM 7), usual in next-event papers.
    """
    if not left and not right:
        return 1.0
    older: list[int] = []
    above = list(range(len(right) + 1))
    for i, event in enumerate(left, start=1):
        line = [i]
        for j, other in enumerate(right, start=1):
            cost = min(above[j] + 1, line[j - 1] + 1, above[j - 1] + (event != other))
            if i > 1 and j > 1 and event == right[j - 2] and left[i - 2] == other:
                cost = min(cost, older[j - 2] + 1)
            line.append(cost)
        older, above = above, line
    return 1 - above[-1] / max(len(left), len(right))


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
