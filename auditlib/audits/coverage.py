"""Which held-out prefixes were compared, as numbers: distinct ones, and weighted by the sessions that have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditlib.audits.base import Measurement, Subject
from auditlib.audits.gaps import PrefixGaps
from auditlib.audits.held_out import HeldOut


@dataclass(frozen=True, slots=True)
class Coverage:
    """Held-out prefixes, distinct and weighted, and how many of each were compared; `beyond` lie past the context."""

    distinct: int
    covered: int
    weight: int
    covered_weight: int
    beyond: int

    @property
    def share(self) -> float:
        """Share of the distinct prefixes."""
        return self.covered / self.distinct if self.distinct else 0.0

    @property
    def weighted_share(self) -> float:
        """Share of the prefixes, each counted for every session that has it."""
        return self.covered_weight / self.weight if self.weight else 0.0

    def measurements(self) -> Iterator[Measurement]:
        """Information beside the checks."""
        yield Measurement("held-out prefixes covered", self.share, "share", self.distinct)
        yield Measurement("held-out prefixes covered, weighted", self.weighted_share, "share", self.weight)

    def notes(self) -> Iterator[str]:
        """What was covered and what was not, in words."""
        yield (
            f"COVERED {self.covered} of {self.distinct} distinct held-out prefixes at every step "
            f"({self.covered_weight} of {self.weight} counted by session)."
        )
        missing = self.distinct - self.covered
        if missing:
            others = missing - self.beyond
            reasons = [f"{self.beyond} are longer than the context"] if self.beyond else []
            reasons += [f"{others} were reached by no pass"] if others else []
            yield f"NOT COVERED: {missing} held-out prefixes; {', '.join(reasons)}."


def held_out_coverage(subject: Subject, held: HeldOut, compared: PrefixGaps) -> Coverage:
    """Coverage of the subject's held-out prefixes by the gaps that were noted in `compared`."""
    context = subject.decoder.context_length
    rows = [subject.row(session)[:-1] for session in subject.held_out]
    beyond = {row[:length] for row in rows for length in range(context + 1, len(row) + 1)}
    beyond_weight = sum(max(0, len(row) - context) for row in rows)
    levels = list(zip(held.trie.levels, compared.worst, strict=True))
    # A prefix that no pass has reached stands at -1.
    covered = sum(int((found >= 0).sum()) for _, found in levels)
    covered_weight = sum(int(level.weight[found.numpy() >= 0].sum()) for level, found in levels)
    weight = sum(int(level.weight.sum()) for level, _ in levels)
    return Coverage(held.trie.count + len(beyond), covered, weight + beyond_weight, covered_weight, len(beyond))
