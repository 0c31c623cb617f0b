"""Makes a counterexample as small as it gets while it still fails: fewest rows first, then the shortest prefix.

Greedy delta debugging (Zeller and Hildebrandt, 2002) over rows, calls, columns, padding, parents and events. Then all
plain patterns of fewer places are tried, so that a detour of the greedy way does not hide a smaller case. Everything is
in a fixed order: the same case shrinks to the same case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from auditlib.audits.counterexample import Case, Side, alone, history
from auditlib.audits.counterexample_replay import replay
from auditlib.audits.shrink_moves import Plain, moves
from auditlib.audits.shrink_small import small_sides
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CancelledError

Cost = tuple[int, ...]


class Shrinker:
    """Shrinks cases on one decoder, with at most `replays` trials and `seconds` for each case.

    The number of trials is what usually ends a long search, as it is the same on every machine. `finished` says
    whether the last case was shrunk to the end.
    """

    def __init__(
        self, decoder: Decoder, plain: Plain, *, seconds: float = 10.0, replays: int = 5000, device: str = "cpu",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._decoder, self._plain, self._device = decoder, plain, device
        self._seconds, self._replays, self._clock = seconds, replays, clock
        self._until, self._left = 0.0, 0
        self.finished = True

    def shrink(self, case: Case) -> Case:
        """A case that fails and from which nothing can be left out, or the smallest one when time is up."""
        self._until, self._left = self._clock() + self._seconds, self._replays
        smallest = self._smallest(case)
        self.finished = not self._late()
        return smallest

    def _smallest(self, case: Case) -> Case:
        smallest = self._greedy(case)
        if self._compares_alone(smallest):
            for side in small_sides(smallest.asked, self._plain):
                if self._late():
                    break
                if cost(side, self._plain) < cost(smallest.asked, self._plain):
                    found = self._failing(smallest, side, None)
                    if found is not None:
                        return self._greedy(found)
        return smallest

    def _greedy(self, case: Case) -> Case:
        while True:
            smaller = next(self._smaller(case), None)
            if smaller is None:
                return case
            case = smaller

    def _smaller(self, case: Case) -> Iterator[Case]:
        """Cases that still fail and cost less."""
        derived, now = self._compares_alone(case), cost(case.asked, self._plain)
        for move in moves(case.asked, self._plain):
            if self._late():
                return
            side = move(case.asked)
            if side is None or not cost(side, self._plain) <= now or side == case.asked:
                continue
            against = None if derived or case.against is None else move(case.against)
            if cost(side, self._plain) == now and not _gains(case, against, self._plain):
                continue
            found = self._failing(case, side, against)
            if found is not None:
                yield found

    def _failing(self, case: Case, side: Side, against: Side | None) -> Case | None:
        """The case over other sides, when it fails too; `against` None stands for the row alone where one is due."""
        if any(row[0] != self._plain.start for row in history(side.steps)):
            return None  # shorter by the start token, but no prefix of a session
        if case.expect == "same":
            if not side.steps[-1].valid[side.row][side.column]:
                return None
            against = alone(side) if against is None else against
            if against.prefix() != side.prefix():
                return None
        self._left -= 1
        candidate = replace(case, asked=side, against=against if case.expect == "same" else None)
        try:
            candidate = replace(candidate, gap=replay(candidate, self._decoder, self._device))
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a call that the decoder refuses shows nothing
            return None
        return candidate if candidate.fails else None

    def _compares_alone(self, case: Case) -> bool:
        return case.against is not None and case.against == alone(case.asked)

    def _late(self) -> bool:
        return self._left <= 0 or self._clock() > self._until


def cost(side: Side, plain: Plain) -> Cost:
    """What shrinking lowers, the weightiest first.

    Rows; places (an event and a place of padding cost the same, so that padding never pays for a shorter prefix);
    padding; all rows of all calls; calls; events of the last call; parents away from their place; events that are not
    the simplest.
    """
    parents = [abs(parent - row) for step in side.steps for row, parent in enumerate(step.parents)]
    odd = sum(
        plain.oddity(event, keep)
        for step in side.steps
        for line, valid in zip(step.events, step.valid, strict=True)
        for event, keep in zip(line, valid, strict=True)
    )
    rows = sum(step.rows for step in side.steps)
    reorders = sum(step.verb == "reorder" for step in side.steps)
    return (
        side.rows, side.places, side.padding, reorders, rows, len(side.steps), side.steps[-1].places, sum(parents), odd,
    )  # fmt: skip


def _gains(case: Case, against: Side | None, plain: Plain) -> bool:
    """Whether the other side got simpler where the asked one costs the same."""
    return against is not None and case.against is not None and cost(against, plain) < cost(case.against, plain)
