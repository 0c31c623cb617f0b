"""How an `event_gpt` is to be trained, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import module_from
from auditlib.decoders.tensor_file import write_tensors
from auditlib.errors import DecoderError

_MOST_STEPS = 10**9


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Settings of a training; equal plans, configs and rows give equal weights on one machine.

    `sessions` a step, `validate_every`: one training session in so many is kept apart to decide when to stop and which
    weights to keep. `average` is the decay of the running average of the weights. `patience` counts validations
    without a gain. `seconds` ends the training early by the clock, which gives up that it can be repeated.
    """

    epochs: int = 30
    sessions: int = 256
    learning_rate: float = 2e-3
    warm_up: int = 20
    weight_decay: float = 0.1
    average: float = 0.98
    validate_every: int = 10
    round_steps: int = 40
    patience: int = 4
    seed: int = 0
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "sessions", "validate_every", "round_steps", "patience"):
            value = getattr(self, name)
            if type(value) is not int or value < (2 if name == "validate_every" else 1):
                raise DecoderError(
                    f"training plan: {name} is {value!r}; it must be a whole number of at least 1 (or 2)"
                )
        for name, most in (("learning_rate", 1.0), ("weight_decay", 10.0), ("average", 0.999999)):
            value = getattr(self, name)
            if not math.isfinite(value) or not 0.0 <= value <= most:
                raise DecoderError(f"training plan: {name} is {value!r}; it must be a number from 0 to {most}")
        for name, most in (("warm_up", _MOST_STEPS), ("seed", 2**63 - 1)):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= most:
                raise DecoderError(f"training plan: {name} is {value!r}; it must be a whole number from 0 to {most}")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise DecoderError(
                f"training plan: seconds is {self.seconds!r}; it must be a number of at least 0, or left out"
            )


@dataclass(frozen=True, slots=True)
class Round:
    """Where a training stood at one validation; losses in nats an event.

    `averaged` says that the running average did better than the weights, `kept` that it became the best so far.
    """

    step: int
    epoch: float
    loss: float
    nll: float
    accuracy: float
    averaged: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class Trained:
    """The weights that validated best, and how they came about. `stopped` says why the training ended."""

    config: EventGptConfig
    plan: TrainingPlan
    tensors: Mapping[str, Tensor]
    history: tuple[Round, ...]
    stopped: str
    training_sessions: int
    validation_sessions: int
    cut_sessions: int

    def decoder(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> EventGpt:
        """A decoder of its own with these weights."""
        copies = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return EventGpt(module_from(self.config, copies, device, dtype))

    def exact_decoder(self) -> EventGpt:
        """A decoder of its own with these weights, computing in float64."""
        return self.decoder(torch.float64)

    def weights(self) -> bytes:
        """Bytes of `model.safetensors`."""
        return write_tensors(self.tensors)

    def record(self) -> dict[str, Any]:
        """What is worth keeping beside the weights, as JSON values."""
        return {
            "format": 1,
            "plan": asdict(self.plan),
            "sessions": {
                "training": self.training_sessions,
                "validation": self.validation_sessions,
                "cut_to_context": self.cut_sessions,
            },
            "stopped": self.stopped,
            "history": [asdict(entry) for entry in self.history],
        }
