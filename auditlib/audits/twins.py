"""Prefixes with near twins: what a cache that looks at too little would take for one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlib.audits.base import Subject
from auditlib.audits.held_out import Row, spread
from auditlib.audits.prefix_set import PrefixSet

STRANGER = "all but the last event changed"
"""The likeness of a row that shares length and last event only."""
_SWAPPED = "two events swapped"

_LONG = 67
"""Events of a long row: more than four pages of 16."""
_MOST, _SHORTEST, _ROOM = 6, 3, 3  # room for a twin that is one event longer, and for two more events after it


@dataclass(frozen=True, slots=True)
class Twins:
    """A prefix and the rows that a careless cache might serve in its place, each with what makes them alike."""

    row: Row
    session_id: str
    alike: tuple[tuple[str, Row], ...]


def twin_rows(subject: Subject, chosen: PrefixSet) -> tuple[Twins, ...]:
    """At most six prefixes, spread over the lengths that leave room for three more events, each with its twins.

    Rows of valid events are made up where the held-out prefixes are fewer than two; none where the context has no room
    for three events and three more.
    """
    longest = subject.decoder.context_length - _ROOM
    real = {case.row: case.session_id for case in chosen.cases if _SHORTEST <= len(case.row) <= longest}
    made_up = [row for row in _made_up(subject, longest) if row not in real]
    rows = sorted([*real, *made_up[: max(0, 2 - len(real))]], key=lambda row: (len(row), row))
    domain = subject.event_map.domain
    found = [Twins(row, real.get(row, ""), tuple(_alike(row, domain, rows))) for row in spread(rows, _MOST)]
    if not any(map(has_swap, found)):
        # Short sessions, and those of one event, have nothing to change places in.
        more = (Twins(row, "", tuple(_alike(row, domain, rows))) for row in made_up)
        found += [one for one in more if has_swap(one) and one.row not in rows][:1]
    return tuple(found)


def long_twins(subject: Subject) -> tuple[Twins, ...]:
    """A row of several pages of keys, half of it, and a twin of each; none where the context holds only short rows.

    The twin of the whole differs in the first page, that of the half is longer and parts from it two events before.
    """
    domain, length = subject.event_map.domain, min(_LONG, subject.decoder.context_length - _ROOM)
    if len(domain) < 2 or length <= _SHORTEST + 2:
        return ()
    row = (subject.event_map.start, *(domain[place * place % len(domain)] for place in range(length - 1)))
    half, begun = row[: length // 2], row[: length // 2 + 2]
    parted = tuple(_other(event, domain) for event in row[length // 2 :])
    first_changed = (row[0], _other(row[1], domain), *row[2:])
    return (
        Twins(begun, "", (("a longer row that began alike and parted", (*half, *parted)),)),
        Twins(row, "", (("the first event changed", first_changed),)),
    )


def crowd_rows(subject: Subject, count: int) -> list[Row]:
    """`count` short rows of three lengths with room for two more events; different ones where there are two events.

    None where the context has no room.
    """
    start, domain = subject.event_map.start, subject.event_map.domain or (subject.event_map.start,)
    room = subject.decoder.context_length - _ROOM
    lengths = [min(6 + index % 3, room) for index in range(count if room > 0 else 0)]
    digits = [[index // len(domain) ** place % len(domain) for place in range(7)] for index in range(count)]
    return [(start, *(domain[digit] for digit in digits[index][: length - 1])) for index, length in enumerate(lengths)]


def has_swap(one: Twins) -> bool:
    """Whether one of the twins differs in the order of its events only."""
    return any(likeness == _SWAPPED for likeness, _ in one.alike)


def most_alike(found: Sequence[Twins]) -> tuple[Twins, ...]:
    """The one prefix, if any, that most kinds of twins can be mistaken for; the longest of several."""
    return tuple(sorted(found, key=lambda one: (len(one.alike), len(one.row)))[-1:])


def _made_up(subject: Subject, longest: int) -> Iterator[Row]:
    domain, start = subject.event_map.domain, subject.event_map.start
    for length in (_SHORTEST, _SHORTEST + 2):
        if domain and length <= longest:
            yield (start, *(domain[place % len(domain)] for place in range(length - 1)))


def _alike(row: Row, domain: Sequence[int], rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    yield "one event shorter", row[:-1]
    yield "one event longer", (*row, domain[len(row) % len(domain)])
    if len(domain) < 2:  # no other event exists
        return
    for place in sorted({1, len(row) // 2, len(row) - 2}):
        yield "one event changed", (*row[:place], _other(row[place], domain), *row[place + 1 :])
    # The newest pair: a decoder that forgets old events would give swapped ones the same answer by right.
    pairs = (place for place in range(len(row) - 3, 0, -1) if row[place] != row[place + 1])
    swapped = next(pairs, None)
    if swapped is not None:  # what a key that adds up its events cannot tell apart
        two = row[swapped + 1], row[swapped]
        yield _SWAPPED, (*row[:swapped], *two, *row[swapped + 2 :])
    yield "last event changed", (*row[:-1], _other(row[-1], domain))
    # What a key of length and last event cannot tell apart.
    like = [one for one in rows if len(one) == len(row) and one[-1] == row[-1] and one != row]
    for one in like[:1]:
        yield "another session's prefix of the same length and last event", one
    yield STRANGER, (row[0], *(_other(event, domain) for event in row[1:-1]), row[-1])


def _other(event: int, domain: Sequence[int]) -> int:
    """The next event of the domain, the first after the last."""
    return domain[(domain.index(event) + 1) % len(domain)] if event in domain else domain[0]
