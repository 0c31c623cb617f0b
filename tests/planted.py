"""Faults planted in a plain decoder, each a few lines, with the audit and the check that must see it.

The kinds are those that were reported of cached decoders in public; the names say what goes wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from auditlib.errors import ContextExceededError
from tests.plain import Open, Plain, PlainCache


def _causal(size: int, diagonal: int = 0) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril(diagonal)


# -- causality ---------------------------------------------------------------------------------------------------------


class NoMask(Plain):
    """A mask refactor: the full path sees everything."""

    def sees_full(self, valid: Tensor, layer: int) -> Tensor:
        return valid[:, None].expand(-1, valid.shape[1], -1)


class LastLayerNoMask(Plain):
    """Only the last layer forgets the mask."""

    def sees_full(self, valid: Tensor, layer: int) -> Tensor:
        leaks = layer == self.layers - 1
        return valid[:, None].expand(-1, valid.shape[1], -1) if leaks else super().sees_full(valid, layer)


class OneAhead(Plain):
    """The mask is off by one."""

    def sees_full(self, valid: Tensor, layer: int) -> Tensor:
        return valid[:, None] & _causal(valid.shape[1], 1)


class SeesLater(Open):
    """Masked scores get a large negative number in place of minus infinity."""

    masked = -1e4

    def weights(self, scores: Tensor, sees: Tensor) -> Tensor:
        return (scores + (~sees[:, None]).to(scores.dtype) * self.masked).softmax(-1)


class SeesLaterFaintly(SeesLater):
    """The negative number is so small that only exact arithmetic feels it."""

    masked = -30.0


class BlockMean(Plain):
    """Every complete block of events is averaged and the mean given to all of its positions."""

    block_size = 4

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        whole = hidden.shape[1] // self.block_size * self.block_size
        blocks = hidden[:, :whole].unflatten(1, (-1, self.block_size))
        means = blocks.mean(2, keepdim=True).expand_as(blocks).flatten(1, 2)
        return torch.cat([hidden[:, :whole] + 0.1 * means, hidden[:, whole:]], 1)


class LongBlockMean(BlockMean):
    """The same for blocks longer than most rows."""

    block_size = 16


class RowMean(Plain):
    """Routing by the mean over the whole row."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        kept = valid[..., None].to(hidden.dtype)
        return hidden + 0.01 * (hidden * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)


class CircularFilter(Plain):
    """A filter that wraps around: the first event hears the last."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden + 0.05 * hidden.roll(1, 1)


class LengthScaled(Plain):
    """Positions are shares of the row's length."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden * (1 + 0.01 * valid.sum(1)[:, None, None].to(hidden.dtype))


class WidthScaled(Plain):
    """The width of the batch, padding included, is felt."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden * (1 + 0.001 * valid.shape[1])


class KnowsOneEvent(Plain):
    """A leak that depends on the data: only before one event of the eight."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        ahead = torch.cat([events[:, 1:] == 5, torch.zeros_like(valid[:, :1])], 1)
        return super().full(events, valid) + 1e-3 * ahead[..., None]


class KnowsTheEnd(Plain):
    """A leak only before the end token, as training on whole sessions invites."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        ahead = torch.cat([events[:, 1:] == 2, torch.zeros_like(valid[:, :1])], 1)
        return super().full(events, valid) - 1e-3 * ahead[..., None]


class AppendNoMask(Plain):
    """Several events at once see one another; single events are right."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer)
        within = valid[:, None].expand(-1, valid.shape[1], -1)
        return torch.cat([sees[:, :, : cache.kept.shape[1]], within], 2) if cache.kept.shape[1] else sees


class NotANumber(Plain):
    """A query that sees nothing divides zero by zero."""

    def weights(self, scores: Tensor, sees: Tensor) -> Tensor:
        return scores.masked_fill(~sees[:, None], -torch.inf).softmax(-1)


# -- parity: keys, values and positions --------------------------------------------------------------------------------


