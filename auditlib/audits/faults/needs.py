"""What a decoder, its event map or its policy must have for a fault to be planted; each says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.faults.planting import Need, World
from auditlib.audits.faults.wrapping import last_logits
from auditlib.audits.held_out import Row, ended_rows
from auditlib.audits.next_events import session_rows
from auditlib.audits.offers import alterable, differentiable, inspectable, shows_views
from auditlib.audits.prefix_set import prefix_set
from auditlib.audits.twins import has_swap, twin_rows
from auditlib.decoders.capabilities import Fingerprinted
from auditlib.decoders.lookup import ceiling

# Logits that a history must move by in float64 to count as felt, where the dtype itself rounds by more.
_FELT = 1e-3


def _offer(world: World, of: object) -> str | None:
    checked = CheckedDecoder(world.subject.decoder, world.subject.device, lambda: None)
    found, reason = of(checked, world.rows.rows(1, 4, "trial")[0])  # type: ignore[operator]
    return None if found is not None else reason


def shows_its_cache(world: World) -> str | None:
    """The decoder shows stored keys and values."""
    return _offer(world, inspectable)


def shows_views_of_its_cache(world: World) -> str | None:
    """What the decoder shows of its caches is the caches themselves, so that a fault can write into them."""
    checked, row = (
        CheckedDecoder(world.subject.decoder, world.subject.device, lambda: None),
        world.rows.rows(1, 4, "trial")[0],
    )
    shown, reason = inspectable(checked, row)
    if shown is None:
        return reason
    return None if shows_views(checked, shown, row) else "the decoder shows copies of its keys and values"


def alters_keys(world: World) -> str | None:
    """Keys and values can be altered on their way."""
    return _offer(world, alterable)


def has_gradients(world: World) -> str | None:
    """The full path runs from embeddings."""
    return _offer(world, differentiable)


def has_float64(world: World) -> str | None:
    """Both paths run in float64."""
    return None if world.fine is not None else world.no_float64


def is_coarser(world: World) -> str | None:
    """The decoder is audited in another dtype than float64, and has that too."""
    if world.subject.dtype == torch.float64:
        return "the decoder is audited in float64 itself: there is nothing finer to compare with"
    return has_float64(world)


def names_weights(world: World) -> str | None:
    """The decoder shows its weights and can name them anew."""
    decoder = world.subject.decoder
    shows = isinstance(getattr(decoder, "module", None), nn.Module)
    return None if shows and isinstance(decoder, Fingerprinted) else "the decoder does not show or name its weights"


def forbids_something(world: World) -> str | None:
    """The event order forbids something in some state."""
    automata = world.subject.order.automata().values()
    domain = list(world.subject.event_map.domain)
    forbids = any(not automaton.legal[:, domain].all() for automaton in automata)
    return None if forbids else "the event order forbids no event anywhere"


def has_split(world: World) -> str | None:
    """Something is known about the split."""
    return None if world.subject.leakage is not None else "nothing is known about the split of the sessions"


def context_of(least: int) -> Need:
    """The context holds at least so many events."""

    def need(world: World) -> str | None:
        """Why the fault would not show, with both lengths; None where the context is long enough."""
        longest = world.subject.decoder.context_length
        return None if longest >= least else f"the context holds {longest} events, the fault shows from {least}"

    return need


def two_events(world: World) -> str | None:
    """There are two events to tell apart."""
    return None if len(world.rows.alphabet) > 1 else "the event map has a single event: no other can stand in its place"


def feels_old_events(world: World) -> str | None:
    """The decoder's answers depend on the oldest event of a long row, and on the order of old ones."""
    changes = (lambda row: row[1:], lambda row: row[:1] + row[2:3] + row[1:2] + row[3:])
    feels = all(_moves(world, change) for change in changes)
    return None if feels else "the decoder's answers do not depend on old events"


def feels_recent_events(world: World) -> str | None:
    """The decoder's answers depend on the event before the newest."""
    feels = _moves(world, lambda row: row[:-2] + row[-1:])
    return None if feels else "the decoder's answers depend on the newest event only"


def feels_ends(world: World) -> str | None:
    """The decoder's answers depend on the end of an earlier session in the same row, for which the context has room."""
    rows, end = ended_rows(world.rows), world.rows.end
    feels = bool(rows) and _apart(world, rows, [tuple(event for event in row if event != end) for row in rows])
    return None if feels else "the decoder's answers do not depend on an end inside a prefix"


def two_told_events(world: World) -> str | None:
    """The sessions at hand tell two events apart: a decoder that repeats its input is right where there is one."""
    told = {event for row in session_rows(world.subject) for event in row} - {world.rows.start, world.rows.end}
    return None if len(told) > 1 else "the sessions at hand hold one event only"


def goes_on_beyond_the_cap(world: World) -> str | None:
    """The event order lets some session go on for longer than the cap: else nothing is ever capped."""
    end = world.subject.event_map.end
    for automaton in world.subject.order.automata().values():
        states = {0}
        for _ in range(world.subject.max_new_events):
            states = {
                int(automaton.step[state, event])
                for state in states
                for event in world.subject.event_map.domain
                if event != end and automaton.legal[state, event]
            }
        if states:
            return None
    return "the event order ends every session before the cap"


def swaps_in_a_twin(world: World) -> str | None:
    """Some prefix at hand has a twin in which two events changed places."""
    twins = twin_rows(world.subject, prefix_set(world.subject, 8))
    return None if any(has_swap(one) for one in twins) else "no prefix that fits has two events to change places"


def leaves_something_open(world: World) -> str | None:
    """Some next event of the few sessions at hand cannot be told from what came before."""
    rows = session_rows(world.subject)
    whole = [row for row, weight in rows.items() for _ in range(weight)]
    unsure = (1 - ceiling(whole)) * sum(max(0, len(row) - 2) for row in whole) if whole else 0.0
    return None if unsure > 1 else "the few sessions at hand leave nothing to be guessed"


def never_ends_by_itself(world: World) -> str | None:
    """No state of the event order leaves a session nothing but its end."""
    end, automata = world.subject.event_map.end, world.subject.order.automata().values()
    ends = any(bool((one.legal[:, end] & (one.legal.sum(axis=1) == 1)).any()) for one in automata)
    return "the event order itself leaves some sessions nothing but the end" if ends else None


def _moves(world: World, change: Callable[[Row], Row]) -> bool:
    """Whether a changed history moves the full path's answer by more than rounding.

    In float64 where there is that: what a coarse dtype drowns is for the probe to find out, and to say.
    """
    rows = world.rows.rows(3, 8, "remembered")
    return len(rows[0]) >= 4 and _apart(world, rows, [change(row) for row in rows])


def _apart(world: World, rows: Sequence[Row], others: Sequence[Row]) -> bool:
    decoder, device = world.fine or world.subject.decoder, world.subject.device
    felt = 2 * world.tolerance.tolerance
    with torch.no_grad():
        apart = last_logits(decoder, rows, device) - last_logits(decoder, others, device)
    return float(apart.abs().max()) > (felt if world.fine is None else min(felt, _FELT))
