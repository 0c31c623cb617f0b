"""What every test stands on."""

from __future__ import annotations

import os
import re
import time

import pytest
from hypothesis import settings

# One thread a worker: on small batches more threads are slower, and results should not depend on the machine's load.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


# How long one example takes says something of the machine's load, and nothing of the code.
settings.register_profile("prefixgate", deadline=None)
settings.load_profile("prefixgate")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Short names for long or binary parameters: several workers must agree on them, and people must read them."""
    long_text = isinstance(val, str) and (len(val) > 60 or "\n" in val)
    return argname if long_text or isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a name that holds the time of its collection: workers that start a second apart would not agree on it."""
    this_day = re.compile(rf"(?<!\d){int(time.time()) // 100_000}\d{{5}}(?!\d)")
    timed = [item.nodeid for item in items if this_day.search(item.nodeid)]
    if timed:
        raise pytest.UsageError(f"a test's name must not change from second to second: {timed[0]}")
