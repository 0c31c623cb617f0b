"""Which checks a release needs, how large each number may be, and what it blocks. Data only; `judge` applies it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

from auditlib.errors import PolicyError

Blocks = Literal["release", "cache", "decoding", "setting"]
TOLERANCE: Literal["tolerance"] = "tolerance"

# What a measured tolerance may reach, in logits, before a policy file says otherwise. Four times the noise floor of a
# small decoder is near 1e-5 in float32; a coarser dtype needs a policy that allows its tolerance by name.
LARGEST_TOLERANCE = 1e-3

_SAMPLED, _BEAM = ("sampled",), ("beam",)


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

    @property
    def per_setting(self) -> bool:
        """Whether the check is made once for each decoding setting, and named after it."""
        return self.blocks == "setting" or bool(self.kinds)


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of one judgement, and the cap on measured tolerances (logits)."""

    rows: tuple[Limit, ...]
    largest_tolerance: float = LARGEST_TOLERANCE


# One line a check. The columns: audit, check, name of the failure, largest value that passes, unit, what it blocks.
LIMITS: tuple[Limit, ...] = (
    # A leak moves logits by far more than float64 rounds (about 1e-15); counts and gradients have no noise at all.
    Limit("causality", "truncation in float64", "causality", 1e-10, "relative", "release", required=False),
    Limit("causality", "truncation", "causality", TOLERANCE, "logit", "release", stand_in_for="truncation in float64"),
    Limit("causality", "exhaustive next event", "causality", 0, "changed logits", "release"),
    Limit("causality", "later events in one append", "causality", 0, "changed logits", "release"),
    Limit("causality", "jacobian", "causality", 0, "gradient", "release", required=False),
    Limit("causality", "finite poison", "causality", 0, "changed logits", "release", required=False),
    Limit("causality", "not finite logits", "causality", 0, "logits", "release"),
    # Two paths round differently, so their gap is held against the noise that the full path alone shows here.
    Limit("cache parity", "single events", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "chunks of 2, 3 and 5", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "long chunks", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "uneven rows", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "one-event prefill", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "padded left", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "padded right", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "padded both sides", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "one padded row", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "exact boundary", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "dropped rows", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "reordered rows", "cache parity", TOLERANCE, "logit", "cache"),
    Limit("cache parity", "stored keys and values", "cache parity", TOLERANCE, "value", "cache", required=False),
    Limit("cache parity", "cache bytes", "cache parity", 0, "caches", "cache", required=False),
    Limit("cache parity", "single events in float64", "cache parity", 1e-9, "relative", "cache", required=False),
    Limit("cache parity", "accepted beyond the context", "cache parity", 0, "requests", "cache"),
    Limit("cache parity", "not finite logits", "cache parity", 0, "logits", "cache"),
    Limit("cache identity", "altered requests accepted", "cache identity", 0, "requests", "cache"),
    Limit("cache identity", "own requests rejected", "cache identity", 0, "requests", "cache"),
    Limit("cache identity", "answer after another session", "cache identity", TOLERANCE, "logit", "cache"),
    Limit("cache identity", "repeated answer", "cache identity", 0, "changed logits", "cache"),
    # What was trained wrongly, or on what it is tested on, is wrong in every way of serving it.
    Limit("training", "target shift", "training targets", 0, "nats", "release"),
    Limit("training", "padding in the loss", "training targets", 0, "nats", "release"),
    Limit("training", "accumulation", "training targets", 1e-9, "relative", "release"),
    Limit("training", "repeat with the same input", "training targets", 0, "changed logits", "release"),
    Limit("training", "accuracy above the ceiling", "training targets", 0, "share", "release"),
    Limit("training", "sessions on both sides", "split leakage", 0, "sessions", "release"),
    Limit("training", "keys crossing the split", "split leakage", 0, "keys", "release"),
    # Measured for each decoding setting, under "<setting>: <check>"; one setting's fault leaves the others alone.
    Limit("decoding policy", "padding emitted", "padding emission", 0, "events", "setting"),
    Limit("decoding policy", "events after the end", "padding emission", 0, "events", "setting"),
    Limit("decoding policy", "invalid sequences", "event grammar", 0, "sequences", "setting"),
    Limit("decoding policy", "capped sequences", "end-token coverage", 0, "sequences", "setting"),
    Limit("decoding policy", "mislabelled stops", "end-token coverage", 0, "sequences", "setting"),
    Limit(
        "decoding policy", "share not ended by choice", "end-token coverage", 0.99, "share", "setting", kinds=_SAMPLED
    ),
    Limit("decoding policy", "wrong effective cap", "decoding policy", 0, "settings", "setting"),
    Limit("decoding policy", "batch dependent sequences", "decoding policy", 0, "sequences", "setting"),
    Limit("decoding policy", "repeated hypotheses", "decoding policy", 0, "hypotheses", "setting", kinds=_BEAM),
    # A sum of a few dozen log-probabilities, added up in another order: far above rounding, far below one choice.
    Limit("decoding policy", "filter errors", "decoding policy", 0, "prefixes", "setting", kinds=_SAMPLED),
    # A beam's score is recomputed by one full pass: what differs is the cache that followed the wrong parent.
    Limit("decoding policy", "beam score error", "cache parity", 1e-3, "log-probability", "cache", kinds=_BEAM),
    Limit(
        "decoding policy", "top-k 1 differs from greedy", "decoding policy", 0, "sequences", "setting", kinds=_SAMPLED
    ),
    # The mask is proved over all its states, so one bad cell is one too many, and it serves every setting.
    Limit("event grammar", "allowed illegal cells", "event grammar", 0, "cells", "decoding"),
    Limit("event grammar", "states with no event", "event grammar", 0, "cells", "decoding"),
    Limit("event grammar", "ends out of reach", "event grammar", 0, "cells", "decoding"),
    Limit("event grammar", "end not forced", "event grammar", 0, "cells", "decoding"),
    # Sound caches lie at ratios of 0.93 to 1.07, and no planted fault in float32 lay under 1.5.
    Limit("numerics", "logic in float64", "numerics", 1e-9, "relative", "cache", required=False),
    Limit("numerics", "sessions above ratio 1.25", "numerics", 0.01, "share", "cache", required=False),
    Limit("numerics", "pooled ratio", "numerics", 1.10, "ratio", "cache", required=False),
    Limit("numerics", "decisions that differ", "numerics", 0, "decisions", "cache"),
)

