"""Attention of the library's models: the library's own weights, of the path that is measured, which stays as it was."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from auditlib.audits.inspection_reuse import attention_of
from auditlib.decoders import transformers_attention
from auditlib.decoders.capabilities import Attentive
from auditlib.decoders.transformers_attention import attended, exact_attention
from auditlib.decoders.transformers_decoder import TransformersDecoder
from auditlib.decoders.transformers_rolling import RollingDecoder
from auditlib.errors import ContextExceededError, DecoderError, RevisionError
from tests.small_adapters import WINDOW, library_config, library_model, need, write_library_folder, write_onnx_folder
from tests.small_gpt import CONTEXT, everywhere, some_events

need("transformers")
FAMILIES = ("gemma2", "gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3")
SLIDING = ("gemma2", "gemma3_text", "mistral", "qwen2", "qwen3")
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
SIZE = 11


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Few threads, as several suites may run at once."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(folder, family, kind=None, dtype=torch.float32, **settings):
    """A small decoder of this family; `kind` may be one that is broken."""
    decoder = write_library_folder(folder / "it", family, settings).decoder(dtype=dtype)
    return decoder if kind is None else kind(decoder.module, decoder.config)


def of_the_library(family, events):
    """Attention [layers, heads, T, T] as the library itself gives it, with masks and attention of its own."""
    model = library_model(library_config(family))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.stack(model(input_ids=events[None], output_attentions=True).attentions)[:, 0]


def apart(found, wanted):
    return float((found - wanted).abs().max())


def is_share_of_earlier_events(found):
    sums = found.sum(-1)
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-5) and not found.triu(1).any()


class SeesTheNext(TransformersDecoder):
    """Each event attends to the one after it too."""

    def _laid(self, visible, columns):
        allowed = super()._laid(visible, columns)
        return allowed | allowed.roll(-1, -2)


class ForgetsTheWindow(TransformersDecoder):
    """Layers with a window attend to all events."""

    def __init__(self, model, config):
        super().__init__(model, config)
        self._windows = dict.fromkeys(self._windows)


class SwitchesItself(TransformersDecoder):
    """Puts the model itself, not a copy, on the attention that can be shown, and leaves it there."""

    def attention(self, events):
        found = super().attention(events)
        self.module.set_attn_implementation("eager")
        return found


@pytest.mark.parametrize(
    ("family", "attention"),
    [*((family, "eager") for family in FAMILIES), *((family, "sdpa") for family in FAMILIES if family != "gemma2")],
)
def test_attention_is_that_which_the_library_gives_with_its_own_eager_attention(family, attention, tmp_path):
    decoder = made(tmp_path, family, attention=attention)
    events = some_events(1, SIZE)[0]
    found, wanted = decoder.attention(events), of_the_library(family, events)
    assert isinstance(decoder, Attentive)
    assert found.shape == wanted.shape == (2, 4, SIZE, SIZE)
    assert is_share_of_earlier_events(found)
    assert apart(found, wanted) <= 1e-5
    assert apart(found, of_the_library(family, some_events(1, SIZE, seed=5)[0])) > 1e-2
    assert apart(found, wanted.flip(1)) > 1e-2  # heads in their order


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_that_sees_the_next_event_is_told_from_a_sound_one(family, tmp_path):
    decoder = made(tmp_path, family, SeesTheNext)
    events = some_events(1, SIZE)[0]
    assert not is_share_of_earlier_events(decoder.attention(events))
    with pytest.raises(DecoderError, match="no share of earlier events"):
        attention_of(decoder, events.tolist())


@pytest.mark.parametrize("family", SLIDING)
def test_what_has_left_the_window_has_no_share_and_a_decoder_without_its_window_is_told(family, tmp_path):
    events = some_events(1, SIZE)[0]
    beyond = torch.ones(SIZE, SIZE).tril(-WINDOW).bool()
    sound = made(tmp_path, family)
    first = 1 if family.startswith("qwen") else 0  # there the later layers are those with a window
    assert not sound.attention(events)[first][:, beyond].any()
    broken = ForgetsTheWindow(sound.module, sound.config).attention(events)
    assert broken[first][:, beyond].min() > 0
    assert apart(broken, of_the_library(family, events)) > 1e-2


@pytest.mark.parametrize("side", ["left", "right", "both"])
@pytest.mark.parametrize("family", FAMILIES)
def test_padding_on_any_side_changes_no_share_and_has_none(family, side, tmp_path):
    decoder = made(tmp_path, family, dtype=torch.float64)
    events, valid = some_events(3, SIZE), everywhere(some_events(3, SIZE))
    places = {"left": slice(4, SIZE), "right": slice(0, SIZE - 4), "both": slice(3, SIZE - 1)}[side]
    valid[0] = False
    valid[0, places] = True
    found, logits = attended(decoder, events, valid)
    assert apart(found[:, 0, :, places, places], decoder.attention(events[0, places])) <= 1e-12
    assert apart(found[:, 1], decoder.attention(events[1])) <= 1e-12
    assert not found[:, 0, :, ~valid[0]].any()
    assert not found[:, 0][..., ~valid[0]].any()
    assert apart(logits[valid], decoder.full(events, valid)[valid]) <= 1e-11


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_shares_are_at_least_float32_and_lead_to_the_logits_of_the_full_path(family, dtype, tmp_path):
    decoder = made(tmp_path, family, dtype=dtype)
    events = some_events(1, SIZE)
    found, logits = attended(decoder, events, everywhere(events))
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    assert is_share_of_earlier_events(found)
    limit = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 0.2}[dtype]
    assert apart(logits, decoder.full(events, everywhere(events))) <= limit


def answers(decoder, events):
    """Logits of every verb."""
    kept = everywhere(events)
    first, cache = decoder.prefill(events[:, :4], kept[:, :4])
    second, _ = decoder.extend(events[:, 4:], kept[:, 4:], cache)
    return decoder.full(events, kept), first, second


def same_bits(one, other):
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


@pytest.mark.parametrize("settings", [{}, {"attention": "eager", "cache": "static"}], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_who_asks_for_attention_changes_no_bit_of_what_is_measured(family, settings, tmp_path):
    decoder = made(tmp_path, family, **settings)
    events = some_events(3, SIZE)
    before, config = answers(decoder, events), decoder.module.config.to_json_string(use_diff=False)
    kind = decoder.module.config._attn_implementation
    decoder.attention(events[0])
    attended(decoder, events, everywhere(events))
    assert same_bits(answers(decoder, events), before)
    assert decoder.module.config._attn_implementation == kind
    assert decoder.module.config.to_json_string(use_diff=False) == config
    assert not any(module._forward_hooks for module in decoder.module.modules())
    assert decoder.fingerprint() == decoder.revision


def test_a_decoder_that_switches_its_own_attention_is_told(tmp_path):
    decoder = made(tmp_path, "llama", SwitchesItself)
    events = some_events(3, CONTEXT)
    before = answers(decoder, events)
    decoder.attention(events[0])
    assert not same_bits(answers(decoder, events), before)


def test_one_decoder_is_measured_and_asked_by_many_threads_at_once(tmp_path):
    decoder = made(tmp_path, "gemma3_text")
    events = some_events(3, SIZE)
    logits, shares = answers(decoder, events), decoder.attention(events[0])

    def work(number):
        if number % 2:
            return same_bits(answers(decoder, events), logits)
        return torch.equal(decoder.attention(events[0]), shares)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_no_weight_is_copied(tmp_path):
    decoder = made(tmp_path, "gemma3_text")
    own = transformers_attention._apart(decoder)
    theirs = [part.data_ptr() for part in decoder.module.state_dict().values()]
    assert [part.data_ptr() for part in own.module.state_dict().values()] == theirs
    assert own.module is not decoder.module
    assert own.module.config is not decoder.module.config
    assert own.module.base_model.rotary_emb is decoder.module.base_model.rotary_emb


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_decoder_whose_cache_rolls_shows_the_attention_of_its_full_path(cache, tmp_path):
    decoder = made(tmp_path, "gemma3_text", cache=cache)
    events = some_events(1, SIZE)[0]
    assert isinstance(decoder, RollingDecoder)
    assert apart(decoder.attention(events), of_the_library("gemma3_text", events)) <= 1e-5


def test_a_cap_on_the_scores_is_felt_in_every_dtype_and_sdpa_which_has_none_is_refused(tmp_path):
    events = some_events(1, SIZE)
    for dtype in DTYPES:
        capped = made(tmp_path / str(dtype), "gemma2", dtype=dtype)
        free = write_library_folder(tmp_path / f"free {dtype}", "gemma2", attn_logit_softcapping=None)
        other = free.decoder(dtype=dtype)
        assert apart(capped.attention(events[0]), other.attention(events[0])) > 1e-2
        assert apart(*(one.full(events, everywhere(events)) for one in (capped, other))) > 1e-2
    with pytest.raises(RevisionError, match="which sdpa cannot; set attention to eager"):
        made(tmp_path, "gemma2", attention="sdpa")


def test_what_cannot_be_shown_is_refused_in_words(tmp_path, monkeypatch):
    decoder = made(tmp_path, "llama")
    events = some_events(1, SIZE)[0]
    with pytest.raises(ContextExceededError):
        decoder.attention(some_events(1, CONTEXT + 1)[0])
    with pytest.raises(DecoderError, match="event id"):
        decoder.attention(events + 1000)
    with pytest.raises(DecoderError, match="int64"):
        decoder.attention(events[None])
    with monkeypatch.context() as patch:
        patch.setattr(transformers_attention, "_MOST_BYTES", 2 * 4 * SIZE * SIZE * 4)
        decoder.attention(events)
        with pytest.raises(DecoderError, match="choose a shorter prefix"):
            decoder.attention(some_events(1, SIZE + 1)[0])
    with monkeypatch.context() as patch:
        patch.setattr(transformers_attention, "registered", lambda: "sdpa")
        with pytest.raises(DecoderError, match="showed attention of 0 of its 2 layers"):
            decoder.attention(events)
    part = torch.ones(1, 1, 1, 4)
    with pytest.raises(DecoderError, match="alters its attention by s_aux"):
        exact_attention(None, part, part, part, torch.ones(1, 1, 1, 1, dtype=torch.bool), s_aux=part)


def test_onnx_offers_no_attention_and_says_so_by_lacking_the_capability(tmp_path):
    decoder = write_onnx_folder(tmp_path / "it").decoder()
    assert not isinstance(decoder, Attentive)
    assert attention_of(decoder, some_events(1, SIZE)[0].tolist()) is None
