"""Answers after other sessions against those of a decoder that saw nothing else: what a hidden cache gives away."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from auditlib.audits.altered_requests import full_half, largest_weight
from auditlib.audits.base import Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.gaps import changed, gap
from auditlib.audits.held_out import Row, written
from auditlib.audits.twins import STRANGER, Twins, crowd_rows
from auditlib.audits.work import Piece, Watch
from auditlib.errors import DecoderError
from auditlib.numbers import amount

_COMPANIES = (2, 5)
"""How many rows a batch of one session has."""
_CROWD = 24
"""Sessions that are underway at once, each with a cache of its own."""


@dataclass
class NeighbourGaps:
    """How far answers moved (logits), over how many, and how many logits changed on mere repetition.

    `trials` are rows of the table "trials".
    """

    worst: float = 0.0
    answers: int = 0
    repeated: int = 0
    repeats: int = 0
    trials: list[tuple[str, str, str, str, str]] = field(default_factory=list)

    def note(self, after: str, row: Row, apart: float) -> None:
        """Count one answer in."""
        self.worst = max(self.worst, apart)
        self.answers += 1
        outcome = "the cold answer" if apart == 0 else f"{amount(apart)} logits from it"
        self.trials.append((f"asked after: {after}", "answer", "the cold answer", outcome, written(row)))


class Neighbours:
    """Asks the subject's decoder for each prefix after its twins, and decoders that were asked nothing before.

    DecoderError where loading gives the subject's own decoder again.
    """

    def __init__(self, subject: Subject, twins: Sequence[Twins], watch: Watch) -> None:
        self._subject, self._twins, self._watch = subject, twins, watch
        self._unasked = subject.load(subject.dtype)
        if self._unasked is subject.decoder:
            raise DecoderError("loading the revision again gave the same decoder, so no answer of it is a cold one")
        self._warm = CheckedDecoder(subject.decoder, subject.device, watch.tick)
        self._cold: dict[Row, Tensor] = {}
        self.found = NeighbourGaps()
        self.not_applicable: dict[str, str] = {}

    def pieces(self) -> Iterator[Piece]:
        """The work, one prefix after another."""
        for one in self._twins:
            yield "answers after other sessions", partial(self._look, one)
            yield "two sessions from one prompt", partial(self._from_one_prompt, one.row)
        yield "many sessions at once", self._crowd
        yield "answers after another revision", self._after_other_weights

    def _look(self, one: Twins) -> None:
        cold = self._cold[one.row] = self._answer(self._fresh(), one.row)
        for likeness, other in one.alike:
            self._after(likeness, one.row, other, cold)
        other = one.alike[-1][1]
        next(self._steps(self._warm, other))  # a request that broke off: its cache is never asked for again
        self._compare(self._warm, "a request that broke off", one.row, cold)
        self._beside(one.row, other, cold)
        for rows in _COMPANIES:
            self._together(rows, one.row, other)
        again = changed(self._answer(self._warm, one.row), self._answer(self._warm, one.row))
        self.found.repeated += int(again.sum())
        self.found.repeats += again.numel()

    def _after(self, likeness: str, row: Row, other: Row, cold: Tensor) -> None:
        """`row` right after `other`: on a decoder that knows no third row, and on the one that knows them all."""
        # On a decoder that knows the row already, a memory would serve the row right and its twin wrong.
        fresh = self._fresh()
        first = self._answer(fresh, other)
        self._compare(fresh, likeness, row, cold)
        self._answer(self._warm, other)
        self._compare(self._warm, likeness, row, cold)
        if likeness == STRANGER:
            self._confusion("a fresh decoder, asked for a stranger", row, cold, first)

    def _compare(self, checked: CheckedDecoder, after: str, row: Row, cold: Tensor) -> None:
        self.found.note(after, row, float(gap(self._answer(checked, row), cold).max()))

    def _beside(self, row: Row, other: Row, cold: Tensor) -> None:
        """Both sessions underway at once, one event in turn."""
        whole = self._whole(self._warm, row)
        steps = zip(self._steps(self._warm, other), self._steps(self._warm, row), strict=True)
        answer = torch.stack([whole, *(mine for _, mine in steps)])
        self.found.note("beside another session", row, float(gap(answer, cold).max()))

    def _together(self, rows: int, row: Row, other: Row) -> None:
        """A batch of one session after a batch of another: memory that is kept by the batch, not by the row."""
        cold = torch.stack(list(self._steps(self._fresh(), row, rows)))
        list(self._steps(self._warm, other, rows))
        found = torch.stack(list(self._steps(self._warm, row, rows)))
        self.found.note(f"another session, {rows} rows at a time", row, float(gap(found, cold).max()))

    def _from_one_prompt(self, row: Row) -> None:
        """Two sessions that began alike, both underway, one event in turn: what they share must not be written to."""
        endings = [(event, event) for event in self._subject.event_map.domain[:2]]
        cold = [torch.stack(list(self._steps(self._fresh(), row, events=events))) for events in endings]
        underway = [self._steps(self._warm, row, events=events) for events in endings]
        found = zip(*zip(*underway, strict=True), strict=True)
        for answers, wanted in zip(found, cold, strict=True):
            self.found.note("a session that began alike", row, float(gap(torch.stack(answers), wanted).max()))

    def _crowd(self) -> None:
        """Many sessions underway at once, of which the first is continued last: caches that are places in a ring."""
        rows, fresh = crowd_rows(self._subject, _CROWD), self._fresh()
        cold = [torch.stack(list(self._steps(fresh, row))) for row in rows]
        underway = [self._steps(self._warm, row) for row in rows]
        prompts = [next(steps) for steps in underway]
        # Answers are compared when all are given: some are overwritten by the next.
        first = [next(steps) for steps in reversed(underway)][::-1]
        second = [next(steps) for steps in underway]
        for row, *answers, wanted in zip(rows, prompts, first, second, cold, strict=True):
            self.found.note(f"{_CROWD - 1} sessions underway", row, float(gap(torch.stack(answers), wanted).max()))

    def _confusion(self, after: str, row: Row, cold: Tensor, other: Tensor) -> None:
        """Whether two requests get one cached answer, bit by bit, that the full path tells apart.

        Memory that all decoders of a process share would otherwise answer warm and cold alike.
        """
        full_apart, cached_apart = float(gap(other[0], cold[0])), float(gap(other[1], cold[1]))
        self.found.note(after, row, full_apart if cached_apart == 0 else 0.0)

    def _after_other_weights(self) -> None:
        decoder = self._subject.load(self._subject.dtype)
        weights = largest_weight(decoder)
        if weights is None:
            self.not_applicable["answer after another revision"] = "the decoder does not show its weights"
            return
        weights.mul_(1.5)
        # In a pair the other half moves too: else the full path could not tell that the cached answers had to.
        beside = largest_weight(full_half(decoder))
        if beside is not None:
            beside.mul_(1.5)
        checked = CheckedDecoder(decoder, self._subject.device, self._watch.tick)
        for row, cold in self._cold.items():
            self._confusion("another revision of the same name", row, cold, self._answer(checked, row))
            self._compare(self._warm, "another revision of the same name", row, cold)

    def _fresh(self) -> CheckedDecoder:
        """A decoder that was asked nothing: a copy of one just loaded, loaded anew where it cannot be copied."""
        try:
            decoder = copy.deepcopy(self._unasked)
        except (TypeError, AttributeError, NotImplementedError, RuntimeError, copy.Error):
            decoder = self._subject.load(self._subject.dtype)
        return CheckedDecoder(decoder, self._subject.device, self._watch.tick)

    def _answer(self, checked: CheckedDecoder, row: Row) -> Tensor:
        """Logits [4, V] after a row: full path, prefill, and two more events on the cached path."""
        return torch.stack([self._whole(checked, row), *self._steps(checked, row)])

    def _whole(self, checked: CheckedDecoder, row: Row) -> Tensor:
        return checked.full(*checked.stack([row]))[0, -1]

    def _steps(self, checked: CheckedDecoder, row: Row, rows: int = 1, events: Row = ()) -> Iterator[Tensor]:
        """Logits [V] of the last of `rows` equal rows, after a prompt and after each of two more events."""
        logits, cache = checked.prefill(*checked.stack([row] * rows))
        yield logits[-1]
        for event in events or (row[-1], row[-1]):  # the same after twins that share their last event
            more, cache = checked.extend(*checked.stack([(event,)] * rows), cache)
            yield more[-1, 0]
