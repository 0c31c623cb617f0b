"""Each planted fault is seen by the check that exists for it; each check has a fault that proves it can fail."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from auditlib.audits.base import Findings
from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.causality import CAUSALITY
from auditlib.audits.numerics import NUMERICS
from auditlib.audits.training import TRAINING
from auditlib.release.limits import LIMITS
from tests.planted import FAULTS, SlightlyOff
from tests.subjects import over_limit, subject_of

AUDITS = {audit.name: audit for audit in (CAUSALITY, CACHE_PARITY, NUMERICS, TRAINING)}
PAIRS = sorted({(fault, audit) for audit, _, fault in FAULTS}, key=lambda pair: (pair[0].__name__, pair[1]))

# Checks whose faults need another decoder, a broken loss or a leaking split: each is shown to fail in its own test.
ELSEWHERE = {
    "truncation", "stored keys and values", "padding in the loss", "accumulation", "sessions on both sides",
    "keys crossing the split", "cache bytes",
}  # fmt: skip


@cache
def measured(fault: type, audit: str) -> Findings:
    return AUDITS[audit].measure(subject_of(lambda dtype: fault(dtype=dtype)))


@pytest.mark.parametrize(("fault", "audit"), PAIRS, ids=[f"{fault.__name__}-{audit}" for fault, audit in PAIRS])
def test_a_planted_fault_exceeds_the_limits_of_the_checks_that_exist_for_it(fault, audit):
    expected = {check for place, check, planted in FAULTS if planted is fault and place == audit}
    assert expected <= over_limit(AUDITS[audit], measured(fault, audit))


def test_every_check_has_a_fault_that_proves_it_can_fail():
    planted = {(audit, check) for audit, check, _ in FAULTS}
    checks = {(limit.audit, limit.check) for limit in LIMITS if limit.audit in AUDITS}
    assert {check for _, check in checks - planted} == ELSEWHERE


def test_at_least_thirty_different_faults_are_planted():
    assert len({fault for _, _, fault in FAULTS}) >= 30


def test_faults_that_leave_every_greedy_choice_alone_are_seen_all_the_same():
    """The reason for the whole battery: comparing chosen events misses most faults."""
    decoder, rows = SlightlyOff(), [(1, 3, 4, 5, 6, 7, 3, 4)]
    events = torch.tensor(rows)
    valid = torch.ones_like(events, dtype=torch.bool)
    full = decoder.full(events, valid)
    last, cache = decoder.prefill(events[:, :1], valid[:, :1])
    chosen = [int(last.argmax())]
    for place in range(1, events.shape[1]):
        logits, cache = decoder.extend(events[:, place : place + 1], valid[:, place : place + 1], cache)
        chosen.append(int(logits.argmax()))
    assert chosen == full[0].argmax(-1).tolist()
    assert "single events in float64" in over_limit(CACHE_PARITY, measured(SlightlyOff, "cache parity"))
