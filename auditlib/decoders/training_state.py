"""Where a training stands, as a value that can be written down and taken up again to the bit.

All weights lie in one flat vector of P numbers; the optimiser, the running average and the checkpoint are then a few
operations on whole vectors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.tensor_file import read_tensors, require_tensors, write_tensors
from auditlib.decoders.training_plan import Round
from auditlib.errors import DecoderError, RevisionError
from auditlib.events.documents import parse
from auditlib.files import write_whole

_VECTORS = ("weights", "average", "best", "first", "second")
_COUNTERS = ("step", "idle", "best_accuracy", "best_nll", "mark_accuracy", "mark_nll")
_WORST = 1e9
_LEAST_GAIN = 1e-3  # a relative gain below this is no reason to go on
_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.98, 1e-8


@dataclass(slots=True)
class State:
    """Vectors [P] of a training and its counters; `stopped` is empty while it goes on.

    `first` and `second` are Adam's moments; `idle` counts validations since one last went clearly beyond the marks.
    """

    weights: Tensor
    average: Tensor
    best: Tensor
    first: Tensor
    second: Tensor
    step: int = 0
    idle: int = 0
    best_accuracy: float = -1.0
    best_nll: float = _WORST
    mark_accuracy: float = 0.0
    mark_nll: float = _WORST
    stopped: str = ""
    history: list[Round] = field(default_factory=list)

    @classmethod
    def start(cls, weights: Tensor) -> State:
        """The state before the first step."""
        zeros = torch.zeros_like(weights)
        return cls(weights.clone(), weights.clone(), weights.clone(), zeros.clone(), zeros)

    def write(self, path: Path, name: str) -> None:
        """Write all of it to `path`, so that a kill leaves this state or the one before."""
        counters = {key: getattr(self, key) for key in _COUNTERS}
        record = {"training": name, "stopped": self.stopped, **counters, "history": [asdict(e) for e in self.history]}
        text = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)
        vectors = {key: getattr(self, key) for key in _VECTORS}
        write_whole(path, write_tensors({**vectors, "record": text}))

    @classmethod
    def read(cls, path: Path, name: str, like: State) -> State:
        """The state written at `path`; DecoderError when it is no checkpoint of the training called `name`."""
        remedy = "remove it to train anew, or name another checkpoint"
        try:
            tensors = read_tensors(path.read_bytes(), str(path))
            text = tensors.pop("record", torch.empty(0, dtype=torch.uint8)).numpy().tobytes().decode("utf-8")
            require_tensors(tensors, {key: tuple(like.weights.shape) for key in _VECTORS}, torch.float32, str(path))
            record: dict[str, Any] = parse(text, str(path), RevisionError).value
            found = str(record.pop("training"))
            history = [Round(**entry) for entry in record.pop("history")]
            members: dict[str, Any] = {**tensors, **record, "history": history}
            state = cls(**members)
        except (OSError, RevisionError, KeyError, TypeError, AttributeError, ValueError) as problem:
            raise DecoderError(f"{path}: is no checkpoint that can be taken up ({problem}); {remedy}") from problem
        if found != name:
            raise DecoderError(f"{path}: is the checkpoint of a training with other sessions, config or plan; {remedy}")
        return state

    def count_idle(self, accuracy: float, nll: float) -> None:
        """Count a validation as idle unless it went clearly beyond what the last ones reached."""
        if accuracy <= self.mark_accuracy * (1 + _LEAST_GAIN) and nll >= self.mark_nll * (1 - _LEAST_GAIN):
            self.idle += 1
            return
        self.idle = 0
        self.mark_accuracy, self.mark_nll = max(accuracy, self.mark_accuracy), min(nll, self.mark_nll)

    def descend(self, gradient: Tensor, decayed: Tensor, rate: float, weight_decay: float, average: float) -> None:
        """One step along `gradient` [P] (Loshchilov and Hutter 2019, AdamW) and of the running average.

        `decayed` [P] is 1 where weight decay applies.
        """
        self.step += 1
        self.first.lerp_(gradient, 1 - _FIRST_DECAY)
        self.second.mul_(_SECOND_DECAY).addcmul_(gradient, gradient, value=1 - _SECOND_DECAY)
        spread = (self.second / (1 - _SECOND_DECAY**self.step)).sqrt_().add_(_EPSILON)
        self.weights.mul_(1 - rate * weight_decay * decayed)
        self.weights.addcdiv_(self.first, spread, value=-rate / (1 - _FIRST_DECAY**self.step))
        # A young average forgets faster, or it would keep the random first weights for long.
        self.average.lerp_(self.weights, 1 - min(average, (1 + self.step) / (10 + self.step)))


def check_place(path: Path) -> None:
    """Raise DecoderError where no checkpoint can be written: after the first round of a training it is late to tell."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if "\0" in path.name or path.is_dir() or not os.access(path.parent, os.W_OK):
            raise DecoderError(
                f"{str(path)!r}: no checkpoint can be written there; name a file in a folder of your own"
            )
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the folder's name
        raise DecoderError(f"{str(path)!r}: no checkpoint can be written there ({problem}); name another") from problem


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """All tensors one after another as a vector [P]."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors.values()])


def views(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors that lie in a flat vector, as views of it."""
    parts = torch.split(flat, [prod(shape) for shape in shapes.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
