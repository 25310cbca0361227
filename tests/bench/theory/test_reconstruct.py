"""Looking into a backbone shows what its own loss shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

import augmask as am
from augmask.augmentation.boosted import LgbmS
from augmask.diffusion.base import Batch
from augmask.diffusion.cdtd import CDTD
from augmask.diffusion.random_draws import log_time, low_discrepancy
from augmask.diffusion.tabddpm import TabDDPM
from augmask.diffusion.tabdiff import MIN_TIME, TabDiff
from augmask.errors import UsageError
from augmask.table.table import Layout
from augmask_bench.theory.reconstruct import denoiser_of, inspect_model

N, CARDS = 64, (2, 4)
LAYOUT = Layout(("a", "b", "c"), ("d", "e"), CARDS)


def generator():
    return torch.Generator().manual_seed(5)


def shaken(kind, **options):
    """A backbone whose output depends on everything, in float64."""
    torch.manual_seed(0)
    model = kind(LAYOUT, width=16, depth=2, time_width=8, **options).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return model


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    cat = np.stack([rng.integers(card, size=N) for card in CARDS], 1)
    return Batch(torch.tensor(rng.normal(size=(N, 3))), torch.tensor(cat))


def looked(model, batch):
    """Reconstructed numbers, and the probabilities of the true levels."""
    x = torch.cat([batch.num, model.ragged.one_hot(batch.cat, batch.num)], 1)
    out = denoiser_of(model).draw(N, generator())(x)
    return out[:, :3], out[:, 3:].gather(1, model.ragged.slots(batch.cat))


def test_cdtd_reconstructs_what_its_loss_compares(batch):
    model = shaken(CDTD)
    num, p = looked(model, batch)
    same = generator()
    u = low_discrepancy(batch.num, same)
    plain, _ = model.losses_at(batch, log_time(u), model.warp.sigma(u), same)
    torch.testing.assert_close((num - batch.num).square(), plain[:, :3])
    torch.testing.assert_close(-p.log() / model.entropy, plain[:, 3:])


def test_tabddpm_reconstructs_what_its_loss_compares(batch):
    model = shaken(TabDDPM, timesteps=50)
    num, p = looked(model, batch)
    same = generator()
    t = (low_discrepancy(batch.num, same) * 50).long()
    losses = model.losses_at(batch, t, same)
    signal = torch.tensor(model.signal)[t, None]
    scaled = (num - batch.num).square() * signal / (1 - signal)
    torch.testing.assert_close(scaled, losses[:, :3])
    # At time 0 the divergence is -log of the class's weight in a step to clean data.
    assert ((p > 0) & (p < 1)).all()


def test_tabdiff_reconstructs_what_its_loss_compares(batch):
    model = shaken(TabDiff)
    num, p = looked(model, batch)
    same = generator()
    t = low_discrepancy(batch.num, same).clamp(min=MIN_TIME)
    losses = model.cell_loss(batch, generator()).main
    sigma, weight = model.schedules.sigma(t), model.schedules.mask_weight(t)
    scaled = (num - batch.num).square() * (1 + sigma.square()) / sigma.square()
    torch.testing.assert_close(scaled, losses[:, :3], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(-weight * p.log(), losses[:, 3:])


@pytest.mark.parametrize("kind", [CDTD, TabDDPM, TabDiff])
def test_derivatives_are_those_of_the_function(kind, batch):
    model = shaken(kind)
    x = torch.cat([batch.num, model.ragged.one_hot(batch.cat, batch.num)], 1)
    # Inside the simplex, where weights can move both ways.
    x[:, 3:] = 0.5 * x[:, 3:] + 0.1
    phi = denoiser_of(model).draw(N, generator())
    x.requires_grad_()
    direction = torch.randn(x.shape, generator=generator(), dtype=x.dtype)
    (slope,) = torch.autograd.grad(phi(x)[:, 1].sum(), x)
    step = 1e-6 * direction
    with torch.no_grad():
        moved = (phi(x + step)[:, 1] - phi(x - step)[:, 1]) / 2e-6
    torch.testing.assert_close((slope * direction).sum(1), moved, rtol=1e-4, atol=1e-6)
    assert (slope[:, 3:].abs().sum(0) > 0).all()


def test_your_own_backbone_provides_its_reconstruction():
    class Own(torch.nn.Linear):
        def reconstruction(self, *_):
            return self

    assert denoiser_of(Own(2, 2)).draw(3, generator())(torch.zeros(3, 2)).shape == (
        3,
        2,
    )
    with pytest.raises(UsageError, match="cannot inspect the backbone Linear"):
        denoiser_of(torch.nn.Linear(2, 2))


def test_a_fitted_model_can_be_inspected(make_frame):
    frame = make_frame()
    options = {"steps": 2, "width": 8, "depth": 1}
    model = am.AugMask(augmenter="zero", preset="fast", options=options)
    rng = np.random.default_rng(0)
    with pytest.raises(NotFittedError, match="call fit"):
        inspect_model(model, frame, rng=rng)
    model.fit(frame)
    with pytest.raises(UsageError, match="Ecdf has no conditional variances"):
        inspect_model(model, frame, "ecdf", rng=rng)
    denoiser, table, moments = inspect_model(
        model, frame, LgbmS(lam=2.0, n_jobs=1), rng=rng
    )
    _, _, plain = inspect_model(model, frame, LgbmS(n_jobs=1), rng=rng)
    np.testing.assert_allclose(moments.num[0].sigma, 2 * plain.num[0].sigma)
    # The placeholder level of `zero` is a coordinate that no missing value can take.
    assert [p.p.shape[1] for p in moments.cat] == list(table.layout.cards)
    assert not moments.cat[0].p[:, -1].any()
    width = table.layout.n_num + sum(table.layout.cards)
    assert denoiser.draw(4, generator())(torch.zeros(4, width)).shape == (4, width)
