"""Which session shows a run's worst finding: where a reader who asks "why?" should look first."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from auditlib.numbers import amount
from auditlib.runs.folder import Run

_POLICY_FAILURES = {"padding emission", "event grammar", "end-token coverage", "decoding policy"}


@dataclass(frozen=True, slots=True)
class Worst:
    """A row of events (ids joined by "-", start included), the session it comes from, and in words what it shows."""

    events: str
    session_id: str
    words: str


def worst(run: Run) -> Worst | None:
    """The place to look first: of the first failure that has one, else the largest gap; None without any."""
    for failure in run.report["failures"]:
        found = _of_failure(run, failure)
        if found is not None:
            return found
    return largest_gap(run.table("cache parity", "gaps"))


def held_out_note(gaps: pd.DataFrame) -> str:
    """How large the gap is on held-out sessions, and where it is larger; "" where it is nowhere larger.

    The checks count every prefix: without this, a check says 2.84 and the worst prefix beside it 1.95.
    """
    if gaps.empty:
        return ""
    # A gap that is not a number is larger than any.
    sizes, held_out = gaps["gap"].fillna(float("inf")), _from_sessions(gaps)
    if not held_out.any() or sizes[held_out].max() >= sizes.max():
        return ""
    return (
        f"On held-out sessions the gap is at most {amount(sizes[held_out].max())} logit. The largest gap of all, "
        f"{amount(sizes.max())} logit, is on a prefix that a probe made up."
    )


def largest_gap(gaps: pd.DataFrame) -> Worst | None:
    """The prefix with the largest gap between the paths; a gap that is not a number is larger than any.

    Prefixes of held-out sessions come first: they happened. One that a probe made up counts where there is no other.
    """
    if gaps.empty:
        return None
    # A prefix that nobody ever went through explains little to a reviewer.
    from_sessions = gaps[_from_sessions(gaps)]
    found = gaps if from_sessions.empty else from_sessions
    row = found.loc[found["gap"].fillna(float("inf")).idxmax()]
    return Worst(str(row["events"]), _session(row), f"gap {amount(row['gap'])} logit ({row['probe']})")


def _of_failure(run: Run, failure: str) -> Worst | None:
    """The worst observation behind one name of `failures`."""
    if failure in {"cache parity", "cache identity", "numerics"}:
        return largest_gap(run.table("cache parity", "gaps"))
    if failure == "causality":
        return _largest_change(run.table("causality", "probes"))
    return _wrong_sequence(run.table("decoding policy", "sequences")) if failure in _POLICY_FAILURES else None


def _largest_change(probes: pd.DataFrame) -> Worst | None:
    if probes.empty:
        return None
    row = probes.loc[probes["value"].fillna(float("inf")).idxmax()]
    return Worst(str(row["events"]), _session(row), f"{row['probe']} changes position {row['position']}")


def _wrong_sequence(sequences: pd.DataFrame) -> Worst | None:
    """The first sequence of a proposed setting that breaks a rule, else the first that was capped."""
    if sequences.empty:
        return None
    proposed = sequences[sequences["proposed"].astype(bool)]
    wrong = proposed[proposed["first_wrong"].fillna(-1) >= 0]
    chosen = wrong if len(wrong) else proposed[proposed["stop"] == "capped"]
    if chosen.empty:
        return None
    row = chosen.iloc[0]
    words = f"{row['setting']} decodes what the rules forbid" if len(wrong) else f"{row['setting']} never ends"
    return Worst(str(row["events"]), _session(row), words)


def _from_sessions(gaps: pd.DataFrame) -> pd.Series:
    """Whether each prefix comes from a held-out session; the others were made up by probes."""
    return gaps["session_id"].fillna("") != ""


def _session(row: pd.Series) -> str:
    return str(row["session_id"]) if "session_id" in row else ""
