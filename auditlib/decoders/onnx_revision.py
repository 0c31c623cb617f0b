"""A revision exported to ONNX: what would be deployed, beside the torch model that it must agree with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.onnx_export import onnx_config, onnx_network
from auditlib.decoders.reference import LARGEST_REFERENCE, REFERENCE
from auditlib.decoders.revision import Revision, write_revision
from auditlib.errors import RevisionError


def export_onnx(revision: Revision, folder: Path, *, name: str | None = None, full: str = "torch") -> Revision:
    """A new revision in `folder` whose cached path is `revision`'s in ONNX Runtime; it appears only when whole.

    With `full` "torch" its full path is the torch model itself (a `paired` revision), with "onnx" the exported network.
    RevisionError for a revision that is no `event_gpt`, and for a folder that is there already.
    """
    decoder = revision.decoder(dtype=torch.float32) if revision.manifest.decoder == "event_gpt" else None
    if not isinstance(decoder, EventGpt):
        raise RevisionError(f"{revision.folder}: is a {revision.manifest.decoder[:80]!r}; export-onnx takes event_gpt")
    network = {"decoder": "onnx", "config": asdict(onnx_config(decoder.config))}
    files = {"model.onnx": onnx_network(decoder)}
    # Every load checks the full path by it: with `full` "onnx" the network, in a pair the torch half. How far a pair's
    # network is from that is what the audit measures, and no load may refuse beforehand.
    if REFERENCE in revision.manifest.files:
        files[REFERENCE] = revision.read(REFERENCE, LARGEST_REFERENCE)
    named: dict[str, Any] = network
    if full == "torch":
        files["model.safetensors"] = revision.read("model.safetensors")
        torch_half = {"decoder": "event_gpt", "config": dict(revision.manifest.config)}
        named = {"decoder": "paired", "config": {"full": torch_half, "cached": network}}
    return write_revision(
        folder,
        name=name or folder.name,
        decoder=named["decoder"],
        config=named["config"],
        event_map=revision.event_map,
        event_order=revision.event_order,
        files=files,
    )
