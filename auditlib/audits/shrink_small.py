"""All plain patterns of calls with few places: one row in every chunking and padding, two rows in every order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from auditlib.audits.counterexample import Flags, Ids, Side, Step, Verb, last_valid
from auditlib.audits.shrink_moves import Plain

_MOST_PLACES_ALONE, _MOST_PLACES_OF_TWO = 4, 3
_ORDERS: tuple[tuple[int, ...], ...] = ((), (1,), (1, 0), (0, 0), (0,))


def small_sides(side: Side, plain: Plain) -> Iterator[Side]:
    """Sides with few places, small ones first, over the events that `side` reads and the simplest one."""
    read = {event for step in side.steps for line in step.events for event in line}
    events = [*plain.events[:1], *sorted(read - {*plain.events[:1], plain.padding, plain.start})][:2]
    full = side.steps[0].verb == "full"
    for places in range(1, _MOST_PLACES_ALONE + 1):
        yield from _one_row(places, plain, events, full)
    if side.rows > 1:
        for places in range(2, _MOST_PLACES_OF_TWO + 1):
            yield from _two_rows(places, plain, events, full)


def _chunkings(places: int, full: bool) -> Iterator[tuple[int, ...]]:
    """Every way to read `places` columns in calls of at least one, the fewest calls first; the full path has one."""
    if full:
        yield (places,)
        return
    for bits in sorted(product((0, 1), repeat=places - 1), key=lambda cuts: (sum(cuts), cuts)):
        cuts = [0, *(place for place, cut in enumerate(bits, start=1) if cut), places]
        yield tuple(b - a for a, b in pairwise(cuts))


def _one_row(places: int, plain: Plain, events: list[int], full: bool) -> Iterator[Side]:
    for padding in sorted(product((True, False), repeat=places), key=lambda line: (line.count(False), line)):
        for sizes in _chunkings(places, full):
            yield from _Layout((padding,), sizes, (), full).sides(plain, events)
            if not all(padding):  # validity that is guessed from the padding id fails where other ids stand
                yield from _Layout((padding,), sizes, (), full).sides(replace(plain, padding=events[0]), events)


def _two_rows(places: int, plain: Plain, events: list[int], full: bool) -> Iterator[Side]:
    whole = (True,) * places
    paddings = [whole, *((*whole[:place], False, *whole[place + 1 :]) for place in range(places))]
    for other in paddings:
        for sizes in _chunkings(places, full):
            for order in _ORDERS if len(sizes) > 1 else ((),):
                yield from _Layout((whole, other), sizes, order, full).sides(plain, events)
                if other != whole:
                    yield from _Layout((other, whole), sizes, order, full).sides(plain, events)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which cells hold events, how many columns each call reads, and how rows move before the last one."""

    valid: Flags
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    full: bool

    def sides(self, plain: Plain, events: list[int]) -> Iterator[Side]:
        """Each row of the last call compared at its last event."""
        lines: Ids = tuple(_line(line, row, plain, events) for row, line in enumerate(self.valid))
        steps, begin = [], 0
        for size in self.sizes:
            part = slice(begin, begin + size)
            verb: Verb = "extend" if begin else "full" if self.full else "prefill"
            steps.append(Step(verb, tuple(line[part] for line in lines), tuple(line[part] for line in self.valid)))
            begin += size
        if all(any(line) for line in steps[0].valid):
            last = steps.pop()
            calls = (*steps, *self._moved(last))
            for row, valid in enumerate(calls[-1].valid):
                if any(valid):
                    yield Side(calls, row, last_valid(valid))

    def _moved(self, last: Step) -> tuple[Step, ...]:
        """The last call, after the reorder if there is one."""
        if not self.order:
            return (last,)
        events, valid = (tuple(lines[parent] for parent in self.order) for lines in (last.events, last.valid))
        return Step("reorder", parents=self.order), Step("extend", events, valid)  # type: ignore[arg-type]


def _line(valid: tuple[bool, ...], row: int, plain: Plain, events: list[int]) -> tuple[int, ...]:
    """The start token, then events in which the two rows differ."""
    line, begun = [], False
    for keep in valid:
        line.append((events[row % len(events)] if begun else plain.start) if keep else plain.padding)
        begun = begun or keep
    return tuple(line)