class StaleKey(Plain):
    """The newest stored event is not seen by the next single event."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer).clone()
        if valid.shape[1] == 1 and cache.kept.shape[1] > 1:
            sees[:, :, cache.kept.shape[1] - 1] = False
        return sees


class PlaceRestarts(Plain):
    """Single events after the prompt get position 0."""

    def new_positions(self, valid: Tensor, cache: PlainCache) -> Tensor:
        right = super().new_positions(valid, cache)
        return torch.zeros_like(right) if valid.shape[1] == 1 and cache.kept.shape[1] else right


class PlaceFromHeads(Plain):
    """The length is read from the wrong axis: it is the number of heads."""

    def new_positions(self, valid: Tensor, cache: PlainCache) -> Tensor:
        wrong = torch.full_like(cache.lengths, self.heads)
        return self.positions(valid, wrong if cache.kept.shape[1] else cache.lengths)


class FirstKeyOnly(Plain):
    """The causal mask of one query starts at the wrong corner: it keeps slot 0."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer).clone()
        if valid.shape[1] == 1:
            sees[:, :, 1:] = False
        return sees


class ChunkWrongCorner(Plain):
    """The same for several queries at once; one query is right."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer)
        count, slots = sees.shape[1:]
        corner = torch.ones(count, slots, dtype=torch.bool).tril()
        return sees & corner if count > 1 and cache.kept.shape[1] else sees


class LongChunkWrongCorner(ChunkWrongCorner):
    """The same from seven queries on: a kernel of another tile size takes those."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        return (
            super().sees_new(valid, cache, layer) if valid.shape[1] >= 7 else Plain.sees_new(self, valid, cache, layer)
        )


class WindowTooEarly(Plain):
    """A window of 12 rolls one event before it is full."""

    window = 12

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer).clone()
        if sees.shape[2] >= self.window:
            sees[:, :, : sees.shape[2] - self.window + 1] = False
        return sees


class PlaceStops(Plain):
    """After 9 events the position no longer advances."""

    def new_positions(self, valid: Tensor, cache: PlainCache) -> Tensor:
        return super().new_positions(valid, cache).clamp(max=9)


class LastColumn(Plain):
    """Prefill answers from the last column, padding or not."""

    def last_column(self, valid: Tensor) -> Tensor:
        return torch.full((len(valid),), valid.shape[1] - 1)


class Coarse(Plain):
    """Keys and values are stored in bfloat16, whatever the decoder computes in."""

    def to_store(self, tensor: Tensor) -> Tensor:
        return tensor.bfloat16().to(tensor.dtype)


class SlightlyOff(Plain):
    """The cached path scales its logits by a hair, which no choice of events shows."""

    def extend(self, events: Tensor, valid: Tensor, cache: PlainCache) -> tuple[Tensor, PlainCache]:
        logits, grown = super().extend(events, valid, cache)
        return logits * (1 + 3e-7), grown


# -- parity: padding and uneven rows -----------------------------------------------------------------------------------


class PadsCount(Plain):
    """Positions count padding, on both paths alike: only the row alone and unpadded tells."""

    def positions(self, valid: Tensor, read: Tensor) -> Tensor:
        places = read[:, None] + torch.arange(valid.shape[1]).expand_as(valid)
        return places.clamp(0, len(self.places) - 1)


class PadsSeen(Plain):
    """No path masks padding before a row."""

    def sees_full(self, valid: Tensor, layer: int) -> Tensor:
        return _causal(valid.shape[1]).expand(len(valid), -1, -1)

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        count = valid.shape[1]
        before = torch.ones(len(valid), count, cache.kept.shape[1], dtype=torch.bool)
        return torch.cat([before, _causal(count).expand(len(valid), -1, -1)], 2)


class PadsSeenLater(Plain):
    """Padding is masked in the prefill, and attended to from the next event on."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer).clone()
        sees[:, :, : cache.kept.shape[1]] = True
        return sees


class PadIdIsTheMask(Plain):
    """Validity is guessed from the padding id; what else stands at invalid positions is read."""

    def guessed(self, events: Tensor, valid: Tensor) -> Tensor:
        return valid | (events != 0)

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        return super().full(events, self.guessed(events, valid))

    def extend(self, events: Tensor, valid: Tensor, cache: PlainCache) -> tuple[Tensor, PlainCache]:
        return super().extend(events, self.guessed(events, valid), cache)

    def check_room(self, lengths: Tensor) -> None:
        super().check_room(lengths.clamp(max=self.context_length))


class EndIsTheMask(Plain):
    """The end has padding's id in this decoder's own vocabulary, so that the cached path masks both."""

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, PlainCache]:
        return super().prefill(events, valid & (events != 2))

    def extend(self, events: Tensor, valid: Tensor, cache: PlainCache) -> tuple[Tensor, PlainCache]:
        return super().extend(events, valid & (events != 2), cache)


class OneRowDropsMask(Plain):
    """A batch of one is taken to be unpadded."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer)
        if len(valid) > 1:
            return sees
        before = torch.ones(1, valid.shape[1], cache.kept.shape[1], dtype=torch.bool)
        return torch.cat([before, _causal(valid.shape[1])[None]], 2)


