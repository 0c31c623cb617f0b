"""Probes of causality that any decoder can serve: what comes later must not be felt earlier, not by one bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.audits.changes import Change, moved
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Material, Row

_MOST_POSITIONS, _MOST_LOGITS = 1 << 15, 1 << 22
_EVERY_EVENT_WITHIN = 1 << 14
_LENGTHS = (2, 3, 4, 5, 8, 9, 17, 33)
_ALL_CUTS_UP_TO = 48
_LONG = 512


@dataclass(frozen=True, slots=True)
class Laid:
    """A row as it stands in a batch: with some invalid positions before and behind it."""

    row: Row
    left: int = 0
    right: int = 0

    def tensors(self, padding: int, device: str) -> tuple[Tensor, Tensor]:
        """Events and valid [T]."""
        events = [padding] * self.left + list(self.row) + [padding] * self.right
        valid = [False] * self.left + [True] * len(self.row) + [False] * self.right
        return torch.tensor(events, device=device), torch.tensor(valid, device=device)

    def takes_every_event(self, material: Material) -> bool:
        """Whether every event is tried at every disturbed position of the row, and not only some."""
        return _every_event_fits(material, self.row, cuts(len(self.row)))


def cases(material: Material) -> Iterator[Laid]:
    """Rows to disturb: held-out and made-up ones, at block ends and the boundary, and padded on every side."""
    # Every place of a row is disturbed, so block ends inside the longest row need no row of their own length.
    made_up = [row for row in material.made_up if len(row) in _LENGTHS]
    plain = (*material.sample[::2], *material.sample[-1:], *made_up, *material.made_up[-1:], *material.boundary)
    yield from (Laid(row) for row in dict.fromkeys(plain) if len(row) > 1)
    for index, length in enumerate((2, 3, 7)):
        row = material.rows(1, length, f"padded {length}")[0]
        sides = ((9 - length, 0), (0, 9 - length), (1 + index, 2))
        yield from (Laid(row, left, right) for left, right in sides if len(row) > 1)


def cuts(length: int) -> list[int]:
    """Positions to disturb, from 1 to `length` − 1.

    All of a short row; of a longer one the ends of blocks with their neighbours, a spread, and the last.
    """
    if length <= _ALL_CUTS_UP_TO:
        return list(range(1, length))
    blocks = {near for size in range(2, length.bit_length()) for near in (2**size - 1, 2**size, 2**size + 1)}
    spread = {round(index * (length - 1) / 7) for index in range(1, 8)}
    chosen = sorted(position for position in blocks | spread | {length - 2} if 0 < position < length)
    return chosen if length <= _LONG else chosen[-8:]


def exhaustive_next_event(checked: CheckedDecoder, material: Material, laid: Laid, seen: Change) -> None:
    """Put every possible event at every position in turn, and compare all earlier logits bit by bit.

    Both calls have one shape, so that rounding cannot differ: each variant is compared with the same line of a batch
    of unchanged copies.
    """
    events, valid = laid.tensors(material.padding, checked.device)
    changes = list(_changes(material, laid.row, cuts(len(laid.row))))
    at_once = max(1, min(_MOST_POSITIONS, _MOST_LOGITS // material.vocabulary) // len(events))
    for begin in range(0, len(changes), at_once):
        part = changes[begin : begin + at_once]
        base, masks = events.repeat(len(part), 1), valid.repeat(len(part), 1)
        variants, columns = _varied(base, part, laid.left)
        found = moved(checked.full(base, masks), checked.full(variants, masks))
        earlier = masks & (torch.arange(len(events), device=checked.device) < columns[:, None])
        seen.note("full", found, earlier, _rows(laid.row, part), -laid.left)


def later_in_one_append(checked: CheckedDecoder, material: Material, row: Row, prompt: int, seen: Change) -> None:
    """Append the rest of `row` at once after `prompt` events: as it is, and with every event at each later place."""
    if len(row) < prompt + 2:
        return
    changes = list(_changes(material, row, range(prompt + 1, len(row))))
    base, _ = checked.stack([row] * len(changes))
    valid = torch.ones_like(base, dtype=torch.bool)
    variants, columns = _varied(base, changes, 0)
    left, right = (_appended(checked, events, valid, prompt) for events in (base, variants))
    earlier = torch.arange(prompt, len(row), device=checked.device) < columns[:, None]
    seen.note("extend", moved(left, right), earlier, _rows(row, changes), prompt)


def truncation(checked: CheckedDecoder, rows: Sequence[Row], seen: Change) -> float:
    """Every beginning of `rows`, read alone, against the whole rows; no row is padded. Gives the largest |logit|."""
    whole = checked.whole(rows)  # [B, T, V]
    for length in range(1, max(len(row) for row in rows)):
        longer = [index for index, row in enumerate(rows) if len(row) > length]
        # Rows that begin alike share one reading of their beginning.
        place = {row: index for index, row in enumerate(sorted({rows[index][:length] for index in longer}))}
        alone = checked.full(*checked.stack(list(place)))[[place[rows[index][:length]] for index in longer]]
        _note_all(seen, alone, whole[longer, :length], [rows[index] for index in longer])
    # An infinite logit makes changes look small beside it; "not finite logits" refuses such a decoder by itself.
    return float(torch.nan_to_num(whole).abs().max())


def truncation_at_cuts(checked: CheckedDecoder, row: Row, seen: Change) -> None:
    """Some beginnings of a long row, each read alone, against the whole row."""
    whole = checked.full(*checked.stack([row]))
    for cut in cuts(len(row)):
        _note_all(seen, checked.full(*checked.stack([row[:cut]])), whole[:, :cut], [row])


def wider_batch(checked: CheckedDecoder, material: Material, row: Row, seen: Change) -> None:
    """A row alone against itself in wider batches: how many positions stand beside it must not be felt."""
    alone = checked.full(*checked.stack([row]))
    for width in (len(row) + 1, len(row) + 4, 16, 64):
        spare = min(width, material.context) - len(row)
        for left in sorted({0, spare // 2, spare}) if spare > 0 else ():
            events, valid = Laid(row, left, spare - left).tensors(material.padding, checked.device)
            _note_all(seen, checked.full(events[None], valid[None])[:, left : left + len(row)], alone, [row])


def _every_event_fits(material: Material, row: Row, positions: Sequence[int]) -> bool:
    """Whether every event is put at each of the positions; otherwise three are, as all would be very many."""
    return len(positions) * len(material.alphabet) * len(row) <= _EVERY_EVENT_WITHIN


def _changes(material: Material, row: Row, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(position, another event): every other event, or three where that would be very many; last, an early end."""
    affordable = _every_event_fits(material, row, positions)
    chance = material.random(f"changes {row}")
    for position in positions:
        others = [event for event in material.alphabet if event != row[position]]
        chosen = others if affordable else chance.sample(others, min(len(others), 3))
        yield from ((position, event) for event in chosen)
    yield len(row) - 1, material.end


def _varied(base: Tensor, changes: Sequence[tuple[int, int]], left: int) -> tuple[Tensor, Tensor]:
    """`base` [N, T] with change n made in line n, and the columns [N] where."""
    columns = torch.tensor([position for position, _ in changes], device=base.device) + left
    variants = base.clone()
    new = torch.tensor([event for _, event in changes], device=base.device)
    variants[torch.arange(len(changes), device=base.device), columns] = new
    return variants, columns


def _rows(row: Row, changes: Sequence[tuple[int, int]]) -> list[Row]:
    return [(*row[:position], event, *row[position + 1 :]) for position, event in changes]


def _appended(checked: CheckedDecoder, events: Tensor, valid: Tensor, prompt: int) -> Tensor:
    _, cache = checked.prefill(events[:, :prompt], valid[:, :prompt])
    return checked.extend(events[:, prompt:], valid[:, prompt:], cache)[0]


def _note_all(seen: Change, left: Tensor, right: Tensor, rows: Sequence[Row]) -> None:
    found = moved(left, right)
    seen.note("full", found, torch.ones_like(found.differ, dtype=torch.bool), rows)
