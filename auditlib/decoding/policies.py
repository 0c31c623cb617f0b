"""Decoding settings and the policy document that proposes them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auditlib.errors import PolicyError

_WITH, _WITHOUT = " with order mask", " without order mask"
_NUMBERS = {"temperature": float, "top_k": int, "top_p": float, "seed": int, "width": int, "length_penalty": float}
# A number that a kind would silently ignore is refused: the author of the file believes that it matters.
_USED = {
    "greedy": frozenset[str](),
    "sampled": frozenset({"temperature", "top_k", "top_p", "seed", "width"}),
    "beam": frozenset({"width", "length_penalty"}),
}
_DOCUMENT_KEYS = frozenset({"format", "max_new_events", "decoding", "limits", "fallback", "serving"})
_MOST_NEW_EVENTS = 100_000
_LARGEST_TOP_K = 1 << 31
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to choose the next event.

    `width` is the number of hypotheses a prefix: beams when `kind` is "beam", independent samples when "sampled".
    `top_k` 0 and `top_p` 1 switch these filters off; they apply in the order temperature, top-k, top-p. Hypotheses are
    ranked by score / (new events, end included) ** `length_penalty`. PolicyError where a number makes no sense.
    """

    name: str
    kind: str
    order_mask: bool = True
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    width: int = 1
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > _LONGEST_NAME or not self.name.isprintable() or ": " in self.name:
            raise PolicyError(
                f"setting name {self.name[:80]!r}: 1 to {_LONGEST_NAME} printable characters without ': ' are needed, "
                "because names of checks are built from it; rename the setting"
            )
        if self.kind not in _USED:
            raise PolicyError(f"setting {self.name!r}: kind {self.kind!r} is unknown; choose one of {', '.join(_USED)}")
        for name, (holds, wanted) in self._bounds().items():
            if not holds:
                raise PolicyError(f"setting {self.name!r}: {name} is {getattr(self, name)}; it must be {wanted}")

    def _bounds(self) -> dict[str, tuple[bool, str]]:
        return {
            "temperature": (math.isfinite(self.temperature) and 0.01 <= self.temperature <= 100, "within 0.01 and 100"),
            "top_k": (0 <= self.top_k <= _LARGEST_TOP_K, f"0 (off), or up to {_LARGEST_TOP_K}"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1 (off)"),
            "seed": (0 <= self.seed < 2**63, "within 0 and 2**63 - 1"),
            "width": (1 <= self.width <= (1 if self.kind == "greedy" else 64), "1, or up to 64 where kind allows"),
            "length_penalty": (math.isfinite(self.length_penalty) and abs(self.length_penalty) <= 10, "within ±10"),
        }

    def masked(self) -> Setting:
        """The same setting with the order mask, itself when it has one."""
        return self if self.order_mask else replace(self, name=self.name + _WITH, order_mask=True)

    def unmasked(self) -> Setting:
        """The same setting without the order mask, itself when it has none."""
        return replace(self, name=self.name + _WITHOUT, order_mask=False) if self.order_mask else self

    def twin(self) -> Setting:
        """The same setting with the order mask the other way round, named after it."""
        return self.unmasked() if self.order_mask else self.masked()

    def to_json(self) -> dict[str, Any]:
        """The entry of a policy document that gives this setting back, name left out."""
        numbers = {name: getattr(self, name) for name in _NUMBERS if name in _USED[self.kind]}
        return {"kind": self.kind, "order_mask": self.order_mask, **numbers}


DEFAULT_SETTINGS: tuple[Setting, ...] = (
    Setting("greedy", "greedy"),
    Setting("sampled", "sampled", temperature=1.0, top_p=0.95),
    Setting("beam", "beam", width=3, length_penalty=1.0),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy document as read: the proposed settings under one cap of new events, with limits and fallback.

    `digest` is "sha256:…" of the file's bytes (of stable JSON where there is no file). `limits` are not judged here,
    and `serving` (None where the file has none) is not read here.
    """

    document: Mapping[str, Any]
    digest: str
    settings: tuple[Setting, ...]
    max_new_events: int
    limits: Mapping[str, Any] = field(default_factory=dict)
    fallback: str = "full-prefix"
    serving: Mapping[str, Any] | None = None


def settings_from(document: Mapping[str, Any], where: str = "policy") -> tuple[Setting, ...]:
    """Settings of a policy document's `decoding` part, in its order; PolicyError names the entry that does not fit."""
    if not isinstance(document, Mapping) or not document:
        raise PolicyError(f"{where}, decoding: no setting is proposed; name at least one, or leave `decoding` out")
    settings = tuple(_setting(name, entry, where) for name, entry in document.items())
    names = [setting.name for setting in settings] + [setting.twin().name for setting in settings]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PolicyError(f"{where}, decoding: {twice} stand for two settings, as each gets a twin; rename one")
    return settings


def read_policy(path: Path | None) -> Policy:
    """The policy in a JSON file, or the default one for None; PolicyError names the place that does not fit."""
    if path is None:
        decoding = {setting.name: setting.to_json() for setting in DEFAULT_SETTINGS}
        document = {"format": 1, "max_new_events": 32, "decoding": decoding, "limits": {}, "fallback": "full-prefix"}
        return _policy(document, json.dumps(document, sort_keys=True).encode(), "the default policy")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"cannot read the policy {path}: {error.strerror}; give the path of a JSON file") from error
    except ValueError as error:  # a NUL in the path
        raise PolicyError(f"cannot read the policy {str(path)!r}: {error}; give the path of a JSON file") from error
    return parse_policy(content, str(path))


def parse_policy(content: bytes, where: str) -> Policy:
    """The policy in the bytes of a JSON file; PolicyError names the place that does not fit."""
    try:
        document = json.loads(content, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where} is no policy: {error}; it must be one JSON object") from error
    return _policy(document, content, where)


def _policy(document: Any, content: bytes, where: str) -> Policy:
    if not isinstance(document, dict) or type(document.get("format")) is not int or document["format"] != 1:
        raise PolicyError(f'{where}: not a policy of format 1; the file must be an object with "format": 1')
    unknown = sorted(document.keys() - _DOCUMENT_KEYS)
    if unknown:
        raise PolicyError(f"{where}: unknown entries {unknown}; known are {sorted(_DOCUMENT_KEYS)}")
    cap = document.get("max_new_events", 32)
    if type(cap) is not int or not 1 <= cap <= _MOST_NEW_EVENTS:
        raise PolicyError(f"{where}, max_new_events: {cap!r}; a whole number from 1 to {_MOST_NEW_EVENTS} is needed")
    limits, fallback = document.get("limits", {}), document.get("fallback", "full-prefix")
    if not isinstance(limits, dict):
        raise PolicyError(f"{where}, limits: an object from name to limit is needed, not {type(limits).__name__}")
    if not isinstance(fallback, str) or not fallback:
        raise PolicyError(f'{where}, fallback: "full-prefix" or the name of a revision is needed, not {fallback!r}')
    serving = document.get("serving")
    if "serving" in document and not isinstance(serving, dict):
        raise PolicyError(f"{where}, serving: an object with what is to be served is needed; leave it out for none")
    settings = settings_from(document["decoding"], where) if "decoding" in document else DEFAULT_SETTINGS
    return Policy(document, f"sha256:{hashlib.sha256(content).hexdigest()}", settings, cap, limits, fallback, serving)


def _setting(name: str, entry: Any, where: str) -> Setting:
    place = f"{where}, decoding, {name[:80]!r}"
    if not isinstance(entry, Mapping):
        raise PolicyError(f'{place}: an object with "kind" is needed, not {type(entry).__name__}')
    kind, mask = entry.get("kind"), entry.get("order_mask", True)
    if not isinstance(kind, str) or kind not in _USED:
        raise PolicyError(f"{place}, kind: {kind!r} is unknown; choose one of {', '.join(_USED)}")
    if not isinstance(mask, bool):
        raise PolicyError(f"{place}, order_mask: {mask!r}; true or false is needed")
    longest = _LONGEST_NAME - len(_WITHOUT if mask else _WITH)
    if len(name) > longest:
        raise PolicyError(f"{place}: a name has at most {longest} characters here, as its twin is named after it")
    unused = sorted(entry.keys() - _USED[kind] - {"kind", "order_mask"})
    if unused:
        raise PolicyError(f"{place}: {unused} mean nothing to kind {kind!r}, which takes {sorted(_USED[kind])}")
    numbers = {key: _number(value, _NUMBERS[key], f"{place}, {key}") for key, value in entry.items() if key in _NUMBERS}
    try:
        return Setting(name, kind, mask, **numbers)
    except PolicyError as problem:  # a setting knows no file
        raise PolicyError(f"{where}, decoding: {problem}") from problem


def _number(value: Any, wanted: type, place: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, wanted)):
        raise PolicyError(f"{place}: {value!r}; {'a whole number' if wanted is int else 'a number'} is needed")
    try:
        return wanted(value)
    except OverflowError as error:
        raise PolicyError(f"{place}: the number is too large") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"the key {max(names, key=names.count)[:80]!r} stands twice in one object")
    return dict(pairs)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
