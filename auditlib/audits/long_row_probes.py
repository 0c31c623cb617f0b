"""Rows that are longer than pages, rings and tiles of keys, where they move, share a beginning, or end the context.

A cache in pages of 16 or a ring of 32 is right for every short row: copies of a row part at the second page, and what
a move forgets of a ring shows once it has wrapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from auditlib.audits.growing import Bench, Growing, Layout, Side
from auditlib.audits.held_out import Row
from auditlib.errors import ContextExceededError

_LONG, _STEPS = 40, 18
"""Events of a long prompt, and single events after it: together beyond pages and rings of 16, 32 and 64."""
_EVEN_ROWS, _EVEN_LENGTH = 5, 20
_LAST = 6


def _long_rows_move(bench: Bench, side: Side) -> None:
    """Long and short rows swap, double and fall away right after the prompt, and again when they have grown."""
    growing = Growing(bench, "reordered rows", Layout(side))
    long = _long(bench)
    lengths = (long, 3, 4 * long // 5, long // 2)
    rows = bench.material.rows(len(lengths), long + 1, f"long rows move {side}")
    bench.alone.ready(rows)
    growing.begin(rows, lengths)
    _turn(growing, (1, 0, 0, 2), f"long rows move {side} first", 9)
    growing.append([5, 0, 3, 1])
    growing.singles(1)
    # Copies whose common pages nobody else needs, beside one whose pages somebody else takes over.
    _turn(growing, (2, 1, 0, 3, 3), f"long rows move {side} second", _STEPS + 16)
    growing.append([0, 2, 16, 2, 1])
    # Not to the end of the context: what follows must have room to take up pages that the dropped copies gave free.
    growing.singles(min(_STEPS, max(1, (bench.material.context - long) // 3)))
    _turn(growing, (2, 0, 3), f"long rows move {side} third", 8)
    growing.singles(3)
    growing.append([5, 5, 5])


def _turn(growing: Growing, order: tuple[int, ...], purpose: str, more: int) -> None:
    growing.take(order, growing.offspring(order, purpose, more))


def _even_prompts(bench: Bench) -> None:
    """Several prompts of one length, long enough for a path of their own: no row needs a mask of padding."""
    rows = bench.material.rows(_EVEN_ROWS, _EVEN_LENGTH + 3, "even prompts")
    bench.alone.ready(rows)
    growing = Growing(bench, "long chunks", Layout())
    growing.begin(rows, [min(_EVEN_LENGTH, len(row) - 1) for row in rows])
    growing.full()
    growing.singles(3)


def _common_beginnings(bench: Bench) -> None:
    """Prompts of one batch that begin alike: one is where another begins, and two part late."""
    material, chance = bench.material, bench.material.random("common beginnings")
    whole = material.rows(1, min(_EVEN_LENGTH, max(1, material.context - 4)), "common beginnings")[0]
    cuts = [len(whole), max(1, len(whole) // 2), max(1, 2 * len(whole) // 3), len(whole)]
    rows = [material.grown(whole[:cut], cut + 4, index, chance) for index, cut in enumerate(cuts)]
    bench.alone.ready(rows)
    growing = Growing(bench, "uneven rows", Layout())
    growing.begin(rows, cuts)
    growing.singles(2)
    growing.append([1, 2, 0, 2])


def _longest_first(bench: Bench, side: Side) -> None:
    """The longest row stands first and has no padding: it must not be asked where padding stands."""
    rows = bench.material.rows(4, 12, f"longest first {side}")
    growing = Growing(bench, f"padded {side}", Layout(side, garbage=True))
    growing.begin(rows, (7, 3, 5, 1))
    growing.full()
    growing.singles(2)


def _in_turn_to_the_boundary(bench: Bench) -> None:
    """Two rows that advance in turn to the end of the context, the first of which then stands idle, full."""
    rows = _filled(bench, "in turn")
    growing = Growing(bench, "exact boundary", Layout())
    growing.begin(rows, [max(1, len(row) - _LAST) for row in rows])
    for _ in range(_LAST - 1):
        growing.append([1, 0])
        growing.append([0, 1])
    growing.append([1, 0])
    growing.append([0, 1])
    growing.full()


def _padded_to_the_boundary(bench: Bench) -> None:
    """Rows that almost fill the context beside ones that do not, on either side of padding."""
    context = bench.material.context
    for side, probe in (("left", "padded left"), ("right", "uneven rows")):
        rows = _filled(bench, f"{probe} to the boundary", 3)
        growing = Growing(bench, probe, Layout(side))  # type: ignore[arg-type]
        growing.begin(rows, (max(1, context - 2), max(1, context // 2), 3))
        growing.full()
        growing.singles(2)


def _filled(bench: Bench, purpose: str, count: int = 2) -> list[Row]:
    rows = bench.material.rows(count, bench.material.context, purpose)
    bench.alone.ready(rows)
    return rows


def _long(bench: Bench) -> int:
    """Events of a long prompt; in a short context half of it, so that rows grow and move until they are full."""
    return max(4, min(_LONG, bench.material.context // 2))


def run(probe: Callable[[Bench], None], name: str, bench: Bench) -> None:
    """Run one of the probes; a request within the context that is refused as beyond it is as wrong as can be."""
    try:
        probe(bench)
    except ContextExceededError:
        row = bench.material.boundary[0]
        bench.gaps.add(name, row, len(row), torch.tensor([math.inf]))


LONG_ROW_PROBES: tuple[tuple[str, Callable[[Bench], None]], ...] = (
    ("reordered rows", lambda bench: _long_rows_move(bench, "right")),
    ("reordered rows", lambda bench: _long_rows_move(bench, "left")),
    ("long chunks", _even_prompts),
    ("uneven rows", _common_beginnings),
    ("padded left", lambda bench: _longest_first(bench, "left")),
    ("padded right", lambda bench: _longest_first(bench, "right")),
    ("exact boundary", _in_turn_to_the_boundary),
    ("padded left", _padded_to_the_boundary),
)
"""Probes of long rows, each under the check that it counts for."""
