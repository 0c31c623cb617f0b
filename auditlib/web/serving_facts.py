"""Artifacts on the disk, the evidence that lies beside them, and what a memory planner starts from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.errors import ArtifactError, PrefixgateError
from auditlib.release.evidence import read_evidence
from auditlib.serving.artifact import DOCUMENT, Artifact, open_artifact
from auditlib.serving.memory import MemoryPlan
from auditlib.web.disk import Stamp, stamp

KINDS = ("bench", "replay", "rehearsal")
_LARGEST = 32 << 20
_TEXTS = (
    "load",
    "arm",
    "measure",
    "path",
    "composition",
    "problem",
    "prefix",
    "saved",
    "given",
    "saved_stop",
    "given_stop",
)
# What a planner starts from where neither evidence nor a config says anything.
_UNKNOWN = {"layers": 2, "heads": 4, "head_size": 8, "itemsize": 4, "context": 64}


@dataclass(frozen=True, slots=True)
class Measured:
    """One evidence document: what it amounts to, all that it says, and where it lies."""

    path: Path
    status: str
    document: Mapping[str, Any]

    def table(self, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
        """One of its tables with these columns: texts as texts, everything else as numbers or gaps."""
        rows = self.document.get("tables", {}).get(name, [])
        frame = pd.DataFrame(rows if isinstance(rows, list) else []).reindex(columns=list(columns))
        for column in columns:
            numbers = column not in _TEXTS
            frame[column] = pd.to_numeric(frame[column], errors="coerce") if numbers else frame[column].astype(str)
        return frame


def artifacts(root: Path) -> dict[str, Path]:
    """Folders below `root` that hold an artifact's document, by name. Links are passed over: they may lead anywhere."""
    if not root.is_dir():
        return {}
    folders = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()]
    return {folder.name: folder for folder in folders if (folder / DOCUMENT).is_file()}


def opened(folder: Path) -> Artifact:
    """The artifact, checked whole; ArtifactError or IntegrityError when it does not hold."""
    found: Artifact = _opened(folder, _stamps(folder))
    return found


def evidence(root: Path, digest: str) -> tuple[dict[str, Measured], tuple[str, ...]]:
    """The newest bench and replay of an artifact among the JSON files in `root`, and what could not be read."""
    found: dict[str, Measured] = {}
    problems = []
    for path in sorted(root.glob("*.json")) if root.is_dir() else []:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        try:
            one = _measured(path, stamp(path))
        except PrefixgateError as problem:
            problems.append(str(problem))
            continue
        if one is None or one.document["artifact"] != digest:
            continue
        kind, created = one.document["kind"], str(one.document["created"])
        if kind not in found or created > str(found[kind].document["created"]):
            found[kind] = one
    return found, tuple(problems)


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def starting_plan(artifact: Artifact | None, bench: Measured | None) -> MemoryPlan:
    """What a planner starts from: the shape that a bench found, else the revision's config, else small numbers."""
    numbers = {**_UNKNOWN, **_of_config(artifact), **_of_bench(bench)}
    bounds = None if artifact is None else artifact.bounds
    setting = None if artifact is None else artifact.setting
    strategy = None if artifact is None else artifact.strategy
    return MemoryPlan(
        **numbers,
        concurrency=bounds.slots if bounds else 8,
        width=setting.width if setting else 1,
        residents=bounds.residents if bounds else 8,
        strategy="preallocated slots" if strategy == "preallocated slots" else "cached",
    )


def _of_config(artifact: Artifact | None) -> dict[str, int]:
    """Numbers of a native decoder's config; other adapters keep theirs elsewhere."""
    if artifact is None or artifact.revision.manifest.decoder != "event_gpt":
        return {}
    config = artifact.revision.manifest.config
    itemsize = {"float64": 8, "bfloat16": 2}.get(artifact.dtype, 4)
    shape = {"layers": config["layers"], "heads": config["heads"], "context": config["context_length"]}
    return {**shape, "head_size": config["width"] // config["heads"], "itemsize": itemsize}


def _of_bench(bench: Measured | None) -> dict[str, int]:
    shape = bench.document.get("shape") if bench else None
    if not isinstance(shape, Mapping) or bench is None:
        return {}
    named = {name: shape.get(name) for name in ("layers", "heads", "head_size", "itemsize")}
    named["context"] = bench.document.get("context_length")
    return {name: number for name, number in named.items() if type(number) is int and 1 <= number <= 1 << 20}


def _stamps(folder: Path) -> tuple[Stamp, ...]:
    return tuple(stamp(path) for path in sorted(folder.rglob("*")))


@st.cache_resource(max_entries=20, show_spinner="Checking the artifact …")
def _opened(folder: Path, version: tuple[Stamp, ...]) -> Any:  # noqa: ARG001  a part of the cache's key
    return open_artifact(folder)


@st.cache_resource(max_entries=100, show_spinner=False)
def _measured(path: Path, version: Stamp) -> Any:  # noqa: ARG001  a part of the cache's key
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # other JSON files may lie here too
    if not isinstance(document, dict) or document.get("kind") not in KINDS:
        return None
    found = read_evidence(path)
    if not isinstance(document.get("tables", {}), dict):
        raise ArtifactError(f"{path}: its tables are none; measure again")
    return Measured(path, found.status, document)
