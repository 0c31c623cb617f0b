"""The plan of a rollout: its stages, how large each must get, which errors are tolerable, and what counts as whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from auditlib.errors import PolicyError
from auditlib.release.documents import canonical, is_format, read_object
from auditlib.release.limits import finite

RELEASED = "released"
SHADOW = "shadow"
COMPARED_RATES = ("invalid", "error", "slow")
"""Rates of the new arm that are held against the fallback's."""

_MOST_ROWS = 10**9
_MOST_SECONDS = 10**9  # thirty years; more would not fit the microseconds that times are counted in


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its name, the share of units that the new arm answers (0.5 in the shadow stage, where both do).

    `requests`: whole rows that each arm must have before the next stage. `compared`: new answers that must have been
    compared with the full prefix path.
    """

    name: str
    share: float
    requests: int
    compared: int


@dataclass(frozen=True, slots=True)
class Wholeness:
    """What a stage's rows may lack at most. Shares are of the rows of an arm in the stage; times are seconds."""

    unmeasured: float = 0.01
    late: float = 0.01
    clock_seconds: float = 60.0
    future_seconds: float = 300.0
    late_seconds: float = 300.0
    stale_seconds: float = 3600.0
    longest_gap_seconds: float = 86400.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as read. `alpha` is for all tests together; `ratio` times the fallback's rate does no harm.

    Before "released" the rows must be enough to notice, in nine of ten cases, a rate of `detect_ratio` times the
    fallback's, or times `detect_rate` where the fallback's is lower. `assignment`: what is assigned to an arm at
    random, "request" or "session". `limits`: rates of requests ("invalid", "error") that the new arm may not exceed.
    """

    stages: tuple[Stage, ...]
    alpha: float
    ratio: float
    detect_ratio: float
    detect_rate: float
    assignment: str
    limits: Mapping[str, float]
    whole: Wholeness

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the stages in their order, "released" last."""
        return (*(stage.name for stage in self.stages), RELEASED)

    @property
    def threshold(self) -> float:
        """What the logarithm of an e-value must reach for its test to speak: alpha is split evenly over all tests."""
        return math.log((len(COMPARED_RATES) + 1 + len(self.limits)) / self.alpha)

    @property
    def digest(self) -> str:
        """Name of the plan, "sha256:…", whatever the spelling of its file."""
        return f"sha256:{hashlib.sha256(canonical(self.to_json())).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        """The whole plan, defaults written out."""
        stages = [asdict(stage) for stage in self.stages]
        del stages[0]["share"]  # that of the shadow stage is no choice
        return {**asdict(self), "format": 1, "stages": stages, "limits": dict(self.limits)}


def read_plan(path: Path) -> Plan:
    """The plan in a file; PolicyError says what is wrong with it."""
    try:
        return parse_plan(read_object(path.read_bytes()))
    except OSError as error:
        raise PolicyError(f"{path}: the plan cannot be read: {error.strerror}; give the path of a JSON file") from error
    except ValueError as error:
        raise PolicyError(f"{path}: {error}; mend the plan") from error


def parse_plan(document: Mapping[str, Any]) -> Plan:
    """The plan in a document; ValueError names the first thing in it that makes no sense."""
    known = {"format", "stages", *_DEFAULTS, "limits", "whole"}
    if not is_format(document.get("format"), 1) or set(document) - known:
        raise ValueError(f'a plan has "format": 1 and {", ".join(sorted(known - {"format"}))}, and nothing else')
    given = {name: document.get(name, default) for name, (default, _, _) in _DEFAULTS.items()}
    for name, (_, sound, wanted) in _DEFAULTS.items():
        _check(sound(given[name]), f'"{name}"', wanted)
    _check(given["detect_ratio"] > given["ratio"], '"detect_ratio"', 'larger than "ratio"')
    limits = _object(document.get("limits", {}), '"limits"')
    _check(not set(limits) - {"invalid", "error"}, '"limits"', "invalid and error, and nothing else")
    for name, value in limits.items():
        _check(_share(value), f'limit "{name}"', "a number between 0 and 1")
    return Plan(_stages(document.get("stages")), **given, limits=dict(limits), whole=_wholeness(document))


def _stages(listed: object) -> tuple[Stage, ...]:
    if not isinstance(listed, list) or len(listed) < 2:
        raise ValueError('"stages" must list "shadow" and at least one canary stage')
    stages = tuple(_stage(number, entry) for number, entry in enumerate(listed))
    shares = [stage.share for stage in stages[1:]]
    # Equal shares are refused as well: a stage that gives the new arm no more than the last shows nothing new.
    _check(shares == sorted(set(shares)), '"share"', "growing from stage to stage")
    return stages


def _stage(number: int, entry: object) -> Stage:
    where = f"stage {number + 1}"
    entry = _object(entry, where)
    shadow = number == 0
    _check(set(entry) == {"name", "requests", "compared"} | (set() if shadow else {"share"}), where, _FIELDS[shadow])
    share = 0.5 if shadow else entry["share"]
    _check(shadow or (_share(share) and share <= 0.5), f'"share" of {where}', "a number above 0, at most 0.5")
    name = SHADOW if shadow else f"canary {100 * share:g}"
    _check(entry["name"] == name, f'"name" of {where}', f'"{name}"')
    for field in ("requests", "compared"):
        least = 0 if field == "compared" and not shadow else 20
        _check(_whole_number(entry[field]) and entry[field] >= least, f'"{field}" of {where}', f"at least {least}")
    return Stage(name, share, entry["requests"], entry["compared"])


def _wholeness(document: Mapping[str, Any]) -> Wholeness:
    given = _object(document.get("whole", {}), '"whole"')
    names = {field.name for field in fields(Wholeness)}
    _check(not set(given) - names, '"whole"', f"made of {', '.join(sorted(names))}, and nothing else")
    for name, value in given.items():
        sound = _number(value) and 0 <= value <= _MOST_SECONDS if name.endswith("_seconds") else _share(value)
        wanted = f"seconds from 0 to {_MOST_SECONDS:,}" if name.endswith("_seconds") else "a number between 0 and 1"
        _check(sound, f'"{name}"', wanted)
    return Wholeness(**given)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a JSON object")  # noqa: TRY004  one error for every fault of a plan
    return value


def _check(sound: bool, where: str, wanted: str) -> None:
    if not sound:
        raise ValueError(f"{where} must be {wanted}")


def _number(value: object) -> bool:
    return finite(value) is not None  # an integer beyond the largest float is none either


def _share(value: Any) -> bool:
    return _number(value) and 0 < value < 1


def _whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value <= _MOST_ROWS


_FIELDS = {
    True: 'an object with "name", "requests" and "compared"',
    False: 'an object with "name", "share", "requests" and "compared"',
}
_DEFAULTS: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "alpha": (0.05, lambda v: _share(v) and v <= 0.5, "a number above 0, at most 0.5"),
    "ratio": (1.0, lambda v: _number(v) and 1 <= v <= 10, "a number from 1 to 10"),
    "detect_ratio": (2.0, lambda v: _number(v) and 1 < v <= 100, "a number above 1, at most 100"),
    "detect_rate": (0.01, _share, "a number between 0 and 1"),
    "assignment": ("request", lambda v: v in ("session", "request"), '"session" or "request"'),
}
