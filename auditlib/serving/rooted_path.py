"""Cached logits for rows that join and leave at any step, by contract 1 alone.

The contract knows no way to put two caches side by side. So one batch is kept, and in it, behind the live rows, a root
row that has read the start token only: whoever joins is a reorder from the root, then its own events in the same call
in which the others advance by theirs. Rows at prefixes that were read before stay behind the live ones too, each for
the session that it was read for; a request that continues that session starts from there instead of from the root.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.decoders.capabilities import Reserving
from auditlib.decoding.cache_guard import GuardedCache, GuardedDecoder
from auditlib.decoding.paths import Row, Rows, tensors
from auditlib.errors import CacheRejectedError, DecoderError
from auditlib.serving.holding import Holding


@dataclass(frozen=True, slots=True)
class Resident:
    """A prefix that stays in the batch for the session it was read for, with the logits [V] after it."""

    session: str
    row: Row
    logits: Tensor


@dataclass(slots=True)
class Uses:
    """What the kept prefixes were good for: events that were read, and those that a resident row had read before."""

    joined: int = 0
    continued: int = 0
    events_read: int = 0
    events_spared: int = 0


class RootedPath:
    """A LogitPath over one guarded cache: live rows first, then residents, then the root.

    With `fixed` rows the batch always has that many, idle ones standing at the root, and each has all its slots set
    aside: the cache then never changes its size. CacheRejectedError comes out of every call whose cache is not for
    exactly the rows that this path answers for.
    """

    def __init__(
        self,
        guard: GuardedDecoder,
        start: int,
        padding: int,
        device: str,
        *,
        residents: int = 0,
        fixed: int | None = None,
        reserve: int = 0,
    ) -> None:
        """Nothing is read before the first row joins. `reserve` slots a row are set aside where the size is fixed."""
        self._guard, self._padding, self._device = guard, padding, device
        self._root: Row = (start,)
        self._most_residents, self._fixed, self._reserve = residents, fixed, reserve
        self._sessions: dict[Row, deque[str]] = {}
        self._cache: GuardedCache | None = None
        self._root_logits = torch.empty(0)
        self._rows: list[Row] = []  # of every row of the cache, in order
        self._live = 0
        self._fresh: list[tuple[int, Resident]] = []  # live rows that stand at a prefix worth keeping
        self._kept: list[Resident] = []  # the least recently used first
        self.holding = Holding(guard.decoder)
        self.uses = Uses()

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values that are held now."""
        return 0 if self._cache is None else self._guard.cache_bytes(self._cache)

    def announce(self, requests: Sequence[tuple[Row, str]]) -> None:
        """Say which session each prefix that is about to join belongs to; one that is not announced is not kept."""
        for row, session in requests:
            self._sessions.setdefault(row, deque()).append(session)

    def join(self, prefixes: Rows, copies: int) -> Tensor:
        """See LogitPath."""
        if self._cache is None:
            self._open()
        first = self._live
        return self._continued(list(range(first)), [()] * first, prefixes, copies)[first:]

    def append(self, parents: Tensor, events: Tensor) -> Tensor:
        """See LogitPath."""
        return self.append_joining(parents, events, (), 1)

    def append_joining(self, parents: Tensor, events: Tensor, prefixes: Rows, copies: int) -> Tensor:
        """See JoiningPath."""
        return self._continued(parents.tolist(), [(event,) for event in events.tolist()], prefixes, copies)

    def _continued(self, live: list[int], advance: list[Row], prefixes: Rows, copies: int) -> Tensor:
        """Logits [M + P·copies, V]: rows `live`, each by the events in `advance`, and the prefixes that join them."""
        new = [(prefix, self._session_of(prefix)) for prefix in prefixes]
        self._sessions = {}
        origins = [self._origin(prefix, session) for prefix, session in new]
        known = [None if origin is None else self._kept[origin] for origin in origins]
        places = [self._place(origin) for origin in origins for _ in range(copies)]
        rest = [prefix[len(self._root if r is None else r.row) :] for (prefix, _), r in zip(new, known, strict=True)]
        first = len(live)
        self._arrange([*live, *places])
        read = self._append([*advance, *(events for events in rest for _ in range(copies))])
        if not new:
            return read[:first]
        logits = torch.stack(
            [
                read[first + number * copies] if events else self._root_logits if one is None else one.logits
                for number, (one, events) in enumerate(zip(known, rest, strict=True))
            ]
        )
        self._note(new, known, rest, logits, first, copies)
        return torch.cat([read[:first].to(logits), logits.repeat_interleave(copies, 0)])

    def clear(self) -> None:
        """See LogitPath."""
        self._arrange([])

    def _session_of(self, prefix: Row) -> str | None:
        waiting = self._sessions.get(prefix)
        return waiting.popleft() if waiting else None

    def _origin(self, prefix: Row, session: str | None) -> int | None:
        """Number of the resident that has read most of a prefix, of the same session; None for the root."""
        lengths = {
            number: len(resident.row)
            for number, resident in enumerate(self._kept)
            if resident.session == session and prefix[: len(resident.row)] == resident.row
        }
        return max(lengths, key=lengths.__getitem__) if lengths else None

    def _place(self, origin: int | None) -> int:
        """Where in the cache a new row starts from."""
        return self._live + len(self._kept) if origin is None else self._live + origin

    def _note(
        self,
        new: Sequence[tuple[Row, str | None]],
        known: Sequence[Resident | None],
        rest: Sequence[Row],
        logits: Tensor,
        first: int,
        copies: int,
    ) -> None:
        """Count what was spared, and mark the rows that joined as worth keeping: they stand at their prefixes now."""
        for number, ((prefix, session), resident, events) in enumerate(zip(new, known, rest, strict=True)):
            self.uses.joined += 1
            self.uses.continued += resident is not None
            self.uses.events_read += len(events)
            self.uses.events_spared += len(prefix) - 1 - len(events)
            if session is not None and self._most_residents:
                self._fresh.append((first + number * copies, Resident(session, prefix, logits[number].clone())))

    # -- the one cache -----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Read the root, once, alone."""
        events, valid = tensors([self._root], self._padding, self._device)
        logits, cache = self._guard.prefill(events, valid)
        self._root_logits = logits[0].cpu()
        self._cache, self._rows, self._live, self._kept, self._fresh = cache, [self._root], 0, [], []
        if self._fixed is not None:
            self._cache = self._reserved(cache)

    def _reserved(self, cache: GuardedCache) -> GuardedCache:
        decoder = self._guard.decoder
        if not isinstance(decoder, Reserving):
            raise DecoderError("this decoder cannot set slots aside; serve it with strategy 'cached'")
        return GuardedCache(decoder.reserve(cache.inner, self._reserve), cache.identity)

    def _arrange(self, live: list[int]) -> None:
        """Let the cache's first rows continue rows `live`, keep what is worth it behind them, and the root last."""
        if self._cache is None:
            return
        kept, places = self._keep(len(live))
        root = len(self._rows) - 1
        wanted = [*live, *places, root]
        if self._fixed is not None:
            wanted += [root] * (self._fixed - len(wanted))
        if wanted != list(range(len(self._rows))):
            cache = self._required()
            moved = self._guard.reorder(cache, torch.tensor(wanted, dtype=torch.int64, device=self._device))
            self.holding.saw(self.holding.of(cache.inner).beside(self.holding.of(moved.inner)))
            self._cache, self._rows = moved, [self._rows[row] for row in wanted]
        self._live, self._kept, self._fresh = len(live), kept, []

    def _keep(self, live: int) -> tuple[list[Resident], list[int]]:
        """Residents after this rearrangement, and the rows of the cache where they stand now."""
        standing = {one.session: (one, self._live + number) for number, one in enumerate(self._kept)}
        for row, resident in self._fresh:
            standing.pop(resident.session, None)  # its newest prefix takes the place of an older one, at the end
            standing[resident.session] = (resident, row)
        most = self._most_residents
        if self._fixed is not None:
            most = max(0, min(most, self._fixed - live - 1))
        chosen = list(standing.values())[max(0, len(standing) - most) :] if most else []
        return [resident for resident, _ in chosen], [row for _, row in chosen]

    def _append(self, new: Sequence[Row]) -> Tensor:
        """Logits [B, V] after each row's new events, on the CPU; rows beyond `new`, and empty ones, do not advance."""
        rows = [*new, *[()] * (len(self._rows) - len(new))]
        sizes = [len(row) for row in rows]
        width = max(sizes, default=0)
        if not width:
            # Nobody advances: a call without an event would only spend the cache.
            return torch.zeros(len(rows), self._guard.vocabulary_size)
        padding = (self._padding,) * width
        events = torch.tensor([row + padding[len(row) :] for row in rows])
        lengths = torch.tensor(sizes)
        valid = torch.arange(width) < lengths[:, None]
        cache = self._required()
        before = self.holding.of(cache.inner)
        logits, self._cache = self._guard.extend(events.to(self._device), valid.to(self._device), cache)
        after = self.holding.of(self._cache.inner)
        # A cache that grew was copied: for a moment both were there.
        self.holding.saw(after if after.allocated == before.allocated else before.beside(after))
        self._rows = [(*old, *row) for old, row in zip(self._rows, rows, strict=True)]
        return logits[torch.arange(len(rows)), (lengths - 1).clamp(min=0)].cpu()

    def _required(self) -> GuardedCache:
        """The cache, after it was found to be for exactly these rows under the decoder as it is."""
        if self._cache is None:
            raise CacheRejectedError("kind", "there is no cache; prefill the request anew")
        return self._guard.require(self._cache, self._guard.identity_of(tuple(self._rows)))
