"""The checks of causality, cache parity, numerics and identity, each run alone over a small world."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from auditlib.audits import causal_hooks, causal_probes
from auditlib.audits.altered_requests import altered_trials
from auditlib.audits.beyond import accepted_beyond
from auditlib.audits.causal_probes import Laid
from auditlib.audits.changes import Change
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.decisions import Decisions
from auditlib.audits.faults.memory import bytes_probe
from auditlib.audits.faults.planting import World
from auditlib.audits.growing import Bench
from auditlib.audits.held_out import Row
from auditlib.audits.neighbours import Neighbours
from auditlib.audits.offers import alterable, differentiable, inspectable, shows_views
from auditlib.audits.parity_probes import battery
from auditlib.audits.prefix_set import prefix_set
from auditlib.audits.requests import own_trials
from auditlib.audits.rounding import Errors
from auditlib.audits.stored import StoredProbe
from auditlib.audits.sweep import Advance, cached_logits
from auditlib.audits.twins import most_alike, twin_rows
from auditlib.audits.work import Watch

Probe = Callable[[World], tuple[float, int]]
"""A world → the value of one check, and how many observations it rests on."""

_APPENDS = ((1, 4), (2, 2), (5, 3), (1, 9))
_LAID = (2, 3, 5, 9, 17)
_SHORT = 9
_RATIO = 1.25


def _checked(world: World, fine: bool = False) -> CheckedDecoder:
    watch = Watch(world.subject.progress)
    decoder = world.fine if fine and world.fine is not None else world.subject.decoder
    return CheckedDecoder(decoder, world.subject.device, watch.tick)


def _laid(world: World, longest: int) -> Iterator[Laid]:
    for length in _LAID:
        row = world.rows.rows(1, length, f"planted {length}")[0]
        if 1 < len(row) <= longest:
            yield Laid(row)
    for length, left, right in ((2, 3, 0), (3, 0, 3), (5, 1, 2)):
        row = world.rows.rows(1, length, f"planted and padded {length}")[0]
        if len(row) > 1:
            yield Laid(row, left, right)


def _truncation(world: World) -> tuple[float, int]:
    checked, seen = _checked(world, fine=True), Change()
    rows = [*world.rows.sample, *world.rows.rows(2, _LAID[-1], "planted")]
    scale = max(1.0, causal_probes.truncation(checked, rows, seen))
    for row in rows[-2:]:
        causal_probes.truncation_at_cuts(checked, row, seen)
        causal_probes.wider_batch(checked, world.rows, row, seen)
    return (seen.largest / scale if world.fine is not None else seen.largest), seen.positions


def _exhaustive(world: World) -> tuple[float, int]:
    checked, seen = _checked(world), Change()
    for laid in _laid(world, _LAID[-1]):
        causal_probes.exhaustive_next_event(checked, world.rows, laid, seen)
    return seen.moved, seen.positions


def _append(world: World) -> tuple[float, int]:
    checked, seen = _checked(world), Change()
    for prompt, size in _APPENDS:
        row = world.rows.rows(1, prompt + size, f"append {prompt} {size}")[0]
        causal_probes.later_in_one_append(checked, world.rows, row, prompt, seen)
    return seen.moved, seen.positions


def _jacobian(world: World) -> tuple[float, int]:
    seen, checked = Change(), _checked(world, fine=True)
    decoder, _ = differentiable(checked, world.rows.rows(1, 4, "trial")[0])
    if decoder is not None:
        for laid in _laid(world, _SHORT):
            causal_hooks.jacobian(decoder, world.rows, laid, world.subject.device, seen)
    return seen.largest, seen.positions


def _poison(world: World) -> tuple[float, int]:
    seen, checked, rows = Change(), _checked(world), world.rows
    trial = rows.rows(1, 4, "trial")[0]
    altered, (shown, _) = alterable(checked, trial)[0], inspectable(checked, trial)
    if altered is not None:
        for laid in _laid(world, _SHORT):
            causal_hooks.poison_full(altered, rows, laid, world.subject.device, seen)
        row = rows.rows(1, 5, "poisoned append")[0]
        if len(row) > 2:
            causal_hooks.poison_append(altered, checked, row, 2, seen)
    if shown is not None and shows_views(checked, shown, trial):
        causal_hooks.poison_unread_slots(shown, checked, rows, seen)
    return seen.moved, seen.positions


def _not_finite(world: World) -> tuple[float, int]:
    checked = _checked(world)
    for laid in _laid(world, _LAID[-1]):
        events, valid = laid.tensors(world.rows.padding, world.subject.device)
        checked.full(events[None], valid[None])
    return checked.not_finite, checked.logits


def _bench(world: World, names: tuple[str, ...], fine: bool = False) -> Bench:
    bench = Bench(_checked(world, fine), world.rows)
    for name, probe in battery(bench):
        if name in names:
            probe()
    return bench


def _parity(check: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Worst gap of the check in logits, and how many prefixes it was seen over; (0, 0) where it found no row."""
        seen = _bench(world, (check,)).gaps.probes.get(check)
        return (seen.worst, seen.count) if seen else (0.0, 0)

    return probe


