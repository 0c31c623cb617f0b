"""A counterexample as plain data: calls of a decoder, and a second way to the same logits that has to agree.

Both ways read the same events up to the position that is compared, which is checked when a case is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from auditlib.errors import InputError
from auditlib.numbers import amount

FORMAT = 1
Verb = Literal["full", "prefill", "extend", "reorder"]
Expect = Literal["same", "finite", "refused"]
Ids = tuple[tuple[int, ...], ...]
Flags = tuple[tuple[bool, ...], ...]
_DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class Step:
    """One call of contract 1: events and valid [B, T], or the parents [B'] of a reorder."""

    verb: Verb
    events: Ids = ()
    valid: Flags = ()
    parents: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """Rows after the call."""
        return len(self.parents) if self.verb == "reorder" else len(self.events)

    @property
    def places(self) -> int:
        """Columns that the call reads, padding counted."""
        return len(self.events[0]) if self.events else 0


@dataclass(frozen=True, slots=True)
class Side:
    """One way to logits: all calls, then row and column of the last call's answer (prefill: the last valid column)."""

    steps: tuple[Step, ...]
    row: int
    column: int

    @property
    def rows(self) -> int:
        """Most rows at any step."""
        return max(step.rows for step in self.steps)

    @property
    def places(self) -> int:
        """Columns that a row takes part in, padding counted."""
        return sum(step.places for step in self.steps)

    @property
    def padding(self) -> int:
        """Invalid cells of all calls."""
        return sum(not keep for step in self.steps for line in step.valid for keep in line)

    def prefix(self) -> tuple[int, ...]:
        """Events of the row up to the position, those of earlier calls included."""
        *before, last = self.steps
        begun = history(before)[self.row] if before else ()
        cells = zip(last.events[self.row], last.valid[self.row], strict=True)
        return begun + tuple(event for place, (event, keep) in enumerate(cells) if keep and place <= self.column)


@dataclass(frozen=True, slots=True)
class Case:
    """A failing comparison: `asked` must give the logits of `against`, be finite, or be refused; `gap` exceeds `limit`.

    "same": the largest difference of the two logit vectors. "finite" and "refused" have no `against`, and an infinite
    gap when the logits are not finite, or when the last call is served although a row outgrows the context.
    """

    audit: str
    check: str
    revision: str
    dtype: str
    expect: Expect
    asked: Side
    against: Side | None
    gap: float
    limit: float

    @property
    def fails(self) -> bool:
        """Whether the gap exceeds the limit; one that is no number does."""
        return not self.gap <= self.limit

    def to_json(self) -> str:
        """The case as JSON that `from_json` reads back to an equal case; infinity is the word "infinite"."""
        document = {"format": FORMAT, "kind": "counterexample", **asdict(self)}
        document["gap"] = self.gap if math.isfinite(self.gap) else "infinite"
        # JSON has no infinity: Python would write one all the same, which other readers then refuse.
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "counterexample") -> Case:
        """The case written in `text`; InputError names `where`, the place and the reason."""
        try:
            return _case(json.loads(text))
        except InputError as problem:
            raise InputError(f"{where}: {problem}") from problem
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise InputError(f"{where} is no counterexample ({reason}); use a file that an audit wrote") from problem

    def sentence(self) -> str:
        """What to do to see it, in one sentence."""
        how = ", then ".join(_words(step) for step in self.asked.steps)
        end = {
            "same": f"row {self.asked.row} differs by {amount(self.gap)} (limit {amount(self.limit)}) "
            f"after {'-'.join(map(str, self.asked.prefix()))}",
            "finite": f"row {self.asked.row}, column {self.asked.column} is not finite",
            "refused": "served, although a row outgrows the context",
        }[self.expect]
        return f"{how[:1].upper()}{how[1:]}: {end}."


