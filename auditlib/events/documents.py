"""JSON documents read with suspicion: every refusal says which file, which place in it, why, and what would do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from auditlib.errors import InputError

T = TypeVar("T")

MOST_BYTES = 16 * 1024 * 1024


def shown(text: str) -> str:
    """Text safe to put into a message: characters that cannot be seen stand as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@dataclass(frozen=True, slots=True)
class Entry:
    """A JSON value, where it stands, and the error that a wrong value raises."""

    value: Any
    where: str
    error: type[InputError]
    place: str = ""

    def refuse(self, reason: str) -> NoReturn:
        """Raise this document's error, naming file and place."""
        at = f", at {self.place}" if self.place else ""
        raise self.error(f"{self.where}{at}: {reason}")

    def members(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Entry]:
        """Members of an object that has every required key and no key beside the optional ones."""
        found = self.mapping()
        missing = [key for key in required if key not in found]
        extra = [key for key in found if key not in required and key not in optional]
        if missing:
            self.refuse(f"lacks {', '.join(map(repr, missing))}; add it")
        if extra:
            known = ", ".join(map(repr, [*required, *optional]))
            self.refuse(f"has {', '.join(map(repr, extra))}, which means nothing here; known are {known}")
        return found

    def mapping(self) -> dict[str, Entry]:
        """Members of an object with keys of any name."""
        if not isinstance(self.value, dict):
            self.refuse(f"is {_kind(self.value)}; write an object {{…}}")
        return {key: self._inside(value, f".{shown(key)}") for key, value in self.value.items()}

    def items(self) -> list[Entry]:
        """Elements of a list."""
        if not isinstance(self.value, list):
            self.refuse(f"is {_kind(self.value)}; write a list […]")
        return [self._inside(value, f"[{number}]") for number, value in enumerate(self.value)]

    def text(self) -> str:
        """A string that is not empty."""
        if not isinstance(self.value, str):
            self.refuse(f"is {_kind(self.value)}; write a string")
        if problem := text_problem(self.value):
            self.refuse(problem)
        return self.value

    def integer(self, least: int = 0) -> int:
        """A whole number of at least `least`; true and 1.0 are none."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"is {_kind(self.value)}; write a whole number of at least {least}")
        if self.value < least:
            self.refuse(f"is {self.value}; write a whole number of at least {least}")
        return self.value

    def flag(self) -> bool:
        """True or false, and nothing that merely looks like it."""
        if not isinstance(self.value, bool):
            self.refuse(f"is {_kind(self.value)}; write true or false")
        return self.value

    def make(self, build: Callable[..., T], *parts: Any) -> T:
        """What `build` makes of parts read here; an error that it raises is raised again with file and place."""
        try:
            return build(*parts)
        except self.error as problem:
            self.refuse(str(problem))

    def expect_format(self, known: int) -> None:
        """Nothing, when this is the number of the one format that this version reads."""
        if self.integer() != known:
            self.refuse(f"is {self.value}; this version reads format {known}")

    def _inside(self, value: Any, step: str) -> Entry:
        return Entry(value, self.where, self.error, (self.place + step).removeprefix("."))


def text_problem(text: str) -> str:
    """Why a string cannot serve as a name; empty when it can."""
    if not text:
        return "is an empty string; give it a name"
    if any("\ud800" <= c <= "\udfff" for c in text):  # cannot be written as UTF-8, so neither stored nor digested
        return f"holds half of a character ({text!a}); write the whole character"
    return ""


def read_text(path: Path, error: type[InputError]) -> str:
    """Text of a UTF-8 file of at most 16 MiB; raises `error` when it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); check the path and its permissions") from problem
    if len(data) > MOST_BYTES:
        raise error(f"{path}: is larger than {MOST_BYTES} bytes; this is no file of names or rules")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"{path}: byte {problem.start} is not UTF-8; save the file as UTF-8") from problem


def parse(text: str, where: str, error: type[InputError]) -> Entry:
    """The top value of a JSON text; keys written twice, NaN and infinities are refused."""

    def _pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(found)
        if len(members) < len(found):
            twice = [key for key, times in Counter(key for key, _ in found).items() if times > 1]
            raise error(f"{where}: writes {', '.join(map(repr, twice))} twice in one object; keep one")
        return members

    def _constant(name: str) -> NoReturn:
        raise error(f"{where}: holds {name}, which is not JSON; write a number")

    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except json.JSONDecodeError as problem:
        at = f"line {problem.lineno} column {problem.colno}"
        raise error(f"{where}, {at}: is not JSON ({problem.msg}); correct it there") from problem
    except (RecursionError, ValueError) as problem:  # nested too deep, or a number of thousands of digits
        raise error(f"{where}: cannot be read as JSON ({problem}); write it again") from problem
    return Entry(value, where, error)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), f"the number {value}")