PLANTED_FAULTS_MISSED = "planted faults missed"
"""Check of every audit: faults planted in the decoder that the audit claims to see and did not."""

_BLOCKED: tuple[tuple[str, str, Blocks], ...] = (
    ("causality", "causality", "release"),
    ("cache parity", "cache parity", "cache"),
    ("cache identity", "cache identity", "cache"),
    ("training", "training targets", "release"),
    ("decoding policy", "decoding policy", "decoding"),
    ("event grammar", "event grammar", "decoding"),
    ("numerics", "numerics", "cache"),
)

# What an audit that missed a planted fault says of a decoder is worth nothing, so it blocks what the audit blocks. A
# run without self-check lists the check as not applicable.
SELF_CHECKS: tuple[Limit, ...] = tuple(
    Limit(audit, PLANTED_FAULTS_MISSED, failure, 0, "faults", blocks, required=False)
    for audit, failure, blocks in _BLOCKED
)

# The public gate knows no allowance for these: "any emitted padding", "any invalid order".
_FIXED = (
    "decoding policy: padding emitted",
    "decoding policy: invalid sequences",
    *(f"{limit.audit}: {limit.check}" for limit in SELF_CHECKS),
)


def limits_from(overrides: Mapping[str, object] | None = None, *, self_check: bool = False) -> Limits:
    """Limits of a policy file: `LIMITS` with what its "limits" object changes; PolicyError on anything else in it.

    Keys: "largest_tolerance" (logits), "allowed_capped" (sequences a setting), or "<audit>: <check>" with a number or
    {"at_most": number, "min_count": integer}. A limit can be moved, never removed. With `self_check`, every audit is
    also asked for the planted faults that it missed.
    """
    named = {f"{limit.audit}: {limit.check}": limit for limit in LIMITS + (SELF_CHECKS if self_check else ())}
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
