"""Runs that take turns are the runs that they would be alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.draws import Draws, complete
from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone
from augmask.errors import TrainingDiverged
from augmask.train.data import TrainingData
from augmask.train.loop import train, train_together
from augmask.train.trainer import Trainer

NETWORK = {"width": 16, "depth": 2, "time_width": 8}


def trainer(table, backbone: str, seed: int, steps: int = 60, device="cpu", **changes):
    device = torch.device(device)
    settings = Settings().replace(
        NETWORK | {"batch": 32, "steps": steps, "holdout": 0.05} | changes, None
    )
    rng = np.random.default_rng(seed)
    filled = complete(resolve_augmenter("ecdf"), table, Draws("stack", 2), rng)
    model = build_backbone(backbone, filled.table.layout, seed, **NETWORK)
    model.init_from_data(filled.table)
    model.to(device)
    hidden = table.observed & (rng.random(table.observed.shape) < 0.05)
    data = TrainingData(filled, "observed", hidden, seed, device)
    return Trainer(model, data, settings, seed, device)


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_together_is_bit_for_bit_what_each_is_alone(make_table, backbone):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    steps = (60, 110, 60)
    alone = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    turns = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    expected = [train(t) for t in alone]
    seen = []
    found = train_together(
        turns, lambda _p, done, total, _n: seen.append((done, total))
    )
    for a, b, mine, theirs in zip(expected, found, turns, alone, strict=True):
        assert [r["loss"] for r in a.history] == [r["loss"] for r in b.history]
        assert a.best_step == b.best_step
        for p, q in zip(mine.parameters, theirs.parameters, strict=True):
            assert torch.equal(p, q)
    assert seen[-1] == (230, 230)


def test_one_that_diverges_does_not_stop_the_others(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    good, bad = trainer(table, "tabddpm", 0), trainer(table, "tabddpm", 1)
    with torch.no_grad():
        bad.data.num[:] = torch.nan
    found = train_together([bad, good])
    assert isinstance(found[0], TrainingDiverged)
    assert found[1].history[-1]["step"] == 60


def test_products_in_bf16_are_for_the_training_only(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    exact, rounded = (trainer(table, "cdtd", 0, products=p) for p in ("tf32", "bf16"))
    losses = [train(t).history[-1]["loss"] for t in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert all(p.dtype == torch.float32 for p in rounded.parameters)
    # sampling multiplies as it always did
    again = build_backbone("cdtd", table.layout, 0, **NETWORK)
    again.load_state_dict(rounded.backbone.state_dict())
    rows = [
        m.sample(20, torch.Generator().manual_seed(0), steps=5).num
        for m in (again, rounded.backbone)
    ]
    assert torch.equal(*rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_on_a_gpu_streams_do_not_mix(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    kinds = {"device": "cuda", "fuse": "never"}
    alone = [train(trainer(table, backbone, s, **kinds)) for s in range(4)]
    turns = train_together([trainer(table, backbone, s, **kinds) for s in range(4)])
    for a, b in zip(alone, turns, strict=True):
        mine, theirs = ([r["loss"] for r in run.history] for run in (a, b))
        np.testing.assert_allclose(mine, theirs, rtol=0.02)
