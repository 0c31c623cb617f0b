"""Contract 1, held against every adapter: one suite, so that none may bend it."""

from __future__ import annotations

import random

import pytest
import torch

from auditlib.decoders.adapters import ADAPTERS
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CacheRejectedError, DecoderError
from tests.small_adapters import MAKERS, WITHOUT_BFLOAT16, WITHOUT_FLOAT64, Made, write_pair_folder
from tests.small_gpt import CONTEXT, EVENT_MAP, everywhere, some_events

LIMITS = {torch.float64: 1e-11, torch.float32: 5e-5, torch.bfloat16: 0.2}
EVERY = sorted(MAKERS)
SIDES = ("left", "right", "both")
GARBAGE = (0, 2, 5, EVENT_MAP.size - 1)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(params=EVERY)
def sharp(request, made):
    """Each decoder in the finest dtype that it offers: there a fault of logic cannot pass for rounding."""
    return made.decoder(request.param, torch.float32 if request.param in WITHOUT_FLOAT64 else torch.float64)


def limit_of(logits: torch.Tensor) -> float:
    return LIMITS[logits.dtype]


def rows_of(count: int, size: int = CONTEXT, seed: int = 0) -> list[tuple[int, ...]]:
    return [tuple(row) for row in some_events(count, size, seed).tolist()]


def lay(parts, width: int, side: str = "random", seed: int = 0):
    """Parts of rows in a batch [B, width], each on the side named, with garbage where nothing is valid."""
    chance = random.Random(seed)
    events = torch.tensor([[chance.choice(GARBAGE) for _ in range(width)] for _ in parts])
    valid = torch.zeros(len(parts), width, dtype=torch.bool)
    for row, part in enumerate(parts):
        spare = width - len(part)
        before = {"left": spare, "right": 0, "both": spare // 2, "random": chance.randint(0, spare)}[side]
        events[row, before : before + len(part)] = torch.tensor(part, dtype=torch.int64)
        valid[row, before : before + len(part)] = True
    return events, valid


def alone(decoder: Decoder, rows) -> list[torch.Tensor]:
    """Logits [T, V] of each row by itself and unpadded: what every other way must reproduce."""
    found = []
    for row in rows:
        events = torch.tensor([row])
        found.append(decoder.full(events, everywhere(events))[0])
    return found


def apart(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).abs().max()) if left.numel() else 0.0


def walk(decoder: Decoder, rows, seed: int, widest: int = 3) -> float:
    """Largest gap over a random way to the end of `rows`: uneven, padded anywhere, idle, taken over now and then."""
    chance = random.Random(seed)
    rows, wanted = list(rows), alone(decoder, rows)
    read = [chance.randint(1, len(row) - 2) for row in rows]
    logits, cache = decoder.prefill(*lay([row[:n] for row, n in zip(rows, read, strict=True)], CONTEXT, seed=seed))
    worst = max(apart(logits[index], wanted[index][n - 1]) for index, n in enumerate(read))
    while any(n < len(row) for row, n in zip(rows, read, strict=True)):
        if chance.random() < 0.2:
            parents = [chance.randrange(len(rows)) for _ in rows]
            cache = decoder.reorder(cache, torch.tensor(parents))
            rows, wanted, read = ([each[parent] for parent in parents] for each in (rows, wanted, read))
        new = [min(chance.randint(0, widest), len(row) - n) for row, n in zip(rows, read, strict=True)]
        parts = [row[n : n + more] for row, n, more in zip(rows, read, new, strict=True)]
        events, valid = lay(parts, widest, seed=chance.randrange(1000))
        logits, cache = decoder.extend(events, valid, cache)
        assert bool(torch.isfinite(logits).all())
        for index, more in enumerate(new):
            worst = max(worst, apart(logits[index][valid[index]], wanted[index][read[index] : read[index] + more]))
            read[index] += more
    return worst


def test_the_suite_knows_every_built_in_adapter():
    kinds = {"gpt2": "transformers", "llama": "transformers", "mistral": "transformers"}
    kinds |= {"qwen2": "transformers", "qwen3": "transformers", "gemma2": "transformers"}
    kinds["gemma3_text"] = "transformers"
    covered = {kinds.get(name.partition(",")[0], name.partition(",")[0]) for name in MAKERS}
    assert covered - {"examples.markov"} == set(ADAPTERS)


