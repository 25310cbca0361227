"""A loss that is not finite: TabDiff fixes its noise schedules and training continues.

The fault is injected where it occurs in practice, in the weight m'(t) / m(t) of a
learned schedule; everything else is `AugMask.fit`.
"""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch

from augmask import AugMask, load
from augmask.diffusion.tabdiff import FIXED_K, FIXED_R, PowerSchedules
from augmask.train.checkpoint import Checkpoint
from augmask.train.trainer import Trainer

SIZES = {
    "width": 16,
    "depth": 1,
    "time_width": 8,
    "batch_size": 32,
    "sampling_steps": 4,
}
SETTINGS = {"steps": 40, "warmup": 5, "validation_fraction": 0.1, **SIZES}
ANSWER = "TabDiff continues with fixed noise schedules"


def make_frame(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kg = rng.normal(70, 12, n)
    job = np.where(kg > 70, "smith", rng.choice(["cook", "clerk"], n))
    frame = pd.DataFrame({"kg": kg.round(1), "job": job})
    return frame.mask(rng.random(frame.shape) < 0.3)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr("augmask.train.loop.LOG_EVERY", 10)


def fit(**more) -> AugMask:
    model = AugMask("tabdiff", "ecdf", options=SETTINGS, device="cpu")
    return model.fit(make_frame(), **more)


@pytest.fixture
def explode(monkeypatch):
    """Return a function that makes learned schedules diverge from their 15th use on."""
    weight, uses = PowerSchedules.mask_weight, {"n": 0}

    def exploding(self, t):
        uses["n"] += 1
        late = uses["n"] > 14 and not self.fixed
        return weight(self, t) * (torch.inf if late else 1.0)

    def arm():
        uses["n"] = 0
        monkeypatch.setattr(PowerSchedules, "mask_weight", exploding)

    return arm


def assert_same(one: AugMask, two: AugMask) -> None:
    mine, yours = one.backbone_.state_dict(), two.backbone_.state_dict()
    assert mine.keys() == yours.keys()
    for name, value in mine.items():
        assert torch.equal(value, yours[name]), name
    pd.testing.assert_frame_equal(one.sample(30, seed=2), two.sample(30, seed=2))


def test_training_continues_with_fixed_schedules_and_warns(explode, caplog, tmp_path):
    explode()
    model = fit()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert record.getMessage() == (
        f"the loss of column 'job' at step 11 is not finite; restarting from step 10: "
        f"{ANSWER} and the learning rate is halved"
    )
    assert model.training_["restarts"] == 1
    assert model.history_["step"].tolist() == [10, 20, 30, 40]
    assert np.isfinite(model.history_["loss"]).all()

    schedules = model.backbone_.schedules
    assert schedules.fixed
    assert (schedules.r == FIXED_R).all()
    assert (schedules.k == FIXED_K).all()
    assert not model.sample(30).isna().any().any()

    model.save(tmp_path / "m.augmask")
    loaded = load(tmp_path / "m.augmask", device="cpu")
    assert loaded.backbone_.schedules.fixed
    assert_same(model, loaded)


def test_without_a_fault_the_schedules_are_learned(caplog):
    model = fit()
    schedules = model.backbone_.schedules
    assert not schedules.fixed
    fresh = PowerSchedules(1, 1)
    assert (schedules.r != fresh.r).all()
    assert (schedules.k != fresh.k).all()
    assert ANSWER not in caplog.text


class Killed(Exception):
    pass


# killed before the fault; after it, with a checkpoint from before or after it
@pytest.mark.parametrize(("at", "warnings"), [(12, 1), (24, 2), (35, 1)])
def test_a_run_killed_around_the_fault_ends_like_an_uninterrupted_one(
    explode, monkeypatch, caplog, tmp_path, at, warnings
):
    explode()
    uninterrupted = fit()
    caplog.clear()
    monkeypatch.setattr(Checkpoint, "due", True)
    step, calls = Trainer.step, {"n": 0}

    def until_killed(self, done):
        calls["n"] += 1
        if calls["n"] == at:
            raise Killed
        step(self, done)

    explode()
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", until_killed)
        with pytest.raises(Killed):
            fit(checkpoint=tmp_path / "run.checkpoint")
    resumed = fit(checkpoint=tmp_path / "run.checkpoint")
    assert resumed.backbone_.schedules.fixed
    assert resumed.training_["restarts"] == 1
    assert caplog.text.count(ANSWER) == warnings
    assert_same(uninterrupted, resumed)
