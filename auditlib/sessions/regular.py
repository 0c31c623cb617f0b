"""Opening a path that somebody named: a regular file, or an error at once."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """The file at `path`, open for reading. OSError or ValueError when it is missing or anything but a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without waiting: a named pipe would block for ever
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    return os.fdopen(descriptor, "rb")
