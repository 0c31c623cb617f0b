"""Watches a decoder at work, remembers which calls led to each cache, and stops at the first answer that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.counterexample import Case, Expect, Flags, Ids, Side, Step, alone, history, last_valid
from auditlib.audits.gaps import gap
from auditlib.decoders.protocol import Decoder

Row = tuple[int, ...]


class FoundError(Exception):
    """Carries the first failing case out of whatever probe was running."""

    def __init__(self, case: Case) -> None:
        super().__init__("a failing answer")
        self.case = case


@dataclass(frozen=True, slots=True)
class SpyCache:
    """A cache with the calls that made it."""

    inner: Any
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Sought:
    """What a case is sought for: its names, and what counts as failing.

    `relative` limits are multiplied with the largest |logit| of the reference at hand, at least 1.
    """

    audit: str
    check: str
    revision: str
    dtype: str
    expect: Expect
    limit: float
    relative: bool = False


class Spy:
    """Contract 1 passed through; raises FoundError at the first answer that differs from the row alone.

    With `expect` "finite" it is the first answer that is not finite, at padding too.
    """

    def __init__(self, decoder: Decoder, sought: Sought, device: str) -> None:
        self.revision = decoder.revision
        self.vocabulary_size = decoder.vocabulary_size
        self.context_length = decoder.context_length
        self._decoder, self._sought, self._device = decoder, sought, device
        self._alone: dict[Row, Tensor] = {}

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V], compared at every valid place."""
        logits = self._decoder.full(events, valid)
        self._check((_step("full", events, valid),), logits)
        return logits

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, SpyCache]:
        """Logits [B, V], compared for each row, and the cache."""
        logits, cache = self._decoder.prefill(events, valid)
        steps = (_step("prefill", events, valid),)
        self._check(steps, logits)
        return logits, SpyCache(cache, steps)

    def extend(self, events: Tensor, valid: Tensor, cache: SpyCache) -> tuple[Tensor, SpyCache]:
        """Logits [B, K, V], compared at every valid place, and the new cache."""
        logits, inner = self._decoder.extend(events, valid, cache.inner)
        steps = (*cache.steps, _step("extend", events, valid))
        self._check(steps, logits)
        return logits, SpyCache(inner, steps)

    def reorder(self, cache: SpyCache, parents: Tensor) -> SpyCache:
        """The reordered cache."""
        inner = self._decoder.reorder(cache.inner, parents)
        return SpyCache(inner, (*cache.steps, Step("reorder", parents=tuple(parents.tolist()))))

    def cache_bytes(self, cache: SpyCache) -> int:
        """Bytes of the cache."""
        return self._decoder.cache_bytes(cache.inner)

    def _check(self, steps: tuple[Step, ...], logits: Tensor) -> None:
        if self._sought.expect == "finite":
            self._check_finite(steps, logits)
            return
        last = steps[-1]
        begun = history(steps[:-1]) or [()] * last.rows
        for row, (events, valid) in enumerate(zip(last.events, last.valid, strict=True)):
            columns = [column for column, keep in enumerate(valid) if keep]
            if columns:
                whole = begun[row] + tuple(events[column] for column in columns)
                asked = logits[row][None] if last.verb == "prefill" else logits[row][columns]
                self._compare(steps, row, columns[-len(asked) :], asked, self._reference(whole)[-len(asked) :])

    def _compare(self, steps: tuple[Step, ...], row: int, columns: list[int], asked: Tensor, wanted: Tensor) -> None:
        limit = self._sought.limit
        if self._sought.relative:
            limit *= max(1.0, float(torch.nan_to_num(wanted).abs().max()))
        for column, apart in zip(columns, gap(asked, wanted).tolist(), strict=True):
            if not apart <= limit:
                side = Side(steps, row, column)
                raise FoundError(self._case(side, alone(side), apart, limit))

    def _check_finite(self, steps: tuple[Step, ...], logits: Tensor) -> None:
        wrong = (~torch.isfinite(logits)).any(-1).nonzero()
        if len(wrong):
            row, *column = wrong[0].tolist()
            side = Side(steps, row, column[0] if column else last_valid(steps[-1].valid[row]))
            raise FoundError(self._case(side, None, float("inf"), 0.0))

    def _case(self, side: Side, against: Side | None, apart: float, limit: float) -> Case:
        names = (self._sought.audit, self._sought.check, self._sought.revision, self._sought.dtype)
        return Case(*names, self._sought.expect, side, against, apart, limit)

    def _reference(self, row: Row) -> Tensor:
        """Logits [T, V] of the row alone, read once however often it is asked for."""
        if row not in self._alone:
            events = torch.tensor([row], dtype=torch.int64, device=self._device)
            self._alone[row] = self._decoder.full(events, torch.ones_like(events, dtype=torch.bool))[0]
        return self._alone[row]


def first_found(work: Callable[[], object]) -> Case | None:
    """The case that `work` stops at, None when it ends without one."""
    try:
        work()
    except FoundError as found:
        return found.case
    return None


def _step(verb: str, events: Tensor, valid: Tensor) -> Step:
    ids: Ids = tuple(map(tuple, events.tolist()))
    flags: Flags = tuple(map(tuple, valid.tolist()))
    return Step(verb, ids, flags)  # type: ignore[arg-type]
