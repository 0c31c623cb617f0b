"""How a number is written for people, on every page, in every sentence and table: exports keep all of its digits."""

from __future__ import annotations

import math
import re

_PADDED = re.compile(r"e([+-])0+(?=\d)")


def number(value: float | None, otherwise: str = "–") -> str:
    """A number with at most four significant digits, whole from ten thousand on, as 2.00e-6 below a thousandth.

    `otherwise` stands for None, and for what is not finite.
    Exponents are written as the axes of figures write them, without the leading zero that Python adds.
    """
    if value is None or not math.isfinite(value):
        return otherwise
    if float(value).is_integer() and abs(value) < 1e6:
        return f"{int(value):,}"
    if 9999.5 <= abs(value) < 1e6:  # Python would write 9.772e+05 beside a whole 977,200
        return f"{value:,.0f}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 else _PADDED.sub(r"e\1", f"{value:.2e}")


def amount(value: float) -> str:
    """A measured number inside a sentence, where a dash would leave a gap: it says that it is not finite."""
    return number(value, "not finite")
