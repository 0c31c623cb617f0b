"""Training: what it learns, that it can be repeated and resumed to the bit, and what it refuses."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from auditlib.decoders.evaluation import evaluate
from auditlib.decoders.lookup import ceiling
from auditlib.decoders.rows import distinct, in_batches, padded
from auditlib.decoders.training import train
from auditlib.decoders.training_plan import TrainingPlan
from auditlib.errors import CancelledError, DecoderError
from tests.small_gpt import everywhere, small_config, small_gpt, some_rows

ROOT = Path(__file__).resolve().parents[2]
QUICK = TrainingPlan(epochs=6, sessions=16, learning_rate=5e-3, round_steps=10, patience=50)


def process(count: int = 160, seed: int = 0) -> list[tuple[int, ...]]:
    """Sessions of a process whose next event depends on the event before the last one."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        row = [1, chance.choice([3, 4]), 5]
        for _ in range(chance.randint(1, 5)):
            row += [row[-2], 5]
        rows.append((*row, 6, 2))
    return rows


def same_bits(one, other) -> bool:
    return all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@pytest.fixture(scope="module")
def trained():
    return train(process(), small_config(), QUICK)


def test_what_the_events_determine_is_learnt(trained):
    held_out = process(60, seed=1)
    found = evaluate(trained.decoder(), held_out)
    assert found.accuracy > 0.97 * ceiling(held_out)
    assert evaluate(small_gpt(), held_out).accuracy < 0.6  # fresh weights know nothing
    assert trained.history[-1].loss < trained.history[0].loss


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(trained):
    torch.manual_seed(123)  # what else the process draws must not matter
    assert same_bits(train(process(), small_config(), QUICK), trained)
    assert not same_bits(train(process(), small_config(), replace(QUICK, seed=1)), trained)


def test_dropout_is_seeded_too_and_other_threads_cannot_disturb_it():
    config, plan = small_config(dropout=0.2), replace(QUICK, epochs=2)
    first = train(process(), config, plan)
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            torch.rand(100)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        again = train(process(), config, plan)
    finally:
        stop.set()
        thread.join()
    assert same_bits(first, again)
    assert not same_bits(first, train(process(), small_config(), plan))


def test_the_kept_weights_are_those_of_the_best_validation(trained):
    kept = [entry for entry in trained.history if entry.kept]
    assert kept[-1].accuracy == max(entry.accuracy for entry in trained.history)
    validation = evaluate(trained.decoder(), process()[:: QUICK.validate_every])
    assert (validation.accuracy, validation.nll) == pytest.approx((kept[-1].accuracy, kept[-1].nll), abs=1e-6)


def test_validation_sessions_are_not_trained_on():
    rows = process(200)
    poisoned = [(1, 6, 6, 6, 6, 2) if number % 10 == 0 else row for number, row in enumerate(rows)]
    plan = replace(QUICK, patience=1000)
    steps = [train(each, small_config(), replace(plan, epochs=1)).history for each in (rows, poisoned)]
    assert [entry.loss for entry in steps[0]] == [entry.loss for entry in steps[1]]
    assert steps[0][-1].nll < steps[1][-1].nll


def test_no_gain_ends_the_training_early():
    stopped = train(process(), small_config(), replace(QUICK, epochs=400, patience=2))
    assert stopped.stopped == "no gain"
    assert stopped.history[-1].epoch < 400
    assert train(process(40), small_config(), replace(QUICK, epochs=1)).stopped == "all epochs"
    assert train(process(40), small_config(), replace(QUICK, epochs=50, seconds=0.0)).stopped == "time"


def test_repetition_changes_nothing_but_the_work():
    """A batch is computed once per distinct session; its loss and steps are those of computing each session."""
    rows = [row for row in process(8) for _ in range(4)]
    assert len(distinct(rows)) < len(rows)
    merged = train(rows, small_config(), replace(QUICK, epochs=1, sessions=len(rows)))
    batch = [row for number, row in enumerate(rows) if number % QUICK.validate_every]
    events, valid = padded(sorted(batch))
    logits = small_gpt().full(events, valid).double()
    chances = logits[:, :-1].log_softmax(-1).gather(-1, events[:, 1:, None])[..., 0][valid[:, 1:]]
    assert merged.history[0].loss == pytest.approx(-float(chances.mean()), abs=1e-5)


