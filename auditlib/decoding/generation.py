"""The one generation loop: greedy, sampled and beam, with and without the order mask, full and cached.

It holds live rows only. A row that ends, or has no budget or no event left, leaves with its score and is never read,
fed or scored again, so nothing that happens to its batch can reach it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.decoding.choices import Picked, pick_beams, pick_likeliest, pick_sampled
from auditlib.decoding.generated import Generated, Outcome, Stop
from auditlib.decoding.lanes import Lanes
from auditlib.decoding.paths import JoiningPath, LogitPath
from auditlib.decoding.policies import Setting
from auditlib.errors import DecoderError, PrefixgateError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.event_map import EventMap

Rows = Sequence[tuple[int, ...]]

_NOBODY = np.empty(0, dtype=np.int64)


class Generation:
    """Rows that are being continued, one event a step. Rows may join before any step, and leave as they end.

    Logits come from `path`. Owners number the prefixes in the order in which they joined.
    """

    def __init__(self, decoder: Decoder, setting: Setting, event_map: EventMap, path: LogitPath) -> None:
        """Nothing joins yet; EventMapError when the map does not fit the decoder."""
        event_map.check_size(decoder.vocabulary_size)
        self.decoder = decoder
        self.setting = setting
        self.event_map = event_map
        self._path = path
        self._lanes = self._coming = Lanes.opening([], [], setting, [], decoder.context_length)
        self._logits = torch.empty(0, decoder.vocabulary_size)
        self._outcome = Outcome(setting)
        self._prefixes: dict[int, tuple[int, ...]] = {}
        self._joined = 0

    @property
    def busy(self) -> bool:
        """Whether there is any prefix whose hypotheses no `step` has given back yet."""
        return bool(self._prefixes)

    @property
    def rows(self) -> int:
        """Rows that the next step will continue."""
        return len(self._lanes) + len(self._coming)

    @property
    def coming(self) -> frozenset[int]:
        """Owners whose prefixes the next step will read, while the other rows advance."""
        return frozenset(self._coming.owners.tolist())

    @torch.no_grad()
    def join(self, prefixes: Rows, automata: Sequence[OrderAutomaton], caps: Sequence[int]) -> range:
        """Owners of prefixes that take part from the next step on, each with at most `caps[i]` new events."""
        owners = range(self._joined, self._joined + len(prefixes))
        lanes = Lanes.opening(prefixes, automata, self.setting, caps, self.decoder.context_length)
        lanes = replace(lanes, owners=lanes.owners + self._joined)
        self._joined = owners.stop
        for owner, prefix, cap in zip(owners, prefixes, caps, strict=True):
            self._prefixes[owner] = prefix
            self._outcome.open(owner, min(cap, self.decoder.context_length - len(prefix)))
        # Prefixes without room never reach the decoder: it could only refuse them, and all others with them.
        lanes = lanes.take(_stop_spent(lanes, self._outcome, np.ones(len(lanes), dtype=bool)))
        try:
            self._begin(lanes)
        except BaseException:
            for owner in owners:  # where the path fails, nothing has joined
                del self._prefixes[owner]
                self._outcome.take(owner)
            raise
        return owners

    @torch.no_grad()
    def step(self) -> dict[int, list[Generated]]:
        """Continue each row by one event; the hypotheses of every prefix that is done, by owner."""
        if len(self._lanes):
            parents, grown = self._chosen(self._lanes, self._logits, self._outcome)
            coming = self._coming
            self._lanes = grown.joined(coming) if len(coming) else grown
            self._coming = coming.take(_NOBODY)
            self._logits = self._advanced(torch.from_numpy(parents), grown, coming)
        done = self._prefixes.keys() - set(self._lanes.owners.tolist())
        for owner in done:
            del self._prefixes[owner]
        return {owner: self._outcome.take(owner) for owner in sorted(done)}

    def _advanced(self, parents: Tensor, grown: Lanes, coming: Lanes) -> Tensor:
        """Logits of the rows that live on, and of those that join them, in one call of the path."""
        newest = torch.from_numpy(grown.newest())
        if len(coming) and isinstance(self._path, JoiningPath):
            return self._path.append_joining(parents, newest, *self._prefixes_of(coming))
        if len(grown):
            return self._path.append(parents, newest)
        self._path.clear()
        return self._logits[:0]

    @torch.no_grad()
    def resume(self, path: LogitPath) -> None:
        """Go on with another path, which reads every live row anew; for when the old one has failed."""
        self._path = path
        if len(self._coming):
            self._lanes = self._lanes.joined(self._coming)
            self._coming = self._coming.take(_NOBODY)
        rows = [(*self._prefixes[o], *self._lanes.emitted(row)) for row, o in enumerate(self._lanes.owners.tolist())]
        self._logits = path.join(rows, 1) if rows else self._logits[:0]

    def drop(self, owners: Collection[int]) -> None:
        """Forget prefixes whose hypotheses nobody waits for any more; their rows leave at the next step."""
        for owner in owners:
            self._outcome.close(owner)

    def _begin(self, lanes: Lanes) -> None:
        """Read the prefixes of new lanes."""
        if not len(lanes):
            return
        if len(self._lanes) and isinstance(self._path, JoiningPath):
            # A call of their own would cost the others a step; they are read in the next one, with everybody else.
            self._coming = self._coming.joined(lanes) if len(self._coming) else lanes
            return
        logits = self._path.join(*self._prefixes_of(lanes))
        self._logits, self._lanes = torch.cat([self._logits.to(logits), logits]), self._lanes.joined(lanes)

    def _prefixes_of(self, lanes: Lanes) -> tuple[Rows, int]:
        """Prefixes of lanes that have no new event yet, and how many lanes each of them has."""
        readers = np.unique(lanes.owners).tolist()
        return [self._prefixes[owner] for owner in readers], len(lanes) // len(readers)

    def _chosen(self, lanes: Lanes, logits: Tensor, outcome: Outcome) -> tuple[npt.NDArray[np.int64], Lanes]:
        """The rows that live on, each one event longer, and which old row each of them continues."""
        scores = _log_probabilities(logits)  # [N, V]
        allowed = scores > -torch.inf
        if self.setting.order_mask:
            allowed &= lanes.allowed(self.decoder.vocabulary_size)
        can = _stop_stuck(lanes, outcome, allowed, self.setting)
        picked_from = lanes.take(can)
        parents, events = self._pick(picked_from, scores[can].masked_fill(~allowed[can], -torch.inf))
        parents = can[parents]  # from rows that could go on to rows of the logits
        _recheck(allowed, parents, events)
        grown = lanes.grown(parents, events, scores)
        ended = events == self.event_map.end
        for row in ended.nonzero()[0].tolist():
            owner, forced = int(grown.owners[row]), self._forced(lanes, scores, allowed, int(parents[row]))
            score, sample = float(grown.scores[row]), int(grown.samples[row])
            outcome.add_ended(owner, grown.emitted(row), score, forced=forced, sample=sample)
        # A prefix with all its hypotheses is left alone; its other rows could only replace finished ones.
        going = ~ended & ~np.array([outcome.closed(owner) for owner in grown.owners.tolist()], dtype=bool)
        live = _stop_spent(grown, outcome, going)
        return parents[live], grown.take(live)

    def _pick(self, lanes: Lanes, scores: Tensor) -> Picked:
        if not len(lanes):
            nothing = np.empty(0, dtype=np.int64)
            return nothing, nothing
        if self.setting.kind == "beam":
            totals = scores + torch.from_numpy(lanes.scores)[:, None]
            return pick_beams(totals, lanes.owners, self.setting.width, self.event_map.end)
        if self.setting.kind == "sampled":
            return pick_sampled(scores, self.setting, torch.from_numpy(lanes.next_draws()))
        return pick_likeliest(scores)

    def _forced(self, lanes: Lanes, scores: Tensor, allowed: Tensor, row: int) -> bool:
        """Whether only the budget left a row nothing but the end."""
        if not self.setting.order_mask or int(allowed[row].sum()) > 1:
            return False
        alone = lanes.take(np.array([row]))  # asked again without a budget: is there anything else?
        unhurried = alone.allowed_without_budget(self.decoder.vocabulary_size)[0]
        # What the decoder itself rules out was no choice: no larger budget would have brought it.
        return int((unhurried & (scores[row] > -torch.inf)).sum()) > 1


def _log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities [N, V] in float64; DecoderError where logits are no numbers."""
    # float64: sums of many small log-probabilities rank beams, and ties in 16 bits would fall by position.
    wide = logits.to(torch.float64)
    wrong = torch.isnan(wide) | (wide == torch.inf)
    if wrong.any():
        row, event = (int(place) for place in wrong.nonzero()[0])
        raise DecoderError(
            f"the decoder gave {float(wide[row, event])} as the logit of id {event} in row {row} of a batch; "
            "no policy can choose by it: look at the causality and cache parity audits"
        )
    return wide.log_softmax(-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)  # a row of -inf only: nothing possible


