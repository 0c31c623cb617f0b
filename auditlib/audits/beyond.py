"""Requests for more events than the context holds: the right answer is a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor

from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.held_out import Material, Row

Request = Callable[[], object]


def accepted_beyond(checked: CheckedDecoder, rows: Material) -> tuple[list[str], int]:
    """The requests beyond the context that were served, in words, and how many were made."""
    asked = _Beyond(checked, rows)
    requests = [*asked.of_one_row(), *(asked.of_two_rows() if rows.context > 1 else ())]
    return [words for words, request in requests if refusal(request) is None], len(requests)


class _Beyond:
    """Requests by one row, and by two of which one has room: there shows a bound that is asked of another row."""

    def __init__(self, checked: CheckedDecoder, material: Material) -> None:
        self._checked, self._context = checked, material.context
        self._full = material.rows(1, material.context, "beyond")[0]
        self._over: Row = (*self._full, material.alphabet[0])

    def of_one_row(self) -> Iterator[tuple[str, Request]]:
        """A row that is too long at once, or becomes so by an append."""
        whole, context = self._checked.stack([self._over]), self._context
        yield f"full path, {context + 1} events", lambda: self._checked.full(*whole)
        yield f"prefill of {context + 1} events", lambda: self._checked.prefill(*whole)
        yield f"one event onto a cache of {context}", partial(self._append, context)
        if context > 1:
            yield f"two events onto a cache of {context - 1}", partial(self._append, context - 1)

    def of_two_rows(self) -> Iterator[tuple[str, Request]]:
        """A full row and a short one, in either order, after a move and after an idle call."""
        for place, where in ((0, "beside"), (1, "behind")):
            yield f"one event for a full row {where} a short one", partial(self._one_of_two, place)
        yield "one event for a full row that changed places", self._moved
        yield "one event for a full row that stood idle", self._after_idling
        for name, verb in (("full path", self._checked.full), ("prefill", self._checked.prefill)):
            yield f"{name}, {self._context + 1} events behind a short row", partial(self._behind_a_short_one, verb)

    def _append(self, prompt: int) -> object:
        """The rest of a row that is too long, in one append after a prompt."""
        events, valid = self._checked.stack([self._over])
        _, cache = self._checked.prefill(events[:, :prompt], valid[:, :prompt])
        return self._checked.extend(events[:, prompt:], valid[:, prompt:], cache)

    def _two(self, full: int) -> tuple[Tensor, Tensor]:
        """A full row at the place `full`, and one of a single event."""
        events, valid = self._checked.stack([self._full, self._full])
        valid[1 - full, 1:] = False
        return events, valid

    def _one_of_two(self, place: int) -> object:
        events, valid = self._two(place)
        _, cache = self._checked.prefill(events, valid)
        return self._checked.extend(events[:, :1], valid[:, :1], cache)

    def _moved(self) -> object:
        events, valid = self._two(0)
        cache = self._checked.reorder(self._checked.prefill(events, valid)[1], (1, 0))
        return self._checked.extend(events[:, :1], valid[:, :1], cache)

    def _after_idling(self) -> object:
        events, valid = self._two(0)
        _, cache = self._checked.prefill(events, valid)
        idle = valid[:, :1].clone()
        idle[0] = False
        _, cache = self._checked.extend(events[:, :1], idle, cache)
        return self._checked.extend(events[:, :1], valid[:, :1], cache)

    def _behind_a_short_one(self, verb: Callable[[Tensor, Tensor], object]) -> object:
        events, valid = self._checked.stack([self._over, self._over])
        valid[0, 1:] = False
        return verb(events, valid)
