"""Inpainting against conditional distributions in closed form.

Three normal columns with known correlations: the exact denoiser is a matrix, and so is
the distribution of some columns given others. Every backbone's sampler runs with that
denoiser, so any error is due to inpainting.
"""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion.base import Batch
from augmask.diffusion.cdtd import CDTD
from augmask.diffusion.sampling import InpaintTask, inpaint, inpainting_sampler
from augmask.diffusion.tabddpm import TabDDPM, cosine_signal
from augmask.diffusion.tabdiff import TabDiff
from augmask.table.table import Layout

LAYOUT = Layout(("x", "y", "z"), (), ())
SIZES = {"width": 8, "depth": 1, "time_width": 4}
SIGMA = torch.tensor(
    [[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]], dtype=torch.float64
)
N, DRAWS = 500, 20


def denoised(x, sigma):
    """Return E[x_0 | x_0 + σ ε = x] for one sigma per column."""
    noise = torch.diag(sigma.flatten().square().expand(3))
    return x @ torch.linalg.solve(SIGMA + noise, SIGMA)


class RawTime(torch.nn.Module):
    """Replaces the embedding, so that the exact denoiser gets t itself."""

    def forward(self, times):
        return times[:, None]


def exact(backbone):
    if backbone == "cdtd":
        model = CDTD(LAYOUT, low_noise=100.0, **SIZES).double()
        model.denoise = lambda x, cat, sigma, _: (denoised(x, sigma[:, :1]), cat)
    elif backbone == "tabdiff":
        model = TabDiff(LAYOUT, learnable=False, **SIZES).double()
        empty = torch.zeros(N * DRAWS, 0, dtype=torch.float64)
        model.denoise = lambda x, _c, _m, sigma, _t: (denoised(x, sigma), empty)
    else:
        model = TabDDPM(LAYOUT, **SIZES).double()
        model.time, signals = RawTime(), cosine_signal(1000)

        def predict(x, onehot, time, _step):
            signal = float(signals[int(time)])
            sigma = torch.tensor(((1 - signal) / signal) ** 0.5, dtype=torch.float64)
            x_0 = denoised(x / signal**0.5, sigma)
            return (x - signal**0.5 * x_0) / (1 - signal) ** 0.5, onehot

        model.predict = predict
    return model


def conditional(rows, known):
    """Return means [N, 3] and variances [N, 3] of unknown cells given the known."""
    mean, variance = torch.zeros_like(rows), torch.zeros_like(rows)
    for row in range(len(rows)):
        k, u = known[row], ~known[row]
        gain = SIGMA[u][:, k] @ torch.linalg.inv(SIGMA[k][:, k])
        mean[row, u] = gain @ rows[row, k]
        variance[row, u] = (SIGMA[u][:, u] - gain @ SIGMA[k][:, u]).diag()
    return mean, variance


@pytest.mark.parametrize("backbone", ["cdtd", "tabdiff", "tabddpm"])
def test_unknown_cells_have_their_conditional_distribution(backbone):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    rows = noise @ torch.linalg.cholesky(SIGMA).T
    # rows of every pattern together, from none known to all but one
    known = torch.rand(N, 3, generator=generator) < 0.6
    known[known.all(1), 0] = False
    mean, variance = conditional(rows, known)

    cells = known.repeat(DRAWS, 1)
    batch = Batch(rows.repeat(DRAWS, 1), torch.zeros(N * DRAWS, 0, dtype=torch.long))
    model = exact(backbone)
    given = InpaintTask(
        batch,
        cells,
        torch.zeros(N * DRAWS, 0, dtype=torch.bool),
        model.inpaint_config.rounds,
        model.inpaint_config.resample_sigmas,
    )
    rows_drawn, _ = inpaint(inpainting_sampler(model), generator, given)
    draws = rows_drawn.num.view(DRAWS, N, 3)

    assert torch.equal(draws[:, known], rows[known].expand(DRAWS, -1))
    unknown = ~known
    expected = variance[unknown].mean().item()
    assert draws.var(0)[unknown].mean().item() == pytest.approx(expected, rel=0.12)
    # beyond sampling noise, the mean of the draws is off by at most a quarter of the
    # conditional standard deviation
    miss = (draws.mean(0) - mean)[unknown].square().mean().item() - expected / DRAWS
    assert miss < 0.25**2 * expected


PRIOR = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def exact_category(backbone, n):
    """Return the exact model of one category.

    TabDDPM predicts a cell from the other cells only: its step adds the evidence of the
    cell itself.
    """
    layout = Layout((), ("c",), (3,))
    log_prior = PRIOR.log()
    if backbone == "cdtd":
        model = CDTD(layout, low_noise=100.0, **SIZES).double()
        points = model.category_points().detach()

        def denoise(x, x_cat, sigma, _time):
            distance = (x_cat[:, None] - points).square().sum(2)
            return x, log_prior - distance / (2 * sigma[:, 1:].square())

        model.denoise = denoise
    elif backbone == "tabdiff":
        model = TabDiff(layout, learnable=False, **SIZES).double()
        model.denoise = lambda x, _c, _m, _s, _t: (x, log_prior.expand(n, 3))
    else:
        model = TabDDPM(layout, **SIZES).double()
        model.predict = lambda x, *_: (x, log_prior.expand(n, 3))
    return model


@pytest.mark.parametrize("backbone", ["cdtd", "tabdiff", "tabddpm"])
def test_class_probs_are_on_average_the_share_of_samples(backbone):
    """E p(c | noisy c) is p(c), at every sigma."""
    n = 4000
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        torch.zeros(n, 0, dtype=torch.float64), torch.zeros(n, 1, dtype=torch.long)
    )
    unknown = torch.zeros(n, 1, dtype=torch.bool)
    model = exact_category(backbone, n)
    *_, rounds, resample_sigmas = model.inpaint_config
    known = InpaintTask(
        batch, unknown[:, :0], unknown, rounds, resample_sigmas, class_probs=True
    )
    rows, class_probs = inpaint(inpainting_sampler(model), generator, known)
    share = (class_probs / class_probs.sum(1, keepdim=True)).mean(0)
    sampled = torch.bincount(rows.cat[:, 0], minlength=3) / n
    # four standard errors of a share of n draws
    tolerance = 4 * (PRIOR * (1 - PRIOR) / n).sqrt().max().item()
    torch.testing.assert_close(share, PRIOR, atol=tolerance, rtol=0)
    torch.testing.assert_close(sampled.double(), PRIOR, atol=tolerance, rtol=0)
