"""The audits, in the order in which a report shows them."""

from __future__ import annotations

from auditlib.audits.base import Audit
from auditlib.audits.cache_identity import CACHE_IDENTITY
from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.causality import CAUSALITY
from auditlib.audits.decoding_policy import DECODING_POLICY
from auditlib.audits.event_grammar import EVENT_GRAMMAR
from auditlib.audits.numerics import NUMERICS
from auditlib.audits.training import TRAINING

AUDITS: tuple[Audit, ...] = (
    CAUSALITY,
    CACHE_PARITY,
    CACHE_IDENTITY,
    TRAINING,
    DECODING_POLICY,
    EVENT_GRAMMAR,
    NUMERICS,
)
