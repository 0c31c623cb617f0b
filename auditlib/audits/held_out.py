"""What audits read: the distinct prefixes of the held-out sessions, and rows made up to reach what sessions do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from auditlib.audits.base import Subject
from auditlib.decoders.capabilities import BlockEnds
from auditlib.errors import InputError
from auditlib.events.prefixes import PrefixTrie

Row = tuple[int, ...]
"""Ids of a prefix: the start token and the events after it; no session's prefix holds an end."""

# Lengths at which blocks, windows and position tables of decoders tend to end, each with its two neighbours. To these
# come those that the decoder itself names.
_BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
_SAMPLE, _ENDED = 24, 9
LONGEST_EVERYDAY = 130
"""Longest row that is made up for every decoder; longer ones where the context or a window of its own ends."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Distinct prefixes of the held-out sessions.

    `rows` are the maximal ones, shortest first: every other is the beginning of one of them, so that one pass over
    them reaches every prefix. `sessions` maps each distinct session row to the first session that has it, `weights` to
    how many have it. `shortened` sessions were cut at the context length.
    """

    rows: tuple[Row, ...]
    sessions: Mapping[Row, str]
    weights: Mapping[Row, int]
    trie: PrefixTrie
    shortened: int


@dataclass(frozen=True, slots=True)
class Material:
    """Rows of one battery of probes.

    `sample` is spread over the lengths of the held-out rows, shortest and longest included. `made_up` are random valid
    events at lengths where blocks end and one to either side, `boundary` rows fill the context or leave one place.
    """

    sample: tuple[Row, ...]
    made_up: tuple[Row, ...]
    boundary: tuple[Row, ...]
    alphabet: tuple[int, ...]
    start: int
    end: int
    padding: int
    context: int
    vocabulary: int
    seed: int
    block_ends: tuple[int, ...] = ()
    """Lengths within the context that the decoder names, such as that of its window."""

    def random(self, purpose: str) -> Random:
        """A source of chance for one purpose, the same in every run with this seed."""
        return Random(f"{self.seed} {purpose}")  # noqa: S311  # nothing secret: the same rows in every run

    def rows(self, count: int, length: int, purpose: str) -> list[Row]:
        """`count` rows of random valid events, at most as long as the context; neighbours differ early."""
        chance, size = self.random(purpose), min(length, self.context)
        return [self.grown((self.start,), size, index, chance) for index in range(count)]

    def grown(self, row: Row, length: int, index: int, chance: Random) -> Row:
        """`row` with random events up to `length`; rows of different `index` differ in their first new event."""
        missing = max(0, min(length, self.context) - len(row))
        first = (self.alphabet[index % len(self.alphabet)],)
        return row + (first + tuple(chance.choices(self.alphabet, k=missing)))[:missing]


def held_out(subject: Subject) -> HeldOut:
    """Distinct prefixes of the subject's held-out sessions, without their ends, cut at the context length.

    InputError where there is no session: what was measured on nothing must not look measured.
    """
    if not subject.held_out:
        raise InputError("there is no held-out session to audit on; split with a larger --held-out")
    context = subject.decoder.context_length
    sessions: dict[Row, str] = {}
    weights: dict[Row, int] = {}
    shortened = 0
    for session in subject.held_out:
        whole = subject.row(session)[:-1]
        row = whole[:context]
        shortened += len(whole) > context
        sessions.setdefault(row, session.session_id)
        weights[row] = weights.get(row, 0) + 1
    trie = PrefixTrie.from_rows([row for row, weight in weights.items() for _ in range(weight)])
    rows = tuple(sorted((tuple(leaf) for leaf in trie.leaves()), key=lambda row: (len(row), row)))
    return HeldOut(rows, sessions, weights, trie, shortened)


def material(subject: Subject, held: HeldOut) -> Material:
    """Rows for a battery of probes on this subject."""
    ids, context = subject.event_map, subject.decoder.context_length
    ends = block_ends(subject)
    empty = Material(
        spread(held.rows, _SAMPLE), (), (), ids.domain or (ids.start,), ids.start, ids.end, ids.padding, context,
        subject.decoder.vocabulary_size, subject.seed, ends,
    )  # fmt: skip
    everyday = {1, 2, 3, 5, 7, *beside(_BLOCKS)}
    lengths = {length for length in everyday if length <= LONGEST_EVERYDAY} | beside(ends)
    fitting = sorted(length for length in lengths if 0 < length <= context)
    made_up = [row for length in fitting for row in empty.rows(1, length, f"made up {length}")]
    boundary = [row for length in {context, max(1, context - 1)} for row in empty.rows(1, length, f"edge {length}")]
    return replace(empty, made_up=tuple(made_up), boundary=tuple(sorted(boundary, key=len, reverse=True)))


def ended_rows(rows: Material) -> list[Row]:
    """Two rows in which one session has ended and another follows, behind a start token of its own and without.

    None where the context has no room for an event on either side of an end.
    """
    made = rows.rows(2, _ENDED, "an end inside")
    place = len(made[0]) // 2
    if place < 2:
        return []
    plain, begun = ((*row[:place], rows.end, *row[place + 1 :]) for row in made)
    return [plain, (*begun[: place + 1], rows.start, *begun[place + 2 :])]


def block_ends(subject: Subject) -> tuple[int, ...]:
    """Lengths within the context at which the decoder says that its blocks end."""
    named = subject.decoder.block_ends if isinstance(subject.decoder, BlockEnds) else ()
    return tuple(sorted({end for end in named if 0 < end <= subject.decoder.context_length}))


def beside(ends: Iterable[int]) -> set[int]:
    """Each of `ends` with its two neighbours."""
    return {near for end in ends for near in (end - 1, end, end + 1)}


def spread(rows: Sequence[Row], count: int) -> tuple[Row, ...]:
    """At most `count` of `rows`, evenly taken, the first and the last included."""
    if len(rows) <= count:
        return tuple(rows)
    return tuple(rows[round(index * (len(rows) - 1) / (count - 1))] for index in range(count))


def batches(rows: Sequence[Row], vocabulary: int, most_rows: int, most_logits: int = 1 << 22) -> Iterator[list[Row]]:
    """`rows` in their order, in batches of at most `most_rows` and, where rows allow it, `most_logits` numbers."""
    batch: list[Row] = []
    for row in rows:
        longest = max([len(row), *(len(other) for other in batch)])
        if batch and (len(batch) == most_rows or (len(batch) + 1) * longest * vocabulary > most_logits):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def written(row: Sequence[int]) -> str:
    """A prefix as tables show it: ids joined by "-"."""
    return "-".join(map(str, row))
