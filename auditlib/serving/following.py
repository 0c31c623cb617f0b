"""A running service that goes where its rollout goes: onwards, back to the fallback, and nowhere on doubtful word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from auditlib.serving.arms import Stage
from auditlib.serving.opening import OpenService

EVERY = 2.0
"""Seconds between two looks."""


async def follow(opened: OpenService, look: Callable[[], Stage], every: float = EVERY) -> None:
    """Ask `look` again and again, in a thread, where the rollout stands, and serve by that. Ends when cancelled.

    A rollout that cannot be read any more, whatever the reason, closes the new arm for good.
    """
    while True:
        await asyncio.sleep(every)
        try:
            opened.move_to(await asyncio.to_thread(look))
        except Exception as problem:  # noqa: BLE001 - a rollout that is not followed must not go on, whatever the reason
            opened.close_new_arm(f"its rollout cannot be followed: {problem}")
            return