def test_a_decoder_says_what_it_is(sharp):
    assert isinstance(sharp, Decoder)
    assert sharp.vocabulary_size == EVENT_MAP.size
    assert sharp.context_length >= CONTEXT
    assert sharp.revision


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"examples.markov"}))
def test_equal_folders_give_equal_revisions_and_other_weights_another(name, made):
    first, second = made.fresh(name, torch.float32), made.fresh(name, torch.float32)
    assert first.revision == second.revision == first.fingerprint()
    others = {made.decoder(other, torch.float32).revision for other in EVERY if other != name}
    assert first.revision not in others


@pytest.mark.parametrize("side", SIDES)
def test_the_full_path_reads_padding_on_no_side(side, sharp):
    rows = [row[:length] for row, length in zip(rows_of(5), (1, 4, 9, 2, 7), strict=True)]
    wanted = alone(sharp, rows)
    for seed in (0, 1):
        events, valid = lay(rows, 11, side, seed)
        logits = sharp.full(events, valid)
        assert logits.shape == (5, 11, sharp.vocabulary_size)
        assert bool(torch.isfinite(logits).all())
        for index, keep in enumerate(valid):
            assert apart(logits[index, keep], wanted[index]) <= limit_of(logits)


@pytest.mark.parametrize("side", SIDES)
def test_a_padded_prompt_gives_the_logits_of_the_last_event_and_a_cache_that_goes_on(side, sharp):
    rows, read = rows_of(5), (1, 4, 9, 2, 7)
    wanted = alone(sharp, rows)
    events, valid = lay([row[:n] for row, n in zip(rows, read, strict=True)], 11, side)
    logits, cache = sharp.prefill(events, valid)
    assert logits.shape == (5, sharp.vocabulary_size)
    for index, n in enumerate(read):
        assert apart(logits[index], wanted[index][n - 1]) <= limit_of(logits)
    logits, _ = sharp.extend(*lay([row[n : n + 2] for row, n in zip(rows, read, strict=True)], 2), cache)
    for index, n in enumerate(read):
        assert apart(logits[index], wanted[index][n : n + 2]) <= limit_of(logits)


@pytest.mark.parametrize("size", [1, 2, 5, CONTEXT - 1])
def test_chunks_of_any_size_agree_with_the_full_path_up_to_the_boundary(size, sharp):
    rows = rows_of(3)
    wanted = torch.stack(alone(sharp, rows))
    events = torch.tensor(rows)
    logits, cache = sharp.prefill(events[:, :1], everywhere(events[:, :1]))
    assert apart(logits, wanted[:, 0]) <= limit_of(logits)
    for start in range(1, CONTEXT, size):
        part = events[:, start : start + size]
        logits, cache = sharp.extend(part, everywhere(part), cache)
        assert logits.shape == (*part.shape, sharp.vocabulary_size)
        assert apart(logits, wanted[:, start : start + size]) <= limit_of(logits)


@pytest.mark.parametrize("seed", range(3))
def test_uneven_padded_idle_and_reordered_rows_agree_with_each_row_alone(seed, sharp):
    worst = walk(sharp, rows_of(4, seed=seed), seed)
    assert worst <= limit_of(sharp.full(*lay([(1,)], 1)))


def test_reordering_repeats_and_drops_rows_and_leaves_the_old_cache_usable(sharp):
    rows = rows_of(4)
    events, valid = lay([row[:n] for row, n in zip(rows, (3, 7, 1, 5), strict=True)], 9, "both")
    _, cache = sharp.prefill(events, valid)
    parents = [2, 0, 0, 3, 3]
    taken = sharp.reorder(cache, torch.tensor(parents))
    for kept, these in ((taken, [rows[parent] for parent in parents]), (cache, rows)):
        read = [(3, 7, 1, 5)[rows.index(row)] for row in these]
        wanted, continued = alone(sharp, these), kept
        for step in range(2):
            part = torch.tensor([[row[n + step]] for row, n in zip(these, read, strict=True)])
            logits, continued = sharp.extend(part, everywhere(part), continued)
            for index, n in enumerate(read):
                assert apart(logits[index, 0], wanted[index][n + step]) <= limit_of(logits)


def test_what_one_copy_of_a_row_reads_is_not_heard_by_another(sharp):
    rows = rows_of(2, 8)
    events = torch.tensor(rows)
    _, cache = sharp.prefill(events[:, :4], everywhere(events[:, :4]))
    twins = sharp.reorder(cache, torch.tensor([0, 0]))
    apart_now = torch.tensor([[3], [4]])
    _, twins = sharp.extend(apart_now, everywhere(apart_now), twins)
    same = torch.tensor([[5], [5]])
    logits, _ = sharp.extend(same, everywhere(same), twins)
    wanted = alone(sharp, [(*rows[0][:4], 3, 5), (*rows[0][:4], 4, 5)])
    for index in range(2):
        assert apart(logits[index, 0], wanted[index][-1]) <= limit_of(logits)