def _recheck(allowed: Tensor, parents: npt.NDArray[np.int64], events: npt.NDArray[np.int64]) -> None:
    """Refuse to go on when a choice is not allowed: the mask must hold after sampling, not only before."""
    wrong = ~allowed.numpy()[parents, events]
    if wrong.any():
        raise PrefixgateError(f"generation chose the masked id {int(events[wrong][0])}; this is a fault of the loop")


def _stop_stuck(lanes: Lanes, outcome: Outcome, allowed: Tensor, setting: Setting) -> npt.NDArray[np.int64]:
    """Rows that have an event to choose from; the others stop, by lack of budget or of any legal event."""
    can = allowed.any(1).numpy()
    for row in (~can).nonzero()[0].tolist():
        state = lanes.states[row]
        short = setting.order_mask and state >= 0 and lanes.automata[row].to_end[state] > lanes.left()[row]
        stop = lanes.short_of(row) if short else "no legal event"
        _add_unended(outcome, lanes, row, stop)
    found: npt.NDArray[np.int64] = can.nonzero()[0]
    return found


def _stop_spent(lanes: Lanes, outcome: Outcome, going: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Of the rows `going` [N] those with budget left; the others stop as capped or with the context full."""
    spent = lanes.left() <= 0
    for row in (going & spent).nonzero()[0].tolist():
        _add_unended(outcome, lanes, row, lanes.short_of(row))
    found: npt.NDArray[np.int64] = (going & ~spent).nonzero()[0]
    return found


def _add_unended(outcome: Outcome, lanes: Lanes, row: int, stop: Stop) -> None:
    score, sample = float(lanes.scores[row]), int(lanes.samples[row])
    outcome.add_unended(int(lanes.owners[row]), lanes.emitted(row), score, stop, sample=sample)
