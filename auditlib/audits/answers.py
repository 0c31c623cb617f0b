"""A served answer, judged again from its ids alone: order rules, reason to stop, and the cap that it was under."""

from __future__ import annotations

from auditlib.audits.emitted import Bounds, Emitted, recount
from auditlib.audits.prefix_set import PrefixCase
from auditlib.decoding.generated import Generated
from auditlib.serving.request import Answer, Encoded
from auditlib.serving.served import Served


def recount_answer(served: Served, encoded: Encoded, found: Generated) -> Emitted:
    """What the ids of an answer show; nothing that the engine says of it is believed."""
    automaton = served.order.automaton(encoded.request.attributes)
    case = PrefixCase(encoded.request.session, encoded.prefix, (), automaton)
    bounds = Bounds(encoded.max_new, served.decoder.context_length, served.setting.order_mask)
    return recount(case, 0, found, served.event_map, bounds)


def in_ids(served: Served, encoded: Encoded, answer: Answer) -> Generated:
    """An answer that went out by name, as the ids that it stands for; a name that is no event counts as padding."""
    ids, padding = served.event_map, served.event_map.padding
    known = {ids.name(event): event for event in ids.domain}
    ended = answer.stop == "end"
    events = (*(known.get(name, padding) for name in answer.events), *([ids.end] if ended else []))
    room = min(encoded.max_new, served.decoder.context_length - len(encoded.prefix))
    return Generated(events, answer.stop, answer.forced, answer.score, ended and not answer.forced, room)
