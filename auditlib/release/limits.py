"""Which checks a release needs, how large each number may be, and what it blocks. Data only; `judge` applies it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

from auditlib.errors import PolicyError

Blocks = Literal["release", "cache", "decoding", "setting"]

# What a measured tolerance may reach, in logits, before a policy file says otherwise. Four times the noise floor of a
# small decoder is near 1e-5 in float32; a coarser dtype needs a policy that allows its tolerance by name.
LARGEST_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Limit:
    """One check of one audit: the largest value that passes, and what a value above it blocks.

    `at_most` "tolerance" stands for the tolerance measured by the same audit. `blocks`: "release" everything, "cache"
    cache acceleration, "decoding" every decoding setting, "setting" the one that the check is named after. A check
    that is not `required` may be declared not applicable, with a reason. `kinds` restricts a check of settings to
    kinds of decoding. A check that is `stand_in_for` another is asked for only where the other was not measured.
    """

    audit: str
    check: str
    failure: str
    at_most: float | Literal["tolerance"]
    unit: str
    blocks: Blocks
    min_count: int = 1
    required: bool = True
    kinds: tuple[str, ...] = ()
    stand_in_for: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of one judgement, and the cap on measured tolerances (logits)."""

    rows: tuple[Limit, ...]
    largest_tolerance: float = LARGEST_TOLERANCE


_PARITY_PROBES = (
    "single events", "chunks of 2, 3 and 5", "uneven rows", "one-event prefill", "padded left", "padded right",
    "padded both sides", "one padded row", "exact boundary", "dropped rows", "reordered rows",
)  # fmt: skip


def _causality() -> Iterable[Limit]:
    def limit(check: str, at_most: float | Literal["tolerance"], unit: str, **more: bool | str) -> Limit:
        return Limit("causality", check, "causality", at_most, unit, "release", **more)  # type: ignore[arg-type]

    yield limit("truncation in float64", 1e-10, "relative", required=False)
    yield limit("truncation", "tolerance", "logit", stand_in_for="truncation in float64")
    yield limit("exhaustive next event", 0, "changed logits")
    yield limit("later events in one append", 0, "changed logits")
    yield limit("jacobian", 0, "gradient", required=False)
    yield limit("finite poison", 0, "changed logits", required=False)
    yield limit("not finite logits", 0, "logits")


def _cache() -> Iterable[Limit]:
    def parity(check: str, at_most: float | Literal["tolerance"], unit: str, *, required: bool = True) -> Limit:
        return Limit("cache parity", check, "cache parity", at_most, unit, "cache", required=required)

    def identity(check: str, at_most: float | Literal["tolerance"], unit: str) -> Limit:
        return Limit("cache identity", check, "cache identity", at_most, unit, "cache")

    yield from (parity(probe, "tolerance", "logit") for probe in _PARITY_PROBES)
    yield parity("stored keys and values", "tolerance", "value", required=False)
    yield parity("single events in float64", 1e-9, "relative", required=False)
    yield parity("accepted beyond the context", 0, "requests")
    yield parity("not finite logits", 0, "logits")
    yield identity("altered requests accepted", 0, "requests")
    yield identity("own requests rejected", 0, "requests")
    yield identity("answer after another session", "tolerance", "logit")
    yield identity("repeated answer", 0, "changed logits")


def _training() -> Iterable[Limit]:
    def limit(check: str, failure: str, at_most: float, unit: str) -> Limit:
        return Limit("training", check, failure, at_most, unit, "release")

    yield limit("target shift", "training targets", 0, "nats")
    yield limit("padding in the loss", "training targets", 0, "nats")
    yield limit("accumulation", "training targets", 1e-9, "relative")
    yield limit("repeat with the same input", "training targets", 0, "changed logits")
    yield limit("accuracy above the ceiling", "training targets", 0, "share")
    yield limit("sessions on both sides", "split leakage", 0, "sessions")
    yield limit("keys crossing the split", "split leakage", 0, "keys")


