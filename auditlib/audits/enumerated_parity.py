"""Every valid prefix up to a depth, enumerated from the order automaton, and what of everything was covered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from auditlib.audits.base import Measurement, Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.gaps import Gaps, gap
from auditlib.audits.held_out import Row
from auditlib.events.prefixes import PrefixTrie

BUDGET = 50_000
PROBE = "reordered rows"
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Enumeration:
    """All valid prefixes of 1 to `depth` events, start included; `rows` are those that none of the others continues.

    `counts` [depth] are distinct prefixes by length, over all flags together; `by_flags` how many of them each
    combination of session flags allows. `next_count` prefixes of one event more did not fit the budget; 0 when there
    are none. `log10_of_all` is the number of valid prefixes up to the context, for the flags that allow most.
    """

    depth: int
    rows: tuple[Row, ...]
    counts: tuple[int, ...]
    by_flags: dict[tuple[bool, ...], int]
    next_count: int
    context: int
    log10_of_all: float

    @property
    def prefixes(self) -> int:
        """Number of distinct prefixes."""
        return sum(self.counts)


@dataclass
class Enumerated:
    """What the enumerated prefixes showed: the largest gap, and how many were compared."""

    enumeration: Enumeration
    worst: float = 0.0
    compared: int = 0
    not_finite: int = 0
    gaps: Gaps = field(default_factory=Gaps)

    def measurements(self) -> tuple[Measurement, ...]:
        """Information beside the checks; the gaps themselves are judged with the probe "reordered rows"."""
        count = self.compared
        return (
            Measurement("enumerated prefixes", count, "prefixes", count),
            Measurement("enumerated depth", self.enumeration.depth, "events", count),
            Measurement("enumerated worst gap", self.worst, "logit", count),
        )

    def notes(self) -> Iterator[str]:
        """What was covered and what was not, in words."""
        space, all_flags = self.enumeration, len(self.enumeration.by_flags)
        yield (
            f"COVERED {self.compared} of {space.prefixes} valid prefixes of up to {space.depth} events (the start "
            f"counted), every one that the event order allows under {all_flags} combination"
            f"{'s' if all_flags != 1 else ''} of session flags."
        )
        if self.not_finite:
            yield f"{self.not_finite} of these prefixes have logits that are not finite."
        if space.next_count:
            yield (
                f"NOT COVERED by enumeration: valid prefixes of {space.depth + 1} to {space.context} events, about "
                f"10^{space.log10_of_all:.1f} in all; the {space.next_count} of {space.depth + 1} events did not fit "
                "the budget. Of these, held-out, made-up and boundary rows were read."
            )


def enumerated_parity(subject: Subject, budget: int = BUDGET, checked: CheckedDecoder | None = None) -> Enumerated:
    """Parity of every valid prefix up to the depth that `budget` events allow, by a breadth-first cached pass.

    `budget` bounds the events that the full path reads for it. `checked` counts logits where an audit has one already.
    """
    found = Enumerated(enumerate_prefixes(subject, budget))
    reader = checked or CheckedDecoder(subject.decoder, subject.device, lambda: None)
    for work in enumerated_pieces(found, reader):
        work()
    return found


def enumerated_pieces(found: Enumerated, checked: CheckedDecoder) -> Iterator[Callable[[], None]]:
    """The passes that fill `found`, each over some hundred rows."""
    rows = found.enumeration.rows
    seen: set[Row] = set()
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[begin : begin + _ROWS_AT_ONCE]
        yield lambda part=part: _pass(found, checked, part, seen)  # type: ignore[misc]


def enumerate_prefixes(subject: Subject, budget: int) -> Enumeration:
    """Valid prefixes, level by level, up to the last level whose whole rows hold at most `budget` events."""
    automata = subject.order.automata()
    steps = [automaton.step for automaton in automata.values()]
    start, context = subject.event_map.start, subject.decoder.context_length
    ids = np.array([[start]], dtype=np.int64)  # [N, depth]
    states = np.array([[automaton.start for automaton in automata.values()]])  # [N, flags]
    counts, allowed, ended = [1], np.ones(len(steps), dtype=np.int64), []
    next_count = 0
    while ids.shape[1] < context:
        parents, events, after = _children(states, steps)
        if not len(parents):
            break
        # Every prefix is read again from its start by the full path: that is what grows fastest.
        if len(parents) * (ids.shape[1] + 1) > budget:
            next_count = len(parents)
            break
        childless = np.setdiff1d(np.arange(len(ids)), parents)
        ended += [tuple(row) for row in ids[childless].tolist()]
        ids, states = np.column_stack([ids[parents], events]), after
        counts.append(len(ids))
        allowed += (states >= 0).sum(0)
    rows = sorted([*ended, *map(tuple, ids.tolist())])
    by_flags = dict(zip(automata, allowed.tolist(), strict=True))
    everything = max(_log10_of_prefixes(automaton.step, context) for automaton in automata.values())
    return Enumeration(ids.shape[1], tuple(rows), tuple(counts), by_flags, next_count, context, everything)


def _children(
    states: npt.NDArray[np.integer], steps: Sequence[npt.NDArray[np.integer]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Parent, event and states [M, flags] of each next prefix that some flags allow; a state of -1 allows nothing."""
    after = np.stack(
        [np.where(states[:, [place]] >= 0, step[states[:, place]], -1) for place, step in enumerate(steps)], axis=2
    )  # [N, V, flags]
    parents, events = np.nonzero((after >= 0).any(2))
    return parents, events, after[parents, events]