def test_longer_sessions_are_cut_to_the_context_and_counted():
    longest = (1, *[3] * 30, 2)
    result = train([*process(30), longest], small_config(), replace(QUICK, epochs=1))
    assert result.cut_sessions == 1
    assert result.record()["sessions"] == {"training": 27, "validation": 4, "cut_to_context": 1}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_handful_of_sessions_can_be_trained_on(count):
    result = train(process(count), small_config(), replace(QUICK, epochs=2))
    events = torch.tensor([[1, 3, 5]])
    assert result.decoder().full(events, everywhere(events)).isfinite().all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [([], "no training session"), ([(1, 3, 2), (1,)], "session 1"), ([(1, 7, 2)], "below"), ([(1, -1, 2)], "below")],
)
def test_rows_that_cannot_be_trained_on_are_refused(rows, message):
    with pytest.raises(DecoderError, match=message):
        train(rows, small_config(), QUICK)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"sessions": 0},
        {"validate_every": 1},
        {"patience": True},
        {"learning_rate": float("nan")},
        {"learning_rate": -1.0},
        {"average": 1.0},
        {"warm_up": -1},
        {"seed": -1},
        {"seed": 2**63},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": -1.0},
    ],
)
def test_senseless_plans_are_refused_by_name(change):
    with pytest.raises(DecoderError, match=next(iter(change))):
        replace(QUICK, **change)


def test_progress_tells_loss_and_time_left_and_may_cancel():
    notes = []

    def watch(done, total, note):
        notes.append((done, total, note))
        if done == 15:
            raise CancelledError("enough")

    with pytest.raises(CancelledError):
        train(process(), small_config(), QUICK, progress=watch)
    assert [done for done, _, _ in notes] == list(range(1, 16))
    assert {total for _, total, _ in notes} == {54}
    assert "loss" in notes[0][2]
    assert "s left" in notes[0][2]
    assert "validation" in notes[-1][2]


def cancel_at(step: int):
    """A watcher that loses patience at a step."""

    def watch(done, total, note):
        if done == step:
            raise CancelledError("enough")

    return watch


def test_a_cancelled_training_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path, trained):
    checkpoint = tmp_path / "training.checkpoint"
    for step in (25, 47):  # neither is a validation: the steps since the last one are done again
        with pytest.raises(CancelledError):
            train(process(), small_config(), QUICK, progress=cancel_at(step), checkpoint=checkpoint)
    resumed = train(process(), small_config(), QUICK, checkpoint=checkpoint)
    assert same_bits(resumed, trained)
    assert resumed.history == trained.history
    again = train(process(), small_config(), QUICK, progress=cancel_at(1), checkpoint=checkpoint)
    assert same_bits(again, trained)  # it was finished: nothing was left to do


def test_patience_is_remembered_by_the_checkpoint(tmp_path):
    plan = replace(QUICK, epochs=400, patience=3)
    whole = train(process(), small_config(), plan)
    assert whole.stopped == "no gain"
    checkpoint = tmp_path / "training.checkpoint"
    with pytest.raises(CancelledError):
        train(process(), small_config(), plan, progress=cancel_at(whole.history[-1].step - 1), checkpoint=checkpoint)
    resumed = train(process(), small_config(), plan, checkpoint=checkpoint)
    assert resumed.history == whole.history
    assert same_bits(resumed, whole)


KILLED = """
import pathlib, sys
from tests.decoders.test_training_loop import QUICK, process
from tests.small_gpt import small_config
from auditlib.decoders.training import train

def watch(done, total, note):
    print(done, flush=True)

train(process(), small_config(dropout=0.1), QUICK, progress=watch, checkpoint=pathlib.Path(sys.argv[1]))
"""


