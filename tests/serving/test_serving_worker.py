"""A worker ends when it is told to, at whatever moment, and says so when its engine has died, of whatever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from auditlib.errors import EngineFailedError
from auditlib.serving.engine import Engine
from auditlib.serving.worker import Worker
from tests.serving.test_serving_engine import requests_for, toy


def test_a_worker_that_is_stopped_just_as_its_step_ends_stops():
    """Python 3.11's wait_for swallows a cancellation when its call is just done; the worker then waited for ever."""
    entered, gate = threading.Event(), threading.Event()

    class Gated(Engine):
        def step(self):
            entered.set()
            assert gate.wait(20)
            return super().step()

    async def run():
        served = toy()
        worker = Worker(lambda: Gated(served, cached=False), step_timeout=20)
        call = asyncio.create_task(worker.answer(requests_for(served, 3)[2]))
        assert await asyncio.to_thread(entered.wait, 20)
        gate.set()
        time.sleep(0.3)  # noqa: ASYNC251 - the loop must not run meanwhile: the step ends, and waits to be handed over
        await asyncio.sleep(0)  # it is handed over, and the driver has not gone on yet
        await asyncio.wait_for(worker.stop(), 20)
        with pytest.raises(EngineFailedError, match="stopped"):
            await asyncio.wait_for(call, 20)
        with pytest.raises(EngineFailedError, match="stopped"):
            await worker.answer(requests_for(served, 3)[2])

    asyncio.run(run())


@pytest.mark.parametrize("problem", [asyncio.CancelledError("inner"), GeneratorExit(), StopIteration(), SystemExit(3)])
@pytest.mark.parametrize("verb", ["make", "step"])
def test_whatever_an_engine_raises_ends_it_at_once_and_is_said(problem, verb):
    class Raises(Engine):
        def step(self):
            raise problem

    def make():
        if verb == "make":
            raise problem
        return Raises(toy())

    async def run():
        worker = Worker(make, step_timeout=20)
        for _ in range(2):
            with pytest.raises(EngineFailedError, match=type(problem).__name__):
                await asyncio.wait_for(worker.answer(requests_for(toy(), 3)[2]), 10)
        assert worker.failure is not None
        await worker.stop()

    asyncio.run(run())
