"""The name of a set of weights: a digest in which no two fields can run into each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_DOMAIN = b"prefixgate decoder weights 1"


def fingerprint(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """`sha256:<hex>` over the config and each tensor's name, dtype, shape and bytes, in order of their names."""
    digest = hashlib.sha256()
    _add(digest, _DOMAIN)
    _add(digest, json.dumps(dict(config), sort_keys=True, allow_nan=False).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        _add(digest, f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        _add(digest, tensor_bytes(tensor))
    return f"sha256:{digest.hexdigest()}"


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor in row-major order, whatever its dtype (numpy has no bfloat16)."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def _add(digest: hashlib._Hash, field: bytes | memoryview) -> None:
    """Feed one field behind its length, so that its end cannot be mistaken for the next one's start."""
    digest.update(len(field).to_bytes(8, "big"))
    digest.update(field)
