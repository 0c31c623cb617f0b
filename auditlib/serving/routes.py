"""Ways to an answer, what each of them gave, and the log row that tells of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from auditlib.events.automaton import WrongEvent
from auditlib.serving.comparing import Difference, events_digest
from auditlib.serving.engine import Finished
from auditlib.serving.log_row import Arm, LogRow
from auditlib.serving.moments import Clock
from auditlib.serving.request import Path, Request
from auditlib.serving.served import Served
from auditlib.serving.worker import Worker

BROKEN = "invalid order: "
"""How a reason begins when an answer broke the order rules; the rules' names follow."""


@dataclass(frozen=True, slots=True)
class Label:
    """What the rows of a service say of the rollout that it takes part in."""

    arm: Arm = "new"
    stage: str = "released"


@dataclass(frozen=True, slots=True)
class Route:
    """One way to answer: a worker, the artifact that it serves, and what the answer will call it."""

    worker: Worker
    served: Served
    path: Path


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was checked, how it came about, and how it compares with the full prefix path.

    `broken` names what was wrong with an earlier path's answer, which was not served.
    """

    finished: Finished
    route: Route
    fallback: str | None
    broken: str | None = None
    difference: Difference | None = None


def wrong_event(served: Served, finished: Finished) -> WrongEvent | None:
    """The first event of an answer that the order rules forbid, looked for once more before it is served."""
    whole = (*finished.encoded.prefix[1:], *finished.best.events)
    automaton = served.order.automaton(finished.encoded.request.attributes)
    return automaton.first_wrong(whole, finished.best.stop == "end")


class RowMaker:
    """Makes the log rows of one service."""

    def __init__(self, served: Served, label: Label, clock: Clock) -> None:
        self._served, self._label, self._clock = served, label, clock

    def in_stage(self, stage: str) -> RowMaker:
        """A maker of the rows of requests that arrive in another stage."""
        return RowMaker(self._served, replace(self._label, stage=stage), self._clock)

    def answered(self, given: Given, arrival: int) -> LogRow:
        """The row of a request that was answered."""
        finished, best, found = given.finished, given.finished.best, given.difference
        return replace(
            self.unanswered(finished.encoded.request, arrival, None),
            start=self._clock.at(finished.joined),
            first_event=self._clock.at(finished.first_event),
            end=self._clock.at(finished.ended),
            artifact=given.route.served.digest,
            cache=finished.cached,
            decoding=given.route.served.setting.name,
            output_length=len(best.events),
            batch_size=finished.batch,
            stop=best.stop,
            valid=given.broken is None,
            rule=given.broken,
            mask_empty=best.stop == "no legal event",
            events_digest=events_digest(best.events),
            shadow_events_digest=None if found is None else found.digest,
            first_differing_step=None if found is None else found.step,
            margin=None if found is None else found.margin,
            largest_logit_gap=None if found is None else found.gap,
            cache_bytes=finished.cache_bytes,
            fallback=given.fallback,
        )

    def unanswered(self, request: Request, arrival: int, error: str | None) -> LogRow:
        """The row of a request that was not, with the code of the error; it ends now."""
        # The log is for people who need not know whose session it was, only which rows are of one.
        session = hashlib.sha256(f"session {request.session}".encode()).hexdigest()
        return LogRow(
            request_id=request.request_id,
            arrival=arrival,
            start=None,
            first_event=None,
            end=self._clock.now(),
            session=f"sha256:{session}",
            arm=self._label.arm,
            stage=self._label.stage,
            artifact=self._served.digest,
            cache=False,
            decoding=self._served.setting.name,
            prefix_length=len(request.events),
            output_length=0,
            batch_size=0,
            stop=None,
            valid=None,
            rule=None,
            mask_empty=False,
            events_digest=None,
            error=error,
        )
