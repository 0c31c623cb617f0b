"""An event log as a stream of bytes: unpacked on the way, with truncation, damage and bombs turned into errors."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from auditlib.errors import LogError
from auditlib.sessions.regular import open_regular

FORMATS = ("csv", "xes", "parquet")
_ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".xes", ".xml"), "xes"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
# Text never shrinks further than this by deflate unless it was made to; real logs reach 50.
_MOST_RATIO = 250
_RATIO_COUNTS_FROM = 4 * 2**20
_BUFFER = 2**18


@dataclass(frozen=True, slots=True)
class LogFile:
    """An open log: its digest, its content format, and fresh streams of its unpacked bytes.

    `source` is the name without its folder. `position()` says how many of the `size` packed bytes have been read.
    """

    source: str
    sha256: str
    size: int
    format: str
    packed: str | None
    raw: BinaryIO

    def position(self) -> int:
        """Packed bytes read so far; `size` once the file is closed or read through."""
        return self.raw.tell() if not self.raw.closed else self.size

    @contextlib.contextmanager
    def stream(self, longest_line: int | None = None) -> Iterator[BinaryIO]:
        """The unpacked bytes from the start. LogError as soon as they prove to be truncated or damaged.

        With `longest_line`, also when that many bytes come without a line end: such a file is not made of lines.
        """
        self.raw.seek(0)
        with _unpacked(self.raw, self.packed, self.source) as inner, _Guarded(inner, self, longest_line) as guarded:
            yield io.BufferedReader(guarded, _BUFFER)

    def digest_again(self) -> None:
        """LogError when the file is no longer the one that was opened: somebody wrote to it meanwhile."""
        if _digest(self.raw) != self.sha256:
            raise LogError(f"{self.source} changed while it was read; import it again when nothing writes to it")


@contextlib.contextmanager
def open_log(path: Path, content: str | None = None) -> Iterator[LogFile]:
    """The log at `path`, gzip and single-member zip unpacked; its format by name, else by its first bytes.

    LogError when it is missing, no regular file, empty, a zip of several files, or of an unknown format.
    """
    if content is not None and content not in FORMATS:
        raise LogError(f"unknown log format {content!r}; the formats are {', '.join(FORMATS)}")
    try:
        raw = open_regular(path)
    except (OSError, ValueError) as error:
        raise LogError(f"{path} cannot be opened: {error}; give the path of an event log") from error
    with raw:
        size = os.fstat(raw.fileno()).st_size
        if size == 0:
            raise LogError(f"{path.name} is empty; export the log again")
        packed = _packing(raw)
        name, start = _peek(raw, packed, path.name)
        yield LogFile(path.name, _digest(raw), size, content or _content(name, start, path.name), packed, raw)


def _packing(raw: BinaryIO) -> str | None:
    magic = raw.read(4)
    if magic[:2] == b"\x1f\x8b":
        return "gzip"
    return "zip" if magic in (b"PK\x03\x04", b"PK\x05\x06") else None


def _peek(raw: BinaryIO, packed: str | None, source: str) -> tuple[str, bytes]:
    """The name of the content and its first bytes."""
    name = source
    raw.seek(0)
    with _unpacked(raw, packed, source) as inner, _translated(source):
        if packed == "zip":
            name = getattr(inner, "name", source)
        return name, inner.read(4096)


def _content(name: str, start: bytes, source: str) -> str:
    # A name such as log.xes.gz has two endings, and the packing was told from the bytes already.
    endings = [ending.lower() for ending in PurePosixPath(name).suffixes if ending.lower() not in (".gz", ".zip")]
    if start[:4] == b"PAR1":
        return "parquet"
    if endings and endings[-1] in _ENDINGS:
        return _ENDINGS[endings[-1]]
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return "xes"
    raise LogError(
        f"{source}: neither the name nor the first bytes say which format it is; "
        f"name it with --format {'|'.join(FORMATS)}"
    )


@contextlib.contextmanager
def _unpacked(raw: BinaryIO, packed: str | None, source: str) -> Iterator[BinaryIO]:
    if packed == "gzip":
        with gzip.GzipFile(fileobj=raw, mode="rb") as inner:
            yield inner  # type: ignore[misc]
    elif packed == "zip":
        with _translated(source):
            archive = zipfile.ZipFile(raw)
            member = archive.open(_only_member(archive, source))
        with archive, member:
            yield member  # type: ignore[misc]
    else:
        yield raw


def _only_member(archive: zipfile.ZipFile, source: str) -> zipfile.ZipInfo:
    # macOS puts a second, invisible member beside each file.
    members = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
    if len(members) != 1:
        shown = ", ".join(repr(one.filename) for one in members[:5]) or "nothing"
        raise LogError(f"{source} holds {len(members)} files ({shown}), it must hold one; unpack it and name the log")
    if members[0].flag_bits & 1:
        raise LogError(f"{source} is encrypted; unpack it first")
    return members[0]


@contextlib.contextmanager
def _translated(source: str) -> Iterator[None]:
    """Errors of the unpackers as LogError."""
    try:
        yield
    except EOFError as error:
        raise LogError(f"{source} is truncated: it ends in the middle of its packed data; fetch it again") from error
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError) as error:
        raise LogError(f"{source} is damaged: {error or type(error).__name__}; fetch it again") from error


def _digest(raw: BinaryIO) -> str:
    raw.seek(0)
    digest = hashlib.sha256()
    while block := raw.read(_BUFFER):
        digest.update(block)
    return f"sha256:{digest.hexdigest()}"


class _Guarded(io.RawIOBase):
    """Bytes of an unpacker whose errors are LogErrors, and which may not blow up."""

    def __init__(self, inner: BinaryIO, log: LogFile, longest_line: int | None) -> None:
        super().__init__()
        self._read: Callable[[int], bytes] = inner.read
        self._log = log
        self._longest_line = longest_line
        self._total = 0
        self._line = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """The next bytes; 0 at the end."""
        with _translated(self._log.source):
            data = self._read(len(buffer))
        buffer[: len(data)] = data
        self._total += len(data)
        # Against what was read so far, so that a large bomb is not unpacked to its end before it is known as one.
        if self._total > max(_RATIO_COUNTS_FROM, _MOST_RATIO * self._log.position()):
            raise LogError(
                f"{self._log.source} unpacks to more than {_MOST_RATIO} times its size, as a decompression bomb does; "
                "unpack it yourself and import the log if you trust it"
            )
        if self._longest_line is not None:
            self._refuse_long_line(data, self._longest_line)
        return len(data)

    def _refuse_long_line(self, data: bytes, longest: int) -> None:
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._line = len(data) - end - 1 if end >= 0 else self._line + len(data)
        if self._line > longest:
            raise LogError(
                f"{self._log.source} has a line of more than {longest:,} bytes; it is no event log of this form"
            )