def run_until(checkpoint: Path, step: int) -> None:
    """Train in a process of its own, and kill it without warning after `step`."""
    command = [sys.executable, "-c", KILLED, str(checkpoint)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process_:
        for line in process_.stdout:
            if int(line) >= step:
                process_.kill()
                break
    assert process_.returncode == -9


def test_a_training_killed_twice_ends_with_the_bits_of_one_that_was_not(tmp_path):
    checkpoint = tmp_path / "training.checkpoint"
    run_until(checkpoint, 13)
    assert checkpoint.exists()
    run_until(checkpoint, 38)
    resumed = train(process(), small_config(dropout=0.1), QUICK, checkpoint=checkpoint)
    whole = train(process(), small_config(dropout=0.1), QUICK)
    assert same_bits(resumed, whole)
    assert resumed.history == whole.history
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".tmp"] == ["training.checkpoint"]


def test_a_kill_while_the_checkpoint_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    checkpoint = tmp_path / "training.checkpoint"
    train(process(), small_config(), replace(QUICK, epochs=1), checkpoint=checkpoint)
    before = checkpoint.read_bytes()
    (tmp_path / ".training.checkpoint.dead.tmp").write_bytes(before[: len(before) // 2])  # what a kill leaves behind
    resumed = train(process(), small_config(), replace(QUICK, epochs=1), checkpoint=checkpoint)
    assert resumed.stopped == "all epochs"
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize("other", ["rows", "config", "plan", "seed"])
def test_the_checkpoint_of_another_training_is_refused(tmp_path, other):
    checkpoint = tmp_path / "training.checkpoint"
    plan = replace(QUICK, epochs=1)
    train(process(), small_config(), plan, checkpoint=checkpoint)
    rows = process(seed=9) if other == "rows" else process()
    config = small_config(normalisation="rms") if other == "config" else small_config()
    plan = replace(plan, **{"plan": {"sessions": 32}, "seed": {"seed": 4}}.get(other, {}))
    with pytest.raises(DecoderError, match="a training with other sessions, config or plan"):
        train(rows, config, plan, checkpoint=checkpoint)


def test_a_damaged_checkpoint_is_refused_with_the_remedy(tmp_path):
    checkpoint = tmp_path / "training.checkpoint"
    train(process(), small_config(), replace(QUICK, epochs=1), checkpoint=checkpoint)
    whole = checkpoint.read_bytes()
    for damaged in (
        b"",
        whole[:-1],
        whole.replace(b'"step"', b'"stop"'),
        whole.replace(b"history", b"hXstory"),
        b"{}" * 9,
    ):
        checkpoint.write_bytes(damaged)
        with pytest.raises(DecoderError, match="remove it to train anew"):
            train(process(), small_config(), replace(QUICK, epochs=1), checkpoint=checkpoint)


def test_batches_hold_every_row_once_and_no_more_than_their_places():
    rows = distinct(process(80))
    batches = list(in_batches(rows, 60))
    assert [row for batch in batches for row in batch] == list(rows)
    assert all(len(batch) == 1 or len(batch) * max(map(len, batch)) <= 60 for batch in batches)


def test_weights_given_out_do_not_change_with_the_decoder(trained):
    before = trained.weights()
    decoder = trained.decoder()
    decoder.module.head.data.zero_()
    assert trained.weights() == before
    assert trained.decoder().revision != decoder.fingerprint()


def test_the_record_is_plain_json(trained):
    record = json.loads(json.dumps(trained.record(), allow_nan=False))
    assert record["stopped"] == "all epochs"
    assert len(record["history"]) == len(trained.history)


@pytest.mark.parametrize("seed", [10**14, 2**63 - 1])
def test_the_largest_seeds_train_like_any_other(seed):
    plan = replace(QUICK, epochs=1, seed=seed)
    one, again = (train(some_rows(20), small_config(dropout=0.1), plan).weights() for _ in range(2))
    assert one == again


def test_a_training_that_diverges_says_so_and_gives_no_weights():
    plan = replace(QUICK, epochs=60, learning_rate=1.0, weight_decay=10.0)
    with pytest.raises(DecoderError, match="the training diverged: the loss at step"):
        train(some_rows(60), small_config(), plan)


@pytest.mark.parametrize("place", ["file/below", ".", "a\0b"])
def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(place, tmp_path):
    (tmp_path / "file").write_bytes(b"")

    def told(done, whole, note):
        pytest.fail("a step was taken")

    with pytest.raises(DecoderError, match="no checkpoint can be written there"):
        train(some_rows(20), small_config(), QUICK, checkpoint=tmp_path / place, progress=told)
