"""An engine behind a thread of its own: callers wait, rows join and leave, and a dead engine fails nobody silently."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auditlib.errors import EngineFailedError
from auditlib.serving.engine import Engine, Finished
from auditlib.serving.request import Encoded

_LONGEST_STAY = 0.05  # seconds of steps at a stretch, far below any time limit of a single step


@dataclass(slots=True)
class _Call:
    """One caller: what it asked for, and the answer that it waits for."""

    encoded: Encoded
    answer: asyncio.Future[Finished]


class Worker:
    """Serves one engine to many callers of one event loop.

    A step that raises, or takes longer than `step_timeout` seconds, ends the worker: every caller gets
    EngineFailedError with the reason, and so does every later one.
    """

    def __init__(self, make: Callable[[], Engine], *, step_timeout: float = 30.0) -> None:
        """`make` is called in the worker's thread when the worker starts."""
        self._make, self._timeout = make, step_timeout
        self.engine: Engine | None = None
        self.failure: str | None = None
        self._waiting: deque[_Call] = deque()
        self._joining: list[_Call] = []  # handed to the engine, which has not said yet under which numbers they joined
        # By the engine's own numbers: two callers may use one request id, one after the other or in one comparison.
        self._calls: dict[int, _Call] = {}
        self._forgotten: set[int] = set()
        self._work = asyncio.Event()
        self._thread = _Thread()
        self._driver: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Callers whose request has not joined the batch yet."""
        return len(self._waiting)

    @property
    def calls(self) -> int:
        """Callers that wait for an answer, in the batch or before it."""
        return len(self._waiting) + len(self._joining) + len(self._calls)

    async def answer(self, encoded: Encoded) -> Finished:
        """The finished request; EngineFailedError when the engine is, or becomes, unable to give it.

        A caller that is cancelled leaves the batch at the next step.
        """
        if self.failure is not None:
            raise EngineFailedError(self.failure)
        if self._driver is None:
            # Not before the first caller: a worker may be made where no event loop runs yet.
            self._driver = asyncio.create_task(self._drive())
        call = _Call(encoded, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._work.set()
        try:
            return await call.answer
        finally:
            # A caller that leaves cancels the future it awaits: that is how it is told from one with an answer.
            if call.answer.cancelled():
                self._leave(call)

    async def stop(self) -> None:
        """End the thread; callers that still wait get EngineFailedError."""
        self._fail("the service was stopped")
        if self._driver is not None:
            self._driver.cancel()
            await asyncio.gather(self._driver, return_exceptions=True)
        self._thread.stop()

    def _leave(self, call: _Call) -> None:
        if call in self._waiting:
            self._waiting.remove(call)
        self._forget_those_that_left()

    def _forget_those_that_left(self) -> None:
        """Have the engine drop the requests of callers that are gone."""
        gone = {owner for owner, call in self._calls.items() if call.answer.cancelled()}
        for owner in gone:
            del self._calls[owner]
        self._forgotten |= gone

    async def _drive(self) -> None:
        """Step while anybody waits."""
        try:
            self.engine = await self._in_thread(self._make)
            # Not for ever: a cancellation that comes as a step ends is swallowed by Python 3.11's wait_for.
            while self.failure is None:
                await self._work.wait()
                await self._advance(self.engine)
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            self._fail(f"a step took longer than {self._timeout:g} s")
        except BaseException as problem:  # noqa: BLE001 - SystemExit out of a decoder must not take the service along
            self._fail(f"{type(problem).__name__}: {problem}")

    async def _advance(self, engine: Engine) -> None:
        joining = [self._waiting.popleft() for _ in range(min(engine.free, len(self._waiting)))]
        self._joining = joining
        forgotten, self._forgotten = self._forgotten, set()
        encoded = [call.encoded for call in joining]
        owners, done = await self._in_thread(_advance, engine, encoded, forgotten, self._is_wanted)
        self._calls |= dict(zip(owners, joining, strict=True))
        self._joining = []
        for finished in done:
            call = self._calls.pop(finished.owner, None)
            if call is not None and not call.answer.done():
                call.answer.set_result(finished)
        self._forget_those_that_left()
        if not engine.busy and not self._waiting:
            self._work.clear()

    def _is_wanted(self) -> bool:
        """Whether the engine has to come back between steps: somebody came, or left. Asked in the engine's thread."""
        left = any(call.answer.cancelled() for call in self._joining)
        return bool(left or self._waiting or self._forgotten or self.failure)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.wait_for(self._thread.run(function, *arguments), self._timeout)

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        for call in (*self._waiting, *self._joining, *self._calls.values()):
            if not call.answer.done():
                call.answer.set_exception(EngineFailedError(self.failure))
        self._waiting.clear()
        self._joining = []
        self._calls.clear()


def _advance(
    engine: Engine, joining: list[Encoded], forgotten: set[int], is_wanted: Callable[[], bool]
) -> tuple[range, list[Finished]]:
    """Steps of the engine, in its thread, until an answer is finished or the engine has to come back.

    Gives the numbers under which `joining` joined, in order, and what is finished.

    Every return costs a hand-over between threads, which takes as long as a step of a small decoder does.
    """
    if forgotten:
        engine.forget(forgotten)
    owners = engine.admit(joining)
    until = time.monotonic() + _LONGEST_STAY
    finished = engine.step()
    while engine.busy and not finished and not is_wanted() and time.monotonic() < until:
        finished = engine.step()
    return owners, finished


class _Thread:
    """Runs calls one after another; a daemon, so that a call that hangs cannot keep the process alive."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Future of a call, in the running event loop."""
        if not self._started:
            threading.Thread(target=self._work, name="engine", daemon=True).start()
            self._started = True
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()

        def job() -> None:
            """Make the call in the engine's thread and hand its outcome to the event loop, if that still runs."""
            problem: BaseException | None = None
            value = None
            try:
                value = function(*arguments)
            except BaseException as raised:  # noqa: BLE001 - the caller decides what a failed call means
                problem = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, outcome, value, problem)

        self._jobs.put(job)
        return outcome

    def stop(self) -> None:
        """End after the calls that were handed over."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(outcome: asyncio.Future[Any], value: Any, problem: BaseException | None) -> None:
    if outcome.done():
        return
    if problem is None:
        outcome.set_result(value)
    else:
        # An engine that raises one of these has failed like any other, but handed over as they are they mean something
        # else: a future cannot carry StopIteration, and the others would end the driver as if it had been told to stop.
        means_more = isinstance(problem, (StopIteration, GeneratorExit, asyncio.CancelledError))
        outcome.set_exception(RuntimeError(repr(problem)) if means_more else problem)
