"""Which way the times of a log are written, when the log itself leaves only one; and their zone."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from auditlib.errors import LogError
from auditlib.sessions.time_formats import FORMATS, TimeFormat
from auditlib.sessions.times import NO_OFFSET, Times, layout_of, read_times

# A second way of writing times that makes up more than this of the rows is no dirt but a mixture.
_DIRT = 0.05
_DAY = 86_400_000_000
_FIRST, _LAST = (
    int(np.datetime64(moment, "us").astype(np.int64))
    for moment in ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999")
)


@dataclass(slots=True)
class _Pair:
    """Two readings of the same layout: texts that only the first can read, and texts that they read differently."""

    alone: int = 0
    alone_text: str = ""
    differs: int = 0
    differs_text: str = ""


class TimeEvidence:
    """What the times of a log say about how they are written, collected piece by piece; and the times themselves.

    With `told` there is nothing to find out, and only that format is tried.
    """

    def __init__(self, told: TimeFormat | None = None) -> None:
        self._forms = FORMATS if told is None else (told,)
        self._told = told
        self._sizes: list[int] = []
        self._times: dict[str, dict[int, Times]] = {}
        self._read: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], _Pair] = {}
        self._example = ""

    def add(self, texts: pa.Array) -> None:
        """Take in the texts of a piece (no nulls)."""
        # Many rows share a minute, so each text is read once and the result is spread over its rows.
        coded = pc.utf8_trim_whitespace(texts).dictionary_encode()
        place = np.asarray(coded.indices)
        counts = np.bincount(place, minlength=len(coded.dictionary))
        for layout in dict.fromkeys(form.layout for form in self._forms):
            parts = layout_of(coded.dictionary, layout)
            if np.asarray(parts[""]).any():
                self._add_layout(coded.dictionary, layout, parts, counts, place)
        if not self._example and len(texts):
            self._example = texts[0].as_py()
        self._sizes.append(len(texts))

    def _add_layout(
        self,
        texts: pa.Array,
        layout: str,
        parts: dict[str, pa.Array],
        counts: NDArray[np.int64],
        place: NDArray[np.int64],
    ) -> None:
        readings = {form.name: read_times(texts, form, parts) for form in self._forms if form.layout == layout}
        for name, one in readings.items():
            self._read[name] = self._read.get(name, 0) + int(counts[one.valid].sum())
            self._times.setdefault(name, {})[len(self._sizes)] = one.take(place)
            for other_name, other in readings.items():
                if other_name != name:
                    self._compare((name, other_name), one, other, texts, counts)

    def times(self, form: TimeFormat) -> Times:
        """The times of all texts in the order they came, read in that format."""
        found = self._times.get(form.name, {})
        return Times.joined([found.get(number) or Times.unread(size) for number, size in enumerate(self._sizes)])

    def _compare(
        self, names: tuple[str, str], one: Times, other: Times, texts: pa.Array, counts: NDArray[np.int64]
    ) -> None:
        pair = self._pairs.setdefault(names, _Pair())
        alone = one.valid & ~other.valid
        differs = one.valid & other.valid & (one.clock != other.clock)
        pair.alone += int(counts[alone].sum())
        pair.differs += int(counts[differs].sum())
        pair.alone_text = pair.alone_text or _first(texts, alone)
        pair.differs_text = pair.differs_text or _first(texts, differs)

    def settle(self) -> tuple[TimeFormat, str]:
        """The one format that the times allow, and the reason in words. LogError when they allow none or several."""
        if self._told is not None:
            return self._told, "as told"
        found = sorted((name for name in self._read if self._read[name]), key=lambda name: -self._read[name])
        if not found:
            raise LogError(
                f"no known way to read times such as {self._example!r}; say how they are written with --time-format, "
                "such as %d/%m/%Y %H:%M, or map another column to the time"
            )
        best = found[0]
        for rival in found[1:]:
            # Only readings of one layout can disagree about a text; other layouts read other rows.
            if (best, rival) in self._pairs:
                self._refuse_doubt(best, rival)
            elif self._read[rival] > _DIRT * sum(self._sizes):
                both = " and ".join(f"{self._read[name]} rows as {name}" for name in (best, rival))
                raise LogError(
                    f"times are written in two ways: {both}; "
                    "bring them into one form, or choose one with --time-format and have the others rejected"
                )
        return next(form for form in FORMATS if form.name == best), self._reason(best)

    def _refuse_doubt(self, best: str, rival: str) -> None:
        ours, theirs = self._pairs[best, rival], self._pairs[rival, best]
        if not ours.differs and not theirs.alone:
            return  # wherever both can read a text, they mean the same moment
        if theirs.alone:
            raise LogError(
                f"the order of day and month contradicts itself: {ours.alone} rows can only be {best} (such as "
                f"{ours.alone_text!r}) and {theirs.alone} only {rival} (such as {theirs.alone_text!r}); choose one "
                "with --time-format, and rows written otherwise will be rejected"
            )
        if not ours.alone:
            raise LogError(
                f"times such as {ours.differs_text!r} can be read as {best} or as {rival}, and no row of the log "
                f"settles it; say which with --time-format {best!r} or --time-format {rival!r}"
            )

    def _reason(self, best: str) -> str:
        texts = [pair.alone_text for (one, _), pair in self._pairs.items() if one == best and pair.differs]
        return f"only {best} reads {texts[0]!r}" if texts else "the only way to read them"


def _first(texts: pa.Array, chosen: NDArray[np.bool_]) -> str:
    places = np.flatnonzero(chosen)
    return str(texts[int(places[0])].as_py()) if len(places) else ""


def zone_named(name: str) -> ZoneInfo:
    """The zone of that IANA name; LogError when the system knows none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise LogError(f"unknown time zone {name!r}; give an IANA name such as Europe/Berlin or UTC") from error


def instants(times: Times, zone: ZoneInfo | None) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Microseconds UTC [N], which of them exist [N], and how many clock readings occur twice (the earlier is taken).

    Readings without an offset are read in `zone`, or left as they are without one. A reading that the zone's clocks
    skip, when summer time begins, does not exist; nor does one that lies outside the years 1 to 9999 in UTC.
    """
    local = times.valid & (times.offset == NO_OFFSET)
    utc = times.clock - np.where(times.offset == NO_OFFSET, 0, times.offset).astype(np.int64) * 60_000_000
    exists = times.valid & (utc >= _FIRST) & (utc <= _LAST)
    if zone is None or not local.any():
        return utc, exists, 0
    # Within a day of either end no zone may be asked: the reading in UTC could have no year that a date can hold.
    known = (times.clock >= _FIRST + _DAY) & (times.clock <= _LAST - _DAY)
    exists &= known | ~local
    local &= known
    clocks = pd.Series(times.clock[local].astype("datetime64[us]"))
    earlier, later = (
        clocks.dt.tz_localize(zone, ambiguous=np.full(len(clocks), summer), nonexistent="NaT").dt.tz_convert("UTC")
        for summer in (True, False)
    )
    exists[local] = earlier.notna().to_numpy()
    utc[local] = earlier.dt.tz_localize(None).to_numpy().astype("datetime64[us]").astype(np.int64)
    return utc, exists, int((earlier != later)[earlier.notna()].sum())
