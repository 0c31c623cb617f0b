"""One event of a prefix edited: what the decoder then expects at every later step, and which orders become wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder
from auditlib.decoders.protocol import Decoder
from auditlib.errors import InputError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.event_map import EventMap

EditKind = Literal["replace", "delete", "insert"]
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a prefix at `place` (the start, 0, stays): another event there, none, or one more before it."""

    kind: EditKind
    place: int
    event: int | None = None

    def of(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The edited prefix; InputError when the place is not one of its events."""
        last = len(ids) if self.kind == "insert" else len(ids) - 1
        if not 1 <= self.place <= last:
            raise InputError(
                f"there is no event {self.place} to {self.kind}; the prefix has events 1 to {len(ids) - 1}"
            )
        if (self.event is None) != (self.kind == "delete"):
            raise InputError(f"to {self.kind} takes {'no' if self.kind == 'delete' else 'an'} event")
        new = () if self.event is None else (self.event,)
        kept = self.place if self.kind == "insert" else self.place + 1
        return (*ids[: self.place], *new, *ids[kept:])

    @property
    def shift(self) -> int:
        """By how many places the events behind the edit move."""
        return {"replace": 0, "delete": -1, "insert": 1}[self.kind]


@dataclass(frozen=True, slots=True)
class Downstream:
    """What an edit changes.

    `steps`, one row an event behind the edit, end not included: number (its place before the edit), event, before and
    after (full-path probabilities that it was given), moved (total variation distance, 0 to 1, between what is expected
    after it), legal_before, legal_after, state (of the order after it, -1 after a wrong event), rules (that forbid it
    after the edit). `next_events`: event, id, before, after (probabilities at the end of the prefix), legal_before,
    legal_after. `wrong`: number, name and rules of the first event that the rules forbid in the edited prefix, or None.
    """

    ids: tuple[int, ...]
    steps: pd.DataFrame
    next_events: pd.DataFrame
    wrong: tuple[int, str, str] | None


def downstream(
    decoder: Decoder,
    event_map: EventMap,
    automaton: OrderAutomaton,
    ids: Sequence[int],
    edit: Edit,
    device: str = "cpu",
) -> Downstream:
    """Both prefixes by the full path; InputError for an edit that does not fit, and whatever the decoder raises."""
    changed = edit.of(ids)
    checked = CheckedDecoder(decoder, device, lambda: None)
    before, after = (_chances(checked, row) for row in (tuple(ids), changed))
    orders = _judged(automaton, ids), _judged(automaton, changed)
    behind = range(edit.place if edit.kind == "insert" else edit.place + 1, len(ids))
    rows = []
    for place in behind:
        there, event = place + edit.shift, ids[place]
        given = float(before[place - 1, event]), float(after[there - 1, event])
        moved = float((after[there] - before[place]).abs().sum() / 2)
        (legal, _, _), (still, state, rules) = orders[0][place], orders[1][there]
        rows.append((place, event_map.name(event), *given, moved, legal, still, state, rules))
    columns = ["number", "event", "before", "after", "moved", "legal_before", "legal_after", "state", "rules"]
    return Downstream(
        changed,
        pd.DataFrame(rows, columns=columns),
        _next(event_map, automaton, (ids, changed), (before[-1], after[-1])),
        _first_wrong(event_map, changed, orders[1]),
    )


def _chances(checked: CheckedDecoder, row: tuple[int, ...]) -> Tensor:
    """Probabilities [T, V] of what follows each event of a row."""
    return checked.full(*checked.stack([row]))[0].double().softmax(-1).cpu()  # noqa: PD013  no data frame


def _judged(automaton: OrderAutomaton, ids: Sequence[int]) -> list[tuple[bool, int, str]]:
    """For each event: whether it was legal, the state after it, and the rules that forbid it."""
    state, found = automaton.start, [(True, automaton.start, "")]
    for event in ids[1:]:
        inside = state >= 0 and 0 <= event < automaton.legal.shape[1]
        legal = inside and bool(automaton.legal[state, event])
        rules = "" if legal else ", ".join(automaton.forbidding(state, event)) or "nothing may follow a wrong event"
        state = automaton.advance(state, event)
        found.append((legal, state, rules))
    return found


def _first_wrong(
    event_map: EventMap, ids: Sequence[int], judged: Sequence[tuple[bool, int, str]]
) -> tuple[int, str, str] | None:
    for place, (legal, _, rules) in enumerate(judged):
        if not legal:
            return place, event_map.name(ids[place]), rules
    return None


def _next(
    event_map: EventMap,
    automaton: OrderAutomaton,
    rows: tuple[Sequence[int], Sequence[int]],
    chances: tuple[Tensor, Tensor],
) -> pd.DataFrame:
    """What either prefix is expected to be followed by, largest change first."""
    states = [automaton.state_after(row[1:]) for row in rows]
    named = [event_map.end, *event_map.domain]
    legal = [[state >= 0 and bool(automaton.legal[state, event]) for event in named] for state in states]
    table = pd.DataFrame(
        {
            "event": [event_map.name(event) for event in named],
            "id": named,
            "before": chances[0][torch.tensor(named)].tolist(),
            "after": chances[1][torch.tensor(named)].tolist(),
            "legal_before": legal[0],
            "legal_after": legal[1],
        }
    )
    # What is no number is the largest change of all: sorted behind the others it would not be seen.
    size = (table["after"] - table["before"]).abs().fillna(float("inf"))
    return table.iloc[size.to_numpy().argsort(kind="stable")[::-1]].reset_index(drop=True)
