"""What is remembered of background jobs over a restart of the server: one small JSON file a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditlib.files import write_whole

_KEPT = 200


class Journal:
    """Records of jobs by id in one folder; the oldest are dropped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, job_id: str, record: Mapping[str, Any]) -> None:
        """Put down where a job stands, in place of what was noted before."""
        write_whole(self._folder / f"{job_id}.json", json.dumps(dict(record)).encode())
        self._drop_oldest()

    def read(self, job_id: str) -> dict[str, Any] | None:
        """The job's record, or None when there is none that can be read."""
        try:
            record = json.loads((self._folder / f"{job_id}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and {"title", "state"} <= set(record) else None

    def _drop_oldest(self) -> None:
        """Keep the newest records only, so that the folder never grows without end."""
        files = [file for file in self._folder.glob("*.json") if file.is_file()]
        # By time of writing, since ids are random.
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)[:-_KEPT]:
            file.unlink(missing_ok=True)
