"""Safetensors: what others write can be read, what we write others can read, and nothing malformed passes."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.decoders.tensor_file import LARGEST_HEADER, read_tensors, require_tensors, write_tensors
from auditlib.errors import RevisionError

TENSORS = {
    "b": torch.arange(6, dtype=torch.int64).reshape(2, 3),
    "a": torch.tensor([[1.5, -2.0]]),
    "flags": torch.tensor([True, False, True]),
    "exact": torch.tensor(0.1, dtype=torch.float64),
    "text": torch.tensor(list(b"hi"), dtype=torch.uint8),
    "none": torch.empty(0, 4),
}


def packed(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def entry(dtype: str = "F32", shape: object = (1,), offsets: object = (0, 4), **more: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def test_tensors_survive_the_round_trip_here_and_in_the_library():
    ours = write_tensors(TENSORS)
    for read in (
        read_tensors(ours, "x"),
        safetensors.torch.load(ours),
        read_tensors(safetensors.torch.save(TENSORS), "x"),
    ):
        assert set(read) == set(TENSORS)
        for name, tensor in TENSORS.items():
            assert read[name].dtype == tensor.dtype
            assert torch.equal(read[name], tensor)


def test_the_same_tensors_give_the_same_bytes_whatever_their_order():
    assert write_tensors(TENSORS) == write_tensors(dict(reversed(list(TENSORS.items()))))


def test_what_is_read_can_be_written_to_without_touching_the_source():
    data = write_tensors({"a": torch.zeros(3)})
    read_tensors(data, "x")["a"].fill_(1.0)
    assert read_tensors(data, "x")["a"].sum() == 0.0


FOUR = b"\0\0\x80\x3f"
BAD = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header longer than the file": (99).to_bytes(8, "little") + b"{}",
    "a header beyond the cap": packed(b" " * (LARGEST_HEADER + 1)),
    "a negative length": b"\xff" * 8 + b"{}",
    "no JSON": packed(b"{'a': 1}"),
    "no UTF-8": packed(b"\xff\xfe"),
    "a list": packed([1]),
    "nesting without end": packed(b"[" * 100_000),
    "a number of many digits": packed(b'{"a": ' + b"9" * 10_000 + b"}"),
    "a name written twice": packed(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        FOUR,
    ),
    "no shape": packed({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, FOUR),
    "an extra key": packed({"a": entry(stride=[1])}, FOUR),
    "a pickle's dtype": packed({"a": entry("OBJECT")}, FOUR),
    "an unhashable dtype": packed({"a": entry(["F32"])}, FOUR),  # type: ignore[arg-type]
    "a shape that is no list": packed({"a": entry(shape=1)}, FOUR),
    "a negative size": packed({"a": entry(shape=[-1])}, FOUR),
    "a size of true": packed({"a": entry(shape=[True])}, FOUR),
    "a giant shape": packed({"a": entry(shape=[2**40, 2**40])}, FOUR),
    "zero times a giant": packed({"a": entry(shape=[0] + [2**62] * 9, offsets=[0, 0])}),
    "zero times more than torch can count": packed({"a": entry(shape=[0, 10**30], offsets=[0, 0])}),
    "strides that overflow": packed({"a": entry(shape=[0, 2**62, 4], offsets=[0, 0])}),
    "strides that overflow by many sizes": packed({"a": entry(shape=[0, *[2**30] * 4], offsets=[0, 0])}),
    "sizes whose product cannot be printed": packed({"a": entry(shape=[10**4000] * 8)}, FOUR),
    "data beyond the end": packed({"a": entry(shape=[2], offsets=[0, 8])}, FOUR),
    "one offset": packed({"a": entry(offsets=[0])}, FOUR),
    "offsets the wrong way": packed({"a": entry(offsets=[4, 0])}, FOUR),
    "an overlap": packed({"a": entry(), "b": entry()}, FOUR),
    "a gap": packed({"a": entry(offsets=[4, 8])}, FOUR * 2),
    "bytes left over": packed({"a": entry()}, FOUR + b"!"),
    "a NaN": packed({"a": entry()}, b"\0\0\xc0\x7f"),
    "an infinity": packed({"a": entry()}, b"\0\0\x80\x7f"),
    "a flag that is neither": packed({"a": entry("BOOL", [1], [0, 1])}, b"\x02"),
    "metadata that are no strings": packed({"__metadata__": {"a": 1}, "a": entry()}, FOUR),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_files_are_refused_with_their_name(name):
    with pytest.raises(RevisionError, match=r"weights\.safetensors"):
        read_tensors(BAD[name], "weights.safetensors")


def test_a_tensor_of_giant_but_empty_shape_is_harmless():
    data = packed({"a": entry(shape=[0, 2**30], offsets=[0, 0])})
    assert read_tensors(data, "x")["a"].shape == (0, 2**30)


def test_metadata_of_strings_is_passed_over():
    assert set(read_tensors(packed({"__metadata__": {"<b>": "x"}, "a": entry()}, FOUR), "x")) == {"a"}


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [
        ({"a": (1, 2), "b": (1,)}, torch.float32),
        ({}, torch.float32),
        ({"a": (2, 1)}, torch.float32),
        ({"a": (1, 2)}, torch.float64),
    ],
)
def test_exactly_the_expected_tensors_pass(shapes, dtype):
    require_tensors({"a": TENSORS["a"]}, {"a": (1, 2)}, torch.float32, "x")
    with pytest.raises(RevisionError):
        require_tensors({"a": TENSORS["a"]}, shapes, dtype, "x")


def test_a_thousand_damaged_files_raise_nothing_else():
    chance = random.Random(7)
    whole = write_tensors(TENSORS)
    refused = 0
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(min(len(data), 420))
            data[place] = chance.randrange(256)
        data = data[: chance.randrange(len(data))] if chance.random() < 0.3 else data
        try:
            read_tensors(bytes(data), "x")
        except RevisionError:
            refused += 1
    assert refused > 900


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(data):
    with contextlib.suppress(RevisionError):
        read_tensors(data, "x")
