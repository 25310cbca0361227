"""What known cells say about the others, where the answer can be written down.

Three normal columns with known correlations: the exact denoiser is a matrix, and so is
the law of some columns given others. The way back of every backbone is given that
denoiser, so whatever is off is the guide's doing.
"""

from __future__ import annotations

import pytest
import torch

from augmask.diffusion.base import Batch
from augmask.diffusion.cdtd import CDTD
from augmask.diffusion.sampling import Known, inpaint, inpainting_sampler
from augmask.diffusion.tabddpm import TabDDPM, cosine_signal
from augmask.diffusion.tabdiff import TabDiff
from augmask.table.table import Layout

LAYOUT = Layout(("x", "y", "z"), (), ())
SIZES = {"width": 8, "depth": 1, "time_width": 4}
SIGMA = torch.tensor(
    [[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]], dtype=torch.float64
)
N, DRAWS = 500, 20


def denoised(x, level):
    """Return E[x_0 | x_0 + σ ε = x] for one level per column."""
    noise = torch.diag(level.flatten().square().expand(3))
    return x @ torch.linalg.solve(SIGMA + noise, SIGMA)


class RawTime(torch.nn.Module):
    """In place of the embedding, so that the exact denoiser can see t."""

    def forward(self, times):
        return times[:, None]


def exact(backbone):
    if backbone == "cdtd":
        model = CDTD(LAYOUT, low_noise=100.0, **SIZES).double()
        model._denoise = lambda x, cat, sigma, _: (denoised(x, sigma[:, :1]), cat)
    elif backbone == "tabdiff":
        model = TabDiff(LAYOUT, learnable=False, **SIZES).double()
        empty = torch.zeros(N * DRAWS, 0, dtype=torch.float64)
        model._denoise = lambda x, _c, _m, sigma, _t: (denoised(x, sigma), empty)
    else:
        model = TabDDPM(LAYOUT, **SIZES).double()
        model.time, signals = RawTime(), cosine_signal(1000)

        def predict(x, onehot, time, _step):
            signal = float(signals[int(time)])
            level = torch.tensor(((1 - signal) / signal) ** 0.5, dtype=torch.float64)
            x_0 = denoised(x / signal**0.5, level)
            return (x - signal**0.5 * x_0) / (1 - signal) ** 0.5, onehot

        model._predict = predict
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
def test_unknown_cells_have_the_law_that_the_known_ones_leave(backbone):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(N, 3, generator=generator, dtype=torch.float64)
    rows = noise @ torch.linalg.cholesky(SIGMA).T
    # every pattern, from nothing known to all but one, side by side
    known = torch.rand(N, 3, generator=generator) < 0.6
    known[known.all(1), 0] = False
    mean, variance = conditional(rows, known)

    cells = known.repeat(DRAWS, 1)
    batch = Batch(rows.repeat(DRAWS, 1), torch.zeros(N * DRAWS, 0, dtype=torch.long))
    model = exact(backbone)
    held = Known(
        batch,
        cells,
        torch.zeros(N * DRAWS, 0, dtype=torch.bool),
        model.inpaint_config.rounds,
        model.inpaint_config.repeated,
    )
    rows_drawn, _ = inpaint(inpainting_sampler(model), generator, held)
    draws = rows_drawn.num.view(DRAWS, N, 3)

    assert torch.equal(draws[:, known], rows[known].expand(DRAWS, -1))
    hole = ~known
    expected = variance[hole].mean().item()
    assert draws.var(0)[hole].mean().item() == pytest.approx(expected, rel=0.12)
    # the mean of the draws misses the right one by no more than a quarter of the
    # conditional standard deviation beyond the noise of so many draws
    miss = (draws.mean(0) - mean)[hole].square().mean().item() - expected / DRAWS
    assert miss < 0.25**2 * expected


PRIOR = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)


def exact_category(backbone, n):
    """Return a model of one category whose network knows all there is to know.

    What TabDDPM learns to say of a cell leaves the cell itself out: only then is the
    step that it takes with it the right one.
    """
    layout = Layout((), ("c",), (3,))
    log_prior = PRIOR.log()
    if backbone == "cdtd":
        model = CDTD(layout, low_noise=100.0, **SIZES).double()
        points = model._points().detach()

        def denoise(x, x_cat, sigma, _time):
            far = (x_cat[:, None] - points).square().sum(2)
            return x, log_prior - far / (2 * sigma[:, 1:].square())

        model._denoise = denoise
    elif backbone == "tabdiff":
        model = TabDiff(layout, learnable=False, **SIZES).double()
        model._denoise = lambda x, _c, _m, _s, _t: (x, log_prior.expand(n, 3))
    else:
        model = TabDDPM(layout, **SIZES).double()
        model._predict = lambda x, *_: (x, log_prior.expand(n, 3))
    return model


@pytest.mark.parametrize("backbone", ["cdtd", "tabdiff", "tabddpm"])
def test_beliefs_are_on_average_what_is_drawn(backbone):
    """E p(c | noisy c) is p(c), at every level of noise."""
    n = 4000
    generator = torch.Generator().manual_seed(0)
    batch = Batch(
        torch.zeros(n, 0, dtype=torch.float64), torch.zeros(n, 1, dtype=torch.long)
    )
    nothing = torch.zeros(n, 1, dtype=torch.bool)
    model = exact_category(backbone, n)
    *_, rounds, repeated = model.inpaint_config
    known = Known(batch, nothing[:, :0], nothing, rounds, repeated, believe=True)
    rows, class_probs = inpaint(inpainting_sampler(model), generator, known)
    share = (class_probs / class_probs.sum(1, keepdim=True)).mean(0)
    drawn = torch.bincount(rows.cat[:, 0], minlength=3) / n
    # four standard errors of a share of n draws
    near = 4 * (PRIOR * (1 - PRIOR) / n).sqrt().max().item()
    torch.testing.assert_close(share, PRIOR, atol=near, rtol=0)
    torch.testing.assert_close(drawn.double(), PRIOR, atol=near, rtol=0)
