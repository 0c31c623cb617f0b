"""All planted faults, and the equivalent mutants that are named without being planted."""

from __future__ import annotations

from auditlib.audits.faults.causal import CAUSAL
from auditlib.audits.faults.history import HISTORY
from auditlib.audits.faults.identity import IDENTITY
from auditlib.audits.faults.large_calls import LARGE_CALLS
from auditlib.audits.faults.learning import LEARNING
from auditlib.audits.faults.loops import LOOPS
from auditlib.audits.faults.masks import MASKS
from auditlib.audits.faults.memory import MEMORY
from auditlib.audits.faults.moving import MOVING
from auditlib.audits.faults.padding import PADDING
from auditlib.audits.faults.planting import Fault
from auditlib.audits.faults.rounding import ROUNDING
from auditlib.audits.faults.windows import WINDOWS

FAULTS: tuple[Fault, ...] = (
    *CAUSAL, *HISTORY, *WINDOWS, *PADDING, *MOVING, *LARGE_CALLS, *IDENTITY, *LOOPS, *MASKS, *LEARNING, *ROUNDING,
    *MEMORY,
)  # fmt: skip

NAMED_EQUIVALENT: dict[str, str] = {
    "all rotary positions are moved by one constant": "rotary attention depends on differences of positions only",
    "one constant is added to all logits of a position on both paths": "no probability and no choice changes",
    "unread slots hold other finite numbers": "they have no weight, as finite poison shows where it can",
}
"""Changes that no probe can see, because no answer changes, with the reason."""
