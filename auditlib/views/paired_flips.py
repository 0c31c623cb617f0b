"""Where two runs over the same sessions part: one good and the other not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from auditlib.numbers import amount

COLUMNS = ["change", "what", "session_id", "events", "before", "after"]


def gap_flips(gaps: pd.DataFrame) -> pd.DataFrame:
    """Ways that are within tolerance in one run and not in the other, the largest gap first."""
    found = gaps[gaps["within_before"].astype(bool) != gaps["within_after"].astype(bool)]
    change = ["worse" if within else "better" for within in found["within_before"]]
    words = {side: [f"gap {amount(gap)} logit" for gap in found[side].astype(float)] for side in ("before", "after")}
    size = found[["before", "after"]].astype(float).max(axis=1).fillna(np.inf)
    table = found.assign(change=change, what="within tolerance", **words)
    return table.loc[size.sort_values(ascending=False, kind="stable").index, COLUMNS]


def answer_flips(answers: pd.DataFrame, name: Callable[[int], str], *, same_order: bool) -> pd.DataFrame:
    """Prefixes whose continuation is valid, or whose next event is right, in one run and not in the other.

    Validity is left out where the two runs went by other rules.
    """
    rows = [
        flip
        for row in answers.to_dict("records")
        for flip in ([*_order_flip(row)] if same_order else []) + [*_event_flip(row, name)]
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _order_flip(row: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The whole sequence that breaks a rule in one run only."""
    if row["valid_before"] == row["valid_after"]:
        return
    change, side = ("worse", "after") if row["valid_before"] else ("better", "before")
    words = ["valid" if row[f"valid_{one}"] else "breaks a rule" for one in ("before", "after")]
    yield (change, f"{row['setting']}: order", row["session_id"], row[f"events_shown_{side}"], *words)


def _event_flip(row: Mapping[str, Any], name: Callable[[int], str]) -> Iterator[tuple[str, ...]]:
    """The prefix after which one run says the event that came, and the other another."""
    right = row["right_before"], row["right_after"]
    if any(pd.isna(one) for one in right) or right[0] == right[1]:
        return
    said = [row["next_before"], row["next_after"]]
    named = ["no event" if pd.isna(one) else name(int(one)) for one in said]
    words = [f"{'right' if ok else 'wrong'}: {event}" for ok, event in zip(right, named, strict=True)]
    change = "worse" if right[0] else "better"
    yield (change, f"{row['setting']}: next event", row["session_id"], row["prefix"], *words)
