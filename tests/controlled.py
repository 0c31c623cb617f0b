"""A decoder of a revision that says by a file how to behave, so that a server process can be made to fail in service.

`PREFIXGATE_BEHAVIOUR` names the file; it holds a word of `WORDS`, or nothing while all is well.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.gpt_weights import fresh_tensors, module_from
from auditlib.decoders.revision import Revision, write_revision
from auditlib.decoders.tensor_file import read_tensors, write_tensors
from tests.small_gpt import EVENT_MAP, EVENT_ORDER, small_config

WORDS = ("slow", "raises", "hangs", "not numbers", "other weights")


def behaviour() -> str:
    path = os.environ.get("PREFIXGATE_BEHAVIOUR")
    try:
        return "" if path is None else Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


class Controlled(EventGpt):
    def full(self, events, valid):
        return self._spoilt(super().full(events, valid))

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        return self._spoilt(logits), cache

    def extend(self, events, valid, cache):
        logits, cache = super().extend(events, valid, cache)
        return self._spoilt(logits), cache

    def fingerprint(self):
        named = super().fingerprint()
        return f"{named} altered" if behaviour() == "other weights" else named

    def _spoilt(self, logits):
        word = behaviour()
        if word == "slow":
            time.sleep(0.3)
        if word == "hangs":
            time.sleep(600)
        if word == "raises":
            raise RuntimeError("the device is gone")
        return logits * torch.nan if word == "not numbers" else logits


def load(folder: Path, device: str, dtype: torch.dtype) -> Controlled:
    weights = read_tensors((folder / "model.safetensors").read_bytes(), str(folder))
    return Controlled(module_from(small_config(), weights, device, dtype))


def write_controlled_revision(folder: Path, seed: int = 0) -> Revision:
    config = small_config()
    return write_revision(
        folder,
        name="small",
        decoder="tests.controlled:load",
        config=config.to_mapping(),
        event_map=EVENT_MAP,
        event_order=EVENT_ORDER,
        files={"model.safetensors": write_tensors(fresh_tensors(config, seed))},
    )