class UniformAdvance(Plain):
    """All rows are taken to advance by as many events as the longest."""

    def after_append(self, cache: PlainCache) -> PlainCache:
        if bool((cache.lengths != cache.lengths[0]).any()) and cache.kept[:, -1].sum() < len(cache.kept):
            cache.lengths = torch.full_like(cache.lengths, int(cache.lengths.max()))
        return cache

    def check_room(self, lengths: Tensor) -> None:
        super().check_room(lengths.clamp(max=self.context_length))


class RowsMix(Plain):
    """Hidden states are centred over the batch, as a batch normalisation in training mode does."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return hidden - 0.01 * hidden.mean(0, keepdim=True)

    blend_new = blend


# -- parity: rows that move --------------------------------------------------------------------------------------------


def _unmoved(tensor: Tensor, parents: Tensor) -> Tensor:
    """The rows as they stand, as many as there are parents."""
    return tensor[torch.arange(len(parents)) % len(tensor)]


class NeverMoves(Plain):
    """Reorder keeps the rows where they are."""

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return _unmoved(tensor, parents)


class FirstLayerMoves(Plain):
    """Only the first layer's cache is reordered."""

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return _unmoved(tensor, parents) if layer > 0 else tensor[parents]


class KeysMove(Plain):
    """Values stay behind."""

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return _unmoved(tensor, parents) if kind == "values" else tensor[parents]


class LengthsStay(Plain):
    """Positions stay behind."""

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return _unmoved(tensor, parents) if kind == "lengths" else tensor[parents]


class MasksStay(Plain):
    """The mask of padding stays behind."""

    def moved(self, layer: int, kind: str, tensor: Tensor, parents: Tensor) -> Tensor:
        return _unmoved(tensor, parents) if kind == "kept" else tensor[parents]


class CopiesShareSlots(Plain):
    """Copies of one row write into one another: the newest event of the last copy wins."""

    def reorder(self, cache: PlainCache, parents: Tensor) -> PlainCache:
        moved = super().reorder(cache, parents)
        moved.shared = [(parents == parent).nonzero().max() for parent in parents]  # type: ignore[attr-defined]
        return moved

    def extend_with(self, events: Tensor, valid: Tensor, cache: PlainCache, alter: object) -> tuple[Tensor, PlainCache]:
        logits, grown = super().extend_with(events, valid, cache, None)
        shared = getattr(cache, "shared", None)
        if shared is not None:
            for row, other in enumerate(shared):
                for tensor in (*grown.keys, *grown.values):
                    tensor[row, :, -events.shape[1] :] = tensor[other, :, -events.shape[1] :]
        return logits, grown


class DropKeepsFirst(Plain):
    """When rows leave, the first ones stay, whichever were meant."""

    def reorder(self, cache: PlainCache, parents: Tensor) -> PlainCache:
        leaves = len(parents) < len(cache.lengths)
        return super().reorder(cache, torch.arange(len(parents)) if leaves else parents)


# -- parity: the end of the context ------------------------------------------------------------------------------------


class NoRoomCheck(Plain):
    """Nothing is refused."""

    def check_room(self, lengths: Tensor) -> None:
        return


class OneTooMany(Plain):
    """The guard is off by one."""

    def check_room(self, lengths: Tensor) -> None:
        super().check_room(lengths - 1)


class ChecksShortest(Plain):
    """The guard looks at the shortest row of the batch."""

    def check_room(self, lengths: Tensor) -> None:
        if int(lengths.min()) > self.context_length:
            raise ContextExceededError("too many events")


class ChecksFirst(Plain):
    """The guard looks at the first row of the batch."""

    def check_room(self, lengths: Tensor) -> None:
        if int(lengths[0]) > self.context_length:
            raise ContextExceededError("too many events")


