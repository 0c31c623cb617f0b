"""What a reviewer has before their eyes when they sign, as digests: a signature is for that or for nothing.

No Streamlit here. A form may be open for hours, while runs are chosen, evidence is measured and others sign.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from auditlib.errors import InputError
from auditlib.release.digests import digest_of
from auditlib.release.envelope import read_envelope
from auditlib.runs.folder import Run
from auditlib.web.shelf import Bound

_WORDS = {
    "run": "the run",
    "artifact": "the artifact",
    "evidence": "the evidence on the artifact",
    "decisions": "what may be decided",
    "verdict": "the verdict on file",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What is signed for, and what may be said of it; texts are digests, empty for what there is none of."""

    run: str
    artifact: str
    evidence: str
    decisions: tuple[str, ...]
    verdict: str

    @property
    def digest(self) -> str:
        """One digest over all of it."""
        return digest_of(json.dumps(asdict(self), sort_keys=True).encode())

    def changes(self, now: Seen) -> str:
        """What is another one `now`, in words; empty when nothing is."""
        before, after = asdict(self), asdict(now)
        return ", ".join(words for name, words in _WORDS.items() if before[name] != after[name])

    def require(self, now: Seen) -> None:
        """Refuse to sign, with InputError, when anything is another one `now`."""
        if changed := self.changes(now):
            raise InputError(
                f"nothing was signed: since the form was shown, these have changed: {changed}; look again, then sign"
            )


def seen_of(run: Run, bound: Bound | None, verdict: Path, *, may_approve: bool) -> Seen:
    """What is signed for when a run's verdict names `bound`, as it lies on the disk; `verdict` is the file it goes to.

    Of a verdict on file the statement counts and not who has signed it: that others sign first changes nothing.
    """
    evidence = () if bound is None else sorted(found.digest for found in bound.evidence.values())
    # the manifest holds the digests of all other files
    about = json.dumps([run.id, run.manifest], sort_keys=True)
    return Seen(
        digest_of(about.encode()),
        "" if bound is None else bound.artifact.digest,
        ",".join(evidence),
        ("approve", "refuse") if may_approve else ("refuse",),
        digest_of(read_envelope(verdict.read_bytes()).payload) if verdict.exists() else "",
    )