def _policy() -> Iterable[Limit]:
    def limit(check: str, failure: str, at_most: float, unit: str, *kinds: str) -> Limit:
        return Limit("decoding policy", check, failure, at_most, unit, "setting", kinds=kinds)

    yield limit("padding emitted", "padding emission", 0, "events")
    yield limit("events after the end", "padding emission", 0, "events")
    yield limit("invalid sequences", "event grammar", 0, "sequences")
    yield limit("capped sequences", "end-token coverage", 0, "sequences")
    yield limit("mislabelled stops", "end-token coverage", 0, "sequences")
    yield limit("share not ended by choice", "end-token coverage", 0.99, "share", "sampled")
    yield limit("wrong effective cap", "decoding policy", 0, "settings")
    yield limit("batch dependent sequences", "decoding policy", 0, "sequences")
    yield limit("repeated hypotheses", "decoding policy", 0, "hypotheses", "beam")
    yield limit("beam score error", "decoding policy", 1e-3, "log-probability", "beam")
    yield limit("top-k 1 differs from greedy", "decoding policy", 0, "sequences", "sampled")


def _grammar_and_numerics() -> Iterable[Limit]:
    def grammar(check: str) -> Limit:
        return Limit("event grammar", check, "event grammar", 0, "cells", "decoding")

    def numerics(check: str, at_most: float, unit: str, *, required: bool = False) -> Limit:
        return Limit("numerics", check, "numerics", at_most, unit, "cache", required=required)

    yield grammar("allowed illegal cells")
    yield grammar("states with no event")
    yield grammar("ends out of reach")
    yield grammar("end not forced")
    yield numerics("logic in float64", 1e-9, "relative")
    yield numerics("sessions above ratio 1.25", 0.01, "share")
    yield numerics("pooled ratio", 1.10, "ratio")
    yield numerics("decisions that differ", 0, "decisions", required=True)


# The public gate knows no allowance for these: "any emitted padding", "any invalid order".
_FIXED = ("decoding policy: padding emitted", "decoding policy: invalid sequences")

LIMITS: tuple[Limit, ...] = (*_causality(), *_cache(), *_training(), *_policy(), *_grammar_and_numerics())


def limits_from(overrides: Mapping[str, object] | None = None) -> Limits:
    """Limits of a policy file: `LIMITS` with what its "limits" object changes; PolicyError on anything else in it.

    Keys: "largest_tolerance" (logits), "allowed_capped" (sequences a setting), or "<audit>: <check>" with a number or
    {"at_most": number, "min_count": integer}. A limit can be moved, never removed.
    """
    named = {f"{limit.audit}: {limit.check}": limit for limit in LIMITS}
    largest = LARGEST_TOLERANCE
    for key, value in (overrides or {}).items():
        if key == "largest_tolerance":
            largest = _number(key, value)
            continue
        name = "decoding policy: capped sequences" if key == "allowed_capped" else key
        if name not in named:
            known = ", ".join(["largest_tolerance", "allowed_capped", *named])
            raise PolicyError(f'limits: there is no check "{key}"; known are {known}')
        if name in _FIXED:
            raise PolicyError(f'limits: "{key}" is fixed at 0 by the gate; take it out of the policy file')
        named[name] = _moved(named[name], key, value)
    return Limits(tuple(named.values()), largest)


def _moved(limit: Limit, key: str, value: object) -> Limit:
    if not isinstance(value, Mapping):
        return replace(limit, at_most=_number(key, value))
    unknown = set(value) - {"at_most", "min_count"}
    if unknown or not value:
        raise PolicyError(f'limits: "{key}" takes "at_most" and "min_count", got {sorted(map(str, value))}')
    if "at_most" in value:
        limit = replace(limit, at_most=_number(key, value["at_most"]))
    count = value.get("min_count", limit.min_count)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise PolicyError(f'limits: "min_count" of "{key}" must be an integer from 1, got {count!r}')
    return replace(limit, min_count=count)


def _number(key: str, value: object) -> float:
    number = finite(value)
    if number is None or number < 0:
        raise PolicyError(f'limits: "{key}" must be a finite number from 0, got {value!r}')
    return number


def finite(value: object) -> float | None:
    """`value` as a float where it is a finite real number, else None: text, truth values and NaN are no numbers."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the largest float
        return None
    return number if math.isfinite(number) else None
