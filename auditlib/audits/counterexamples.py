"""From failed checks to small counterexamples: finds a failing comparison again, and shrinks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from auditlib.audits.base import Subject
from auditlib.audits.cache_bytes import PROBE as BYTES
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.counterexample import Case
from auditlib.audits.counterexample_causal import beyond_cases, changed_cases, truncated_cases
from auditlib.audits.counterexample_replay import replayed
from auditlib.audits.counterexample_spy import Sought, Spy, first_found
from auditlib.audits.enumerated_parity import BUDGET, enumerate_prefixes
from auditlib.audits.enumerated_parity import PROBE as ENUMERATED
from auditlib.audits.growing import Bench
from auditlib.audits.held_out import HeldOut, Material, Row, batches, held_out, material
from auditlib.audits.parity_probes import SINGLE, battery
from auditlib.audits.shrink import Shrinker
from auditlib.audits.shrink_moves import Plain
from auditlib.audits.sweep import Advance, cached_logits
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CancelledError
from auditlib.progress import part

PARITY, CAUSALITY = "cache parity", "causality"
_SECONDS = 10.0
_REPLAYS, _REPLAYS_LATER = 5000, 800
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float64: "float64"}


def counterexamples_for(subject: Subject, report: Mapping[str, Any], seconds: float = _SECONDS) -> dict[str, Case]:
    """Shrunk cases of the failed checks of cache parity and causality, by `audit: check`; equal ones stand once.

    `report` is the judgement's report (contract 2): its checks say what failed, and under which limit. At most
    `seconds` an audit go into it, the first failed checks first. A check whose fault no answer of contract 1 shows has
    no case.
    """
    failed = {
        audit: [one for one in report["audits"].get(audit, {}).get("checks", ()) if one["status"] == "failed"]
        for audit in (CAUSALITY, PARITY)
    }
    searched = [audit for audit in failed if failed[audit]]
    found: dict[str, Case] = {}
    for place, audit in enumerate(searched):
        # Told as a part of the whole: a watcher who has seen 95 % would take a 0 for work that begins anew.
        told = part(subject.progress, place / len(searched), (place + 1) / len(searched), "")
        found |= _Search(replace(subject, progress=told), audit, seconds).cases(failed[audit])
    return found


class _Search:
    """Search for the cases of one audit."""

    def __init__(self, subject: Subject, audit: str, seconds: float) -> None:
        self.subject, self.audit = subject, audit
        self.until = time.monotonic() + seconds
        self.held: HeldOut = held_out(subject)
        self.material: Material = material(subject, self.held)
        ids = subject.event_map
        self.plain = Plain(ids.padding, ids.start, tuple(sorted(ids.domain))[:2] or (ids.start,))
        self._fine: Decoder | None = None
        self._at = 0, 1, ""  # what is told: checks done, checks in all, and the one at hand

    def cases(self, failed: Sequence[Mapping[str, Any]]) -> dict[str, Case]:
        """One case a failed check, without repetitions, as far as time allows."""
        found: dict[str, Case] = {}
        for place, check in enumerate(failed):
            if self.left <= 0:
                break
            self._at = place, len(failed), f"counterexample of {check['name']}"
            self.subject.progress(*self._at)
            case = self._first(check)
            if case is None:
                continue
            shrinker = Shrinker(
                self._decoder(case.dtype), self.plain, seconds=self.left, device=self.subject.device,
                replays=_REPLAYS_LATER if found else _REPLAYS,
            )  # fmt: skip
            small = shrinker.shrink(case)
            # Checks that fail together mostly share a fault: half-shrunk cases of the later ones would say nothing new.
            if not found or (shrinker.finished and not any(_same(small, other) for other in found.values())):
                found[f"{self.audit}: {check['name']}"] = small
        return found

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.until - time.monotonic()

    def _first(self, check: Mapping[str, Any]) -> Case | None:
        """The first failing comparison of a check that holds when it is played again, in the coarsest dtype first."""
        for case in self._candidates(check):
            try:
                again = replayed(case, self._decoder(case.dtype), self.subject.device)
            except CancelledError:
                raise
            except Exception:  # noqa: BLE001, S112 - what a decoder under audit refuses shows nothing
                continue
            if again.fails:
                return again
        return None

    def _candidates(self, check: Mapping[str, Any]) -> Iterator[Case]:
        """Cases of all sources; a source ends where the decoder raises, all of them when time is up."""
        for source in self._sources(check):
            while self.left > 0:
                try:
                    case = next(source, None)
                except CancelledError:
                    raise
                except Exception:  # noqa: BLE001 - a decoder under audit may raise anything
                    break
                if case is None:
                    break
                yield case

    def _sources(self, check: Mapping[str, Any]) -> Iterator[Iterator[Case]]:
        name, own = check["name"], _NAMES[self.subject.dtype]
        if name == "not finite logits":
            yield self._watched(self._sought(name, own, 0.0, finite=True), everything=True)
        elif name == "accepted beyond the context":
            yield beyond_cases(self._sought(name, own, 0.0), self.material)
        elif name == BYTES:
            return  # a number about a cache, which no answer shows
        elif self.audit == PARITY:
            yield from self._parity(check, own)
        elif name.startswith("truncation"):
            fine = "float64" if name.endswith("float64") else own
            sought = replace(self._sought(name, fine, _limit(check)), relative=check["unit"] == "relative")
            yield truncated_cases(sought, self._checked(fine), self.material, self.held.rows)
        else:
            for dtype in dict.fromkeys((own, "float64")):
                if dtype == own or self._offers_float64():
                    yield changed_cases(self._sought(name, dtype, 0.0), self._checked(dtype), self.material)

    def _parity(self, check: Mapping[str, Any], own: str) -> Iterator[Iterator[Case]]:
        """By value in the audited dtype; what rounding hides there, or only stored numbers show, in float64."""
        if check["unit"] != "relative":
            yield self._watched(self._sought(check["name"], own, _limit(check)))
        if self._offers_float64():
            sought = replace(self._sought(check["name"], "float64", 1e-9), relative=True)
            yield self._watched(sought, everything=check["name"] not in dict(battery(self._bench(sought))))

    def _sought(self, check: str, dtype: str, limit: float, finite: bool = False) -> Sought:
        expect = "finite" if finite else "same"
        return Sought(self.audit, check, self.subject.decoder.revision, dtype, expect, limit)  # type: ignore[arg-type]

    def _watched(self, sought: Sought, everything: bool = False) -> Iterator[Case]:
        """The first failing answer of each probe of that name, the held-out rows first where they are read."""
        bench = self._bench(sought)
        works = chain(self._sweeps(bench, SINGLE, self.held.rows), battery(bench), self._enumerated(bench))
        for name, work in works:
            if everything or name == sought.check:
                case = self._attempt(work)
                if case is not None:
                    yield case

    def _enumerated(self, bench: Bench) -> Iterator[tuple[str, Callable[[], object]]]:
        """The enumerated prefixes, whose gaps the audit counts with another probe; tried last, as they are many."""
        yield from self._sweeps(bench, ENUMERATED, enumerate_prefixes(self.subject, BUDGET).rows)

    def _sweeps(self, bench: Bench, name: str, rows: Sequence[Row]) -> Iterator[tuple[str, Callable[[], object]]]:
        filler = self.material.alphabet[0]
        for batch in batches(rows, self.material.vocabulary, 16):
            yield name, lambda batch=batch: cached_logits(bench.checked, batch, Advance(1, 1), filler)  # type: ignore[misc]

    def _attempt(self, work: Callable[[], object]) -> Case | None:
        try:
            return first_found(work)
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a probe that the decoder refuses shows nothing
            return None

    def _bench(self, sought: Sought) -> Bench:
        spy = Spy(self._decoder(sought.dtype), sought, self.subject.device)
        return Bench(CheckedDecoder(spy, self.subject.device, self._tick), self.material)

    def _checked(self, dtype: str) -> CheckedDecoder:
        return CheckedDecoder(self._decoder(dtype), self.subject.device, self._tick)

    def _tick(self) -> None:
        """Stops a probe when time is up: what it was after is then not found."""
        if self.left <= 0:
            raise _LateError
        self.subject.progress(*self._at)

    def _offers_float64(self) -> bool:
        if self.subject.dtype == torch.float64:
            return False
        try:
            self._decoder("float64")
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - an adapter may refuse a dtype in any way
            return False
        return True

    def _decoder(self, dtype: str) -> Decoder:
        if dtype == _NAMES[self.subject.dtype]:
            return self.subject.decoder
        if self._fine is None:
            self._fine = self.subject.load(torch.float64)
        return self._fine


class _LateError(Exception):
    """Time is up."""


def _same(left: Case, right: Case) -> bool:
    """Whether two cases are the same calls; one dtype is then enough to show them in."""
    return (left.expect, left.asked, left.against) == (right.expect, right.asked, right.against)


def _limit(check: Mapping[str, Any]) -> float:
    """What a check was held against; 0 where a decoder gave no numbers to measure a tolerance with."""
    return 0.0 if check["limit"] is None else float(check["limit"])
