"""Why a verdict is refused: one word out of a closed list, then a sentence for people."""

from __future__ import annotations

from typing import Literal

from auditlib.errors import VerdictError

Reason = Literal[
    "malformed", "altered", "foreign key", "revoked", "threshold", "stale", "replayed", "wrong artifact"
]  # fmt: skip


class RefusedError(VerdictError):
    """A verdict that does not hold; `reason` says in which way, the message starts with it.

    Messages quote nothing that was not verified, and never the words of a favourable verdict: whoever looks for those
    words in a log must not find them in a refusal.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
