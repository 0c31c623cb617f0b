"""The shape that a decoder tells of its cache takes exactly the bytes that the cache allocates, at every moment."""

from __future__ import annotations

import pytest
import torch

from auditlib.decoders.capabilities import CacheShape, CacheShaped
from tests.doubles import ToyDecoder
from tests.small_adapters import library_config, need, write_library_folder
from tests.small_gpt import everywhere, small_gpt, some_events


def moved(decoder):
    """A decoder's cache after each kind of call."""
    events = some_events(3, 4)
    valid = everywhere(events)
    valid[1, 2:] = False
    _, cache = decoder.prefill(events, valid)
    yield cache
    _, cache = decoder.extend(some_events(3, 9, seed=1), everywhere(some_events(3, 9)), cache)
    yield cache
    cache = decoder.reorder(cache, torch.tensor([2, 2, 0, 1, 1]))
    yield cache
    _, cache = decoder.extend(some_events(5, 1), everywhere(some_events(5, 1)), cache)
    yield cache
    if hasattr(decoder, "reserve"):
        yield decoder.reserve(cache, 20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_native_decoder_tells_what_it_holds(dtype):
    decoder = small_gpt(dtype)
    assert isinstance(decoder, CacheShaped)
    for cache in moved(decoder):
        shape = decoder.cache_shape(cache)
        assert shape.bytes == decoder.cache_bytes(cache)
        assert (shape.layers, shape.heads, shape.head_size) == (2, 2, 8)
        assert shape.rows == cache.rows


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_the_librarys_caches_are_told_with_their_own_heads(family, kind, tmp_path):
    need("transformers")
    decoder = write_library_folder(tmp_path / family, family, {"cache": kind}).decoder()
    for cache in moved(decoder):
        shape = decoder.cache_shape(cache)
        assert shape.bytes == decoder.cache_bytes(cache)
        assert shape.heads == library_config(family).get("num_key_value_heads", 4)


def test_another_shape_takes_other_bytes_and_who_tells_none_offers_none():
    assert CacheShape(2, 3, 16, 2, 8, 4).bytes == 2 * 2 * 3 * 16 * 2 * 8 * 4
    assert not isinstance(ToyDecoder(), CacheShaped)
