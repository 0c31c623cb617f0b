"""Every way to make a side of a counterexample a little smaller. A move names its place, so it fits both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from auditlib.audits.counterexample import Flags, Ids, Side, Step, last_valid

Move = Callable[[Side], Side | None]
"""A smaller side, or None where the move does not fit."""


@dataclass(frozen=True, slots=True)
class Plain:
    """What stands where nothing particular needs to: the padding id, the start token, and the simplest events.

    The first of `events` is the simplest; the second is for rows that have to differ.
    """

    padding: int
    start: int
    events: tuple[int, ...]

    def oddity(self, event: int, keep: bool) -> int:
        """How far a cell's content is from the simplest."""
        if not keep:
            return int(event != self.padding)
        return self.events.index(event) if event in self.events else len(self.events)


def moves(side: Side, plain: Plain) -> Iterator[Move]:
    """All moves that a side of this shape allows, those that save most first."""
    steps = side.steps
    yield from (_drop_row(place, row) for place, step in enumerate(steps) for row in range(step.rows)
                if place == 0 or step.verb == "reorder")  # fmt: skip
    yield from (_inline(place) for place, step in enumerate(steps) if step.verb == "reorder")
    yield from (_drop_step(place) for place, step in enumerate(steps) if step.verb == "extend")
    yield from _blocks(steps)
    yield from (_merge(place) for place, step in enumerate(steps) if step.verb == "extend")
    yield from (_shift(place) for place, step in enumerate(steps) if step.verb == "extend" and step.places > 1)
    yield from (_all_valid(place) for place in range(len(steps)))
    yield from (_parent(place, row, parent) for place, step in enumerate(steps) for row in range(len(step.parents))
                for parent in range(step.parents[row]))  # fmt: skip
    yield _simplest_events(plain)
    yield from (_cell(cell, plain, fill, event) for cell in _cells(steps) for fill in (True, False)
                for event in plain.events)  # fmt: skip


def _cells(steps: tuple[Step, ...]) -> Iterator[tuple[int, int, int]]:
    for place, step in enumerate(steps):
        yield from ((place, row, column) for row in range(len(step.events)) for column in range(step.places))


def _blocks(steps: tuple[Step, ...]) -> Iterator[Move]:
    """Columns out of each call: halves, quarters, … down to single ones."""
    for place, step in enumerate(steps):
        size = step.places
        while size:
            yield from (_drop_columns(place, begin, size) for begin in range(0, step.places, size))
            size //= 2


def _with(side: Side, place: int, *steps: Step) -> Side:
    return replace(side, steps=(*side.steps[:place], *steps, *side.steps[place + 1 :]))


def _settled(side: Side) -> Side | None:
    """The side when every call is one that contract 1 allows, its column being the prompt's last event if it must."""
    first, last = side.steps[0], side.steps[-1]
    if not all(any(line) for line in first.valid) or not all(step.rows and (step.places or step.verb == "reorder")
                                                           for step in side.steps):  # fmt: skip
        return None
    if last.verb == "reorder" or not 0 <= side.column < last.places or not 0 <= side.row < last.rows:
        return None
    return replace(side, column=last_valid(last.valid[side.row])) if last.verb == "prefill" else side


def _drop_row(place: int, row: int) -> Move:
    """Leave out a row from the call at `place` on, up to the next reorder; its offspring leaves with it."""

    def move(side: Side) -> Side | None:
        """The side without the row and its offspring; None where the compared row is among them."""
        gone, kept = {row}, list(side.steps[:place])
        for step in side.steps[place:]:
            if step.verb == "reorder" and len(kept) > place:
                left = [parent not in gone for parent in step.parents]
                staying = [parent for parent, keep in zip(step.parents, left, strict=True) if keep]
                parents = tuple(parent - sum(other < parent for other in gone) for parent in staying)
                gone = {index for index, keep in enumerate(left) if not keep}
                kept.append(replace(step, parents=parents))
            else:
                kept.append(_without_rows(step, gone))
        if side.row in gone:
            return None
        return _settled(replace(side, steps=tuple(kept), row=side.row - sum(index < side.row for index in gone)))

    return move


def _without_rows(step: Step, gone: set[int]) -> Step:
    left = [row for row in range(step.rows) if row not in gone]
    if step.verb == "reorder":
        return replace(step, parents=tuple(step.parents[row] for row in left))
    return replace(step, events=tuple(step.events[row] for row in left), valid=tuple(step.valid[row] for row in left))


def _inline(place: int) -> Move:
    """Do without a reorder: let the rows stand from the beginning as it would have put them."""

    def move(side: Side) -> Side | None:
        """The side with its earlier calls in the reorder's order, back to an earlier reorder, which takes it in."""
        order, steps = side.steps[place].parents, list(side.steps)
        for before in range(place - 1, -1, -1):
            step = steps[before]
            if step.verb == "reorder":
                steps[before] = replace(step, parents=tuple(step.parents[parent] for parent in order))
                break
            events: Ids = tuple(step.events[parent] for parent in order)
            steps[before] = replace(step, events=events, valid=tuple(step.valid[parent] for parent in order))
        del steps[place]
        return _settled(replace(side, steps=tuple(steps)))

    return move


