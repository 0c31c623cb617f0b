"""JSON as it is signed and read here: one form out, nothing doubtful in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

LARGEST = 8 << 20
"""Most bytes a document may have; a verdict has some tens of thousands."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one serialisation that is signed: keys sorted, no white space, UTF-8. ValueError for NaN and broken text."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError


def is_format(found: object, known: int) -> bool:
    """Whether a document's format is this one, as a whole number: 1.0 and true equal 1 and are not it."""
    return type(found) is int and found == known


def read_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`; ValueError with the reason for anything that two readers could take differently.

    Refused are repeated names, NaN and infinities, other encodings than UTF-8, and nesting or size out of proportion.
    """
    if len(data) > LARGEST:
        raise ValueError(f"larger than {LARGEST} bytes")
    try:
        document = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  one error for every doubtful document
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return document


def _finite(text: str) -> float:
    number = float(text)  # 1e999 is written like a number, and read as infinity
    return number if math.isfinite(number) else _no_constant(text)


def _no_constant(_: str) -> NoReturn:
    raise ValueError("a number is not finite")