def _stored(world: World) -> tuple[float, int]:
    bench = Bench(_checked(world), world.rows)
    shown, _ = inspectable(bench.checked, world.rows.rows(1, 4, "trial")[0])
    if shown is None:
        return 0.0, 0
    fine = _checked(world, fine=True) if world.fine is not None and world.fine is not world.subject.decoder else None
    probe = StoredProbe(bench, shown, fine)
    probe.run()
    found = probe.measurement(world.tolerance, world.subject.dtype)
    return found.value, found.count


def _bytes(world: World) -> tuple[float, int]:
    probe = bytes_probe(world)
    probe.run()
    return len(probe.lies), probe.looked


def _in_float64(*names: str) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Worst gap of the named checks in float64 as a share of the logits' size; (0, 0) where there is no float64."""
        if world.fine is None:
            return 0.0, 0
        gaps = _bench(world, names, fine=True).gaps
        return gaps.worst() / world.tolerance.scale, gaps.count()

    return probe


def _beyond(world: World) -> tuple[float, int]:
    accepted, requests = accepted_beyond(_checked(world), world.rows)
    return len(accepted), requests


def _cached_not_finite(world: World) -> tuple[float, int]:
    checked = _bench(world, ("uneven rows", "one padded row")).checked
    return checked.not_finite, checked.logits


def _everyday(world: World) -> list[Row]:
    # A thousand positions, as the limits were measured on such numbers: of a few dozen, a sound ratio may be large.
    length = min(24, world.rows.context)
    return [*world.rows.sample, *world.rows.rows(max(8, -(-1000 // length)), length, "planted numbers")]


def _errors(world: World) -> tuple[Errors, list[Row]]:
    rows, errors = _everyday(world), Errors(torch.finfo(world.subject.dtype).eps / 2)
    own, fine = _checked(world), _checked(world, fine=True)
    cached, _ = cached_logits(own, rows, Advance(1, 1), world.rows.alphabet[0])
    errors.add(rows, cached, own.whole(rows), fine.whole(rows))
    return errors, rows


def _pooled(world: World) -> tuple[float, int]:
    return _errors(world)[0].pooled()


def _sessions(world: World) -> tuple[float, int]:
    errors, rows = _errors(world)
    found = list(errors.of(rows))
    return sum(one.above(_RATIO) for one in found) / len(found), len(found)


def _decisions(world: World) -> tuple[float, int]:
    rows, decisions = _everyday(world), Decisions()
    cached, seen = cached_logits(_checked(world), rows, Advance(1, 1), world.rows.alphabet[0])
    exact = _checked(world, fine=True).whole(rows)
    decisions.add(cached[seen], exact[seen], 2 * world.tolerance.tolerance)
    return decisions.different, decisions.compared


def _neighbours(repeated: bool) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Logits that changed on mere repetition, of how many; or the worst gap after others, over how many answers."""
        subject = world.subject
        asked = Neighbours(subject, most_alike(twin_rows(subject, prefix_set(subject, 8))), Watch(subject.progress))
        for _, work in asked.pieces():
            work()
        found = asked.found
        return (found.repeated, found.repeats) if repeated else (found.worst, found.answers)

    return probe


def _requests(own: bool) -> Probe:
    def probe(world: World) -> tuple[float, int]:
        """Requests that the guard did not judge as expected, of how many."""
        subject, missing = world.subject, dict[str, str]()
        twins = most_alike(twin_rows(subject, prefix_set(subject, 8)))
        asked = own_trials(subject, twins, world.guard) if own else altered_trials(subject, twins, missing, world.guard)
        trials = list(asked)
        return sum(not one.as_expected for one in trials), len(trials)

    return probe


_PARITY = (
    "single events", "chunks of 2, 3 and 5", "long chunks", "uneven rows", "one-event prefill", "padded left",
    "padded right", "padded both sides", "one padded row", "exact boundary", "dropped rows", "reordered rows",
)  # fmt: skip

PATH_PROBES: dict[tuple[str, str], Probe] = {
    ("causality", "truncation in float64"): _truncation,
    ("causality", "truncation"): _truncation,
    ("causality", "exhaustive next event"): _exhaustive,
    ("causality", "later events in one append"): _append,
    ("causality", "jacobian"): _jacobian,
    ("causality", "finite poison"): _poison,
    ("causality", "not finite logits"): _not_finite,
    **{("cache parity", check): _parity(check) for check in _PARITY},
    ("cache parity", "stored keys and values"): _stored,
    ("cache parity", "cache bytes"): _bytes,
    ("cache parity", "single events in float64"): _in_float64("single events"),
    ("cache parity", "accepted beyond the context"): _beyond,
    ("cache parity", "not finite logits"): _cached_not_finite,
    ("numerics", "logic in float64"): _in_float64("one-event prefill", "uneven rows"),
    ("numerics", "pooled ratio"): _pooled,
    ("numerics", "sessions above ratio 1.25"): _sessions,
    ("numerics", "decisions that differ"): _decisions,
    ("cache identity", "answer after another session"): _neighbours(repeated=False),
    ("cache identity", "repeated answer"): _neighbours(repeated=True),
    ("cache identity", "altered requests accepted"): _requests(own=False),
    ("cache identity", "own requests rejected"): _requests(own=True),
}
"""Probes of what a decoder computes and keeps, by audit and check."""
