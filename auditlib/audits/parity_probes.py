"""The battery of cache parity on sampled and made-up rows. Each probe names the kind of fault that it alone can see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from auditlib.audits import long_row_probes
from auditlib.audits.block_end_probes import BLOCK_END_PROBES
from auditlib.audits.growing import Bench, Growing, Layout, Side, feed
from auditlib.audits.held_out import Row, ended_rows

SINGLE, CHUNKS, LONG = "single events", "chunks of 2, 3 and 5", "long chunks"
_MIXED = (3, 7, 1, 5)
# Kernels, tiles and page tables have sizes of their own: what is right for five rows or events may not be for many.
_MANY_ROWS, _LONG_CHUNK, _LONG_ROW = 33, 8, 40
_SIDES: tuple[tuple[Side, str], ...] = (
    ("left", "padded left"),
    ("right", "padded right"),
    ("both", "padded both sides"),
)
# Batches that rows then leave or change places in: of even rows, and of uneven ones padded on either side.
_EVEN: tuple[Side, tuple[int, ...]] = ("right", (4, 4, 4, 4))
_UNEVEN: tuple[tuple[Side, tuple[int, ...]], ...] = (("right", _MIXED), ("left", _MIXED))
_LAST_STEPS = 8


def battery(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """All probes by name, each ready to run; their gaps go to `bench.gaps`."""
    yield SINGLE, lambda: _single_events(bench)
    yield SINGLE, lambda: _after_an_end(bench, SINGLE, 1)
    yield CHUNKS, lambda: _chunks(bench)
    yield CHUNKS, lambda: _after_an_end(bench, CHUNKS, 3)
    yield LONG, lambda: _long_chunks(bench)
    yield "uneven rows", lambda: _uneven_rows(bench)
    yield "one-event prefill", lambda: _one_event_prefill(bench)
    for side, name in _SIDES:
        for garbage in (False, True):
            layout = Layout(side, 2, garbage)
            yield name, lambda name=name, layout=layout: _padded(bench, name, layout)  # type: ignore[misc]
            yield "one padded row", lambda layout=layout: _one_padded_row(bench, layout)  # type: ignore[misc]
    yield "exact boundary", lambda: _boundary(bench)
    yield "dropped rows", lambda: _dropped_rows(bench)
    yield "reordered rows", lambda: _reordered_rows(bench)
    yield "reordered rows", lambda: _branching(bench)
    yield "dropped rows", lambda: _many_rows(bench, "dropped rows")
    yield "reordered rows", lambda: _many_rows(bench, "reordered rows")
    for name, of_long_rows in long_row_probes.LONG_ROW_PROBES:
        yield name, partial(long_row_probes.run, of_long_rows, name, bench)
    for end in bench.material.block_ends:
        for name, at_the_end in BLOCK_END_PROBES:
            yield name, partial(at_the_end, bench, end)


def _single_events(bench: Bench) -> None:
    """Rows truly alone: single events after prompts of one event, half the row, all but one and the whole row."""
    longest = max(bench.material.made_up, key=len)
    cases = [(row, {1, (len(row) + 1) // 2, len(row)}) for row in bench.material.sample]
    cases += [(row, {len(row) - 1, len(row)}) for row in bench.material.made_up]
    for row, prompts in (*cases, (longest, {1})):
        for first in sorted(prompts - {0}):
            feed(bench, SINGLE, [row], first, 1)


def _chunks(bench: Bench) -> None:
    """Several events at once onto a warm cache: a mask that starts at the wrong corner is right for one event."""
    for row in (*bench.material.sample, max(bench.material.made_up, key=len)):
        for first, size in ((1, 2), (1, 3), (1, 5), (5, 3)):
            if len(row) > first:
                feed(bench, CHUNKS, [row], first, size)


def _after_an_end(bench: Bench, probe: str, size: int) -> None:
    """A customer's earlier session in the same row, ended: where the end is taken for padding, it is not read."""
    rows = ended_rows(bench.material)
    for first in {1, len(rows[0]) - 2, len(rows[0])} if rows else ():
        feed(bench, probe, rows, first, size)


