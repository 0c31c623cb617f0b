"""One prefix under the lens: what either path predicts after every event, and which next events are legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.gaps import gap
from auditlib.decoders.protocol import Decoder
from auditlib.errors import DecoderError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.event_map import EventMap


@dataclass(frozen=True, slots=True)
class Inspection:
    """A prefix by either path.

    `steps`: step (events so far, start included), event (its name), full_probability and cached_probability that the
    event was given before it came (NaN for the first), gap (largest logit difference after it), legal.
    `next_events`, most probable first: event, id, full and cached (probabilities after the prefix), legal, rules (names
    of those that forbid it).
    """

    steps: pd.DataFrame
    next_events: pd.DataFrame


def inspect(
    decoder: Decoder, event_map: EventMap, automaton: OrderAutomaton, ids: Sequence[int], device: str = "cpu"
) -> Inspection:
    """Tables for a prefix of ids that begins with the start token.

    DecoderError for an empty prefix, and whatever the decoder raises, as ContextExceededError for one too long.
    """
    if not ids or ids[0] != event_map.start:
        raise DecoderError("a prefix begins with the start token; there is nothing to inspect without it")
    checked = CheckedDecoder(decoder, device, lambda: None)
    full, cached = _both_paths(checked, tuple(ids))
    return Inspection(
        _steps(event_map, automaton, ids, full, cached), _next_events(event_map, automaton, ids, full[-1], cached[-1])
    )


def _both_paths(checked: CheckedDecoder, row: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Logits [T, V] on the CPU by the full path, and by the cached path event by event."""
    events, valid = checked.stack([row])  # noqa: PD013  # no data frame
    full = checked.full(events, valid)[0]
    last, cache = checked.prefill(events[:, :1], valid[:, :1])
    found = [last]
    for place in range(1, len(row)):
        new = slice(place, place + 1)
        logits, cache = checked.extend(events[:, new], valid[:, new], cache)
        found.append(logits[:, 0])
    return full.cpu(), torch.cat(found).cpu()


def _steps(
    event_map: EventMap, automaton: OrderAutomaton, ids: Sequence[int], full: Tensor, cached: Tensor
) -> pd.DataFrame:
    gaps = gap(cached, full).tolist()
    chances = [logits.double().softmax(-1) for logits in (full, cached)]
    state, rows = automaton.start, []
    for place, event in enumerate(ids):
        legal, given = True, [float("nan"), float("nan")]
        if place:
            legal = _legal(automaton, state, event)
            state = automaton.advance(state, event)
            given = [float(chance[place - 1, event]) for chance in chances]
        rows.append((place + 1, event_map.name(event), *given, gaps[place], legal))
    return pd.DataFrame(rows, columns=["step", "event", "full_probability", "cached_probability", "gap", "legal"])


def _next_events(
    event_map: EventMap, automaton: OrderAutomaton, ids: Sequence[int], full: Tensor, cached: Tensor
) -> pd.DataFrame:
    """One row an id of the vocabulary, ids without a meaning included: a decoder may put weight on them."""
    state = automaton.state_after(ids[1:])
    named = {event_map.padding, event_map.start, event_map.end, *event_map.domain}
    rows = []
    chances = [logits.double().softmax(-1).tolist() for logits in (full, cached)]
    for event, (by_full, by_cache) in enumerate(zip(*chances, strict=True)):
        name = event_map.name(event) if event in named else f"<unused id {event}>"
        forbidden = automaton.forbidding(state, event) if event in named else ()
        rows.append((name, event, by_full, by_cache, _legal(automaton, state, event), ", ".join(forbidden)))
    table = pd.DataFrame(rows, columns=["event", "id", "full", "cached", "legal", "rules"])
    return table.sort_values(["full", "id"], ascending=[False, True], ignore_index=True)


def _legal(automaton: OrderAutomaton, state: int, event: int) -> bool:
    """Whether an event, or the end, may come next; nothing is legal after a wrong event."""
    inside = state >= 0 and 0 <= event < automaton.legal.shape[1]
    return inside and bool(automaton.legal[state, event])