def _drop_step(place: int) -> Move:
    def move(side: Side) -> Side | None:
        """The side without the call; where that was the last, the row's last event before it is compared."""
        steps = side.steps[:place] + side.steps[place + 1 :]
        column = side.column
        if place == len(side.steps) - 1:
            if steps[-1].verb == "reorder":
                return None
            column = last_valid(steps[-1].valid[side.row])
        return _settled(replace(side, steps=steps, column=column))

    return move


def _drop_columns(place: int, begin: int, size: int) -> Move:
    """Leave out columns of a call; when the compared one is among them, compare the one before."""

    def move(side: Side) -> Side | None:
        """The side without the columns; None where a prompt, or a whole call, would lose its last place."""
        end, column = begin + size, side.column
        if place == len(side.steps) - 1 and column >= begin:
            column = column - size if column >= end else begin - 1
        step = side.steps[place]
        events = tuple(line[:begin] + line[end:] for line in step.events)
        valid = tuple(line[:begin] + line[end:] for line in step.valid)
        return _settled(replace(_with(side, place, replace(step, events=events, valid=valid)), column=column))

    return move


def _joined(left: Step, right: Step) -> Step:
    events = tuple(a + b for a, b in zip(left.events, right.events, strict=True))
    return replace(left, events=events, valid=tuple(a + b for a, b in zip(left.valid, right.valid, strict=True)))


def _columns(step: Step, columns: slice) -> Step:
    events = tuple(line[columns] for line in step.events)
    return replace(step, events=events, valid=tuple(line[columns] for line in step.valid))


def _merge(place: int) -> Move:
    """Read the events of an extend in the call before it."""

    def move(side: Side) -> Side | None:
        """The side with one call fewer; None where a reorder stands in between."""
        left, right = side.steps[place - 1 : place + 1]
        if left.verb == "reorder":
            return None
        steps = (*side.steps[: place - 1], _joined(left, right), *side.steps[place + 1 :])
        column = side.column + (left.places if place == len(side.steps) - 1 else 0)
        return _settled(replace(side, steps=steps, column=column))

    return move


def _shift(place: int) -> Move:
    """Read the first event of an extend in the call before it."""

    def move(side: Side) -> Side | None:
        """The side with its events cut one place later; None where a reorder stands in between."""
        left, right = side.steps[place - 1 : place + 1]
        if left.verb == "reorder":
            return None
        moved = (_joined(left, _columns(right, slice(1))), _columns(right, slice(1, None)))
        steps = (*side.steps[: place - 1], *moved, *side.steps[place + 1 :])
        column = side.column - (1 if place == len(side.steps) - 1 else 0)
        return _settled(replace(side, steps=steps, column=column))

    return move


def _all_valid(place: int) -> Move:
    """No padding in one call: what stands there is read."""

    def move(side: Side) -> Side | None:
        """The side with every place of the call valid, whatever id stands there."""
        valid: Flags = tuple((True,) * len(line) for line in side.steps[place].valid)
        return _settled(_with(side, place, replace(side.steps[place], valid=valid)))

    return move


def _parent(place: int, row: int, parent: int) -> Move:
    def move(side: Side) -> Side | None:
        parents = list(side.steps[place].parents)
        parents[row] = parent
        return _settled(_with(side, place, replace(side.steps[place], parents=tuple(parents))))

    return move


def _simplest_events(plain: Plain) -> Move:
    def move(side: Side) -> Side | None:
        """The side with all cells at their simplest at once, which saves one trial a cell where it fits."""
        for cell in _cells(side.steps):
            place, row, column = cell
            keep = side.steps[place].valid[row][column]
            side = _set(side, cell, _simple(side, cell, plain, plain.events[0]), keep)
        return side

    return move


def _cell(cell: tuple[int, int, int], plain: Plain, fill: bool, event: int) -> Move:
    """The simplest content of one cell, `event` where it is one; with `fill`, as an event where there was padding."""

    def move(side: Side) -> Side | None:
        """The side with the cell replaced; None where it was to be filled and holds an event already."""
        place, row, column = cell
        keep = side.steps[place].valid[row][column]
        if fill and keep:
            return None
        simplest = event if fill else _simple(side, cell, plain, event)
        return _settled(_set(side, cell, simplest, keep or fill))

    return move


def _simple(side: Side, cell: tuple[int, int, int], plain: Plain, event: int) -> int:
    place, row, column = cell
    valid = side.steps[place].valid[row]
    if not valid[column]:
        return plain.padding
    return plain.start if place == 0 and not any(valid[:column]) else event


def _set(side: Side, cell: tuple[int, int, int], event: int, keep: bool) -> Side:
    place, row, column = cell
    step = side.steps[place]
    line, flags = list(step.events[row]), list(step.valid[row])
    line[column], flags[column] = event, keep
    events = (*step.events[:row], tuple(line), *step.events[row + 1 :])
    valid = (*step.valid[:row], tuple(flags), *step.valid[row + 1 :])
    return _with(side, place, replace(step, events=events, valid=valid))
