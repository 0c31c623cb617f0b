"""Caches that keep events by columns, as most runtimes do: what a row may see, and which columns are its own.

Every call appends its K columns to all rows, padding included; a mask says which of them a row really holds.
Shapes: B rows, S columns held, K columns new, L layers, H heads, D channels a head.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.errors import CacheRejectedError


@dataclass(frozen=True, slots=True)
class Sight:
    """Which of the held columns `held` [B, S] and the new ones `new` [B, K] are real events, both bool."""

    held: Tensor
    new: Tensor

    @property
    def lengths(self) -> Tensor:
        """Events of each row, the new ones included: int64 [B]."""
        return self.held.sum(1) + self.new.sum(1)

    @property
    def columns(self) -> int:
        """S + K."""
        return self.held.shape[1] + self.new.shape[1]

    def positions(self) -> Tensor:
        """Number of each new event within its row, from 0: int64 [B, K]. Padding borrows a neighbour's."""
        return (self.held.sum(1, keepdim=True) + self.new.cumsum(1) - 1).clamp_(min=0)

    def visible(self, window: int | None = None) -> Tensor:
        """What each new column may attend to: bool [B, K, S + K], of a row's events the newest `window` up to itself.

        The window counts events, not columns: padding in between must not push an event out of it.
        """
        real = torch.cat([self.held, self.new], 1)
        columns = torch.arange(self.columns, device=real.device)
        own = columns[self.held.shape[1] :, None]  # [K, 1]
        seen = real[:, None] & (columns <= own)
        if window is not None:
            places = real.cumsum(1)
            seen &= places[:, None] > places[:, self.held.shape[1] :, None] - window
        # Padding may see itself: a query that sees nothing gives NaN on some backends.
        return seen | (columns == own)


class Store(ABC):
    """Keys and values of all columns, in whatever form the runtime keeps them."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Columns in use."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes allocated for keys and values."""


class OpenStore(Store):
    """A store in which every layer holds every column, so that all can be shown as one."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values [L, B, H, S, D] of the columns in use; writing into them changes the store."""


class ColumnCache:
    """A store with the mask of each row's own columns, the decoder it belongs to, and whether it was continued."""

    __slots__ = ("_lock", "_spent", "held", "owner", "store")

    def __init__(self, store: Store, held: Tensor, owner: str) -> None:
        self.store = store
        self.held = held
        self.owner = owner
        self._lock = threading.Lock()
        self._spent = False

    @property
    def rows(self) -> int:
        """How many rows the cache holds."""
        return len(self.held)

    @property
    def spent(self) -> bool:
        """Whether an `extend` has continued this cache, so that it no longer stands for its events."""
        return self._spent

    def require_usable(self, owner: str) -> None:
        """Raise CacheRejectedError unless this cache is `owner`'s and not spent."""
        if self._spent:
            raise CacheRejectedError("spent", "this cache was already continued by an extend; use what that gave back")
        if self.owner != owner:
            raise CacheRejectedError("revision", "this cache belongs to another decoder; prefill again under this one")

    def spend(self) -> None:
        """Mark the cache as continued; of two threads that try, one gets CacheRejectedError."""
        with self._lock:
            if self._spent:
                raise CacheRejectedError("spent", "another call continued this cache in the meantime; prefill again")
            self._spent = True


def compacted(store: OpenStore, held: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values [L, B, H, M, D] with each row's events in its first columns, and their mask [B, M].

    M is the longest row; order is kept, and columns beyond a row's length hold finite numbers that are nobody's.
    """
    order, mask = events_first(held)
    keys, values = store.tensors()
    return picked(keys, order), picked(values, order), mask


def events_first(held: Tensor) -> tuple[Tensor, Tensor]:
    """Columns [B, M] of each row's events in their order, M the longest row, and which of these are events [B, M]."""
    lengths = held.sum(1)
    longest = int(lengths.max()) if len(lengths) else 0
    order = (~held).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
    return order, torch.arange(longest, device=held.device) < lengths[:, None]


def picked(tensor: Tensor, order: Tensor) -> Tensor:
    """`tensor` [..., B, H, S, D] with columns `order` [B, M] of each row, all layers and heads alike."""
    index = order[:, None, :, None].expand(*tensor.shape[:-2], order.shape[1], tensor.shape[-1])
    return tensor.gather(-2, index)
