"""Run folders: what was measured and judged, written once, whole or not at all, and never changed.

Layout: `manifest.json` (inputs, device, versions, seeds, digest of every other file), `report.json` (contract 2),
`policy.json`, and one Parquet file a table under `tables/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa

from auditlib.errors import IntegrityError, RunError
from auditlib.files import sha256_of, whole_folder
from auditlib.release.judge import approved

_CHECKS = "checks"


@dataclass(frozen=True)
class Run:
    """One finished run. `manifest` and `report` are read and checked at once, tables when asked for."""

    folder: Path
    manifest: Mapping[str, Any]
    report: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Name of the run, which is also its folder's."""
        return self.folder.name

    @property
    def revision(self) -> str:
        """Digest of the audited revision."""
        return str(self.manifest["revision"]["digest"])

    @property
    def approved(self) -> bool:
        """Whether the report says yes to everything that a release needs, read as strictly as the verdict reads it."""
        return approved(self.report)

    def table(self, audit: str, name: str) -> pd.DataFrame:
        """Observations of one audit; an empty frame when the audit left no such table. RunError for a damaged one."""
        file = _table_file(audit, name)
        if file not in self.manifest["files"]:
            return pd.DataFrame()
        try:
            # A run's tables are small: threads would cost more than they save.
            return pd.read_parquet(self.folder / file, use_threads=False)
        except (OSError, ValueError, pa.ArrowException) as problem:
            raise _damaged(self.folder / file, problem) from problem

    @cached_property
    def checks(self) -> pd.DataFrame:
        """One row a check: audit, name, value, limit, unit, count, status."""
        rows = [
            {"audit": audit, **check} for audit, result in self.report["audits"].items() for check in result["checks"]
        ]
        return pd.DataFrame(rows, columns=["audit", "name", "value", "limit", "unit", "count", "status", "failure"])

    def verify(self) -> None:
        """Raise IntegrityError when a file of the run is missing, added or altered."""
        _verify_files(self.folder, self.manifest["files"])


def write_run(
    root: Path,
    run_id: str,
    *,
    manifest: Mapping[str, Any],
    report: Mapping[str, Any],
    tables: Mapping[tuple[str, str], pd.DataFrame],
    policy: bytes,
    extras: Mapping[str, bytes] = MappingProxyType({}),
) -> Run:
    """Write a run under `root`; it appears only when it is whole. Raises FileExistsError for a taken id.

    `extras` are further files by their path in the run, such as counterexamples.
    """
    with whole_folder(root / run_id) as aside:
        (aside / "report.json").write_bytes(_json_bytes(report))
        (aside / "policy.json").write_bytes(policy)
        (aside / "tables").mkdir()
        for name, content in extras.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_bytes(content)
        for (audit, name), table in tables.items():
            table.to_parquet(aside / _table_file(audit, name), index=False)
        _checks_table(run_id, manifest, report).to_parquet(aside / "tables" / f"{_CHECKS}.parquet", index=False)
        # Listed last, when all files are there; the manifest itself is named by what is signed.
        files = {str(p.relative_to(aside)): sha256_of(p) for p in sorted(aside.rglob("*")) if p.is_file()}
        (aside / "manifest.json").write_bytes(_json_bytes({**manifest, "files": files}))
    return open_run(root / run_id)


def open_run(folder: Path) -> Run:
    """A finished run; RunError when the folder is none, IntegrityError when its report was altered."""
    manifest_file = folder / "manifest.json"
    if not manifest_file.is_file():
        raise RunError(f"{folder} is not a finished run: it has no manifest.json; audit again")
    try:
        manifest = json.loads(manifest_file.read_bytes())
        report = json.loads((folder / "report.json").read_bytes())
        _require_shape(manifest, report)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise RunError(
            f"{folder}: the run cannot be read ({type(problem).__name__}: {problem}); audit again"
        ) from problem
    _verify_files(folder, {"report.json": manifest["files"]["report.json"]}, only_listed=True)
    if report["run"] != folder.name or report["revision"] != manifest["revision"]["digest"]:
        raise IntegrityError(f"{folder}: report and manifest do not belong to this run; audit again")
    return Run(folder, manifest, report)


