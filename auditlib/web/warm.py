"""Loading libraries before somebody waits for them: the first page's before the server answers, the rest behind it."""

from __future__ import annotations

import gc
import importlib
import io
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from auditlib.web import prompt

FIRST = (
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "duckdb",
    "auditlib.web.shell",
    "auditlib.web.parts",
    "auditlib.web.parts_board",
)
"""What the first page needs."""
TORCH = (
    "auditlib.audits.device",
    "auditlib.audits.inspection",
    "auditlib.audits.subject",
    "auditlib.decoders.revision",
)
"""What the inspector needs: torch takes seconds."""
WAIT = 6.0
"""Seconds after the start before the rest is loaded: whoever opens the first page at once shall not share a core."""


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:  # noqa: ARG001  the server hands itself over
    """Load what the first page needs before the server answers, and the rest a little later, in a thread."""
    prompt.send_at_once()
    load(FIRST)
    _first_use()
    _first_page()
    _settle()
    later = threading.Timer(WAIT, _load_the_rest)
    later.name, later.daemon = "warm-up", True
    later.start()
    yield
    later.cancel()


def _load_the_rest() -> None:
    load((*rooms(), *TORCH))
    _settle()


def _settle() -> None:
    """Tell the collector that what is loaded now stays.

    Streamlit collects after every run of a page, and going through all of torch and pandas takes 0.1 s each time, in
    which no thread can send an answer.
    """
    gc.collect()
    gc.freeze()


def _first_use() -> None:
    """Take a small table through Parquet and back: the first use sets up threads and codecs of these libraries."""
    import pandas as pd  # noqa: PLC0415

    buffer = io.BytesIO()
    pd.DataFrame({"text": ["a", "b"], "number": [1.0, 2.0]}).to_parquet(buffer, index=False)
    frame = pd.read_parquet(buffer)
    frame[frame["text"] == "a"].sort_values("number")


def _first_page() -> None:
    """Read what the board shows; where that fails, the server starts all the same and the board says why."""
    from auditlib.web import parts_board, state  # noqa: PLC0415

    where = state.places()
    if where is None:
        return
    try:
        parts_board.read_ahead(where)
    except Exception:  # noqa: BLE001  a damaged table raises whatever its reader raises
        traceback.print_exc(file=sys.stderr)


def rooms() -> tuple[str, ...]:
    """Every module that pages are made of."""
    folders = {room: Path(__file__).parents[1] / room for room in ("views", "web")}
    return tuple(
        f"auditlib.{room}.{module.name}" for room, folder in folders.items() for module in iter_modules([str(folder)])
    )


def load(names: tuple[str, ...]) -> None:
    """Import one module after the other; one that cannot be imported will say so on the page that needs it."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc(file=sys.stderr)
