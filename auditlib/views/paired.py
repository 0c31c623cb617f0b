"""Two runs over the same held-out sessions, question by question: the one place where they are paired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from auditlib.errors import RunError
from auditlib.runs.folder import Run
from auditlib.views.paired_flips import answer_flips, gap_flips
from auditlib.views.paired_tests import difference_of_means, difference_of_shares, mcnemar

_GAP = ["session_id", "events", "gap", "weight"]
_KEY = ["setting", "session_id", "prefix"]
_OWN = ["events", "first_wrong"]
DIFFERENCES = ("what", "before", "after", "difference", "low", "high", "worse", "better", "p", "sessions", "interval")
_NEWCOMBE, _BOOTSTRAP = "paired shares, Newcombe 1998", "bootstrap by session"


@dataclass(frozen=True, slots=True)
class Terms:
    """Whether two runs may be compared: `refusal` says why not at all, `notes` what to bear in mind, both in words."""

    refusal: str
    notes: tuple[str, ...]
    same_order: bool


@dataclass(frozen=True, slots=True)
class Pairing:
    """What two runs say of the same sessions.

    `gaps`: one row a distinct way of held-out sessions: session_id (one that went it), events, weight (sessions that
    went it), before and after (largest gap), within_before and within_after. `answers`: one row a continued prefix and
    setting: next_before, next_after, right_before, right_after (None where the session's next event is not known),
    valid_before, valid_after, events_before, events_after. `differences`: columns DIFFERENCES, intervals at 95 %.
    `flips`: change (worse or better), what, session_id, events, before, after; those for the worse first.
    """

    gaps: pd.DataFrame
    answers: pd.DataFrame
    differences: pd.DataFrame
    flips: pd.DataFrame


def terms(before: Run, after: Run) -> Terms:
    """Whether `after` may be compared with `before`, and within which bounds."""
    first, second = before.manifest, after.manifest
    refusal = ""
    if before.id == after.id:
        refusal = "a run cannot be compared with itself; choose another run"
    elif first["snapshot"]["digest"] != second["snapshot"]["digest"]:
        refusal = "the runs measured different held-out snapshots: their sessions are not the same; audit both on one"
    elif first["event_map"]["digest"] != second["event_map"]["digest"]:
        refusal = "the revisions have different event maps: the same id means another event, so no prefix can be paired"
    same_order = first["event_order"]["digest"] == second["event_order"]["digest"]
    notes = [] if same_order else ["the event-order rules differ: what is valid is not compared"]
    if first["dtype"] != second["dtype"] or first["device"] != second["device"]:
        notes.append("the runs used another dtype or device: each gap is held against its own run's tolerance")
    if first["policy"]["digest"] != second["policy"]["digest"]:
        notes.append("the policy files differ: settings of one name may decode differently")
    return Terms(refusal, tuple(notes), same_order)


def pair(before: Run, after: Run, truth: Mapping[str, tuple[int, ...]], name: Callable[[int], str] = str) -> Pairing:
    """Pairing of two runs that `terms` lets be compared; RunError with the reason for others.

    `truth` maps a held-out session to its whole row of ids, start and end included; a session that is missing there
    has no right or wrong next event. `name` says an id in words.
    """
    agreed = terms(before, after)
    if agreed.refusal:
        raise RunError(f"{before.id} and {after.id} are not compared: {agreed.refusal}")
    gaps, answers = _gaps(before, after), _answers(before, after, truth)
    rows = [*_gap_differences(gaps), *_answer_differences(answers, same_order=agreed.same_order)]
    found = [gap_flips(gaps), answer_flips(answers, name, same_order=agreed.same_order)]
    flips = pd.concat(found, ignore_index=True)
    order = flips["change"].map({"worse": 0, "better": 1}).to_numpy().argsort(kind="stable")
    differences = pd.DataFrame(rows, columns=list(DIFFERENCES))
    return Pairing(gaps, answers, differences, flips.iloc[order].reset_index(drop=True))


def sessions_of(before: Run, after: Run) -> tuple[str, ...]:
    """Held-out sessions whose prefixes both runs continued: those whose next events a comparison needs."""
    found = [run.table("decoding policy", "sequences") for run in (before, after)]
    if any(table.empty for table in found):
        return ()
    return tuple(sorted(set(found[0]["session_id"]) & set(found[1]["session_id"]) - {""}))


def tolerance_of(run: Run) -> float:
    """The run's own tolerance in logit; NaN when cache parity was not measured, and then nothing is within it."""
    numbers = run.report["audits"].get("cache parity", {}).get("information", ())
    found = [one["value"] for one in numbers if one["name"] == "tolerance" and one["value"] is not None]
    return float(found[0]) if found else float("nan")


def _gaps(before: Run, after: Run) -> pd.DataFrame:
    """Largest gap of every distinct way that both runs measured."""
    columns = ["session_id", "events", "weight", "before", "after", "within_before", "within_after"]
    first, second = (run.table("numerics", "sessions") for run in (before, after))
    if first.empty or second.empty or "weight" not in first:
        return pd.DataFrame(columns=columns)
    both = first[_GAP].merge(second[["events", "gap"]], on="events", suffixes=("_before", "_after"))
    both = both.rename(columns={"gap_before": "before", "gap_after": "after"})
    # Written so that a gap that is not a number is not within.
    both["within_before"] = both["before"] <= tolerance_of(before)
    both["within_after"] = both["after"] <= tolerance_of(after)
    return both[columns]


def _answers(before: Run, after: Run, truth: Mapping[str, tuple[int, ...]]) -> pd.DataFrame:
    """What each run made of the same prefix under the setting of the same name."""
    first, second = (_continuations(run) for run in (before, after))
    both = first.merge(second, on=_KEY, suffixes=("_before", "_after"))
    actual = [
        _next(truth.get(session, ()), prefix)
        for session, prefix in zip(both["session_id"], both["prefix"], strict=True)
    ]
    for side in ("before", "after"):
        said = [
            _next(_ids(events), prefix) for events, prefix in zip(both[f"events_{side}"], both["prefix"], strict=True)
        ]
        both[f"next_{side}"] = pd.array(said, dtype="Int64")
        right = [None if true is None else true == found for true, found in zip(actual, said, strict=True)]
        both[f"right_{side}"] = pd.array(right, dtype="boolean")
    return both


def _continuations(run: Run) -> pd.DataFrame:
    """One row a prefix of a held-out session and setting: its first hypothesis, and whether every one is valid."""
    found = run.table("decoding policy", "sequences")
    if found.empty:
        return pd.DataFrame(columns=[*_KEY, "events", "valid"])
    found = found[found["session_id"].fillna("") != ""].sort_values("hypothesis", kind="stable")
    wrong = found["first_wrong"].fillna(-1) >= 0
    valid = (~wrong).groupby([found[name] for name in _KEY]).all().rename("valid").reset_index()
    # A wrong hypothesis is what a reader wants to see; where none is wrong, the first one.
    shown = found.assign(bad=wrong).sort_values(["bad"], ascending=False, kind="stable").drop_duplicates(_KEY)
    firsts = found.drop_duplicates(_KEY)[[*_KEY, "events"]]
    return firsts.merge(shown[[*_KEY, "events"]], on=_KEY, suffixes=("", "_shown")).merge(valid, on=_KEY)


def _gap_differences(gaps: pd.DataFrame) -> list[tuple[object, ...]]:
    """How gaps moved: the share of ways within tolerance, and their mean over the ways whose gaps are numbers."""
    if gaps.empty:
        return []
    # A gap that is no number is not within, and so keeps its place in this share.
    within = _shares(
        "sessions within tolerance", gaps["within_before"].to_numpy(bool), gaps["within_after"].to_numpy(bool)
    )
    known = gaps[np.isfinite(gaps[["before", "after"]].astype(float)).all(axis=1)]
    if known.empty:
        return [within]
    left, right = known["before"].to_numpy(float), known["after"].to_numpy(float)
    apart = difference_of_means(left, right, np.arange(len(left)))
    mean = ("largest gap of a session, mean (logit)", left.mean(), right.mean(), *apart)
    size = int((right > left).sum()), int((right < left).sum())
    return [(*mean, *size, None, len(known), _BOOTSTRAP), within]


def _answer_differences(answers: pd.DataFrame, *, same_order: bool) -> list[tuple[object, ...]]:
    """Per setting: sessions whose continuations are all valid, and prefixes whose next event is right."""
    rows: list[tuple[object, ...]] = []
    for setting, found in answers.groupby("setting", sort=False):
        whole = found.groupby("session_id")[["valid_before", "valid_after"]].all()
        if same_order:
            valid = whole["valid_before"].to_numpy(bool), whole["valid_after"].to_numpy(bool)
            rows.append(_shares(f"{setting}: sessions with valid orders only", *valid))
        known = found.dropna(subset=["right_before", "right_after"])
        if len(known):
            rows.append(_right(str(setting), known))
    return rows


def _right(setting: str, known: pd.DataFrame) -> tuple[object, ...]:
    """Next events that were right, prefix by prefix; sessions are drawn whole."""
    left, right = (known[f"right_{side}"].to_numpy(bool) for side in ("before", "after"))
    groups = known["session_id"].astype("category").cat.codes.to_numpy(np.int64)
    apart = difference_of_means(left.astype(float), right.astype(float), groups)
    flips = int((left & ~right).sum()), int((~left & right).sum())
    sessions = int(groups.max()) + 1
    return (f"{setting}: next event right", left.mean(), right.mean(), *apart, *flips, None, sessions, _BOOTSTRAP)


def _shares(what: str, before: np.ndarray, after: np.ndarray) -> tuple[object, ...]:
    worse, better = int((before & ~after).sum()), int((~before & after).sum())
    apart = difference_of_shares(before, after)
    return (what, before.mean(), after.mean(), *apart, worse, better, mcnemar(worse, better), len(before), _NEWCOMBE)


def _ids(events: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(events).split("-") if part)


def _next(row: tuple[int, ...], prefix: str) -> int | None:
    """The id that follows the prefix in a row; None where the row ends there."""
    place = prefix.count("-") + 1
    return row[place] if place < len(row) else None
