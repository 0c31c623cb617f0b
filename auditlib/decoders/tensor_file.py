"""Safetensors read with suspicion: the header is parsed here, before anything believes what it says.

Format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from auditlib.decoders.fingerprint import tensor_bytes
from auditlib.errors import RevisionError
from auditlib.events.documents import Entry, parse, shown

LARGEST_HEADER = 1 << 20
_MOST_SIZES = 8
_LARGEST_SIZE = 1 << 40
_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def read_tensors(data: bytes, where: str) -> dict[str, Tensor]:
    """Every tensor of a safetensors file's bytes, as copies; RevisionError says what in the file is wrong.

    Refused: a header beyond 1 MiB, anything but JSON in it, dtypes that no revision needs, data that overlaps, has gaps
    or ends early, and numbers that are not finite.
    """
    header = _header(data, where)
    body = memoryview(data)[8 + int.from_bytes(data[:8], "little") :]
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.mapping().items():
        if name == "__metadata__":
            _check_metadata(entry)
            continue
        tensors[name], span = _tensor(entry, body)
        spans.append(span)
    _check_cover(spans, len(body), where)
    return tensors


def require_tensors(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, where: str
) -> None:
    """Raise RevisionError unless there are exactly the tensors named in `shapes`, of these shapes and `dtype`."""
    missing, extra = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or extra:
        raise RevisionError(
            f"{where}: lacks tensors {missing[:5]} and has {[shown(name)[:80] for name in extra[:5]]}, which "
            "the config does not call for; save the weights that belong to this config"
        )
    for name, shape in shapes.items():
        found = tensors[name]
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise RevisionError(
                f"{where}: tensor {name} is {found.dtype} {list(found.shape)}, "
                f"but the config calls for {dtype} {list(shape)}"
            )


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Bytes of a safetensors file, the same for the same tensors."""
    entries: dict[str, object] = {}
    chunks: list[bytes] = []
    offset = 0
    # Widest items first, then by name: every tensor then starts at a multiple of its item size.
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        chunk = bytes(tensor_bytes(tensor))
        entries[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(chunk)],
        }
        chunks.append(chunk)
        offset += len(chunk)
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + b"".join(chunks)


def _header(data: bytes, where: str) -> Entry:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LARGEST_HEADER, len(data) - 8):
        raise RevisionError(
            f"{where}: {len(data)} bytes whose first 8 announce a header of {length} are no safetensors file "
            f"(headers end within the file and within {LARGEST_HEADER} bytes); copy the revision again"
        )
    try:
        text = data[8 : 8 + length].decode("utf-8")
    except UnicodeDecodeError as problem:
        raise RevisionError(f"{where}: byte {problem.start} of the header is not UTF-8") from problem
    return parse(text, f"{where}, header", RevisionError)


def _tensor(entry: Entry, body: memoryview) -> tuple[Tensor, tuple[int, int]]:
    """A copy of one tensor, and the bytes of `body` that it takes."""
    members = entry.members(("dtype", "shape", "data_offsets"))
    dtype = _DTYPES.get(members["dtype"].text())
    if dtype is None:
        members["dtype"].refuse(f"no revision holds such tensors; known are {', '.join(_DTYPES)}")
    shape = _shape(members["shape"])
    offsets = [offset.integer() for offset in members["data_offsets"].items()]
    wanted = prod(shape) * dtype.itemsize
    if len(offsets) != 2 or offsets[1] - offsets[0] != wanted or offsets[1] > len(body):
        entry.refuse(f"{shape} of {dtype} take {wanted} bytes, not {offsets} of {len(body)}")
    span = (offsets[0], offsets[1])
    if not wanted:
        return torch.empty(shape, dtype=dtype), span
    chunk = bytearray(body[span[0] : span[1]])
    if dtype == torch.bool and max(chunk) > 1:
        entry.refuse("holds bytes that are neither true nor false")
    tensor = torch.frombuffer(chunk, dtype=dtype).reshape(shape)
    if not bool(torch.isfinite(tensor).all()):
        entry.refuse("holds numbers that are not finite")
    return tensor, span


def _shape(entry: Entry) -> list[int]:
    """Sizes of one tensor, bounded before anything multiplies or prints them."""
    sizes = [size.integer() for size in entry.items()]
    bounded = len(sizes) <= _MOST_SIZES and max(sizes, default=0) <= _LARGEST_SIZE
    # Without the zeros: beside one, the others could be larger than any memory and still take no byte of the file.
    if not bounded or prod(size for size in sizes if size) > _LARGEST_SIZE:
        entry.refuse(f"at most {_MOST_SIZES} sizes are possible, 2**40 numbers in all; save the weights anew")
    return sizes


def _check_metadata(entry: Entry) -> None:
    for value in entry.mapping().values():
        if not isinstance(value.value, str):
            value.refuse("metadata are strings")


def _check_cover(spans: list[tuple[int, int]], size: int, where: str) -> None:
    """Raise unless the spans cover all `size` bytes, each byte once."""
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise RevisionError(f"{where}: tensors overlap or leave a gap at byte {min(start, end)} of the data")
        end = stop
    if end != size:
        raise RevisionError(f"{where}: {size - end} bytes after the last tensor belong to none")
