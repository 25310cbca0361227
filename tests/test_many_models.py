"""Models that are trained in turns end as they would alone."""

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
def test_models_trained_in_turns_are_bit_for_bit_what_they_are_alone(
    make_table, backbone
):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    steps = (60, 110, 60)
    alone = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    turns = [trainer(table, backbone, s, n) for s, n in enumerate(steps)]
    expected = [train(t) for t in alone]
    reports = []
    runs = train_many(turns, lambda _p, done, total, _n: reports.append((done, total)))
    for a, b, one, other in zip(expected, runs, turns, alone, strict=True):
        assert [r["loss"] for r in a.history] == [r["loss"] for r in b.history]
        assert a.best_step == b.best_step
        assert torch.equal(one.flat.weights, other.flat.weights)
    assert reports[-1] == (230, 230)


def test_a_model_that_diverges_does_not_stop_the_others(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    good, bad = trainer(table, "tabddpm", 0), trainer(table, "tabddpm", 1)
    with torch.no_grad():
        bad.flat.weights[:] = torch.nan
    results = train_many([bad, good])
    assert isinstance(results[0], TrainingDiverged)
    assert results[1].history[-1]["step"] == 60


def test_bf16_applies_to_training_and_not_to_the_trained_model(make_table):
    table = make_table(n=120, n_num=2, cards=(2, 5))
    exact, rounded = (
        trainer(table, "cdtd", 0, matmul_precision=p) for p in ("tf32", "bf16")
    )
    losses = [train(t).history[-1]["loss"] for t in (exact, rounded)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert rounded.flat.weights.dtype == torch.float32
    copy = build_backbone("cdtd", table.layout, 0, **NETWORK)
    copy.load_state_dict(rounded.backbone.state_dict())

    def rows(model) -> torch.Tensor:
        return model.sample(20, torch.Generator().manual_seed(0), steps=5).num

    assert torch.equal(rows(copy), rows(rounded.backbone))
    with bf16_matmul(copy, True):
        rounded_rows = rows(copy)
    assert not torch.equal(rounded_rows, rows(copy))
    torch.testing.assert_close(rounded_rows, rows(copy), rtol=0.05, atol=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_models_on_separate_cuda_streams_do_not_mix(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    options = {"device": "cuda", "compile": "never"}
    alone = [train(trainer(table, backbone, s, **options)) for s in range(4)]
    turns = train_many([trainer(table, backbone, s, **options) for s in range(4)])
    for a, b in zip(alone, turns, strict=True):
        losses = [[row["loss"] for row in run.history] for run in (a, b)]
        np.testing.assert_allclose(*losses, rtol=0.02)
