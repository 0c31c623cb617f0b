"""Tables as files: CSV that is safe to open in a spreadsheet, JSON, and Parquet without loss."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.runs.folder import Run
from auditlib.views.text import in_spreadsheet


def downloads(frame: pd.DataFrame, name: str, key: str) -> None:
    """Buttons that save `frame` as `name`.csv, .json and .parquet; nothing is made before one is pressed."""
    row = st.container(horizontal=True)
    for kind, mime, make in (
        ("CSV", "text/csv", to_csv),
        ("JSON", "application/json", to_json),
        ("Parquet", "application/vnd.apache.parquet", to_parquet),
    ):
        row.download_button(
            kind,
            lambda make=make: make(frame),  # type: ignore[misc]
            file_name=f"{name}.{kind.lower()}",
            mime=mime,
            on_click="ignore",
            key=f"{key}-{kind}",
            icon=":material/download:",
            type="tertiary",
            help=_GUARDED if kind == "CSV" else None,
        )


def named(run: Run, what: str) -> str:
    """Name of a file without its ending: which revision, which run, what of it; letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", f"{run.report['revision_name']}-{run.id}-{what}")[:180].lstrip("._-")


_GUARDED = "Cells that a spreadsheet would run as a formula begin with an apostrophe. Parquet has them unchanged."


def to_csv(frame: pd.DataFrame) -> bytes:
    """CSV with every text quoted and guarded against formulas; numbers stay numbers."""
    guarded = frame.rename(columns=lambda name: in_spreadsheet(str(name)))
    for name in guarded.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in guarded.dtypes]]:
        guarded[name] = [None if pd.isna(cell) else in_spreadsheet(str(cell)) for cell in guarded[name]]
    text: str = guarded.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    # Without the mark Excel reads UTF-8 as the local code page.
    return text.encode("utf-8-sig")


def to_parquet(frame: pd.DataFrame) -> bytes:
    """The frame as a Parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def to_json(frame: pd.DataFrame) -> bytes:
    """The rows as a list of JSON objects; null where there is no number, "Infinity" and "-Infinity" in words."""
    names = [str(name) for name in frame.columns]
    rows = [dict(zip(names, map(_plain, row), strict=True)) for row in frame.itertuples(index=False, name=None)]
    return json.dumps(rows, ensure_ascii=False, allow_nan=False, indent=1, default=str).encode()


def _plain(cell: Any) -> Any:
    """A cell as JSON knows it."""
    value = cell.item() if hasattr(cell, "item") else cell
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value