class LastSlotLost(Plain):
    """The ring of slots wraps one place early: the event at the very end of the context overwrites the first."""

    def sees_new(self, valid: Tensor, cache: PlainCache, layer: int) -> Tensor:
        sees = super().sees_new(valid, cache, layer).clone()
        sees[(cache.lengths + valid.sum(1)) == self.context_length, :, 0] = False
        return sees


# -- training ----------------------------------------------------------------------------------------------------------


class DropoutStaysOn(Plain):
    """One submodule was never told that training is over."""

    def blend(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return torch.nn.functional.dropout(hidden, 0.1) if layer else hidden


class DropoutInTheCache(Plain):
    """The same on the cached path only."""

    def blend_new(self, hidden: Tensor, valid: Tensor, layer: int) -> Tensor:
        return torch.nn.functional.dropout(hidden, 0.1) if layer else hidden


class Tells(Plain):
    """Puts nearly all weight on the event `ahead` places further on, read from the row itself where it can."""

    ahead = 1

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        told = torch.cat([events[:, self.ahead :], torch.full_like(events[:, : self.ahead], 2)], 1)
        return 6 * torch.nn.functional.one_hot(told, self.vocabulary_size).to(self.dtype)


class TellsItself(Tells):
    """No shift at all: the current event is predicted."""

    ahead = 0


class TellsTheNext(Tells):
    """Cheats on the full path: better than any decoder that sees only the past."""


class TellsTheOneAfter(Tells):
    """Shifted twice."""

    ahead = 2


_BY_CHECK: dict[tuple[str, str], tuple[type[Plain], ...]] = {
    ("causality", "truncation in float64"): (NoMask, LastLayerNoMask, RowMean, LengthScaled, WidthScaled),
    ("causality", "exhaustive next event"): (
        OneAhead,
        BlockMean,
        LongBlockMean,
        CircularFilter,
        KnowsOneEvent,
        KnowsTheEnd,
        SeesLaterFaintly,
    ),
    ("causality", "later events in one append"): (AppendNoMask,),
    ("causality", "jacobian"): (SeesLaterFaintly,),
    ("causality", "finite poison"): (SeesLater,),
    ("causality", "not finite logits"): (NotANumber,),
    ("cache parity", "single events"): (
        StaleKey,
        PlaceRestarts,
        PlaceFromHeads,
        FirstKeyOnly,
        WindowTooEarly,
        EndIsTheMask,
    ),
    ("cache parity", "chunks of 2, 3 and 5"): (ChunkWrongCorner, AppendNoMask, EndIsTheMask),
    ("cache parity", "long chunks"): (LongChunkWrongCorner,),
    ("cache parity", "uneven rows"): (UniformAdvance,),
    ("cache parity", "one-event prefill"): (PlaceRestarts,),
    ("cache parity", "padded left"): (PadsCount, PadsSeen, PadsSeenLater, RowsMix),
    ("cache parity", "padded right"): (LastColumn, PadsSeenLater),
    ("cache parity", "padded both sides"): (PadIdIsTheMask,),
    ("cache parity", "one padded row"): (OneRowDropsMask,),
    ("cache parity", "exact boundary"): (LastSlotLost, PlaceStops),
    ("cache parity", "accepted beyond the context"): (NoRoomCheck, OneTooMany, ChecksShortest, ChecksFirst),
    ("cache parity", "dropped rows"): (DropKeepsFirst, NeverMoves),
    ("cache parity", "reordered rows"): (FirstLayerMoves, KeysMove, LengthsStay, MasksStay, CopiesShareSlots),
    ("cache parity", "not finite logits"): (NotANumber,),
    ("cache parity", "single events in float64"): (Coarse, SlightlyOff),
    ("numerics", "logic in float64"): (SlightlyOff, KeysMove),
    ("numerics", "pooled ratio"): (Coarse, SlightlyOff),
    ("numerics", "sessions above ratio 1.25"): (Coarse,),
    ("numerics", "decisions that differ"): (StaleKey,),
    ("training", "repeat with the same input"): (DropoutStaysOn, DropoutInTheCache),
    ("training", "target shift"): (TellsItself, TellsTheOneAfter),
    ("training", "accuracy above the ceiling"): (TellsTheNext,),
}

FAULTS: tuple[tuple[str, str, type[Plain]], ...] = tuple(
    (audit, check, fault) for (audit, check), faults in _BY_CHECK.items() for fault in faults
)
