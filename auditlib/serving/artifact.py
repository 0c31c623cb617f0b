"""Artifact folders: a revision with how it is served, closed to everything that its document does not list.

Layout: `artifact.json`, `policy.json`, the folder `revision/` as it was audited, and, where something is served,
`fixed_batch.safetensors` and `answers.json` for replay. The digest of `artifact.json` names the whole.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditlib.decoders.event_gpt import DTYPES
from auditlib.decoders.guarded_folder import LARGEST_FILE, list_files, read_file
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.revision import MANIFEST, Revision, open_revision
from auditlib.decoding.policies import Policy, Setting, parse_policy
from auditlib.errors import ArtifactError, InputError, IntegrityError, PrefixgateError
from auditlib.events.documents import shown
from auditlib.serving.artifact_document import Blocked, Document
from auditlib.serving.served import Bounds, Served, Strategy

DOCUMENT, POLICY, BATCH, ANSWERS, REVISION = (
    "artifact.json", "policy.json", "fixed_batch.safetensors", "answers.json", "revision",
)  # fmt: skip
_LARGEST_DOCUMENT = 4 << 20
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


@dataclass(frozen=True, slots=True)
class Artifact:
    """A folder whose every file stood up to its digest. `digest` is that of `artifact.json`, and so names all."""

    folder: Path
    digest: str
    written: Document
    revision: Revision
    policy: Policy

    @property
    def document(self) -> Mapping[str, Any]:
        """All that `artifact.json` says."""
        return self.written.whole

    @property
    def serves(self) -> bool:
        """Whether this artifact answers requests; where it does not, only its fallback artifact does."""
        return self.written.serves

    @property
    def setting(self) -> Setting | None:
        """The decoding setting that is served; None where nothing is."""
        return self.written.setting

    @property
    def strategy(self) -> Strategy | None:
        """How logits are computed when serving; None where nothing is served."""
        return self.written.strategy

    @property
    def bounds(self) -> Bounds:
        """What requests may ask for."""
        return self.written.bounds

    @property
    def blocked(self) -> Blocked:
        """What the run did not allow, and why."""
        return self.written.blocked

    @property
    def tolerance(self) -> float:
        """How far two paths may differ, in logits, on the device of the run; 0 where the run measured none."""
        return self.written.tolerance

    @property
    def dtype(self) -> str:
        """Name of the dtype in which it was audited and is served."""
        return str(self.document["dtype"])

    @property
    def fallback(self) -> str:
        """The digest of the artifact that answers when this one fails, or "full-prefix"."""
        return str(self.document["fallback"])

    def read(self, name: str, most: int = LARGEST_FILE) -> bytes:
        """Bytes of a listed file directly in the folder, checked against its digest again."""
        return _verified(self.folder, name, self.written.files, most)

    def load(self, device: str = "cpu", *, allow_code: bool = False) -> Served:
        """What an engine needs to serve it, weights read and checked anew.

        ArtifactError where nothing is served or the decoder does not fit the bounds; what a revision raises when its
        decoder is loaded passes through.
        """
        setting, strategy = self.setting, self.strategy
        if setting is None or strategy is None:
            raise ArtifactError(
                f"{self.folder}: this artifact serves nothing, because every setting is blocked; serve its fallback "
                f"{self.fallback}"
            )
        decoder = self._decoder(device, allow_code=allow_code)
        if self.bounds.max_prefix_events >= decoder.context_length:
            raise ArtifactError(
                f"{self.folder}: prefixes of {self.bounds.max_prefix_events} events and the start token exceed the "
                f"decoder's context length {decoder.context_length}; package again"
            )
        ids = self.revision.event_map
        order = self.revision.event_order.compile(ids)
        return Served(self.digest, decoder, ids, order, setting, strategy, self.bounds, self.tolerance, device)

    def _decoder(self, device: str, *, allow_code: bool) -> Decoder:
        try:
            return self.revision.decoder(device, _DTYPES[self.dtype], allow_code=allow_code)
        except PrefixgateError:
            raise
        except (Exception, SystemExit) as problem:  # the code of a stranger's adapter may raise anything
            raise ArtifactError(
                f"{self.folder}: the adapter raised {type(problem).__name__}: {problem}; it cannot be served"
            ) from problem


def open_artifact(folder: Path | str, digest: str | None = None) -> Artifact:
    """The artifact in `folder`, checked whole: files, digests, and that its parts agree with each other.

    IntegrityError for a file that is not the one that was listed, and for an artifact other than `digest` where that
    is given; ArtifactError for a document without sense, a file too many or too few, a link, or an odd name.
    """
    folder = Path(folder)
    try:
        return _open(folder, digest)
    except ArtifactError:
        raise
    except InputError as problem:  # of the guarded folder, the policy or the revision inside
        raise ArtifactError(str(problem)) from problem


def _open(folder: Path, digest: str | None) -> Artifact:
    data = read_file(folder, DOCUMENT, _LARGEST_DOCUMENT)
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if digest not in (None, found):
        raise IntegrityError(f"{folder}: is artifact {found}, not {digest}; serve the one that was released")
    written = Document.from_json(data, str(folder / DOCUMENT))
    _check_names(folder, written)
    revision = open_revision(folder / REVISION)
    _check_revision(folder, written, revision)
    contents = {name: _verified(folder, name, written.files, LARGEST_FILE) for name in _own_files(written)}
    policy = parse_policy(contents[POLICY], str(folder / POLICY))
    if {one.name: one for one in policy.settings} != written.settings:
        raise ArtifactError(f"{folder}: its settings are not those of its {POLICY}; package again")
    if policy.max_new_events != written.bounds.max_new_events:
        raise ArtifactError(f"{folder}: its bounds are not those of its {POLICY}; package again")
    if written.whole["dtype"] not in _DTYPES:
        raise ArtifactError(f"{folder}: dtype {written.whole['dtype']!r} is none of {', '.join(_DTYPES)}")
    return Artifact(folder, found, written, revision, policy)


def _own_files(written: Document) -> tuple[str, ...]:
    return (POLICY, BATCH, ANSWERS) if written.serves else (POLICY,)


def _check_names(folder: Path, written: Document) -> None:
    """Raise unless the folder holds exactly its own files and a real folder `revision`."""
    wanted, found = {DOCUMENT, REVISION, *_own_files(written)}, set(list_files(folder))
    missing, extra = sorted(wanted - found), sorted(found - wanted)
    if missing or extra:
        raise ArtifactError(
            f"{folder}: lacks {missing} and holds {[shown(name)[:80] for name in extra[:5]]}, which no artifact holds; "
            "copy the artifact again"
        )
    # Not `is_dir`, which follows a link out of the folder.
    if not stat.S_ISDIR(os.lstat(folder / REVISION).st_mode):
        raise ArtifactError(f"{folder / REVISION}: is no folder of its own; copy the artifact again")


def _check_revision(folder: Path, written: Document, revision: Revision) -> None:
    """Raise IntegrityError unless the document names this very revision, with its map, rules and files."""
    listed = {f"{REVISION}/{name}": digest for name, digest in revision.manifest.files.items()}
    listed[f"{REVISION}/{MANIFEST}"] = revision.digest
    own = {name: digest for name, digest in written.files.items() if not name.startswith(f"{REVISION}/")}
    if {**own, **listed} != written.files or set(own) != set(_own_files(written)):
        raise IntegrityError(f"{folder}: {DOCUMENT} lists other files or digests than it holds; copy it again")
    ids, order = revision.event_map, revision.event_order
    said = {
        "revision": {"name": revision.manifest.name, "digest": revision.digest},
        "event_map": {"version": ids.version, "digest": ids.digest},
        "event_order": {"version": order.version, "digest": order.digest},
    }
    if any(written.whole[key] != value for key, value in said.items()):
        raise IntegrityError(f"{folder}: {DOCUMENT} names another revision, map or order than it holds; copy it again")


def _verified(folder: Path, name: str, files: Mapping[str, str], most: int) -> bytes:
    if name not in files:
        raise ArtifactError(f"{folder}: lists no file {shown(name)[:120]!r}")
    data = read_file(folder, name, most)
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != files[name]:
        raise IntegrityError(
            f"{folder / name}: has digest {found}, but {DOCUMENT} lists {files[name]}: the file was changed or "
            "damaged; copy the artifact again"
        )
    return data
