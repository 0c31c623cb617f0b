"""Texts to points in time, many at once, and only when every part of the text is understood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from auditlib.errors import LogError
from auditlib.sessions.time_formats import LAYOUTS, TimeFormat

NO_OFFSET = -(2**15)
# Exporters write years such as 0001 for "never"; no event log is that old.
FIRST_YEAR = 1900
_MINUTE = 60_000_000
_DAY = 24 * 60 * _MINUTE
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH_NAMES = pa.array([*(name[:3] for name in _MONTHS), *_MONTHS, "sept"])


@dataclass(frozen=True, slots=True)
class Times:
    """Clock readings in microseconds since 1970, offsets in minutes (NO_OFFSET: none), which are valid; each [N]."""

    clock: NDArray[np.int64]
    offset: NDArray[np.int16]
    valid: NDArray[np.bool_]

    def take(self, places: NDArray[np.int64] | slice) -> Times:
        """Those at the given places."""
        return Times(self.clock[places], self.offset[places], self.valid[places])

    @classmethod
    def unread(cls, size: int) -> Times:
        """So many times of which none is valid."""
        return cls(np.zeros(size, np.int64), np.full(size, NO_OFFSET, np.int16), np.zeros(size, np.bool_))

    @classmethod
    def joined(cls, pieces: Sequence[Times]) -> Times:
        """The times of all pieces, one after the other."""
        whole = [cls.unread(0), *pieces]
        return cls(
            np.concatenate([piece.clock for piece in whole]),
            np.concatenate([piece.offset for piece in whole]),
            np.concatenate([piece.valid for piece in whole]),
        )


def layout_of(texts: pa.Array, layout: str) -> dict[str, pa.Array]:
    """The parts of each text under a layout (its name or its regular expression), null where it does not fit."""
    pattern = LAYOUTS.get(layout, layout)
    try:
        found = pc.extract_regex(texts, pattern)
    except pa.ArrowInvalid as error:
        raise LogError(f"the time format does not make a pattern: {error}; write it like %d/%m/%Y %H:%M") from error
    valid = found.is_valid()
    names = [field.name for field in found.type]
    return {"": valid, **{name: pc.if_else(valid, pc.struct_field(found, name), None) for name in names}}


def read_times(texts: pa.Array, form: TimeFormat, parts: dict[str, pa.Array] | None = None) -> Times:
    """The times of N texts; those that are not written so, or name no day of the calendar, are not valid."""
    parts = parts or layout_of(texts, form.layout)
    fields = {form.parts.get(name, name): values for name, values in parts.items()}
    fits = np.asarray(fields[""])
    if "s" in fields or "ms" in fields:
        return _epoch(fields, fits)
    year, month, day = _number(fields, "Y"), _month(fields), _number(fields, "d")
    # Two digits stand for 1969 to 2068, as POSIX has it.
    year = np.where(year < 69, year + 2000, np.where(year < 100, year + 1900, year)) if _short(form) else year
    fits = fits & (year >= FIRST_YEAR) & (month >= 1) & (month <= 12)
    # numpy knows the calendar: a month as a number, its first day, and the first day of the next.
    since = np.where(fits, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first = since.astype("datetime64[D]").astype(np.int64)
    length = (since + 1).astype("datetime64[D]").astype(np.int64) - first
    clock, plausible = _clock(fields)
    valid = fits & (day >= 1) & (day <= length) & plausible
    total = (first + day - 1) * _DAY + clock
    return Times(np.where(valid, total, 0), _offsets(fields, len(total)), valid)


def _short(form: TimeFormat) -> bool:
    return form.layout in ("short year", "named month") or "%y" in form.name


def _epoch(fields: dict[str, pa.Array], fits: NDArray[np.bool_]) -> Times:
    scale = 1_000_000 if "s" in fields else 1000
    texts = fields.get("s", fields.get("ms"))
    exact = pc.multiply(pc.cast(texts, pa.decimal128(25, 9)), pa.scalar(scale, pa.decimal128(8, 0)))
    whole = np.asarray(pc.fill_null(pc.cast(pc.floor(exact), pa.int64()), 0))
    return Times(whole, np.zeros(len(whole), np.int16), fits)


def _number(fields: dict[str, pa.Array], name: str) -> NDArray[np.int64]:
    """A part as numbers; 0 where it is absent."""
    if name not in fields:
        return np.zeros(len(fields[""]), np.int64)
    digits = pc.if_else(pc.equal(fields[name], ""), "0", fields[name])
    return np.asarray(pc.fill_null(pc.cast(digits, pa.int64()), 0))


def _month(fields: dict[str, pa.Array]) -> NDArray[np.int64]:
    if "b" not in fields:
        return _number(fields, "m")
    place = pc.index_in(pc.utf8_lower(fields["b"]), value_set=_MONTH_NAMES)
    number = np.asarray(pc.fill_null(pc.cast(place, pa.int64()), -1))
    return np.where(number == 2 * len(_MONTHS), 9, np.where(number < 0, 0, number % 12 + 1))


def _clock(fields: dict[str, pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Microseconds since midnight, and whether the clock can show them. Digits past the sixth are cut off."""
    hour, minute, second = (_number(fields, name) for name in "HMS")
    plausible = (hour < 24) & (minute < 60) & (second < 60)
    if "p" in fields:
        half = pc.utf8_lower(pc.fill_null(fields["p"], ""))
        morning, evening = (np.asarray(pc.equal(half, name)) for name in ("am", "pm"))
        halved = morning | evening
        plausible &= ~halved | ((hour >= 1) & (hour <= 12))
        hour = np.where(halved, hour % 12 + 12 * evening, hour)
    fraction = np.zeros(len(hour), np.int64)
    if "f" in fields:
        padded = pc.utf8_rpad(pc.fill_null(fields["f"], ""), 9, "0")
        fraction = np.asarray(pc.cast(padded, pa.int64())) // 1000
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction, plausible


def _offsets(fields: dict[str, pa.Array], count: int) -> NDArray[np.int16]:
    if "z" not in fields:
        return np.full(count, NO_OFFSET, np.int16)
    coded = pc.fill_null(fields["z"], "").dictionary_encode()
    table = np.array([_offset(text) for text in coded.dictionary.to_pylist()], np.int16)
    offsets: NDArray[np.int16] = table[np.asarray(coded.indices)]
    return offsets


@lru_cache(maxsize=256)
def _offset(text: str) -> int:
    if not text:
        return NO_OFFSET
    if text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:] or 0)
    return -minutes if text[0] == "-" else minutes


def offset_name(minutes: int) -> str:
    """An offset as people write it: +02:00, or "none"."""
    if minutes == NO_OFFSET:
        return "none"
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
