"""Training of an `event_gpt`: a step computes each distinct session once with its weight, so repetition is free."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.decoders.evaluation import Evaluation, evaluate_distinct
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import Weights, expected_shapes, fresh_tensors, module_from
from auditlib.decoders.layers import Drop, hidden_states, score
from auditlib.decoders.rows import Row, distinct, in_batches, padded
from auditlib.decoders.targets import event_loss, shifted_targets
from auditlib.decoders.training_plan import Round, Trained, TrainingPlan
from auditlib.decoders.training_state import State, check_place, flatten, views
from auditlib.errors import DecoderError
from auditlib.progress import Progress, silent

_POSITIONS = 1024  # places computed at once; fewer would pay for more calls, more for padding
_LARGEST_GRADIENT = 1.0


def train(
    rows: Sequence[Sequence[int]],
    config: EventGptConfig,
    plan: TrainingPlan | None = None,
    *,
    progress: Progress = silent,
    checkpoint: Path | None = None,
) -> Trained:
    """Weights that predict the next event of `rows` (ids from start to end); only training rows belong in here.

    One row in `plan.validate_every` is kept apart to stop early and to choose the weights. With `checkpoint` the
    state is written there after every validation; a later call with the same arguments and as many threads goes on
    from it and ends with the same bits as if it had never been interrupted. The file is the caller's to remove.
    Raises DecoderError for rows that the config cannot hold, or a checkpoint of another training; whatever `progress`
    raises passes through.
    """
    training = _Training(rows, config, plan or TrainingPlan())
    if checkpoint is not None:
        check_place(checkpoint)
    state = State.start(flatten(fresh_tensors(config, training.plan.seed)))
    if checkpoint is not None and checkpoint.exists():
        state = State.read(checkpoint, training.name, state)
    loop = _Loop(training, state, progress)
    while not state.stopped:
        loop.next_round()
        if checkpoint is not None:
            state.write(checkpoint, training.name)
    return training.result(state)


class _Training:
    """What stays the same while training: the sessions on either side, the settings, and a name made of them all."""

    def __init__(self, rows: Sequence[Sequence[int]], config: EventGptConfig, plan: TrainingPlan) -> None:
        _check_rows(rows, config)
        longest = config.context_length + 1  # the last event is predicted, never read
        whole = [tuple(row) for row in rows]
        cut = [row[:longest] for row in whole]
        self.config, self.plan = config, plan
        self.cut = sum(len(row) > longest for row in whole)
        self.validation = cut[:: plan.validate_every] if len(cut) >= plan.validate_every else cut
        self.rows = [row for number, row in enumerate(cut) if number % plan.validate_every] or cut
        self.shapes = expected_shapes(config)
        self.epoch_steps = -(-len(self.rows) // plan.sessions)
        self.steps = plan.epochs * self.epoch_steps
        described = json.dumps([config.to_mapping(), asdict(plan), cut], sort_keys=True)
        self.name = hashlib.sha256(described.encode()).hexdigest()

    def batch(self, step: int) -> dict[Row, int]:
        """Distinct sessions of a step with their weights, by the seed and the step alone."""
        epoch, part = divmod(step, self.epoch_steps)
        generator = self._generator(epoch)
        order = torch.randperm(len(self.rows), generator=generator)
        chosen = order[part * self.plan.sessions : (part + 1) * self.plan.sessions]
        return distinct(self.rows[index] for index in chosen.tolist())

    def dropout(self, step: int) -> Drop | None:
        """What drops channels in this step: seeded by it, so that no other thread's draws can change a training."""
        share = self.config.dropout
        if share == 0.0:
            return None
        generator = self._generator(500_000_000 + step)

        def drop(branch: Tensor) -> Tensor:
            """The branch with a share of its numbers at 0 and the others larger, so that the mean stays."""
            return branch * torch.empty_like(branch).bernoulli_(1 - share, generator=generator) / (1 - share)

        return drop

    def _generator(self, number: int) -> torch.Generator:
        """Chances of one epoch or step; seeds so large that the product leaves 63 bits wrap around."""
        return torch.Generator().manual_seed((self.plan.seed * 1_000_003 + number) % 2**63)

    def weights(self, flat: Tensor) -> Weights:
        """Weights that are views of a flat vector."""
        return module_from(self.config, views(flat, self.shapes), "cpu", torch.float32).weights()

    def result(self, state: State) -> Trained:
        """What the finished training gives out."""
        best = {name: tensor.clone() for name, tensor in views(state.best, self.shapes).items()}
        counts = len(self.rows), len(self.validation), self.cut
        return Trained(self.config, self.plan, best, tuple(state.history), state.stopped, *counts)


