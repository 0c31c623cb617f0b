"""Keeps log rows for services that must go on when the disk does not, and counts what could not be kept."""

from __future__ import annotations

from typing import Any

from auditlib.serving.log_row import LogRow
from auditlib.serving.request_log import RequestLog
from auditlib.serving.tally import Tally

_MOST_NAMES = 100_000  # of requests without a row; far more than can be under way when a disk fills up


class Keeper:
    """Takes the rows of all arms: counts each and writes it where there is a log. Never raises for a row or disk."""

    def __init__(self, log: RequestLog | None) -> None:
        self._log = log
        self.tally = Tally()
        self.written = 0
        self.lost = 0
        self.failure: str | None = None
        """Why the newest row could not be written; None when it was, or when there is no log."""
        self.first_failure: str | None = None
        """Why the first row that was lost could not be written; it stays, whatever is written afterwards."""
        self._without_row: set[str] = set()

    def keep(self, row: LogRow) -> None:
        """Count a row and write it down; a row that cannot be written is counted as lost."""
        self.tally.add(row)
        if self._log is None:
            return
        try:
            self._log.keep(row)
        except (OSError, ValueError, TypeError) as problem:  # a full disk, or a value that no column takes
            self.lost += 1
            # The new arm only: a rollout is judged by its rows, and must not go on where they are missing.
            if row.arm == "new" and len(self._without_row) < _MOST_NAMES:
                self._without_row.add(row.request_id)
            self.failure = f"the request log cannot be written ({_why(problem)})"
            self.first_failure = self.first_failure or self.failure
        else:
            self.written += 1
            self.failure = None

    def has_no_row(self, request_id: str) -> bool:
        """Whether the new arm's row of this request was lost."""
        return request_id in self._without_row

    def close(self) -> None:
        """Put what is in the journal into a part. Where that fails the journal stays, and the next start saves it."""
        if self._log is None:
            return
        try:
            self._log.close()
        except (OSError, ValueError, TypeError) as problem:
            self.failure = f"the request log cannot be closed ({_why(problem)}); its journal stays"

    def to_json(self) -> dict[str, Any] | None:
        """How the log fares, for the health report; None where none is kept."""
        if self._log is None:
            return None
        saved = self._log.recovered
        return {
            "rows": self.written,
            "lost": self.lost,
            "failure": self.failure,
            "recovered": {"rows": saved.rows, "broken_lines": saved.broken},
        }


def _why(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
