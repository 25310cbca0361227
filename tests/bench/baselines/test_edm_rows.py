"""A network that denoises a normal law exactly must give that law back."""

from __future__ import annotations

import math

import pytest
import torch

from augmask_bench.baselines.edm_rows import (
    SIGMA_DATA,
    RowDenoiser,
    RowSampler,
    diffputer_net,
    sigma_schedule,
    tabsyn_net,
)

CPU = torch.device("cpu")
MEAN = torch.tensor([0.3, -0.2])
COV = torch.tensor([[0.25, 0.2], [0.2, 0.25]])


class Exact(RowDenoiser):
    """E[x0 | x] of a normal law."""

    def __init__(self):
        super().__init__(2, 8, tabsyn_net(2, 8, 8, 1).hidden)

    def forward(self, x, sigma):
        gain = COV @ torch.linalg.inv(COV + sigma**2 * torch.eye(2))
        return MEAN + (x - MEAN) @ gain.T


def noise(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_sampler_returns_the_law_that_the_denoiser_knows():
    rows = RowSampler(Exact(), 20_000, 50, noise()).draw()
    assert torch.allclose(rows.mean(0), MEAN, atol=0.015)
    assert torch.allclose(torch.cov(rows.T), COV, atol=0.015)


def test_known_entries_are_kept_and_the_others_suit_them():
    known = torch.full((10_000, 2), 0.8)
    is_known = torch.tensor([[True, False]]).expand(10_000, 2)
    sampler = RowSampler(Exact(), 10_000, 30, noise()).keep_known(known, is_known)
    rows = sampler.draw(repeats=20)
    assert (rows[:, 0] == 0.8).all()
    # mean -0.2 + 0.8 (0.8 - 0.3) and variance 0.25 - 0.2² / 0.25 given the first entry
    assert rows[:, 1].mean() == pytest.approx(0.2, abs=0.03)
    assert rows[:, 1].std() == pytest.approx(0.3, abs=0.03)


def test_what_lies_in_unknown_entries_is_not_read():
    is_known = torch.tensor([[True, False]]).expand(5, 2)
    drawn = []
    for beneath in (0.0, 1e6):
        known = torch.where(is_known, 0.1, beneath)
        sampler = RowSampler(Exact(), 5, 5, noise()).keep_known(known, is_known)
        drawn.append(sampler.draw(repeats=3).clone())
    assert torch.equal(*drawn)


def test_more_repeats_bring_the_unknown_nearer_to_the_known():
    known = torch.full((4_000, 2), 0.8)
    is_known = torch.tensor([[True, False]]).expand(4_000, 2)
    sampler = RowSampler(Exact(), 4_000, 10, noise()).keep_known(known, is_known)
    miss = [abs(sampler.draw(r)[:, 1].mean().item() - 0.2) for r in (1, 20)]
    assert miss[1] < miss[0]


@pytest.mark.parametrize("net", [diffputer_net(3, 16), tabsyn_net(3, 8, 16, 2)])
def test_the_loss_is_the_weighted_error_of_the_denoiser(net):
    """(σ² + σ_d²) / (σ σ_d)² (D - x0)², with ln σ ~ N(-1.2, 1.2²)."""
    clean = torch.randn(7, 3, generator=noise(1))
    found = net.loss(clean, noise(2))
    same = noise(2)
    sigma = (-1.2 + 1.2 * torch.randn(7, generator=same)).exp()
    eps = torch.randn(7, 3, generator=same)
    denoised = net(clean + sigma[:, None] * eps, sigma)
    weight = (sigma**2 + SIGMA_DATA**2) / (sigma * SIGMA_DATA) ** 2
    expected = weight[:, None] * (denoised - clean) ** 2
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-5)


def test_one_level_for_all_rows_is_that_level_for_each():
    net, x = diffputer_net(3, 16), torch.randn(6, 3, generator=noise())
    assert torch.allclose(
        net(x, torch.tensor([0.7])), net(x, torch.full((6,), 0.7)), atol=1e-6
    )


def test_hidden_layers_in_bf16_say_nearly_the_same():
    from augmask.diffusion.nets import bf16_matmul

    net, x = diffputer_net(3, 64), torch.randn(50, 3, generator=noise())
    sigma = torch.tensor([0.5])
    exact = net(x, sigma)
    with bf16_matmul(net, True):
        rounded = net(x, sigma)
    assert not torch.equal(exact, rounded)
    assert (exact - rounded).abs().max() < 0.02


def test_the_ladder_falls_from_80_to_0002_and_0():
    sigmas = sigma_schedule(50, CPU)
    assert len(sigmas) == 51
    assert sigmas[0].item() == pytest.approx(80.0)
    assert sigmas[49].item() == pytest.approx(0.002, rel=1e-5)
    assert sigmas[50] == 0
    assert (sigmas.diff() < 0).all()
    middle = (80 ** (1 / 7) + 20 / 49 * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7
    assert math.isclose(sigmas[20].item(), middle, rel_tol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_moves_are_the_moves(monkeypatch):
    net = diffputer_net(3, 64).cuda()
    known = torch.ones(40, 3).cuda()
    is_known = torch.tensor([[True, False, False]]).cuda().expand(40, 3)

    def drawn():
        own = torch.Generator("cuda").manual_seed(0)
        sampler = RowSampler(net, 40, 12, own).keep_known(known, is_known)
        return [sampler.draw(repeats=3).clone() for _ in range(2)]

    recorded = drawn()
    monkeypatch.setattr(
        "augmask_bench.baselines.edm_rows.cuda_graphed", lambda move, *_: move
    )
    for found, expected in zip(recorded, drawn(), strict=True):
        assert torch.allclose(found, expected, atol=1e-3)
