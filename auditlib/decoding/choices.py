"""How each kind of setting chooses the next events from the log-probabilities after each live row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditlib.decoding.filters import filtered
from auditlib.decoding.policies import Setting

Picked = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Parents and events [M]: row `parents[i]` goes on with `events[i]`."""


def pick_likeliest(allowed_scores: Tensor) -> Picked:
    """Each row [N, V] with its largest score; of equal ones the lowest id. What is not allowed is -inf."""
    return np.arange(len(allowed_scores)), allowed_scores.argmax(-1).numpy()


def pick_sampled(allowed_scores: Tensor, setting: Setting, draws: Tensor) -> Picked:
    """Each row [N, V] with an event drawn from what the filters leave; `draws` [N] are uniform in [0, 1)."""
    kept = filtered(allowed_scores, setting)
    mass = kept.softmax(-1).cumsum(-1)
    events = torch.searchsorted(mass, (draws * mass[:, -1])[:, None], right=True)[:, 0].clamp(max=mass.shape[1] - 1)
    # The inverse of a rounded sum can land beside the support; such a draw goes to the row's likeliest event.
    dropped = kept.gather(-1, events[:, None])[:, 0] == -torch.inf
    return np.arange(len(kept)), torch.where(dropped, kept.argmax(-1), events).numpy()


def pick_beams(totals: Tensor, owners: npt.NDArray[np.int64], width: int, end: int) -> Picked:
    """For each owner the `width` best continuations that go on, and the ends among its `width` best of all.

    `totals` [N, V] are scores with the new event, -inf where not allowed; `owners` [N] ascends. Parents come back by
    owner, best first. An owner whose mass is on the end still gets its full number of continuations.
    """
    _, group, counts = np.unique(owners, return_inverse=True, return_counts=True)
    slots = np.arange(len(owners)) - np.repeat(counts.cumsum() - counts, counts)
    vocabulary = totals.shape[1]
    # Owners side by side, [P, lanes, V]; lanes that an owner does not have stay at -inf.
    grid = np.full((len(counts), int(counts.max()), vocabulary), -np.inf)
    grid[group, slots] = totals.numpy()
    flat = grid.reshape(len(counts), -1)
    # Every live row has one end, so twice the width holds enough continuations beside all ends that count.
    best = np.argsort(-flat, axis=1, kind="stable")[:, : 2 * width]
    possible = np.take_along_axis(flat, best, axis=1) > -np.inf
    ends = best % vocabulary == end
    kept = possible & np.where(ends, np.arange(best.shape[1]) < width, (~ends).cumsum(axis=1) <= width)
    firsts = (counts.cumsum() - counts)[:, None]
    return (firsts + best // vocabulary)[kept], (best % vocabulary)[kept]


def draws_of(setting: Setting, prefix: Sequence[int], sample: int, count: int) -> npt.NDArray[np.float64]:
    """`count` uniform numbers of one sample of one prefix, the same in whatever batch it is drawn."""
    text = f"prefixgate draws 1|{setting.seed}|{sample}|{'-'.join(map(str, prefix))}"
    # Philox is keyed by the whole digest: streams of different prefixes never overlap.
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(key=key)).random(count)
