"""A rollout's two arms over one stream of requests: who answers whom, and who only listens.

Which arm a request belongs to follows from its id alone, so that a repeated request meets the same arm and anyone can
check the assignment from the log.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Self

from auditlib.errors import InputError, RequestFailedError, RequestRefusedError
from auditlib.serving.request import Answer, Request
from auditlib.serving.service import Service

_ALL = 2**64


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a rollout: its name, the share of requests that the new arm answers, and whether it listens to all.

    In a shadow stage the fallback answers everything and the new arm answers along, unheard.
    """

    name: str
    share: float
    shadow: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or (self.shadow and self.share):
            raise InputError(
                f"stage {self.name[:80]!r}: share {self.share} makes no sense; give 0 to 1, and 0 in shadow"
            )


def takes_new(request_id: str, share: float) -> bool:
    """Whether the new arm answers a request when it gets this share of them."""
    number = int.from_bytes(hashlib.sha256(f"arm {request_id}".encode()).digest()[:8], "big")
    # Below 2**64 times a share of 1 lies every number of 64 bits: then nobody is left out.
    return number < share * _ALL


class Arms:
    """The new artifact's service and the fallback's, behind one door. Use as an asynchronous context."""

    def __init__(self, new: Service, fallback: Service, stage: Stage) -> None:
        """Both services are labelled with their arm and the stage by who makes them."""
        self.new, self.fallback, self.stage = new, fallback, stage
        self._listening: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # First who still listens: stopped services would have failures in their rows that nobody had.
        await asyncio.gather(*self._listening, return_exceptions=True)
        await self.new.__aexit__()
        await self.fallback.__aexit__()

    async def answer(self, request: Request) -> Answer:
        """The answer of the arm that the request belongs to; errors are those of `Service.answer`."""
        stage = self.stage
        if stage.shadow:
            if not self._is_under_way(request.request_id):
                self._let_listen(request)
            return await self.fallback.answer(request)
        return await (self.new if takes_new(request.request_id, stage.share) else self.fallback).answer(request)

    def _is_under_way(self, request_id: str) -> bool:
        """Whether either arm is at work under this id: the new arm may still listen when its caller asks again."""
        return self.new.is_under_way(request_id) or self.fallback.is_under_way(request_id)

    def _let_listen(self, request: Request) -> None:
        task = asyncio.create_task(self._listen(request))
        # Held on to: the event loop itself keeps no more than a weak reference to a task.
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    def move_to(self, stage: Stage) -> None:
        """Assign requests that come from now on by another stage; those under way end as they began."""
        self.stage = stage
        for service in (self.new, self.fallback):
            service.move_to(stage.name)

    async def _listen(self, request: Request) -> None:
        """Let the new arm answer too; what it cannot answer has its row in the log and troubles nobody."""
        try:
            await self.new.answer(request)
        except (RequestRefusedError, RequestFailedError):
            return
