"""Runs that take turns are the runs that they would be alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.train.trainers import NETWORK, trainer

from augmask.diffusion import BACKBONES, build_backbone
from augmask.diffusion.nets import bf16_matmul
from augmask.errors import TrainingDiverged
from augmask.train.loop import train, train_many


@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_together_is_bit_for_bit_what_each_is_alone(make_table, backbone):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    steps = (60, 110, 60)
    alone = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    turns = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    expected = [train(t) for t in alone]
    seen = []
    found = train_many(turns, lambda _p, done, total, _n: seen.append((done, total)))
    for a, b, mine, theirs in zip(expected, found, turns, alone, strict=True):
        assert [r["loss"] for r in a.history] == [r["loss"] for r in b.history]
        assert a.best_step == b.best_step
        assert torch.equal(mine.flat.weights, theirs.flat.weights)
    assert seen[-1] == (230, 230)


def test_one_that_diverges_does_not_stop_the_others(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    good, bad = trainer(table, "tabddpm", 0), trainer(table, "tabddpm", 1)
    with torch.no_grad():
        bad.flat.weights[:] = torch.nan
    found = train_many([bad, good])
    assert isinstance(found[0], TrainingDiverged)
    assert found[1].history[-1]["step"] == 60


def test_products_in_bf16_are_chosen_for_a_while(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    exact, rounded = (
        trainer(table, "cdtd", 0, matmul_precision=p) for p in ("tf32", "bf16")
    )
    losses = [train(t).history[-1]["loss"] for t in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert rounded.flat.weights.dtype == torch.float32
    again = build_backbone("cdtd", table.layout, 0, **NETWORK)
    again.load_state_dict(rounded.backbone.state_dict())

    def rows(model) -> torch.Tensor:
        return model.sample(20, torch.Generator().manual_seed(0), steps=5).num

    assert torch.equal(rows(again), rows(rounded.backbone))
    with bf16_matmul(again, True):
        near = rows(again)
    assert not torch.equal(near, rows(again))
    torch.testing.assert_close(near, rows(again), rtol=0.05, atol=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_on_a_gpu_streams_do_not_mix(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    kinds = {"device": "cuda", "compile": "never"}
    alone = [train(trainer(table, backbone, s, **kinds)) for s in range(4)]
    turns = train_many([trainer(table, backbone, s, **kinds) for s in range(4)])
    for a, b in zip(alone, turns, strict=True):
        mine, theirs = ([r["loss"] for r in run.history] for run in (a, b))
        np.testing.assert_allclose(mine, theirs, rtol=0.02)
