"""Requests for more events than the context holds: the right answer is a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.held_out import Material, Row


def accepted_beyond(checked: CheckedDecoder, rows: Material) -> tuple[list[str], int]:
    """The requests beyond the context that were served, in words, and how many were made."""
    requests = _requests(checked, rows)
    return [words for words, request in requests if refusal(request) is None], len(requests)


def _requests(checked: CheckedDecoder, material: Material) -> list[tuple[str, Callable[[], object]]]:
    context = material.context
    full = material.rows(1, context, "beyond")[0]
    over: Row = (*full, material.alphabet[0])

    def append(prompt: int) -> object:
        """The rest of `over` in one append after a prompt."""
        events, valid = checked.stack([over])
        _, cache = checked.prefill(events[:, :prompt], valid[:, :prompt])
        return checked.extend(events[:, prompt:], valid[:, prompt:], cache)

    def one_of_two(place: int) -> object:
        """One event more for two rows, of which that at `place` is full and the other still has room."""
        events, valid = checked.stack([full, full])
        # A bound that is checked over the batch, or by one row, shows only beside a row that has room.
        valid[1 - place, 1:] = False
        _, cache = checked.prefill(events, valid)
        return checked.extend(events[:, :1], valid[:, :1], cache)

    def moved() -> object:
        """One event more for two rows that have changed places, of which the second is now the full one."""
        events, valid = checked.stack([full, full])
        valid[1, 1:] = False
        cache = checked.reorder(checked.prefill(events, valid)[1], (1, 0))
        return checked.extend(events[:, :1], valid[:, :1], cache)

    def after_idling() -> object:
        """One event for a full row that has just stood idle while another went on."""
        events, valid = checked.stack([full, full])
        valid[1, 1:] = False
        _, cache = checked.prefill(events, valid)
        idle = valid[:, :1].clone()
        idle[0] = False
        _, cache = checked.extend(events[:, :1], idle, cache)
        return checked.extend(events[:, :1], valid[:, :1], cache)

    def behind_a_short_one(verb: Callable[[Tensor, Tensor], object]) -> object:
        """A row that is too long, behind one that is not."""
        events, valid = checked.stack([over, over])
        valid[0, 1:] = False
        return verb(events, valid)

    whole = checked.stack([over])
    requests: list[tuple[str, Callable[[], object]]] = [
        (f"full path, {context + 1} events", lambda: checked.full(*whole)),
        (f"prefill of {context + 1} events", lambda: checked.prefill(*whole)),
        (f"one event onto a cache of {context}", lambda: append(context)),
    ]
    if context > 1:
        requests.append((f"two events onto a cache of {context - 1}", lambda: append(context - 1)))
        for place, where in ((0, "beside"), (1, "behind")):
            request = partial(one_of_two, place)
            requests.append((f"one event for a full row {where} a short one", request))
        requests.append(("one event for a full row that changed places", moved))
        requests.append(("one event for a full row that stood idle", after_idling))
        for name, verb in (("full path", checked.full), ("prefill", checked.prefill)):
            request = partial(behind_a_short_one, verb)
            requests.append((f"{name}, {context + 1} events behind a short row", request))
    return requests
