"""Adapter `paired`: the full path of one decoder against the cached path of another, both from one revision folder.

This asks the question of a deployment: does what serves (another runtime, other weights, another cache) give what the
reference gives? Each half names its adapter and config, and which listed file stands for which one it asks for.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import torch
from torch import Tensor

from auditlib.decoders.capabilities import Differentiable, Fingerprinted, Inspectable
from auditlib.decoders.protocol import Decoder
from auditlib.errors import DecoderError, RevisionError
from auditlib.events.documents import Entry

if TYPE_CHECKING:
    from auditlib.decoders.adapters import Source

HALVES = ("full", "cached")
_DOMAIN = b"prefixgate paired decoder 1"

P = TypeVar("P", bound="PairedDecoder")


class PairedDecoder:
    """Contract 1 with `full` from `reference` and everything cached from `deployed`; both read the same events.

    `stored` is that of the deployed half, `embed` and `full_from_embeddings` are the reference's; a pair whose half
    lacks them has None in their place, so that `isinstance` with a capability says what is so.
    """

    def __new__(cls, reference: Decoder | None = None, deployed: Decoder | None = None) -> Self:
        """A pair that is to be filled, of a class that lacks what the halves lack; copying gives no halves."""
        lacking: tuple[str, ...] = ()
        if reference is not None and not isinstance(reference, Differentiable):
            lacking += ("embed", "full_from_embeddings")
        if deployed is not None and not isinstance(deployed, Inspectable):
            lacking += ("stored",)
        return super().__new__(_without(cls, lacking) if lacking else cls)

    def __init__(self, reference: Decoder, deployed: Decoder) -> None:
        self.reference = reference
        self.deployed = deployed
        self.vocabulary_size = deployed.vocabulary_size
        self.context_length = deployed.context_length
        for name in ("vocabulary_size", "context_length"):
            if getattr(reference, name) != getattr(deployed, name):
                raise DecoderError(
                    f"paired: {name} is {getattr(reference, name)} for the full path, {getattr(deployed, name)} for "
                    "the cached one; pair decoders of one shape"
                )
        self.dtype: torch.dtype = getattr(deployed, "dtype", torch.float32)
        self.device: torch.device = getattr(deployed, "device", torch.device("cpu"))
        self.positions: str = getattr(deployed, "positions", "its own")
        self.revision = self.fingerprint()

    @property
    def block_ends(self) -> tuple[int, ...]:
        """Where blocks of either half end."""
        ends = (end for half in (self.reference, self.deployed) for end in getattr(half, "block_ends", ()))
        return tuple(sorted(set(ends)))

    @property
    def module(self) -> Any:
        """The module that serves, where it has one that can be seen."""
        return getattr(self.deployed, "module", None)

    def fingerprint(self) -> str:
        """`sha256:<hex>` over the names of both halves' weights as they are now."""
        digest = hashlib.sha256(_DOMAIN)
        for half in (self.reference, self.deployed):
            name = half.fingerprint() if isinstance(half, Fingerprinted) else half.revision
            digest.update(len(name.encode()).to_bytes(8, "big") + name.encode())
        return f"sha256:{digest.hexdigest()}"

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of the reference."""
        return self.reference.full(events, valid)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V] and the cache of what is deployed."""
        return self.deployed.prefill(events, valid)

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, K, V] and the new cache of what is deployed."""
        return self.deployed.extend(events, valid, cache)

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """Cache of what is deployed, with its rows in another order."""
        return self.deployed.reorder(cache, parents)

    def cache_bytes(self, cache: Any) -> int:
        """Bytes that the cache of what is deployed holds."""
        return self.deployed.cache_bytes(cache)

    def stored(self, cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and lengths of what is deployed."""
        return cast("Inspectable", self.deployed).stored(cache)

    def embed(self, events: Tensor) -> Tensor:
        """Embeddings [B, T, W] of the reference."""
        return cast("Differentiable", self.reference).embed(events)

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of the reference from embeddings."""
        return cast("Differentiable", self.reference).full_from_embeddings(embeddings, valid)


def _without(kind: type[P], methods: tuple[str, ...]) -> type[P]:
    """A class like `kind` without these methods: `isinstance` asks the class, where None stands for a missing one."""
    return type(kind.__name__, (kind,), dict.fromkeys(methods))


def load_paired(source: Source) -> PairedDecoder:
    """Both halves of a revision's config `{"full": HALF, "cached": HALF}`.

    A HALF is `{"decoder": name of a built-in adapter, "config": {…}, "files": {file it asks for: file in the folder}}`.
    RevisionError for a half that is code or a pair itself, and for a name in `files` that its adapter never asks for.
    """
    entries = Entry(dict(source.config), str(source.folder / "revision.json"), RevisionError, "config").members(HALVES)
    reference, deployed = (_half(source, entries[name]) for name in HALVES)
    return PairedDecoder(reference, deployed)


def _half(source: Source, entry: Entry) -> Decoder:
    from auditlib.decoders.adapters import ADAPTERS  # noqa: PLC0415 - the table names this module

    members = entry.members(("decoder", "config"), ("files",))
    name = members["decoder"].text()
    if name == "paired" or name not in ADAPTERS:
        known = ", ".join(sorted(set(ADAPTERS) - {"paired"}))
        members["decoder"].refuse(f"a half is one of {known}; code can pair decoders itself by PairedDecoder")
    config = {key: value.value for key, value in members["config"].mapping().items()}
    names = members["files"].mapping() if "files" in members else {}
    files = {asked: entry.text() for asked, entry in names.items()}
    met: set[str] = set()

    def read(asked: str, most: int) -> bytes:
        """Bytes of the listed file that stands for the one asked for; its digest is checked as that of any file."""
        met.add(asked)
        return source.read(files.get(asked, asked), most)

    decoder = ADAPTERS[name](replace(source, config=config, read=read))
    # A mistyped name would leave both halves with one file, and the pair would agree with itself.
    if unmet := sorted(set(names) - met):
        names[unmet[0]].refuse(f"the adapter {name} asks for no such file, only for {', '.join(sorted(met))}")
    return decoder
