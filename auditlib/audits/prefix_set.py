"""The frozen set of held-out prefixes that every decoding setting continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditlib.audits.base import Subject
from auditlib.audits.held_out import Row, written
from auditlib.events.automaton import OrderAutomaton
from auditlib.sessions.session import Session

_CUTS = 3  # prefixes that one session may give to one band of lengths
_Key = tuple[int, Row]


@dataclass(frozen=True, slots=True)
class PrefixCase:
    """A prefix (ids, start included), the rest of its session (end included), and the order that it is under.

    `made_up` cases reach the context boundary where no held-out session does; they have no rest.
    """

    session_id: str
    row: Row
    rest: Row
    automaton: OrderAutomaton
    made_up: bool = False


@dataclass(frozen=True, slots=True)
class PrefixSet:
    """Distinct prefixes that keep the order, and those that already break it: no setting could mend these."""

    cases: tuple[PrefixCase, ...]
    already_invalid: tuple[PrefixCase, ...]

    @property
    def digest(self) -> str:
        """`sha256:<hex>` of the prefixes in their order: two audits with the same digest continued the same."""
        text = "\n".join(written(case.row) for case in self.cases)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def prefix_set(subject: Subject, most: int = 256) -> PrefixSet:
    """At most `most` distinct prefixes, the same for the same sessions in whatever order they come.

    Spread over bands of lengths (1, 2, 3 to 4, 5 to 8, …, the context): equal shares as far as a band has prefixes.
    The start token alone and prefixes at the context boundary and one before it are always among them.
    """
    valid, invalid = _distinct(subject, most)
    edges = list(_edge_cases(subject, [case for band in valid for case in band]))
    others = [[case for case in band if case not in edges] for band in valid]
    chosen = [*_round_robin(others, most - len(edges)), *edges]
    return PrefixSet(tuple(sorted(chosen, key=lambda case: (len(case.row), case.row))), tuple(invalid))


def _distinct(subject: Subject, most: int) -> tuple[list[list[PrefixCase]], list[PrefixCase]]:
    """Distinct prefixes by band of length, at most `most` a band, and those that break the order."""
    valid: list[dict[_Key, PrefixCase]] = [{} for _ in range(_band(subject.decoder.context_length) + 1)]
    invalid: dict[_Key, PrefixCase] = {}
    for case in _candidates(subject):
        # By identity: sessions under the same rules are given one and the same automaton.
        key, band = (id(case.automaton), case.row), valid[_band(len(case.row))]
        # Most candidates repeat one that is known: asking the order about each would take most of the time.
        if key in band or key in invalid or len(band) == most:
            continue
        (invalid if case.automaton.state_after(case.row[1:]) < 0 else band)[key] = case
    return [list(band.values()) for band in valid], list(invalid.values())


def _candidates(subject: Subject) -> Iterator[PrefixCase]:
    """Up to `_CUTS` prefixes a band of each session, by the hash of its name, so that file order is nothing."""
    ordered = sorted(((_hash(session.session_id), session) for session in subject.held_out), key=lambda pair: pair[0])
    rows = [(number, session, subject.row(session)) for number, session in ordered]
    for turn in range(_CUTS):
        for number, session, row in rows:
            yield from _cuts(subject, session, row, number + turn, turn)


def _cuts(subject: Subject, session: Session, row: Row, number: int, turn: int) -> Iterator[PrefixCase]:
    longest = min(len(row) - 1, subject.decoder.context_length)
    automaton = subject.order.automaton(session.attributes)
    for band in range(_band(longest) + 1):
        shortest = 2 ** (band - 1) + 1 if band else 1  # bands: 1, 2, 3 to 4, 5 to 8, …
        lengths = min(longest, 2**band) - shortest + 1
        if turn < lengths:
            length = shortest + number % lengths
            yield PrefixCase(session.session_id, row[:length], row[length:], automaton)


def _edge_cases(subject: Subject, cases: Sequence[PrefixCase]) -> Iterator[PrefixCase]:
    """A prefix that fills the context and one that leaves one place: held out, else made up where the order allows."""
    context = subject.decoder.context_length
    longest_first = sorted(cases, key=lambda case: (-len(case.row), case.row))
    for length in sorted({context, max(1, context - 1)}):
        for case in longest_first:
            if len(case.row) <= length and (row := _lengthened(case, length)):
                yield case if row == case.row else PrefixCase("", row, (), case.automaton, made_up=True)
                break


def _lengthened(case: PrefixCase, length: int) -> Row | None:
    """The prefix with legal events up to `length`; None where the order lets it last no longer."""
    step, missing = case.automaton.step, length - len(case.row)
    lasting = _lasting(step, missing)
    state, row = case.automaton.state_after(case.row[1:]), case.row
    if not lasting[min(missing, len(lasting) - 1)][state]:
        return None
    for left in range(missing - 1, -1, -1):
        after = step[state]
        events = np.flatnonzero((after >= 0) & lasting[min(left, len(lasting) - 1)][after])
        event = int(events[left % len(events)])  # turning through the choices: not one event for ever
        state, row = int(after[event]), (*row, event)
    return row


def _lasting(step: npt.NDArray[np.integer], most: int) -> list[npt.NDArray[np.bool_]]:
    """For n = 0, 1, … whether n more events can follow each state [S]; the last entry holds for all further n."""
    lasting = [np.ones(len(step), dtype=bool)]
    while len(lasting) <= most:
        longer = ((step >= 0) & lasting[-1][step]).any(axis=1)
        if (longer == lasting[-1]).all():
            break
        lasting.append(longer)
    return lasting


def _round_robin(bands: Sequence[list[PrefixCase]], most: int) -> Iterable[PrefixCase]:
    turns = [
        case for turn in range(max(map(len, bands), default=0)) for case in (band[turn : turn + 1] for band in bands)
    ]
    return [case for place in turns for case in place][: max(0, most)]


def _band(length: int) -> int:
    return (length - 1).bit_length()


def _hash(name: str) -> int:
    # Not hash(), which is another in every process.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
