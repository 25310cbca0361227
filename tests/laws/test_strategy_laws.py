"""NoAug, AugFull and AugMask are one experiment with two knobs.

They differ in what stands in a missing cell and in the cells that the loss counts.
Everything else is the same to the last bit: first weights, noise schedule, the rows and
the noise of every step, settings, sampler. Otherwise a comparison of the three would
measure something besides the method.
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
from augmask.progress import silent
from augmask.rng import stream

from .made_frame import make_frame

TINY = {"steps": 4, "batch_size": 16, "width": 8, "depth": 1, "time_width": 8}
EXTRA: dict[str, dict[str, object]] = {
    # what reads the table before training starts is what could differ
    "cdtd": {"anchor": None},
    "tabdiff": {},
    "tabddpm": {"clip": 1.0},
}

everywhere = pytest.mark.parametrize("backbone", list(BACKBONES))


def prepared(backbone: str, strategy: str, preset: str = "paper"):
    augmenter, supervise = STRATEGIES[strategy]
    model = AugMask(
        backbone, augmenter, supervise, preset, TINY | EXTRA[backbone], device="cpu"
    )
    return prepare_fit(model, make_frame(holes=0.7), None, None, silent)


@everywhere
@pytest.mark.parametrize("preset", list(PRESETS))
def test_strategies_start_from_the_same_weights_and_settings(backbone, preset):
    first, *others = (prepared(backbone, s, preset) for s in STRATEGIES)
    for other in others:
        assert other.settings == first.settings
        assert other.layout == first.layout
        mine, yours = first.backbone.state_dict(), other.backbone.state_dict()
        assert mine.keys() == yours.keys()
        for name, tensor in mine.items():
            assert torch.equal(tensor, yours[name]), name
        seen = first.table.observed
        np.testing.assert_array_equal(other.table.observed, seen)
        np.testing.assert_array_equal(
            other.trainer.data.completions.table.num[seen[:, : first.layout.n_num]],
            first.trainer.data.completions.table.num[seen[:, : first.layout.n_num]],
        )


@everywhere
def test_strategies_see_the_same_rows_and_the_same_noise(backbone):
    trainers = [prepared(backbone, s).trainer for s in STRATEGIES]
    for _ in range(3):
        for trainer in trainers:
            trainer.step(0.0)
    first, *others = trainers
    for other in others:
        assert torch.equal(first.data._pairs, other.data._pairs)
        assert torch.equal(first.noise.get_state(), other.noise.get_state())
        assert first.pace == other.pace


@everywhere
def test_augfull_and_augmask_differ_in_the_counted_cells_alone(backbone):
    full, mask = (prepared(backbone, s).trainer for s in ("AugFull", "AugMask"))
    for trainer in (full, mask):
        trainer.step(0.0)
    # the same batch, fill, noise and weights: the same loss in every cell
    assert torch.equal(full.last[0], mask.last[0])
    assert full.last[1].all()
    assert not mask.last[1].all()


@everywhere
@pytest.mark.parametrize("preset", list(PRESETS))
def test_what_is_trained_on_is_what_was_drawn(backbone, preset):
    """Fills keep the spread that the augmenter gave them, whatever the scaling."""
    ready = prepared(backbone, "AugMask", preset)
    rule = resolve_augmenter("lgbm-s")
    rng = stream(0, "fill")
    rule.fit(ready.table, rng)
    drawn = rule.draw(rng).num[~ready.table.num_observed]
    fills = ready.trainer.data.completions.num_fill[0]
    np.testing.assert_array_equal(fills, drawn.astype(np.float32))
