"""What generation gives back for one hypothesis, and how hypotheses are ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from auditlib.decoding.policies import Setting

Stop = Literal["end", "capped", "context full", "no legal event"]
_Numbered = tuple[int, "Generated"]


@dataclass(frozen=True, slots=True)
class Generated:
    """New events of one hypothesis, the end included when it was emitted, and why they stop there.

    `score` sums the decoder's own log-probabilities of the events, before mask and filters. `forced`: the end was
    the only event left because the budget ran out; `chosen_end`: it came while there was still a choice or no need.
    `cap` is the most new events that this prefix could get: the asked maximum, or what its context had left.
    """

    events: tuple[int, ...]
    stop: Stop
    forced: bool
    score: float
    chosen_end: bool
    cap: int


def normalised(score: float, new_events: int, setting: Setting) -> float:
    """What beams are ranked by: the score over a power of the number of new events, the end counted as one of them.

    The prefix is not counted, and finished and unfinished hypotheses are counted alike.
    """
    return score / float(max(1, new_events) ** setting.length_penalty)


class Outcome:
    """Hypotheses found so far, by prefix. A prefix is closed once it has as many ended ones as the setting wants."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._caps: dict[int, int] = {}
        self._ended: dict[int, list[_Numbered]] = {}
        self._unended: dict[int, list[_Numbered]] = {}
        self._dropped: set[int] = set()

    def open(self, prefix: int, cap: int) -> None:
        """Expect hypotheses of a prefix that may get at most `cap` new events."""
        self._caps[prefix], self._ended[prefix], self._unended[prefix] = cap, [], []

    def close(self, prefix: int) -> None:
        """Take no more hypotheses of a prefix: nobody waits for them."""
        self._dropped.add(prefix)

    def closed(self, prefix: int) -> bool:
        """Whether a prefix needs no more hypotheses; what is found for it then stays as it is."""
        return prefix in self._dropped or len(self._ended[prefix]) >= self._setting.width

    def add_ended(self, prefix: int, events: tuple[int, ...], score: float, *, forced: bool, sample: int = 0) -> None:
        """Note a hypothesis whose last event is the end, unless its prefix is closed; samples are told by number."""
        if not self.closed(prefix):
            found = Generated(events, "end", forced, score, not forced, self._caps[prefix])
            self._ended[prefix].append((sample, found))

    def add_unended(self, prefix: int, events: tuple[int, ...], score: float, stop: Stop, *, sample: int = 0) -> None:
        """Note a hypothesis that stops without the end."""
        found = Generated(events, stop, False, score, False, self._caps[prefix])
        self._unended[prefix].append((sample, found))

    def take(self, prefix: int) -> list[Generated]:
        """The hypotheses of a prefix, and forget it: samples by their number, beams best first.

        Beams are the ended ones, filled up with the best of those that never ended.
        """
        del self._caps[prefix]
        self._dropped.discard(prefix)
        return self._ranked(self._ended.pop(prefix), self._unended.pop(prefix))

    def _ranked(self, ended: list[_Numbered], rest: list[_Numbered]) -> list[Generated]:
        if self._setting.kind != "beam":
            # By number, not by who ended first or is best: the first one would be no fair sample, but the shortest.
            return [found for _, found in sorted([*ended, *rest], key=lambda one: one[0])]
        kept, spare = ([found for _, found in some] for some in (ended, rest))
        chosen = kept + sorted(spare, key=self._rank)[: self._setting.width - len(kept)]
        return sorted(chosen, key=self._rank)

    def _rank(self, found: Generated) -> float:
        return -normalised(found.score, len(found.events), self._setting)