def _long_chunks(bench: Bench) -> None:
    """Eight events at once, and all that is left of a row: alone, and of rows of many lengths behind padding."""
    longest = max(bench.material.made_up, key=len)
    for row in (*bench.material.sample, longest, *bench.material.boundary):
        for first, size in ((1, len(row)), (1, _LONG_CHUNK), (4, 2 * _LONG_CHUNK)):
            if len(row) > first:
                feed(bench, LONG, [row], first, size)
    for side, _ in _SIDES:
        rows = bench.material.rows(len(_MIXED), min(len(longest), bench.material.context - 15), f"long chunks {side}")
        growing = Growing(bench, LONG, Layout(side, 1, garbage=True))
        growing.begin(rows, _MIXED)
        growing.append([len(row) // (1 + place) for place, row in enumerate(rows)])
        growing.append([len(row) for row in rows])


def _uneven_rows(bench: Bench) -> None:
    """Rows that advance by 0 to 3 events each: offsets that move together for all rows are wrong for some."""
    few = [*bench.material.rows(4, 14, "uneven"), *bench.material.sample[-4:]]
    many = bench.material.rows(_MANY_ROWS, 11, "many uneven")
    bench.alone.ready(many)
    for side, _ in _UNEVEN:
        for rows in (few, many):
            growing, chance = Growing(bench, "uneven rows", Layout(side)), bench.material.random(f"uneven {side}")
            growing.begin(rows, [1 + index % 4 for index in range(len(rows))])
            growing.append([index % 2 for index in range(len(rows))])
            for _ in range(max(len(row) for row in rows)):
                growing.append([chance.randrange(4) for _ in rows])
            growing.full()


def _one_event_prefill(bench: Bench) -> None:
    """The shortest prefix and the steps after it: positions that are set only for longer prompts go wrong here."""
    rows = bench.material.rows(5, 6, "one event")
    for batch in ([rows[0]], rows):
        growing = Growing(bench, "one-event prefill", Layout())
        growing.begin(batch, [1] * len(batch))
        growing.singles(5)


def _padded(bench: Bench, probe: str, layout: Layout) -> None:
    """Mixed lengths in one padded batch, on both paths, then single events and a padded chunk onto its cache."""
    longest = max(_LONG_ROW, *map(len, bench.material.made_up))
    # With room for every invalid position: what counts those as events must give wrong answers, and not run out of it.
    prompt = min(longest - 8, bench.material.context - 20)
    for purpose, length, lengths in (
        ("company", 14, _MIXED),
        ("other company", 14, _MIXED),
        ("long company", longest, (prompt, 3, prompt // 2, 1)),
    ):
        rows = bench.material.rows(len(lengths), length, f"{probe} {purpose}")
        growing = Growing(bench, probe, layout)
        growing.begin(rows, lengths)
        growing.full()
        growing.singles(2)
        growing.append([2, 0, 3, 1])
        growing.singles(2)
        growing.full()


def _one_padded_row(bench: Bench, layout: Layout) -> None:
    """A padded batch of one: code that pads only batches, or drops masks for single rows, is seen by nothing else."""
    longest = len(max(bench.material.made_up, key=len))
    for length in (3, 1, min(longest - 5, bench.material.context - 15)):
        growing = Growing(bench, "one padded row", layout)
        growing.begin(bench.material.rows(1, length + 5, f"one padded row {length}"), [length])
        growing.full()
        growing.singles(2)
        growing.append([2])
        growing.full()


def _boundary(bench: Bench) -> None:
    """Up to the last place of the context, and to the last but one: by one prompt, by single events, by a chunk."""
    rows = bench.material.boundary
    for row in rows:
        for first, size in ((len(row), 1), (len(row) - min(len(row) - 1, _LAST_STEPS), 1), (max(1, len(row) - 3), 3)):
            feed(bench, "exact boundary", [row], first, size)
    growing = Growing(bench, "exact boundary", Layout("right"))
    short = bench.material.rows(1, 4, "beside the boundary")
    growing.begin([*rows, *short], [*(len(row) - 2 for row in rows), 1])
    growing.singles(2)
    growing.full()


def after_refusals(bench: Bench) -> None:
    """Rows that are read when a decoder has just refused others: what it had begun for those must not be left over."""
    for row in bench.material.rows(2, 6, "after refusals"):
        for first in (1, len(row)):
            feed(bench, "exact boundary", [row], first, 1)


def _dropped_rows(bench: Bench) -> None:
    """Rows leave the batch while others go on: whoever stays must keep its own keys, values and positions."""
    for side, lengths in (_EVEN, _UNEVEN[1]):
        for kept in ((1, 3), (0,), (2,), (0, 2, 3), (3,)):
            rows = bench.material.rows(4, 13, f"dropped {side} {kept}")
            growing = _after_prompt(bench, "dropped rows", Layout(side), rows, lengths)
            growing.take(kept, [rows[place] for place in kept])
            growing.singles(3)
            if len(kept) > 1:
                growing.take((1,), [rows[kept[1]]])
                growing.singles(2)
    _drop_the_finished(bench)


def _drop_the_finished(bench: Bench) -> None:
    """Held-out rows, each leaving the batch when it is over."""
    rows = [row for row in bench.material.sample if len(row) > 1]
    if not rows:
        return
    growing = Growing(bench, "dropped rows", Layout())
    growing.begin(rows, [1] * len(rows))
    while True:
        growing.singles(1)
        going = [index for index, row in enumerate(growing.rows) if growing.read[index] < len(row)]
        if not going:
            return
        if len(going) < len(growing.rows):
            growing.take(going, [growing.rows[index] for index in going])


def _reordered_rows(bench: Bench) -> None:
    """Rows swap, double and fall away as beams do; copies of one row then go different ways."""
    for side, lengths in (_EVEN, *_UNEVEN):
        for parents in ((1, 0, 3, 2), (1, 2, 3, 0), (0, 0, 2, 2), (3, 1, 1, 0, 2, 2), (2, 0), (1, 1, 1)):
            purpose = f"reordered {side} {lengths} {parents}"
            rows = bench.material.rows(4, 12, purpose)
            growing = _after_prompt(bench, "reordered rows", Layout(side), rows, lengths)
            for again, order in enumerate((parents, tuple(reversed(range(len(parents)))))):
                growing.take(order, growing.offspring(order, f"{purpose} {again}"))
                growing.singles(1)
                growing.append([1 + (index + again) % 2 for index in range(len(order))])
                growing.singles(1)


def _many_rows(bench: Bench, probe: str) -> None:
    """More rows than a small batch has, moved at once: every other one leaves, or all change places and some double."""
    everyone = tuple(range(_MANY_ROWS))
    orders = {"dropped rows": (everyone[1::2],), "reordered rows": ((*everyone[1:], 0, 0, 1), everyone[::-1])}[probe]
    rows = bench.material.rows(_MANY_ROWS, 6, f"many {probe}")
    for number, order in enumerate(orders):
        growing = _after_prompt(bench, probe, Layout(), rows, [1 + place % 4 for place in everyone])
        growing.take(order, growing.offspring(order, f"many {probe} {number}"))
        growing.singles(2)


def _after_prompt(bench: Bench, probe: str, layout: Layout, rows: Sequence[Row], lengths: Sequence[int]) -> Growing:
    """Rows after a prompt of mixed lengths and one single event, with room for the steps to come."""
    bench.alone.ready(rows)
    growing = Growing(bench, probe, layout)
    room = max(1, bench.material.context - 4)
    growing.begin(rows, [min(length, room) for length in lengths])
    growing.singles(1)
    return growing


def _branching(bench: Bench) -> None:
    """The sampled held-out rows as the tree they form: every distinct prefix once, children after their parents."""
    beginnings = [list(accumulate(((event,) for event in row), lambda a, b: a + b)) for row in bench.material.sample]
    depth = max((len(row) for row in beginnings), default=0)
    if depth < 2:
        return
    bench.alone.ready([beginning for row in beginnings for beginning in row])
    level = sorted({row[0] for row in beginnings})
    growing = Growing(bench, "reordered rows", Layout())
    growing.begin(level, [1] * len(level))
    for step in range(1, depth):
        below = sorted({row[step] for row in beginnings if len(row) > step})
        growing.take([level.index(row[:step]) for row in below], below)
        growing.singles(1)
        level = below
