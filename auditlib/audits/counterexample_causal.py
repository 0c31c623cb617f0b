"""Comparisons that show a leak from later events, as cases: where a causality audit looks, one call at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from auditlib.audits.causal_probes import Laid, cases, cuts
from auditlib.audits.changes import moved
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.counterexample import Case, Side, Step, alone
from auditlib.audits.counterexample_spy import Sought
from auditlib.audits.held_out import Material, Row, spread

_APPENDS = ((1, 4), (2, 2), (5, 3), (5, 5))
_HELD_OUT_ROWS = 32
_SPARE = (0, 1, 4, 8)


def changed_cases(sought: Sought, checked: CheckedDecoder, rows: Material) -> Iterator[Case]:
    """An earlier logit that moves, by any bit, when one later event is another; on both paths."""
    for laid in sorted(cases(rows), key=lambda laid: len(laid.row) + laid.left + laid.right):
        steps = (_one("full", laid, rows.padding),)
        yield from _changes(sought, checked, rows, steps)
    for prompt, size in _APPENDS:
        for row in rows.rows(2, prompt + size, f"append {prompt} {size}"):
            if len(row) > prompt + 1:
                prefill, extend = _one("prefill", Laid(row[:prompt])), _one("extend", Laid(row[prompt:]))
                yield from _changes(sought, checked, rows, (prefill, extend))


def _changes(sought: Sought, checked: CheckedDecoder, rows: Material, steps: tuple[Step, ...]) -> Iterator[Case]:
    """Cases over one row: each place of the last call changed in turn, the first moved logit before it taken."""
    last = steps[-1]
    line, valid = last.events[0], last.valid[0]
    places = [place for place, keep in enumerate(valid) if keep]
    for cut in cuts(len(places)):
        place = places[cut]
        others = [event for event in (*rows.alphabet, rows.end) if event != line[place]]
        variants = tuple((*line[:place], event, *line[place + 1 :]) for event in others)
        wide = [replace(step, events=step.events * len(others), valid=step.valid * len(others)) for step in steps]
        base = _answers(checked, wide)
        wide[-1] = replace(wide[-1], events=variants)
        earlier = torch.tensor(valid, device=checked.device) & (torch.arange(len(line), device=checked.device) < place)
        hits = ((moved(_answers(checked, wide), base).differ > 0) & earlier).nonzero().tolist()
        for variant, column in hits[:2]:
            changed = (*steps[:-1], replace(last, events=(variants[variant],)))
            yield _case(sought, Side(changed, 0, column), Side(steps, 0, column), sought.limit)


def _answers(checked: CheckedDecoder, steps: Sequence[Step]) -> torch.Tensor:
    """Logits [B, T, V] of the last call."""
    logits, cache = torch.empty(0), None
    for step in steps:
        events, valid = (torch.tensor(part, device=checked.device) for part in (step.events, step.valid))
        if step.verb == "full":
            return checked.full(events, valid)
        logits, cache = checked.extend(events, valid, cache) if cache is not None else checked.prefill(events, valid)
    return logits


def truncated_cases(sought: Sought, checked: CheckedDecoder, rows: Material, held: Sequence[Row]) -> Iterator[Case]:
    """A logit that is another when its prefix stands alone: without what follows, or without padding beside it."""
    for row in sorted({*rows.made_up, *rows.boundary, *spread(held, _HELD_OUT_ROWS)}, key=lambda row: (len(row), row)):
        for spare in _SPARE:
            if len(row) + spare > rows.context:
                continue
            steps = (_one("full", Laid(row, 0, spare), rows.padding),)
            logits = _answers(checked, steps)[0]
            limit = sought.limit * (max(1.0, float(torch.nan_to_num(logits).abs().max())) if sought.relative else 1.0)
            for column in range(len(row)):
                side = Side(steps, 0, column)
                wanted = _answers(checked, alone(side).steps)[0, -1]
                if not float((logits[column] - wanted).abs().max()) <= limit:
                    yield _case(sought, side, alone(side), limit)
                    break


def beyond_cases(sought: Sought, rows: Material) -> Iterator[Case]:
    """Requests for more events than the context holds, each to be refused."""
    full = rows.rows(1, rows.context, "beyond")[0]
    over = (*full, rows.alphabet[0])

    def case(*steps: Step) -> Case:
        """The calls as a case to be refused, looked at in row 0 at the last valid place of the last call."""
        side = Side(steps, 0, max(place for place, keep in enumerate(steps[-1].valid[0]) if keep))
        return replace(_case(sought, side, None, 0.0), expect="refused")

    yield case(_one("full", Laid(over)))
    yield case(_one("prefill", Laid(over)))
    for prompt in (rows.context, rows.context - 1):
        if prompt > 0:
            yield case(_one("prefill", Laid(over[:prompt])), _one("extend", Laid(over[prompt:])))
    if rows.context > 1:
        yield from _beside_short_rows(case, full, over)


def _beside_short_rows(case: Callable[..., Case], full: Row, over: Row) -> Iterator[Case]:
    """A full row beside one that has room, or behind it, after a move or an idle call: there bounds are lost."""
    new = over[-1:]
    whole, short = (True,) * len(full), (True, *(False,) * (len(full) - 1))
    for valid in ((whole, short), (short, whole)):
        yield case(Step("prefill", (full, full), valid), Step("extend", (new, new), ((True,), (True,))))
    prompt, last = Step("prefill", (full, full), (whole, short)), Step("extend", (new, new), ((True,), (True,)))
    for between in (Step("reorder", parents=(1, 0)), Step("extend", (new, new), ((False,), (True,)))):
        yield case(prompt, between, last)
    for verb in ("full", "prefill"):
        yield case(Step(verb, (over, over), ((*short, False), (*whole, True))))


def _one(verb: str, laid: Laid, padding: int = 0) -> Step:
    events = (padding,) * laid.left + laid.row + (padding,) * laid.right
    valid = (False,) * laid.left + (True,) * len(laid.row) + (False,) * laid.right
    return Step(verb, (events,), (valid,))  # type: ignore[arg-type]


def _case(sought: Sought, asked: Side, against: Side | None, limit: float) -> Case:
    names = (sought.audit, sought.check, sought.revision, sought.dtype)
    return Case(*names, sought.expect, asked, against, float("inf"), limit)
