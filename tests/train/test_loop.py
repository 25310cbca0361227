"""The training loop: it learns, resumes, restarts and keeps its budgets."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from tests.train import trainers

from augmask.diffusion import BACKBONES
from augmask.errors import ArtifactError, TrainingDiverged
from augmask.train.checkpoint import Checkpoint
from augmask.train.flat_params import FlatParams
from augmask.train.loop import LOG_EVERY, train
from augmask.train.trainer import Trainer

SMALL = {"width": 16, "depth": 1, "time_width": 16, "batch_size": 16, "warmup": 10}


def make_trainer(table, backbone="cdtd", validation_fraction=0.1, **changes) -> Trainer:
    return trainers.trainer(
        table, backbone, 0, validation_fraction=validation_fraction, **SMALL, **changes
    )


def weights(trainer) -> torch.Tensor:
    """Return the weights of the backbone as one row."""
    return FlatParams([deepcopy(trainer.backbone)]).weights.detach()


def test_training_lowers_the_held_out_loss(make_table):
    table = make_table(n=300, n_num=3, cards=(3,), missing=0.2)
    trainer = make_trainer(table, steps=600)
    start = trainer.held_out_loss()
    run = train(trainer)
    assert run.best_loss < 0.9 * start
    assert run.stopped == "steps"
    assert [row["step"] for row in run.history] == list(
        range(LOG_EVERY, 601, LOG_EVERY)
    )


def scripted(trainer, losses: dict[int, float], monkeypatch) -> dict[int, torch.Tensor]:
    """Replace held-out losses; return the EMA weights at each validation."""
    ema = {}

    def held_out_loss() -> float:
        ema[trainer.steps_done] = trainer.ema.weights.clone()
        return losses.get(trainer.steps_done, 1.0)

    monkeypatch.setattr(trainer, "held_out_loss", held_out_loss)
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 50)
    return ema


def test_the_last_good_late_ema_weights_are_the_result(make_table, monkeypatch):
    # the best of all is early, at a high learning rate: it does not compete
    losses = {100: 0.2, 500: 0.7, 550: 0.71, 600: 0.75}
    trainer = make_trainer(make_table(n=40), steps=600)
    ema = scripted(trainer, losses, monkeypatch)
    run = train(trainer)
    assert (run.best_step, run.best_loss) == (550, 0.7)
    assert torch.equal(weights(trainer), ema[550])


def test_a_run_stopped_by_patience_keeps_its_best_weights(make_table, monkeypatch):
    trainer = make_trainer(make_table(n=40), steps=600, patience=3)
    scripted(trainer, {100: 0.2}, monkeypatch)
    run = train(trainer)
    assert run.stopped == "held-out cells"
    assert (run.best_step, trainer.steps_done) == (100, 250)


def test_with_patience_one_lucky_validation_is_no_minimum(make_table, monkeypatch):
    # smoothed, the valley at 250 to 350 is lower than the dip at 100
    losses = {100: 0.6, 250: 0.7, 300: 0.7, 350: 0.7}
    trainer = make_trainer(make_table(n=40), steps=1000, patience=5)
    ema = scripted(trainer, losses, monkeypatch)
    run = train(trainer)
    assert (run.best_step, trainer.steps_done) == (350, 600)
    assert run.best_loss == pytest.approx(0.7)
    assert torch.equal(weights(trainer), ema[350])


def test_with_patience_late_states_do_not_replace_a_better_one(make_table, monkeypatch):
    losses = dict.fromkeys((300, 350, 400), 0.5)
    trainer = make_trainer(make_table(n=40), steps=600, patience=9)
    scripted(trainer, losses, monkeypatch)
    run = train(trainer)
    assert (run.stopped, run.best_step) == ("steps", 400)


def test_without_held_out_cells_the_final_ema_weights_are_the_result(make_table):
    trainer = make_trainer(make_table(n=40), validation_fraction=0.0, steps=60)
    run = train(trainer)
    assert run.best_weights is None
    assert torch.equal(weights(trainer), trainer.ema.weights)


class Killed(Exception):
    pass


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_a_killed_run_ends_like_an_uninterrupted_one(
    make_table, monkeypatch, tmp_path, backbone
):
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)
    table = make_table(n=50)
    uninterrupted, killed, resumed = (
        make_trainer(table, backbone=backbone, steps=40) for _ in range(3)
    )
    expected = train(uninterrupted)
    step = killed.step

    def until_killed(done):
        if killed.steps_done == 29:
            raise Killed
        step(done)

    killed.step = until_killed
    path = tmp_path / "run.checkpoint"
    with pytest.raises(Killed):
        train(killed, checkpoint=Checkpoint(path, "x", every=0))
    result = train(resumed, checkpoint=Checkpoint(path, "x", every=0))
    assert resumed.steps_done == 40
    assert torch.equal(weights(uninterrupted), weights(resumed))
    for a, b in zip(expected.history, result.history, strict=True):
        a.pop("seconds"), b.pop("seconds")
        np.testing.assert_equal(a, b)


def test_a_checkpoint_of_another_run_is_refused(make_table, tmp_path):
    path = tmp_path / "run.checkpoint"
    train(
        make_trainer(make_table(), steps=50), checkpoint=Checkpoint(path, "a", every=0)
    )
    with pytest.raises(ArtifactError, match="other data, settings or seed"):
        Checkpoint(path, "b").load()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtifactError, match="invalid checkpoint file"):
        Checkpoint(path, "a").load()


def break_once(trainer, at, times):
    """Make the loss of column c0 infinite at step `at`, the first `times` times."""
    inner, left = trainer.backbone.cell_loss, {"n": times}

    def cell_loss(batch, generator):
        cell = inner(batch, generator)
        if trainer.steps_done == at and left["n"]:
            left["n"] -= 1
            cell.main[:, 2] = torch.inf * cell.main[:, 2]
        return cell

    trainer.backbone.cell_loss = cell_loss


def test_a_failed_step_is_undone_and_its_column_named(make_table, caplog):
    trainer = make_trainer(make_table(), steps=200)
    # once in the run itself, once in the repetition that finds the column
    break_once(trainer, at=120, times=2)
    run = train(trainer)
    assert run.restarts == 1
    assert "'c0' at step 121 is not finite; restarting from step 100" in caplog.text
    assert trainer.steps_done == 200
    assert weights(trainer).isfinite().all()
    rates = [row["lr"] for row in run.history]
    assert rates[1] < 0.6 * rates[0]


def test_a_run_that_keeps_failing_names_the_column(make_table):
    trainer = make_trainer(make_table(), steps=200)
    break_once(trainer, at=60, times=1000)
    with pytest.raises(TrainingDiverged, match=r"column 'c0' .* even after 3 restarts"):
        train(trainer)


def test_a_time_limit_ends_a_run_with_a_low_learning_rate(make_table):
    trainer = make_trainer(make_table(), steps=1_000_000)
    run = train(trainer, seconds=1.0)
    assert run.stopped == "time"
    assert 0 < trainer.steps_done < 1_000_000
    assert run.history[-1]["lr"] < 0.5 * trainer.settings.lr


def test_patience_stops_a_run(make_table):
    trainer = make_trainer(make_table(n=30), steps=20_000, lr=0.01, patience=2)
    run = train(trainer)
    assert run.stopped == "held-out cells"
    assert trainer.steps_done < 20_000
