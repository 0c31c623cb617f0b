"""The public gate (contract 3): five measured facts about a decoder in, the names of what fails out.

Plain Python on purpose: it can be called, or read, by somebody who has neither torch nor DuckDB. Every comparison is
written so that what cannot be compared counts as over the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DecodeAudit", "release_failures"]


@dataclass(frozen=True)
class DecodeAudit:
    """What was measured over one fixed set of held-out prefixes; the gap is in logits, the rest are counts."""

    matching_prefix: bool
    maximum_logit_gap: float
    emitted_padding: int
    invalid_event_orders: int
    capped_sequences: int


def release_failures(result: DecodeAudit, allowed_gap: float, allowed_capped: int) -> list[str]:
    """Names of what fails, in the fixed order parity, padding, grammar, end; empty when nothing does.

    A gap or a limit that is not a number is never within the limit, and a field that holds no number fails its check.
    """
    parity = _same(result.matching_prefix, 1) and _within(result.maximum_logit_gap, allowed_gap)
    verdicts = {
        "cache parity": parity,
        "padding emission": _same(result.emitted_padding, 0),
        "event grammar": _same(result.invalid_event_orders, 0),
        "end-token coverage": _within(result.capped_sequences, allowed_capped),
    }
    return [name for name, holds in verdicts.items() if not holds]


def _same(value: object, wanted: int) -> bool:
    # `==` and not truth: NaN is true in Python, and must not pass for a matching prefix
    return bool(value == wanted)


def _within(value: float, at_most: float) -> bool:
    try:
        return bool(value <= at_most)  # not `not value > at_most`: that would let NaN through
    except TypeError:
        return False
