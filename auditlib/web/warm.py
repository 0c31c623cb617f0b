"""Loading libraries before somebody waits for them: the first page's before the server answers, the rest behind it."""

from __future__ import annotations

import importlib
import io
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

_FIRST = (
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "duckdb",
    "auditlib.web.shell",
    "auditlib.web.parts",
    "auditlib.web.parts_board",
)
"""What the first page needs."""
_REST = (
    "plotly.graph_objects",
    "auditlib.views.charts",
    "auditlib.views.charts_policies",
    "auditlib.views.charts_sessions",
    "auditlib.web.parts_import",
    "auditlib.web.parts_rules",
    "auditlib.web.parts_compare",
    "auditlib.web.parts_verdict",
    "auditlib.web.parts_serving",
    "auditlib.web.parts_rollout",
    "auditlib.audits.device",
    "auditlib.audits.inspection",
    "auditlib.audits.subject",
    "auditlib.decoders.revision",
)
"""What other pages need, the quick ones first; the last ones load torch, which takes seconds."""
_WAIT = 6.0
"""Seconds after the start before the rest is loaded: whoever opens the first page at once shall not share a core."""


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:  # noqa: ARG001  the server hands itself over
    """Load what the first page needs before the server answers, and the rest a little later, in a thread."""
    load(_FIRST)
    _first_use()
    later = threading.Timer(_WAIT, load, (_REST,))
    later.daemon = True
    later.start()
    yield
    later.cancel()


def _first_use() -> None:
    """Take a small table through Parquet and back: the first use sets up threads and codecs of these libraries."""
    import pandas as pd  # noqa: PLC0415

    buffer = io.BytesIO()
    pd.DataFrame({"text": ["a", "b"], "number": [1.0, 2.0]}).to_parquet(buffer, index=False)
    frame = pd.read_parquet(buffer)
    frame[frame["text"] == "a"].sort_values("number")


def load(names: tuple[str, ...]) -> None:
    """Import one module after the other; one that cannot be imported will say so on the page that needs it."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc(file=sys.stderr)
