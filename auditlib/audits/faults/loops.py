"""Faults of the generation loop: what it emits, how it tags it, how far it goes, and whose beams it follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.needs import feels_recent_events, forbids_something, never_ends_by_itself, two_events
from auditlib.audits.faults.planting import Fault, Found, Need, Plan, Plant, World, real_loop
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.decoding.filters import keep_top_k, keep_top_p
from auditlib.decoding.generated import Generated
from auditlib.decoding.policies import Setting

_AUDIT = "decoding policy"
Change = Callable[[Plan, int, Generated], Generated]
"""Plan, place of the prefix and a hypothesis → what a faulty loop would have given in its place."""


def _changed(change: Change) -> Plant:
    """Plants a loop that spoils each hypothesis."""

    def loop(plan: Plan) -> Found:
        """What the one loop gives, spoilt afterwards: the decoder behind it is never asked anything unusual."""
        return [[change(plan, place, one) for one in found] for place, found in enumerate(real_loop(plan))]

    return lambda world: replace(world, loop=loop)


def _asked(ask: Callable[[Plan], Plan]) -> Plant:
    """Plants a loop that is asked something else."""
    return lambda world: replace(world, loop=lambda plan: real_loop(ask(plan)))


def _ended(plan: Plan, found: Generated) -> bool:
    return found.events[-1:] == (plan.event_map.end,)


def _padding_inside(plan: Plan, _: int, found: Generated) -> Generated:
    """The newest event before the last is padding."""
    return replace(found, events=(plan.event_map.padding, *found.events[1:])) if found.events else found


def _goes_on(plan: Plan, _: int, found: Generated) -> Generated:
    """A finished row keeps sampling until its batch is done."""
    more = (plan.event_map.domain[0],) if _ended(plan, found) else ()
    return replace(found, events=found.events + more)


def _pads_on(plan: Plan, _: int, found: Generated) -> Generated:
    more = (plan.event_map.padding,) if _ended(plan, found) else ()
    return replace(found, events=found.events + more)


def _says_end(_: Plan, __: int, found: Generated) -> Generated:
    """A flag that begins as true: every stop is an end, by choice."""
    return replace(found, stop="end", forced=False, chosen_end=True)


def _says_capped(_: Plan, __: int, found: Generated) -> Generated:
    return replace(found, stop="capped", chosen_end=False)


def _end_cut(plan: Plan, _: int, found: Generated) -> Generated:
    """The end is stripped, and the tag derived from what is left."""
    if not _ended(plan, found):
        return found
    return replace(found, events=found.events[:-1], stop="capped", forced=False, chosen_end=False)


def _illegal(plan: Plan, place: int, found: Generated) -> Generated:
    """A choice that the mask forbids comes through where there is one: nobody looked again after sampling."""
    automaton, events = plan.automata[place], found.events
    state = automaton.state_after(plan.prefixes[place][1:])
    for at, event in enumerate(events):
        wrong = [other for other in plan.event_map.domain if state >= 0 and not automaton.legal[state, other]]
        if wrong:
            return replace(found, events=(*events[:at], wrong[0], *events[at + 1 :]))
        state = automaton.advance(state, event)
    return found


def _ends_early(plan: Plan, place: int, found: Generated) -> Generated:
    """The end comes one event early, whatever the order still waits for."""
    automaton, end = plan.automata[place], plan.event_map.end
    state = automaton.state_after(plan.prefixes[place][1:])
    for at, event in enumerate(found.events):
        if state >= 0 and not automaton.legal[state, end]:
            return replace(found, events=(*found.events[:at], end))
        state = automaton.advance(state, event)
    return found


def _same_beams(plan: Plan) -> Found:
    """All beams begin with the same prefix and score, and never part."""
    return [[found[0]] * len(found) for found in real_loop(plan)]


def _worst_first(plan: Plan) -> Found:
    """Hypotheses come back worst first, as when the prefix counts in the length."""
    return [found[::-1] for found in real_loop(plan)]


def _other_score(_: Plan, __: int, found: Generated) -> Generated:
    return replace(found, score=found.score + 0.01)


def _all_wait(plan: Plan) -> Found:
    """A batch stops as soon as any of its rows may: what a row gets depends on its company."""
    found = real_loop(plan)
    most = 1 if min(plan.batch, len(found)) > 1 else plan.max_new
    return [[replace(one, events=one.events[:most]) for one in some] for some in found]


def _by_place(plan: Plan) -> Found:
    """Every other row of a batch gets its neighbour's result."""
    found = real_loop(plan)
    wrong = [place % plan.batch > 0 and place ^ 1 < len(found) for place in range(len(found))]
    return [found[place ^ 1] if wrong[place] else one for place, one in enumerate(found)]