def test_more_events_than_the_context_are_refused_by_every_verb_and_cost_no_cache(sharp):
    context = sharp.context_length
    row = torch.randint(3, EVENT_MAP.size, (1, context + 1), generator=torch.Generator().manual_seed(0))
    kept = everywhere(row)
    for verb in (sharp.full, sharp.prefill):
        with pytest.raises((DecoderError, ValueError)):
            verb(row, kept)
    _, cache = sharp.prefill(row[:, :-2], kept[:, :-2])
    with pytest.raises((DecoderError, ValueError)):
        sharp.extend(row[:, -2:], kept[:, -2:], cache)
    logits, cache = sharp.extend(row[:, -2:-1], kept[:, -2:-1], cache)
    assert apart(logits[0, 0], alone(sharp, [tuple(row[0, :-1].tolist())])[0][-1]) <= limit_of(logits)
    with pytest.raises((DecoderError, ValueError)):
        sharp.extend(row[:, -1:], kept[:, -1:], cache)


def test_a_full_row_may_stand_idle_while_a_short_one_goes_on(sharp):
    context = sharp.context_length
    row = torch.randint(3, EVENT_MAP.size, (context,), generator=torch.Generator().manual_seed(1)).tolist()
    _, cache = sharp.prefill(*lay([tuple(row), (row[0],)], context))
    wanted = alone(sharp, [tuple(row)])[0]
    for step in range(1, 4):
        logits, cache = sharp.extend(*lay([(), (row[step],)], 2, seed=step), cache)
        assert bool(torch.isfinite(logits).all())
        _, valid = lay([(), (row[step],)], 2, seed=step)
        assert apart(logits[1][valid[1]], wanted[step : step + 1]) <= limit_of(logits)


def test_the_same_request_gives_the_same_bits(sharp):
    events, valid = lay([row[:n] for row, n in zip(rows_of(3), (3, 7, 1), strict=True)], 8)
    answers = []
    for _ in range(2):
        first, cache = sharp.prefill(events, valid)
        second, _ = sharp.extend(*lay([(3,), (), (4, 5)], 2), cache)
        answers.append((sharp.full(events, valid), first, second))
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


def test_a_spent_cache_is_refused_or_still_stands_for_its_own_events(sharp):
    events = torch.tensor(rows_of(2, 6))
    _, cache = sharp.prefill(events, everywhere(events))
    part = torch.tensor([[3], [4]])
    first, _ = sharp.extend(part, everywhere(part), cache)
    refused, second = "", None
    try:
        second, _ = sharp.extend(part, everywhere(part), cache)
    except CacheRejectedError as problem:
        refused = problem.field
    assert refused == "spent" if second is None else torch.equal(first, second)


def test_cache_bytes_count_rows_and_never_shrink_as_events_come(sharp):
    events = torch.tensor(rows_of(2, 6))
    _, cache = sharp.prefill(events, everywhere(events))
    before = sharp.cache_bytes(cache)
    assert before > 0
    assert sharp.cache_bytes(sharp.reorder(cache, torch.tensor([0, 1, 0, 1]))) == 2 * before
    part = events[:, 1:]
    _, cache = sharp.extend(part, everywhere(part), cache)
    assert sharp.cache_bytes(cache) >= before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_other_dtypes_agree_to_their_own_rounding_or_are_refused(name, dtype, made):
    if dtype == torch.bfloat16 and name in WITHOUT_BFLOAT16:
        with pytest.raises(DecoderError, match=r"only torch\.float32"):
            made.fresh(name, dtype)
        return
    assert walk(made.decoder(name, dtype), rows_of(4), 7) <= LIMITS[dtype]


@pytest.mark.parametrize("name", sorted(WITHOUT_FLOAT64))
def test_an_adapter_without_float64_says_so(name, made):
    with pytest.raises(DecoderError, match="float64"):
        made.fresh(name, torch.float64)


def test_the_walk_sees_a_cached_path_with_other_weights(tmp_path):
    decoder = write_pair_folder(tmp_path / "pair", seeds=(0, 1)).decoder()
    assert walk(decoder, rows_of(4), 0) > 100 * LIMITS[torch.float32]


def test_the_walk_sees_a_cache_that_forgets_old_events(tmp_path):
    decoder = write_pair_folder(tmp_path / "pair", cached_attention_window=4).decoder()
    assert walk(decoder, rows_of(4), 0) > 100 * LIMITS[torch.float32]
