"""NoAug, AugFull and AugMask are one experiment with two knobs.

They differ in the values of missing cells and in the cells that the loss includes.
Everything else is equal bit for bit: initial weights, noise schedule, the rows and the
noise of every step, settings, sampler. Otherwise a comparison of the three would
measure more than the method.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask import AugMask
from augmask.augmentation import resolve_augmenter
from augmask.config import STRATEGIES
from augmask.diffusion import BACKBONES
from augmask.prepare import prepare_fit
from augmask.presets import PRESETS
from augmask.rng import stream

from .made_frame import make_frame

TINY = {"steps": 4, "batch_size": 16, "width": 8, "depth": 1, "time_width": 8}
EXTRA: dict[str, dict[str, object]] = {
    # options that read the table before training, where strategies could differ
    "cdtd": {"anchor": None},
    "tabdiff": {},
    "tabddpm": {"clip": 1.0},
}

every_backbone = pytest.mark.parametrize("backbone", list(BACKBONES))


def prepared(backbone: str, strategy: str, preset: str = "paper"):
    augmenter, supervise = STRATEGIES[strategy]
    model = AugMask(
        backbone, augmenter, supervise, preset, TINY | EXTRA[backbone], device="cpu"
    )
    return prepare_fit(model, make_frame(missing=0.7))


@every_backbone
@pytest.mark.parametrize("preset", list(PRESETS))
def test_strategies_start_from_the_same_weights_and_settings(backbone, preset):
    first, *others = (prepared(backbone, s, preset) for s in STRATEGIES)
    for other in others:
        assert other.state.settings == first.state.settings
        assert other.state.layout == first.state.layout
        mine, yours = (s.state.backbone.state_dict() for s in (first, other))
        assert mine.keys() == yours.keys()
        for name, tensor in mine.items():
            assert torch.equal(tensor, yours[name]), name
        observed = first.table.observed
        numeric = observed[:, : first.state.layout.n_num]
        np.testing.assert_array_equal(other.table.observed, observed)
        np.testing.assert_array_equal(
            other.trainer.data.completions.table.num[numeric],
            first.trainer.data.completions.table.num[numeric],
        )


@every_backbone
def test_strategies_train_on_the_same_rows_with_the_same_noise(backbone):
    trainers = [prepared(backbone, s).trainer for s in STRATEGIES]
    for _ in range(3):
        for trainer in trainers:
            trainer.step(0.0)
    first, *others = trainers
    for other in others:
        assert torch.equal(first.data.indices, other.data.indices)
        assert torch.equal(first.noise.get_state(), other.noise.get_state())
        assert first.schedule == other.schedule


@every_backbone
def test_augfull_and_augmask_differ_only_in_the_supervised_cells(backbone):
    full, mask = (prepared(backbone, s).trainer for s in ("AugFull", "AugMask"))
    for trainer in (full, mask):
        trainer.step(0.0)
    # same batch, imputed values, noise and weights: same loss in every cell
    assert torch.equal(full.last[0], mask.last[0])
    assert full.last[1].all()
    assert not mask.last[1].all()


@every_backbone
@pytest.mark.parametrize("preset", list(PRESETS))
def test_training_uses_the_values_that_the_augmenter_drew(backbone, preset):
    """Imputed values keep the variance that the augmenter gave them."""
    setup = prepared(backbone, "AugMask", preset)
    augmenter = resolve_augmenter("lgbm-s")
    rng = stream(0, "fill")
    augmenter.fit(setup.table, rng)
    drawn = augmenter.draw(rng).num[~setup.table.num_observed]
    imputed = setup.trainer.data.completions.num_fill[0]
    np.testing.assert_array_equal(imputed, drawn.astype(np.float32))
