"""Rates and table rows of one decoding setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlib.audits.base import Measurement
from auditlib.audits.emitted import Bounds, Emitted
from auditlib.audits.held_out import written
from auditlib.audits.intervals import upper_bound
from auditlib.audits.likeness import duplicate_share, mean, similarity
from auditlib.decoding.policies import Setting

SEQUENCES = (
    "setting", "order_mask", "proposed", "session_id", "prefix", "hypothesis", "events", "stop", "tagged", "forced",
    "score", "first_wrong", "rules",
)  # fmt: skip
RATES = (
    "setting", "order_mask", "proposed", "sequences", "invalid_sequences", "invalid_rate", "invalid_upper",
    "emitted_events", "invalid_events", "event_rate", "event_upper", "padding", "capped", "context_full", "no_legal",
    "forced", "duplicate_share", "log_duplicate_share", "accuracy", "similarity",
)  # fmt: skip


def sequence_rows(setting: Setting, proposed: bool, emitted: Sequence[Emitted]) -> Iterator[tuple[object, ...]]:
    """Rows of the table "sequences"; `events` is the whole row, `first_wrong` the place in it (start is 0)."""
    for one in emitted:
        place, rules = (one.wrong.position, "; ".join(one.wrong.rules) or one.wrong.kind) if one.wrong else (None, "")
        yield (
            setting.name, setting.order_mask, proposed, one.case.session_id, written(one.case.row), one.hypothesis,
            written(one.row), one.stop, one.found.stop, one.forced, one.found.score, place, rules,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts and rates over the sequences of one setting; bounds are one-sided at 95 %.

    Likeness to the log is that of each prefix's first hypothesis to the rest of its session, cut at the same room;
    the log's own duplicates are counted over these rests.
    """

    sequences: int
    invalid: int
    invalid_upper: float
    events: int
    invalid_events: int
    events_upper: float
    padding: int
    capped: int
    context_full: int
    no_legal: int
    forced: int
    duplicates: float
    log_duplicates: float
    accuracy: float
    similarity: float
    compared: int

    @classmethod
    def of(cls, emitted: Sequence[Emitted], bounds: Bounds) -> Rates:
        """Rates of what one setting emitted."""
        firsts = [one for one in emitted if one.hypothesis == 0 and not one.case.made_up and bounds.room(one.case) > 0]
        rests = [one.case.rest[: bounds.room(one.case)] for one in firsts]
        pairs = [(one.found.events, rest) for one, rest in zip(firsts, rests, strict=True)]
        stops = [one.stop for one in emitted]
        events, invalid_events = sum(len(one.found.events) for one in emitted), sum(one.wrong_events for one in emitted)
        invalid = sum(one.wrong is not None for one in emitted)
        return cls(
            len(emitted), invalid, upper_bound(invalid, len(emitted)), events, invalid_events,
            upper_bound(min(invalid_events, events), events), sum(one.padding for one in emitted),
            stops.count("capped"), stops.count("context full"), stops.count("no legal event"),
            sum(one.forced for one in emitted), duplicate_share([one.found.events for one in firsts]),
            duplicate_share(rests), mean([new[:1] == rest[:1] for new, rest in pairs]),
            mean([similarity(new, rest) for new, rest in pairs]), len(pairs),
        )  # fmt: skip

    def row(self, setting: Setting, proposed: bool) -> tuple[object, ...]:
        """Row of the table "rates"."""
        rate, event_rate = _share(self.invalid, self.sequences), _share(self.invalid_events, self.events)
        return (
            setting.name, setting.order_mask, proposed, self.sequences, self.invalid, rate, self.invalid_upper,
            self.events, self.invalid_events, event_rate, self.events_upper, self.padding, self.capped,
            self.context_full, self.no_legal, self.forced, self.duplicates, self.log_duplicates, self.accuracy,
            self.similarity,
        )  # fmt: skip

    def measurements(self) -> Iterator[Measurement]:
        """The rates as information beside the checks."""
        yield Measurement("invalid sequence rate", _share(self.invalid, self.sequences), "share", self.sequences)
        yield Measurement("invalid sequence rate, upper bound", self.invalid_upper, "share", self.sequences)
        yield Measurement("invalid event rate", _share(self.invalid_events, self.events), "share", self.events)
        yield Measurement("invalid event rate, upper bound", self.events_upper, "share", self.events)
        yield Measurement("forced ends", self.forced, "sequences", self.sequences)
        yield Measurement("context full", self.context_full, "sequences", self.sequences)
        yield Measurement("duplicate continuations", self.duplicates, "share", self.compared)
        yield Measurement("duplicate continuations in the log", self.log_duplicates, "share", self.compared)
        yield Measurement("next-event accuracy", self.accuracy, "share", self.compared)
        yield Measurement("similarity", self.similarity, "share", self.compared)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
