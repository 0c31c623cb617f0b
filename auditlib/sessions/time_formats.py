"""The ways in which exporters write times, as patterns; and a way that the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from auditlib.errors import LogError

# A clock is optional, and so is an offset: exporters leave out what is zero. Names of zones such as CET are not read,
# because the same letters stand for different offsets in different countries.
_CLOCK = (
    r"(?:[T ,]+(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?(?: ?(?P<p>[AaPp][Mm]))?)?"
    r"(?: ?(?P<z>Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?))?$"
)
# Layouts name the three parts of a date by place, because the same layout may be read in several orders.
LAYOUTS = {
    "year first": r"^(?P<x>\d{4})[-/.](?P<y>\d{1,2})[-/.](?P<w>\d{1,2})" + _CLOCK,
    "year last": r"^(?P<x>\d{1,2})[-/.](?P<y>\d{1,2})[-/.](?P<w>\d{4})" + _CLOCK,
    "short year": r"^(?P<x>\d{1,2})[-/.](?P<y>\d{1,2})[-/.](?P<w>\d{2})" + _CLOCK,
    "named month": r"^(?P<x>\d{1,2})[-/. ](?P<y>[A-Za-z]{3,9})[-/., ]{1,2}(?P<w>\d{4}|\d{2})" + _CLOCK,
    "named month first": r"^(?P<x>[A-Za-z]{3,9})[. ]{1,2}(?P<y>\d{1,2}),? (?P<w>\d{4})" + _CLOCK,
    "seconds": r"^(?P<x>\d{9,10}(?:\.\d{1,9})?)$",
    "milliseconds": r"^(?P<x>\d{12,13})$",
}
_DIRECTIVES = {
    "Y": r"(?P<Y>\d{4})", "y": r"(?P<Y>\d{2})", "m": r"(?P<m>\d{1,2})", "d": r"(?P<d>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3,9})", "B": r"(?P<b>[A-Za-z]{3,9})", "H": r"(?P<H>\d{1,2})", "I": r"(?P<H>\d{1,2})",
    "M": r"(?P<M>\d{1,2})", "S": r"(?P<S>\d{1,2})", "f": r"(?P<f>\d{1,9})", "p": r"(?P<p>[AaPp][Mm])",
    "z": r"(?P<z>Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)", "%": "%",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How times are written: a layout, and which part of the date (Y, m, d, b) stands at its places x, y, w."""

    name: str
    layout: str
    parts: Mapping[str, str]


FORMATS = (
    TimeFormat("YYYY-MM-DD", "year first", {"x": "Y", "y": "m", "w": "d"}),
    TimeFormat("D/M/YYYY", "year last", {"x": "d", "y": "m", "w": "Y"}),
    TimeFormat("M/D/YYYY", "year last", {"x": "m", "y": "d", "w": "Y"}),
    TimeFormat("D/M/YY", "short year", {"x": "d", "y": "m", "w": "Y"}),
    TimeFormat("M/D/YY", "short year", {"x": "m", "y": "d", "w": "Y"}),
    TimeFormat("YY/M/D", "short year", {"x": "Y", "y": "m", "w": "d"}),
    TimeFormat("D Mon YYYY", "named month", {"x": "d", "y": "b", "w": "Y"}),
    TimeFormat("Mon D, YYYY", "named month first", {"x": "b", "y": "d", "w": "Y"}),
    TimeFormat("epoch seconds", "seconds", {"x": "s"}),
    TimeFormat("epoch milliseconds", "milliseconds", {"x": "ms"}),
)


def named_format(text: str) -> TimeFormat:
    """The format of that name (D/M/YYYY and the like, separators and case do not matter) or of that strptime pattern.

    LogError for anything else, with the names that are known.
    """
    if "%" in text:
        return TimeFormat(text, _pattern(text), {})
    wanted = _simplified(text)
    for known in FORMATS:
        if _simplified(known.name) == wanted:
            return known
    names = ", ".join(known.name for known in FORMATS)
    raise LogError(f"unknown time format {text!r}; give one of {names}, or a pattern such as %d/%m/%Y %H:%M")


def _simplified(name: str) -> str:
    letters = re.sub(r"[-/., ]+", "/", name.strip().upper())
    return letters.replace("DD", "D").replace("MM", "M")


def _pattern(text: str) -> str:
    """A strptime pattern as a regular expression with one group per directive."""
    seen: set[str] = set()
    parts = ["^"]
    for literal, directive in re.findall(r"([^%]+)|%(.?)", text):
        if literal:
            parts.append(re.sub(r"(\W)", r"\\\1", literal))
            continue
        if directive not in _DIRECTIVES or directive in seen:
            raise LogError(f"the time format {text!r} has %{directive} twice or unknown; use %{' %'.join(_DIRECTIVES)}")
        seen.add(directive)
        parts.append(_DIRECTIVES[directive])
    if not (seen & {"Y", "y"} and seen & {"m", "b", "B"} and "d" in seen):
        raise LogError(f"the time format {text!r} names no full date; it needs %Y, %m and %d")
    return "".join([*parts, "$"])