class _LeakyReorder(Planted):
    """Beams read a cache that did not follow its parents."""

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """Every row continues the parent of the row before it; right only where all have the same one."""
        return self.inner.reorder(cache, parents.roll(1))


def _other_beam(plan: Plan) -> Plan:
    return replace(plan, decoder=_LeakyReorder(plan.decoder))


class _NeverEnds(Planted):
    """The end's logit is lost."""

    def __init__(self, inner: Any, end: int) -> None:
        super().__init__(inner)
        self._end = end

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Logits [B, V] with the end's lowered by 10,000, which no filter brings back and which is still a number."""
        logits, cache = super().prefill(events, valid)
        return self._endless(logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The same in logits [B, K, V]; the cache is right."""
        logits, cache = super().extend(events, valid, cache)
        return self._endless(logits), cache

    def _endless(self, logits: Tensor) -> Tensor:
        logits = logits.clone()
        logits[..., self._end] -= 1e4
        return logits


def _never_ends(world: World) -> World:
    return wrapped(_NeverEnds, end=world.subject.event_map.end)(world)


def _keeps(how: Callable[[Tensor, Setting], Tensor]) -> Plant:
    """Plants other filters."""

    def filters(scores: Tensor, setting: Setting) -> Tensor:
        """Scores over the temperature in float64, as the real filters begin, then left to `how`."""
        return how(scores.double() / setting.temperature, setting)

    return lambda world: replace(world, filters=filters)


def _one_more(scores: Tensor, setting: Setting) -> Tensor:
    scores = keep_top_k(scores, setting.top_k + 1) if setting.top_k else scores
    return keep_top_p(scores, setting.top_p) if setting.top_p < 1 else scores


def _no_crossing(scores: Tensor, setting: Setting) -> Tensor:
    """Only events whose cumulated mass stays below the share are kept; the crossing one goes."""
    scores = keep_top_k(scores, setting.top_k) if setting.top_k else scores
    ranked, order = scores.sort(dim=-1, descending=True, stable=True)
    within = ranked.softmax(-1).cumsum(-1) <= setting.top_p
    within[..., 0] = True
    stays = torch.zeros_like(within).scatter(-1, order, within)
    return scores.masked_fill(~stays, -torch.inf)


def _share_first(scores: Tensor, setting: Setting) -> Tensor:
    scores = keep_top_p(scores, setting.top_p) if setting.top_p < 1 else scores
    return keep_top_k(scores, setting.top_k) if setting.top_k else scores


def _twice(scores: Tensor, setting: Setting) -> Tensor:
    return _share_first(scores / setting.temperature, replace(setting, top_k=0))


def _second_best(plan: Plan) -> Found:
    """The narrowest filter leaves two: a sample is not what greedy would have taken."""
    setting = plan.setting
    if setting.kind == "sampled" and setting.top_k == 1:
        setting = replace(setting, top_k=2, temperature=100.0)
    return real_loop(replace(plan, setting=setting))


def _policy(name: str, plant: Plant, check: str, setting: str, report: str = "", needs: tuple[Need, ...] = ()) -> Fault:
    return Fault(name, _AUDIT, _AUDIT, (check,), plant, report, needs, setting=setting)


def _loop(how: Callable[[Plan], Found]) -> Plant:
    return lambda world: replace(world, loop=how)


_TAGS = "mislabelled stops"

LOOPS: tuple[Fault, ...] = (
    _policy("padding is emitted", _changed(_padding_inside), "padding emitted", "greedy", "lablup/mlxcel PR 412"),
    _policy("ended rows are padded in the result", _changed(_pads_on), "padding emitted", "beam"),
    _policy("ended rows go on", _changed(_goes_on), "events after the end", "greedy",
            "mistralai/mistral-inference PR 270"),
    _policy("the end is passed over", _changed(_goes_on), "events after the end", "sampled",
            "PaddlePaddle/FastDeploy PR 7618"),
    _policy("a masked event is sampled", _changed(_illegal), "invalid sequences", "sampled",
            "pytorch/pytorch #48841", (forbids_something,)),
    _policy("the end comes from another state", _changed(_ends_early), "invalid sequences", "greedy",
            "epfl-dlab/transformers-CFG PR 108", (forbids_something,)),
    _policy("every stop is called an end", _changed(_says_end), _TAGS, "greedy", "ggml-org/llama.cpp PR 7198"),
    _policy("every stop is called capped", _changed(_says_capped), _TAGS, "greedy",
            "PaddlePaddle/FastDeploy PR 4543"),
    _policy("the end is stripped", _changed(_end_cut), _TAGS, "sampled", "huggingface/optimum-habana PR 1539"),
    _policy("one event beyond the cap", _asked(lambda plan: replace(plan, max_new=plan.max_new + 1)),
            "wrong effective cap", "greedy", "NVIDIA/TensorRT-LLM PR 12358"),
    _policy("the cap of another setting", _asked(lambda plan: replace(plan, max_new=max(1, plan.max_new // 2))),
            "wrong effective cap", "sampled", "ml-explore/mlx-lm PR 1810"),
    _policy("a batch ends with its first row", _loop(_all_wait), "batch dependent sequences", "greedy",
            "lucidrains/h-transformer-1d #9"),
    _policy("rows get their neighbour's result", _loop(_by_place), "batch dependent sequences", "beam",
            "OpenNMT/OpenNMT-py #994"),
    _policy("all beams are one", _loop(_same_beams), "repeated hypotheses", "beam",
            "facebookresearch/ParlAI #2007"),
    _policy("beams come worst first", _loop(_worst_first), "beam score error", "beam", "vllm-project/vllm #2606"),
    _policy("scores are normalised twice", _changed(_other_score), "beam score error", "beam",
            "huggingface/transformers #8722"),
    _policy("beams read another beam's cache", _asked(_other_beam), "beam score error", "beam",
            "huggingface/transformers #46612", (two_events, feels_recent_events)),
    _policy("the end is never likely", _never_ends, "share not ended by choice", "sampled",
            "huggingface/transformers #25103", (never_ends_by_itself,)),
    _policy("top-k keeps one more", _keeps(_one_more), "filter errors", "sampled",
            "kingoflolz/mesh-transformer-jax #164"),
    _policy("top-p drops the crossing event", _keeps(_no_crossing), "filter errors", "sampled",
            "rasbt/reasoning-from-scratch #164"),
    _policy("top-p comes before top-k", _keeps(_share_first), "filter errors", "sampled",
            "EleutherAI/gpt-neox #1250"),
    _policy("the temperature is applied twice", _keeps(_twice), "filter errors", "sampled",
            "sgl-project/sglang-omni #1360"),
    _policy("the narrowest filter keeps two", _loop(_second_best), "top-k 1 differs from greedy", "sampled",
            "kingoflolz/mesh-transformer-jax #164", (two_events,)),
)  # fmt: skip