def list_runs(root: Path) -> tuple[Run, ...]:
    """Finished runs under `root`, newest first; folders being written, or left by a killed run, are passed over."""
    runs = (open_run(folder) for folder in _finished(root))
    return tuple(sorted(runs, key=lambda run: (run.manifest["created"], run.id), reverse=True))


def checks_of_all_runs(root: Path) -> pd.DataFrame:
    """Every check of every finished run under `root`, oldest first: what a trend over revisions is drawn from.

    RunError when a table cannot be read; the message of DuckDB names the file.
    """
    tables = [folder / "tables" / f"{_CHECKS}.parquet" for folder in _finished(root)]
    files = [_not_a_pattern(str(table)) for table in tables if table.is_file()]
    if not files:
        return pd.DataFrame()
    with duckdb.connect(":memory:") as connection:
        # By name: runs of earlier versions may lack a column, and must not shift the others.
        query = "select * from read_parquet(?, union_by_name => true) order by created, run, audit, name"
        try:
            return connection.execute(query, [files]).df()
        except duckdb.Error as problem:
            raise _damaged(root, problem) from problem


def _finished(root: Path) -> list[Path]:
    """Folders of finished runs; what is being written lies under a name with a dot, as does what a kill left."""
    if not root.is_dir():
        return []
    return sorted(p for p in root.iterdir() if not p.name.startswith(".") and (p / "manifest.json").is_file())


def _not_a_pattern(path: str) -> str:
    """The path as DuckDB reads it: each character that would stand for others stands for itself."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def _require_shape(manifest: Any, report: Any) -> None:
    """Raise ValueError, KeyError or TypeError unless both hold what every reader of a run takes for granted."""
    texts = {
        "created": manifest["created"],
        "revision name": manifest["revision"]["name"],
        "revision": manifest["revision"]["digest"],
        "snapshot": manifest["snapshot"]["digest"],
        "report.json": manifest["files"]["report.json"],
        "run of the report": report["run"],
        "revision of the report": report["revision"],
    }
    for name, found in texts.items():
        if not isinstance(found, str):
            raise TypeError(f"{name} is no text")
    datetime.fromisoformat(manifest["created"])
    for name in ("failures", "not_measured"):
        if not isinstance(report[name], list):
            raise TypeError(f"{name} is no list")
    for audit, result in report["audits"].items():
        if not all(isinstance(check, dict) for check in result["checks"]):
            raise TypeError(f"a check of {audit} is no object")


def _checks_table(run_id: str, manifest: Mapping[str, Any], report: Mapping[str, Any]) -> pd.DataFrame:
    """The run's checks as one flat table, with what identifies the run in each row."""
    common = {
        "run": run_id,
        "created": manifest["created"],
        "revision": manifest["revision"]["digest"],
        "revision_name": manifest["revision"]["name"],
        "snapshot": manifest["snapshot"]["digest"],
    }
    columns = {
        "name": "string",
        "value": "float64",
        "limit": "float64",
        "unit": "string",
        "count": "int64",
        "status": "string",
    }
    rows = [
        {**common, "audit": audit, **{column: check[column] for column in columns}}
        for audit, result in report["audits"].items()
        for check in result["checks"]
    ]
    return pd.DataFrame(rows, columns=[*common, "audit", *columns]).astype(columns)


def _verify_files(folder: Path, files: Mapping[str, str], *, only_listed: bool = False) -> None:
    """Compare every listed file with its digest and, unless told otherwise, refuse files that are not listed."""
    for name, digest in files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or sha256_of(path) != digest:
            raise IntegrityError(f"{path} is missing or differs from what the run's manifest recorded; audit again")
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {"manifest.json"}
    extra = sorted(present - set(files))
    if extra and not only_listed:
        raise IntegrityError(f"{folder} holds files that the run did not write: {', '.join(extra)}; remove them")


def _damaged(place: Path, problem: Exception) -> RunError:
    """What to say of a table whose reader gave up: the reason's first line, for DuckDB adds the query."""
    reason = (str(problem).splitlines() or [type(problem).__name__])[0]
    return RunError(f"{place}: a table cannot be read ({reason}); remove that run and audit again")


def _table_file(audit: str, name: str) -> str:
    """Path of a table inside its run folder."""
    return f"tables/{audit.replace(' ', '_')}.{name.replace(' ', '_')}.parquet"


def _json_bytes(document: Mapping[str, Any]) -> bytes:
    """Readable JSON without NaN, which JSON does not know."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
