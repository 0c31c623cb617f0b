"""Files that came through the browser, kept under names of our own making."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from auditlib.files import write_whole

_LONGEST = 100


def keep(folder: Path, name: str, content: bytes) -> Path:
    """Path of the file, in a folder named after its digest; nothing of `name` can lead out of there.

    The end of the name stays, because it says how the file is packed and what it is.
    """
    last = re.split(r"[/\\]", name)[-1]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", last)[-_LONGEST:].lstrip("._-") or "log"
    path = folder / hashlib.sha256(content).hexdigest()[:32] / plain
    if not path.exists():
        write_whole(path, content)
    return path