def history(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """Valid events that each row has read after `steps`."""
    rows: list[tuple[int, ...]] = []
    for step in steps:
        if step.verb == "reorder":
            rows = [rows[parent] for parent in step.parents]
            continue
        begun = rows or [()] * step.rows
        rows = [
            row + tuple(event for event, keep in zip(events, valid, strict=True) if keep)
            for row, events, valid in zip(begun, step.events, step.valid, strict=True)
        ]
    return rows


def alone(side: Side) -> Side:
    """The full path on the row's prefix by itself, without padding: what parity is measured against."""
    prefix = side.prefix()
    return Side((Step("full", (prefix,), ((True,) * len(prefix),)),), 0, len(prefix) - 1)


def last_valid(line: Sequence[bool]) -> int:
    """Last valid column of a row; -1 when there is none."""
    return max((column for column, keep in enumerate(line) if keep), default=-1)


def _words(step: Step) -> str:
    if step.verb == "reorder":
        return f"reorder rows as {list(step.parents)}"
    padded = sum(not keep for line in step.valid for keep in line)
    rows = f"{step.rows} row{'s' if step.rows > 1 else ''}"
    shown = f" ({padded} of {step.rows * step.places} cells padding)" if padded else ""
    return f"{step.verb} {rows} of {step.places} event{'s' if step.places > 1 else ''}{shown}"


def _case(document: Mapping[str, Any]) -> Case:
    if document["format"] != FORMAT or document["kind"] != "counterexample":
        raise InputError(f"format {document['format']!r} of {document['kind']!r} is unknown; this code reads {FORMAT}")
    asked = _side(document["asked"], "asked")
    against = None if document["against"] is None else _side(document["against"], "against")
    expect = _among(document["expect"], get_args(Expect), "expect")
    if (against is None) == (expect == "same"):
        raise InputError(f"a case that expects {expect!r} has {'no' if expect != 'same' else 'a'} side to compare with")
    # Answers to two different questions may differ: that would be a counterexample of nothing.
    if against is not None and against.prefix() != asked.prefix():
        raise InputError("its two sides read different events up to the position that they compare")
    audit, check, revision = (str(document[name]) for name in ("audit", "check", "revision"))
    dtype = _among(document["dtype"], _DTYPES, "dtype")
    gap = math.inf if document["gap"] == "infinite" else _number(document["gap"], "gap")
    limit = _number(document["limit"], "limit")
    return Case(audit, check, revision, dtype, expect, asked, against, gap, limit)


def _side(document: Mapping[str, Any], where: str) -> Side:
    steps = tuple(_step(step, f"{where}, step {place}") for place, step in enumerate(document["steps"]))
    verbs = [step.verb for step in steps]
    if not verbs or verbs[0] not in ("full", "prefill") or "reorder" in verbs[-1:]:
        raise InputError(f"{where}: calls begin with full or prefill and end with logits")
    if len(verbs) > 1 and ("full" in verbs or "prefill" in verbs[1:]):
        raise InputError(f"{where}: a prefill comes first and only once, and the full path stands alone")
    rows = steps[0].rows
    for place, step in enumerate(steps[1:], start=1):
        lost = any(not 0 <= parent < rows for parent in step.parents)
        if lost or (step.verb == "extend" and step.rows != rows):
            raise InputError(f"{where}, step {place}: does not fit the {rows} rows before it")
        rows = step.rows
    row, column = _whole(document["row"], f"{where}, row"), _whole(document["column"], f"{where}, column")
    if row >= rows or column >= steps[-1].places:
        raise InputError(f"{where}: row {row}, column {column} is not in the last call's answer")
    if verbs[-1] == "prefill" and column != last_valid(steps[-1].valid[row]):
        raise InputError(f"{where}: a prefill answers for the row's last valid column, not for column {column}")
    return Side(steps, row, column)


def _step(document: Mapping[str, Any], where: str) -> Step:
    verb: Verb = _among(document["verb"], get_args(Verb), f"{where}, verb")
    events = tuple(tuple(_whole(event, f"{where}, events") for event in line) for line in document["events"])
    valid = tuple(tuple(line) for line in document["valid"])
    parents = tuple(_whole(parent, f"{where}, parents") for parent in document["parents"])
    shapes = {len(line) for line in (*events, *valid)}
    if any(type(keep) is not bool for line in valid for keep in line):
        raise InputError(f"{where}: valid holds true and false only")
    if verb == "reorder":
        if not parents or events or valid:
            raise InputError(f"{where}: a reorder has parents and nothing else")
    elif parents or not events or len(events) != len(valid) or len(shapes) != 1 or 0 in shapes:
        raise InputError(f"{where}: events and valid must be of one shape [B, T], with at least one row and column")
    return Step(verb, events, valid, parents)


def _whole(value: object, where: str) -> int:
    # Not `isinstance`: true and false are integers to it, and would pass for the ids 1 and 0.
    if type(value) is not int or value < 0:
        raise InputError(f"{where}: {value!r} is no whole number from 0")
    return value


def _number(value: object, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise InputError(f"{where}: {value!r} is no number from 0")
    return float(value)


def _among(value: Any, known: Sequence[str], where: str) -> Any:
    if value not in known:
        raise InputError(f"{where}: {value!r} is not one of {', '.join(known)}")
    return value
