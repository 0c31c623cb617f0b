"""Revision folders: written once, checked whole before anything in them is believed (contract 1)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from auditlib.decoders.adapters import Source, load
from auditlib.decoders.guarded_folder import LARGEST_FILE, colliding, list_files, name_problem, read_file
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.reference import LARGEST_REFERENCE, REFERENCE, check_reference
from auditlib.errors import DecoderError, EventMapError, IntegrityError, PrefixgateError, RevisionError
from auditlib.events.documents import Entry, parse, shown
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.files import whole_folder

MANIFEST = "revision.json"
_LARGEST_MANIFEST = 1 << 20
_LARGEST_RULES = 16 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `revision.json` says."""

    name: str
    decoder: str
    config: Mapping[str, Any]
    event_map: str
    event_order: str
    files: Mapping[str, str]

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Manifest:
        """Manifest from the bytes of `revision.json`; RevisionError names the place and the reason."""
        try:
            top = parse(data.decode("utf-8"), where, RevisionError)
        except UnicodeDecodeError as problem:
            raise RevisionError(f"{where}: byte {problem.start} is not UTF-8; save the file as UTF-8") from problem
        members = top.members(("format", "name", "decoder", "config", "event_map", "event_order", "files"))
        members["format"].expect_format(1)
        config = {key: entry.value for key, entry in members["config"].mapping().items()}
        files = {name: _digest(name, entry) for name, entry in members["files"].mapping().items()}
        if twins := colliding([*files, MANIFEST]):
            members["files"].refuse(f"{', '.join(twins)} differ only in upper and lower case, or list the manifest")
        texts = [members[key].text() for key in ("name", "decoder", "event_map", "event_order")]
        for key, name in (("event_map", texts[2]), ("event_order", texts[3])):
            if name not in files:
                members[key].refuse(f"{shown(name)[:120]!r} is not among the listed files")
        return cls(texts[0], texts[1], config, texts[2], texts[3], files)

    def to_json(self) -> bytes:
        """The bytes of `revision.json`, the same for the same manifest."""
        members = {"format": 1, "name": self.name, "decoder": self.decoder, "config": dict(self.config)}
        members |= {"event_map": self.event_map, "event_order": self.event_order, "files": dict(self.files)}
        return (json.dumps(members, indent=2, allow_nan=False) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Revision:
    """A folder whose every file stood up to its digest. `digest` is that of the manifest's bytes, and so names all."""

    folder: Path
    manifest: Manifest
    digest: str
    event_map: EventMap
    event_order: EventOrder

    def read(self, name: str, most: int = LARGEST_FILE) -> bytes:
        """Bytes of a listed file, checked against its digest again: what is parsed is what was hashed."""
        if name not in self.manifest.files:
            raise RevisionError(f"{self.folder}: lists no file {shown(name)[:120]!r}")
        return _verified(self.folder, name, self.manifest.files[name], most)

    def decoder(self, device: str = "cpu", dtype: torch.dtype = torch.float32, *, allow_code: bool = False) -> Decoder:
        """A fresh decoder of this revision.

        RevisionError for weights that do not fit the config and for code that was not allowed, EventMapError for a
        map with ids beyond the vocabulary, IntegrityError when the saved reference logits are not reproduced.
        """
        decoder = self._load(device, dtype, allow_code=allow_code)
        try:
            self.event_map.check_size(decoder.vocabulary_size)
        except EventMapError as problem:
            raise EventMapError(f"{self.folder}: {problem}") from problem
        if REFERENCE in self.manifest.files:
            data = self.read(REFERENCE, LARGEST_REFERENCE)
            check_reference(
                data, self._exact(decoder, device, dtype, allow_code=allow_code), str(self.folder / REFERENCE)
            )
        return decoder

    def _exact(self, decoder: Decoder, device: str, dtype: torch.dtype, *, allow_code: bool) -> Decoder:
        """The decoder in float64, or as it is when it has no such path."""
        if dtype == torch.float64:
            return decoder
        try:
            return self._load(device, torch.float64, allow_code=allow_code)
        except Exception as problem:
            # Somebody's code may refuse a dtype by any error; but what is wrong with the folder must be told.
            if isinstance(problem, PrefixgateError) and not isinstance(problem, DecoderError):
                raise
            return decoder

    def _load(self, device: str, dtype: torch.dtype, *, allow_code: bool) -> Decoder:
        source = Source(self.folder, self.manifest.config, self.read, device, dtype)
        return load(self.manifest.decoder, source, allow_code=allow_code)


def open_revision(folder: Path | str) -> Revision:
    """The revision in `folder`, checked whole.

    RevisionError for a malformed manifest, a file too many or too few, a link, or a name that leaves the folder;
    IntegrityError for a file that is not the one that was listed.
    """
    folder = Path(folder)
    data = read_file(folder, MANIFEST, _LARGEST_MANIFEST)
    manifest = Manifest.from_json(data, str(folder / MANIFEST))
    _check_files(folder, manifest)
    texts = {}
    for name, digest in manifest.files.items():
        rules = name in {manifest.event_map, manifest.event_order}
        content = _verified(folder, name, digest, _LARGEST_RULES if rules else LARGEST_FILE)
        if rules:
            texts[name] = _text(content, folder / name)
    return Revision(
        folder,
        manifest,
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        EventMap.from_json(texts[manifest.event_map], str(folder / manifest.event_map)),
        EventOrder.from_json(texts[manifest.event_order], str(folder / manifest.event_order)),
    )


def write_revision(
    folder: Path | str,
    *,
    name: str,
    decoder: str,
    config: Mapping[str, Any],
    event_map: EventMap,
    event_order: EventOrder,
    files: Mapping[str, bytes],
) -> Revision:
    """The revision written to `folder` with its manifest; it appears only when whole.

    `files` are those beside event map and order (weights, reference, records). RevisionError when `folder` is there
    already or a file has a name that no revision may hold; nothing is then written.
    """
    folder = Path(folder)
    rules = {"event_map.json": event_map.to_json().encode(), "event_order.json": event_order.to_json().encode()}
    contents = {**files, **rules}
    digests = {key: f"sha256:{hashlib.sha256(contents[key]).hexdigest()}" for key in sorted(contents)}
    data = Manifest(name, decoder, config, "event_map.json", "event_order.json", digests).to_json()
    Manifest.from_json(data, str(folder / MANIFEST))  # whatever would be refused later is refused now
    try:
        with whole_folder(folder) as aside:
            for key, content in {**contents, MANIFEST: data}.items():
                (aside / key).write_bytes(content)
    except OSError as problem:
        why = "is there already; choose another --out" if isinstance(problem, FileExistsError) else problem.strerror
        raise RevisionError(f"{folder}: {why}") from problem
    return open_revision(folder)


def _digest(name: str, entry: Entry) -> str:
    if problem := name_problem(name):
        entry.refuse(problem)
    digest = entry.text()
    if not _DIGEST.fullmatch(digest):
        entry.refuse("write sha256: and 64 hexadecimal digits")
    return digest


def _check_files(folder: Path, manifest: Manifest) -> None:
    """Raise unless the folder holds exactly the listed files."""
    found, listed = set(list_files(folder)), {*manifest.files, MANIFEST}
    missing, extra = sorted(listed - found), sorted(found - listed)
    if missing or extra:
        raise RevisionError(
            f"{folder}: lacks the listed files {missing[:5]} and holds {[shown(name)[:80] for name in extra[:5]]}, "
            f"which {MANIFEST} does not list; copy the revision again"
        )


def _verified(folder: Path, name: str, digest: str, most: int) -> bytes:
    data = read_file(folder, name, most)
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != digest:
        raise IntegrityError(
            f"{folder / name}: has digest {found}, but {MANIFEST} lists {digest}: the file was changed or damaged; "
            "copy the revision again from where it was made"
        )
    return data


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise RevisionError(f"{path}: byte {problem.start} is not UTF-8; save the file as UTF-8") from problem