def _log10_of_prefixes(step: npt.NDArray[np.integer], context: int) -> float:
    """log10 of the number of valid prefixes of 1 to `context` events, by counting ways into each state."""
    ways: npt.NDArray[np.float64] = np.eye(1, len(step))[0]  # state 0 is the start
    scale, total = 0.0, -math.inf
    origins, events = np.nonzero(step >= 0)
    targets = step[origins, events]
    for _ in range(context):
        mass = float(ways.sum())
        if not mass:
            break
        total = np.logaddexp(total, scale + math.log(mass))
        scale, ways = scale + math.log(mass), ways / mass  # kept near 1: the counts themselves overflow
        ways = np.bincount(targets, ways[origins], len(step)).astype(np.float64)
    return float(total / math.log(10))


def _pass(found: Enumerated, checked: CheckedDecoder, rows: Sequence[Row], seen: set[Row]) -> None:
    """The tree of `rows` breadth first: each prefix once, children continuing a reordered cache of their parents."""
    trie = PrefixTrie.from_rows(rows)
    whole = checked.whole(rows)  # [B, T, V], no row padded
    place = {row[:length]: (index, length - 1) for index, row in enumerate(rows) for length in range(1, len(row) + 1)}
    cache, device = None, checked.device
    for depth, level in enumerate(trie.levels):
        events = torch.as_tensor(level.event, device=device)[:, None]
        valid = torch.ones_like(events, dtype=torch.bool)
        if depth == 0:
            logits, cache = checked.prefill(events, valid)
        else:
            appended, cache = checked.extend(events, valid, checked.reorder(cache, level.parent.tolist()))
            logits = appended[:, 0]
        prefixes = [tuple(row) for row in trie.rows(depth).tolist()]
        lines, columns = (list(part) for part in zip(*(place[prefix] for prefix in prefixes), strict=True))
        _note(found, prefixes, logits, whole[lines, columns], seen)


def _note(
    found: Enumerated, prefixes: Sequence[Row], logits: torch.Tensor, wanted: torch.Tensor, seen: set[Row]
) -> None:
    """Compare a level; prefixes on the border of two passes count once."""
    apart = gap(logits, wanted)
    found.worst = max(found.worst, float(apart.max()))
    found.not_finite += int((~torch.isfinite(logits).all(-1) | ~torch.isfinite(wanted).all(-1)).sum())
    longest, looked = len(prefixes[0]), torch.zeros(len(prefixes), len(prefixes[0]), dtype=torch.bool)
    looked[:, -1] = True
    found.gaps.add_batch(PROBE, prefixes, apart[:, None].expand(-1, longest), looked)
    found.compared += len(set(prefixes) - seen)
    seen.update(prefixes)
