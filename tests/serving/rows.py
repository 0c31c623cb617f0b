"""A row of the live log, for tests; imports nothing heavy, because killed processes make rows too."""

from __future__ import annotations

from auditlib.serving.log_row import LogRow


def a_row(number: int) -> LogRow:
    times = {"arrival": 10, "start": 11, "first_event": 12, "end": 13}
    texts = {"session": "s", "arm": "new", "stage": "shadow", "artifact": "sha256:a", "decoding": "greedy"}
    counts = {"prefix_length": 1, "output_length": 2, "batch_size": 1}
    rest = {"cache": True, "stop": "end", "valid": True, "rule": None, "mask_empty": False, "events_digest": "d"}
    return LogRow(request_id=f"r{number}", **times, **texts, **counts, **rest)
