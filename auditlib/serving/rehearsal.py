"""The fallback, rehearsed: an artifact is made to fail in each way while it serves, and every answer is looked at.

The failures are planted in a service of this process, over the prefixes of the artifact's fixed batch. Where the
fallback is another artifact, everything of the new one fails; where it is the full prefix path, the cached path does.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from auditlib.errors import EventMapError, InputError, RequestFailedError, RequestRefusedError
from auditlib.serving.artifact import open_artifact
from auditlib.serving.comparing import compare_events
from auditlib.serving.engine import Engine, Finished, serve_all
from auditlib.serving.fixed_batch import read_fixed_batch
from auditlib.serving.opening import fallback_of
from auditlib.serving.planted_failures import FAILURES, planted
from auditlib.serving.request import Answer, Encoded, Request, encode
from auditlib.serving.served import Served
from auditlib.serving.service import Service


@dataclass(slots=True)
class Trial:
    """What became of all requests under one failure: answers by path, how many were right, wrong, or not given.

    `showed` counts how often a path gave no answer that holds, because of the failure: one that never showed has
    rehearsed nothing.
    """

    failure: str
    paths: Counter[str] = field(default_factory=Counter)
    right: int = 0
    wrong: int = 0
    unanswered: int = 0
    showed: int = 0

    @property
    def passed(self) -> bool:
        """Whether every request got the right answer though the failure was there."""
        return self.showed > 0 < self.right and self.wrong == self.unanswered == 0


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """All trials of an artifact and its fallback; `not_applicable` gives failures that it cannot have, and why."""

    artifact: str
    fallback: str
    requests: int
    created: str
    trials: tuple[Trial, ...]
    not_applicable: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether the fallback stood in every time."""
        return all(trial.passed for trial in self.trials)

    def to_json(self, device: Mapping[str, Any]) -> dict[str, Any]:
        """The evidence document, of kind "rehearsal"; `device` is the fingerprint of where it was done."""
        checks = [
            {
                "audit": "fallback", "name": f"{one.failure}: answers wrong or missing",
                "value": one.wrong + one.unanswered, "limit": 0, "unit": "requests", "count": self.requests,
                "status": "passed" if one.passed else "failed",
            }
            for one in self.trials
        ]  # fmt: skip
        return {
            "format": 1, "kind": "rehearsal", "artifact": self.artifact, "fallback": self.fallback,
            "created": self.created, "device": dict(device), "status": "passed" if self.passed else "failed",
            "checks": checks, "trials": [{**asdict(one), "paths": dict(one.paths)} for one in self.trials],
            "not_applicable": dict(self.not_applicable),
        }  # fmt: skip


def rehearse(
    folder: Path, fallback_folder: Path | None = None, *,
    timeout: float = 5.0, device: str = "cpu", allow_code: bool = False,
) -> Rehearsal:  # fmt: skip
    """What an artifact's fallback does under each failure. `timeout`: seconds after which a path counts as hung.

    Errors are those of `open_artifact` and `Artifact.load`; ArtifactError for an artifact that serves nothing.
    """
    if not 0 < timeout < float("inf"):
        raise InputError(f"--timeout {timeout}: give a number of seconds above 0")
    artifact = open_artifact(folder)
    fallback = fallback_of(artifact, fallback_folder)
    batch = read_fixed_batch(artifact)
    served = artifact.load(device, allow_code=allow_code)
    earlier = None if fallback is None else fallback.load(device, allow_code=allow_code)
    rows = enumerate(zip(batch.prefixes, batch.attributes, strict=True))
    requests = [_request(served, number, *row) for number, row in rows]
    stage = _Stage(served, earlier, requests, timeout)
    apart = {} if served.strategy != "full prefix" else {"cache is rejected": "it serves without a cache"}
    trials = tuple(stage.trial(name) for name in FAILURES if name not in apart)
    return Rehearsal(
        artifact.digest,
        artifact.fallback,
        len(requests),
        datetime.now(UTC).isoformat(timespec="milliseconds"),
        trials,
        apart,
    )


class _Stage:
    """The artifacts and requests of one rehearsal, with the answers that each artifact gives by full prefixes."""

    def __init__(self, served: Served, earlier: Served | None, requests: list[Request], timeout: float) -> None:
        self._served, self._earlier, self._requests, self._timeout = served, earlier, requests, timeout
        self._right = {one.digest: _answers(one, requests) for one in (served, earlier) if one is not None}

    def trial(self, failure: str) -> Trial:
        """One failure, planted afresh."""
        return asyncio.run(self._trial(failure))

    async def _trial(self, failure: str) -> Trial:
        trial, released, shown = Trial(failure), threading.Event(), list[int]()
        kind = planted(failure, released, shown)
        make = self._planting(kind, only_cached=failure == "cache is rejected")
        service = Service(self._served, fallback=self._earlier, timeout=self._timeout, make_engine=make)
        room = asyncio.Semaphore(self._served.bounds.slots)
        try:
            async with service:
                await asyncio.gather(*(self._ask(service, room, request, trial) for request in self._requests))
        finally:
            released.set()
        trial.showed = sum(service.counts.fallbacks.values()) if shown else 0
        return trial

    def _planting(self, kind: type[Engine], *, only_cached: bool) -> Callable[..., Engine]:
        """Makes the engines of a service, and plants the failure in all that the fallback stands behind."""
        cached_alone = only_cached or (self._earlier is None and self._served.strategy != "full prefix")

        def make(served: Served, *, cached: bool | None) -> Engine:
            """The failing engine for the artifact under rehearsal; a sound one for all that has to stand in for it."""
            own = served is self._served and (cached or not cached_alone)
            return (kind if own else Engine)(served, cached=cached)

        return make

    async def _ask(self, service: Service, room: asyncio.Semaphore, request: Request, trial: Trial) -> None:
        async with room:
            try:
                answer = await service.answer(request)
            except (RequestFailedError, RequestRefusedError):
                trial.unanswered += 1
                return
        trial.paths[answer.path] += 1
        if self._is_right(request, answer):
            trial.right += 1
        else:
            trial.wrong += 1

    def _is_right(self, request: Request, answer: Answer) -> bool:
        """Whether it is what the artifact that gave it answers by full prefixes, near ties apart."""
        served = self._served if answer.artifact == self._served.digest else self._earlier
        right = None if served is None else self._right[served.digest].get(request.request_id)
        if served is None or right is None:
            return False
        try:
            events = served.event_map.encode(answer.events)
        except EventMapError:
            return False
        given = (*events, served.event_map.end) if answer.stop == "end" else events
        difference = compare_events(served, right.encoded, given, right.best.events)
        return not difference.differs or difference.is_tie(served.tolerance)


def _answers(served: Served, requests: list[Request]) -> dict[str, Finished]:
    """What an artifact answers by full prefixes, by request id; what it would refuse is left out."""
    return serve_all(served, list(_encoded(served, requests)), cached=False)


def _encoded(served: Served, requests: list[Request]) -> Iterator[Encoded]:
    for request in requests:
        with suppress(RequestRefusedError):
            yield encode(request, served)


def _request(served: Served, number: int, prefix: tuple[int, ...], attributes: Mapping[str, str]) -> Request:
    names = tuple(served.event_map.name(event) for event in prefix[1:])
    return Request(f"rehearsal {number}", names, attributes, served.bounds.max_new_events, f"rehearsal-{number}")