class _Loop:
    """Steps and validations of one training."""

    def __init__(self, training: _Training, state: State, progress: Progress) -> None:
        self.training, self.state, self.progress = training, state, progress
        self.weights = training.weights(state.weights)
        self.average = training.weights(state.average)
        self.gradient = torch.zeros_like(state.weights)
        for weight, part in zip(_leaves(self.weights), views(self.gradient, training.shapes).values(), strict=True):
            weight.grad = part  # gradients then add up inside the one flat vector
        matrices = {name: torch.full(shape, float(len(shape) > 1)) for name, shape in training.shapes.items()}
        self.decayed = flatten(matrices)
        self.validation = distinct(training.validation)
        self.began = time.monotonic()
        self.first_step = state.step

    def next_round(self) -> None:
        """Train up to the next validation, validate, keep what is best, and decide whether to go on."""
        plan, state = self.training.plan, self.state
        losses = []
        for _ in range(min(plan.round_steps, self.training.steps - state.step)):
            losses.append(self._step())
            self.progress(state.step, self.training.steps, self._note(losses[-1]))
        self._validate(sum(losses) / len(losses))
        spent = time.monotonic() - self.began
        if state.step >= self.training.steps:
            state.stopped = "all epochs"
        elif state.idle >= plan.patience:
            state.stopped = "no gain"
        elif plan.seconds is not None and spent > plan.seconds:
            state.stopped = "time"

    def _step(self) -> float:
        """One step down the loss of one batch; gives that loss."""
        plan, step = self.training.plan, self.state.step
        counted = self.training.batch(step)
        drop = self.training.dropout(step)
        whole = float(sum(weight * (len(row) - 1) for row, weight in counted.items()))
        self.gradient.zero_()
        total = 0.0
        for part in in_batches(counted, _POSITIONS):
            loss = self._loss(part, counted, drop, whole)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        _refuse_divergence(step + 1, total)
        norm = float(self.gradient.norm())
        if norm > _LARGEST_GRADIENT:
            self.gradient.mul_(_LARGEST_GRADIENT / norm)
        rate = plan.learning_rate * min(1.0, (step + 1) / (plan.warm_up + 1))
        with torch.no_grad():
            self.state.descend(self.gradient, self.decayed, rate, plan.weight_decay, plan.average)
        return total

    def _loss(self, part: list[Row], counted: dict[Row, int], drop: Drop | None, whole: float) -> Tensor:
        """This part's share of the mean loss of an event over the whole batch."""
        events, valid = padded(part)
        targets, scored = shifted_targets(events, valid)
        weight = torch.tensor([float(counted[row]) for row in part])[:, None] * scored
        logits = self._logits(self.weights, events[:, :-1], drop)
        return event_loss(logits, targets[:, :-1], weight[:, :-1], denominator=whole)

    def _logits(self, weights: Weights, events: Tensor, drop: Drop | None = None) -> Tensor:
        """Logits of rows that are padded on the right, where causal attention alone hides the padding."""

        def attend(_: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            """Causal attention [B, H, T, D]; rows are padded on the right, where no event looks."""
            return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)

        config = self.training.config
        embedded = F.embedding(events, weights.embed)
        return score(config, weights, hidden_states(config, weights, embedded, slice(0, events.shape[1]), attend, drop))

    def _validate(self, loss: float) -> None:
        """Note how the weights and their average do on the validation sessions, and keep the better if it is a gain."""
        state = self.state
        live, average = self._evaluation(self.weights), self._evaluation(self.average)
        averaged = _rank(average) >= _rank(live)
        found = average if averaged else live
        _refuse_divergence(state.step, found.nll)
        gained = _rank(found) > (state.best_accuracy, -state.best_nll)
        if gained:
            state.best_accuracy, state.best_nll = found.accuracy, found.nll
            state.best.copy_(state.average if averaged else state.weights)
        state.count_idle(found.accuracy, min(live.nll, average.nll))
        epoch = state.step / self.training.epoch_steps
        state.history.append(Round(state.step, epoch, loss, found.nll, found.accuracy, averaged, gained))

    def _evaluation(self, weights: Weights) -> Evaluation:
        with torch.no_grad():
            predicted = self.training.config.vocabulary_size
            return evaluate_distinct(lambda events, _: self._logits(weights, events), self.validation, predicted)

    def _note(self, loss: float) -> str:
        """Loss, last validation, and how long it may still take."""
        state, done = self.state, self.state.step - self.first_step
        left = (time.monotonic() - self.began) / done * (self.training.steps - state.step)
        validated = ""
        if state.history:
            last = state.history[-1]
            validated = f", validation {last.nll:.3f} with {last.accuracy:.1%} right"
        return f"loss {loss:.3f}{validated}, at most {left:.0f} s left"


def _refuse_divergence(step: int, loss: float) -> None:
    """Raise DecoderError for a loss that is no number: no later step brings such weights back."""
    if not math.isfinite(loss):
        raise DecoderError(
            f"the training diverged: the loss at step {step} is {loss}; lower the learning rate or weight decay"
        )


def _rank(evaluation: Evaluation) -> tuple[float, float]:
    """More right predictions are better; the likelihood decides between equals."""
    return evaluation.accuracy, -evaluation.nll


def _leaves(weights: Weights) -> list[Tensor]:
    """The weights in the order of their names in a state dict."""
    place = [] if weights.place is None else [weights.place]
    return [
        weights.embed,
        *place,
        weights.final_norm,
        weights.head,
        *(each for block in weights.blocks for each in block),
    ]


def _check_rows(rows: Sequence[Sequence[int]], config: EventGptConfig) -> None:
    if not rows:
        raise DecoderError("there is no training session; split with a smaller --held-out")
    for number, row in enumerate(rows):
        if len(row) < 2 or min(row) < 0 or max(row) >= config.vocabulary_size:
            raise DecoderError(
                f"training session {number} is {list(row)[:8]}…: at least start and end are needed, "
                f"and ids below the vocabulary size of {config.vocabulary_size}"
            )
