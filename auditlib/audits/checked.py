"""A decoder as audits call it: without gradients, with every answer's shape checked and every logit counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.held_out import Row
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CancelledError, DecoderError

_MOST_REMEMBERED = 1 << 25
# An event so many logits below the likeliest has a probability below 4e-44: no sample and no beam ever holds it.
_NEVER = 100.0


class CheckedDecoder:
    """The verbs of contract 1, refusing answers of a wrong shape with a DecoderError that names verb and shapes.

    `logits` counts every logit that was given, `not_finite` those that are NaN or infinite, also at padding: a NaN
    there spreads as soon as somebody multiplies it by zero. Logits of events that never come are raised to a hundred,
    or to the largest's own size, below the likeliest. `watch` is called before every call and may raise to stop.
    """

    def __init__(self, decoder: Decoder, device: str, watch: Callable[[], None], *, as_given: bool = False) -> None:
        """`as_given` leaves every logit as it is, for sums that such events have a part in."""
        self.decoder = decoder
        self._as_given = as_given
        self.device = device
        self.logits = 0
        self.not_finite = 0
        self._watch = watch

    @torch.no_grad()
    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of the full path."""
        self._watch()
        given = (events.clone(), valid.clone())
        logits = self._counted("full", self.decoder.full(events, valid), given[0].shape)
        _require_untouched("full", (events, valid), given)
        return logits

    @torch.no_grad()
    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V] after each row's last valid event, and the cache."""
        self._watch()
        given = (events.clone(), valid.clone())
        logits, cache = self.decoder.prefill(events, valid)
        _require_untouched("prefill", (events, valid), given)
        return self._counted("prefill", logits, given[0].shape[:1]), cache

    @torch.no_grad()
    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] of the new events, and the new cache."""
        self._watch()
        given = (events.clone(), valid.clone())
        logits, cache = self.decoder.extend(events, valid, cache)
        _require_untouched("extend", (events, valid), given)
        return self._counted("extend", logits, given[0].shape), cache

    @torch.no_grad()
    def reorder(self, cache: Any, parents: Sequence[int]) -> Any:
        """Cache whose row i continues old row `parents[i]`."""
        self._watch()
        asked = torch.tensor(parents, dtype=torch.int64, device=self.device)
        given = asked.clone()
        moved = self.decoder.reorder(cache, asked)
        _require_untouched("reorder", (asked,), (given,))
        return moved

    def stack(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Events and valid [B, T] of rows of one length."""
        events = torch.tensor(rows, dtype=torch.int64, device=self.device)
        return events, torch.ones_like(events, dtype=torch.bool)

    def whole(self, rows: Sequence[Row]) -> Tensor:
        """Logits [B, T, V] of the full path on rows of any lengths, none of them padded: equal lengths go together.

        Zero beyond a row's length.
        """
        logits: Tensor | None = None
        for length in sorted({len(row) for row in rows}):
            places = [place for place, row in enumerate(rows) if len(row) == length]
            found = self.full(*self.stack([rows[place] for place in places]))
            if logits is None:
                longest = max(len(row) for row in rows)
                logits = found.new_zeros(len(rows), longest, found.shape[-1])
            logits[places, :length] = found
        if logits is None:
            raise DecoderError("no rows to read")
        return logits

    def _counted(self, verb: str, logits: Tensor, wanted: Sequence[int]) -> Tensor:
        shape = (*wanted, self.decoder.vocabulary_size)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != shape or not logits.is_floating_point():
            given = f"{logits.dtype} {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise DecoderError(f"{verb} gave {given} where floating point logits {list(shape)} are due by contract 1")
        self.logits += logits.numel()
        self.not_finite += int((~torch.isfinite(logits)).sum())
        return logits if self._as_given else _raised(logits)


def _raised(logits: Tensor) -> Tensor:
    """Logits with what lies further below a position's largest raised to that distance; what is no number stays.

    Many decoders forbid ids with a constant such as -1e9. Rounding is relative to the largest number at hand, so that
    beside it no other gap would count as one, and none of its own digits decides anything.
    """
    least = torch.finfo(logits.dtype).min
    largest = logits.nan_to_num(least, least, least).amax(-1, keepdim=True)
    # Where all logits are huge a hundred is none of their digits: only what is small beside them may be lost.
    floor = largest - largest.abs().clamp(min=_NEVER)
    low = logits < floor
    # A copy only where there must be one: answers that the decoder later overwrites are to be seen changing.
    return torch.where(low, floor, logits) if bool(low.any()) else logits


def _require_untouched(verb: str, now: tuple[Tensor, ...], given: tuple[Tensor, ...]) -> None:
    """Raise DecoderError when a decoder wrote into what it was given: whatever is compared afterwards means nothing."""
    if not all(torch.equal(left, right) for left, right in zip(now, given, strict=True)):
        what = "parents" if verb == "reorder" else "events or the validity"
        raise DecoderError(f"{verb} changed the {what} that it was given, which are its caller's")


class Alone:
    """Full-path logits [T, V] of single rows, without padding: the reference.

    Each row is read in a batch of its own, unless `ready` was asked to read many of one length at once. What was read
    is remembered within bounds, and read again beyond them.
    """

    def __init__(self, checked: CheckedDecoder) -> None:
        self._checked = checked
        self._known: dict[Row, Tensor] = {}
        self._numbers = 0

    def __call__(self, row: Row) -> Tensor:
        """Logits [T, V] of `row`."""
        if row not in self._known:
            self._remember(row, self._checked.full(*self._checked.stack([row]))[0])
        return self._known[row]

    def ready(self, rows: Sequence[Row]) -> None:
        """Read rows that will be asked for, those of one length together.

        For rows whose company is not in question: other probes compare it with rows that are truly alone.
        """
        unknown = [row for row in dict.fromkeys(rows) if row not in self._known]
        if unknown:
            for row, logits in zip(unknown, self._checked.whole(unknown), strict=True):
                # Cloned: a view would keep the whole batch in memory and make the bound mean nothing.
                self._remember(row, logits[: len(row)].clone())

    def _remember(self, row: Row, logits: Tensor) -> None:
        if self._numbers + logits.numel() > _MOST_REMEMBERED:
            # All at once: what is remembered decides how long an audit takes, never what it finds.
            self._known.clear()
            self._numbers = 0
        self._known[row] = logits
        self._numbers += logits.numel()


def refusal(call: Callable[[], object]) -> str | None:
    """Why a decoder refuses a call, None when it serves it. Any exception is a refusal, except a wish to stop.

    Leaving the process is none of a decoder's business: it is refused like any other exception.
    """
    try:
        call()
    except CancelledError:
        raise
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # a stranger's decoder may refuse in any way
        return f"{type(problem).__name__}: {problem}"
    return None
