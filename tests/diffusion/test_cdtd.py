"""CDTD against a slow reference that follows the paper cell by cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from augmask.diffusion import build_backbone
from augmask.diffusion.base import Batch
from augmask.diffusion.cdtd import CDTD, TimeWarp
from augmask.diffusion.random_draws import log_time
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SIZES = {"width": 12, "depth": 2, "time_width": 8}


def batch_of(table: Table, dtype: torch.dtype = torch.float32) -> Batch:
    return Batch(
        torch.from_numpy(table.num).to(dtype), torch.from_numpy(table.cat).long()
    )


def perturbed(table: Table, seed: int = 0, **keywords: float | None) -> CDTD:
    """Return a float64 model whose weights have all moved from their start."""
    model = build_backbone("cdtd", table.layout, seed, **SIZES, **keywords)
    assert isinstance(model, CDTD)
    model.double()
    model.init_from_data(table)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for p in model.parameters():
            step = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.add_(0.1 * step)
    return model


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def slow_cell_losses(model: CDTD, table: Table, seed: int):
    """Compute main, warp and weight losses with loops, as the formulas stand."""
    g = torch.Generator().manual_seed(seed)
    n, layout = len(table), table.layout
    start = torch.rand((), generator=g, dtype=torch.float64)
    u = (start + torch.arange(n, dtype=torch.float64) / n) % 1.0
    eps_num = torch.randn(n, layout.n_num, generator=g, dtype=torch.float64)
    eps_cat = torch.randn(n, layout.n_cat, 16, generator=g, dtype=torch.float64)
    offsets = np.concatenate([[0], np.cumsum(layout.cards)])
    groups = [0] * layout.n_num + [1] * layout.n_cat
    sigma_max = [80.0, 100.0]
    share = float(model.warp.anchor)
    # buffers are created in float32: right to 1e-7, and then the same for both
    frequencies = model.net.time.frequencies
    published = torch.tensor([10000 ** (-k / 4) for k in range(4)], dtype=torch.float64)
    torch.testing.assert_close(frequencies, published, rtol=1e-6, atol=0)
    out = {
        name: torch.zeros(n, layout.n_features, dtype=torch.float64)
        for name in ("main", "warp", "weight")
    }
    for b in range(n):
        sigma, cdf, pdf, scale = [], [], [], []
        for k in range(2):
            nu = 1 + _softplus(model.warp.raw_steepness[k].item())
            a = model.warp.location[k].item()
            clamped = min(max(u[b].item(), 1e-7), 1 - 1e-7)

            def warp(odds, nu=nu, a=a):
                """Return F, G and the density of G, from odds by their definitions."""
                parts = [_sigmoid(nu * (odds - a)), _sigmoid(1.01 * odds + math.log(3))]
                slopes = [
                    c * f * (1 - f) for c, f in zip((nu, 1.01), parts, strict=True)
                ]
                mixed = [
                    (1 - share) * one + share * two for one, two in (parts, slopes)
                ]
                return parts[0], mixed[0], mixed[1] / (_sigmoid(odds) * _sigmoid(-odds))

            odds = brentq(lambda o, at=clamped: warp(o)[1] - at, -40, 40, xtol=1e-13)
            x = _sigmoid(odds)
            x_edge = min(max(x, 1e-7), 1 - 1e-7)
            f, _, density = warp(math.log(x_edge / (1 - x_edge)))
            sigma.append(x * sigma_max[k])
            cdf.append(f)
            pdf.append(density)
            scale.append(_softplus(model.warp.raw_scale[k].item()))
        noisy, inputs = [], []
        for j in range(layout.n_num):
            noisy.append(table.num[b, j] + sigma[0] * eps_num[b, j].item())
            inputs.append(noisy[-1] / math.sqrt(1 + sigma[0] ** 2))
        for j in range(layout.n_cat):
            raw = model.embedding[offsets[j] + table.cat[b, j]] + model.shift[j]
            point = 4 * raw / raw.norm()
            inputs += list(
                (point + sigma[1] * eps_cat[b, j]) / math.sqrt(1 + sigma[1] ** 2)
            )
        tau = 250 * math.log(u[b].item() + 1e-8)
        angles = tau * frequencies
        time = model.net.time.layers(torch.cat([angles.cos(), angles.sin()]))
        hidden = model.net.project(torch.stack([torch.as_tensor(v) for v in inputs]))
        output = model.net.head(model.net.hidden(hidden + time))
        rho = math.exp(model.log_weight(0.25 * torch.log(u[b : b + 1] + 1e-8)).item())
        for j, k in enumerate(groups):
            if k == 0:
                s = sigma[0]
                denoised = (
                    noisy[j] / (1 + s**2) + s / math.sqrt(1 + s**2) * output[j].item()
                )
                plain = (denoised - table.num[b, j]) ** 2
                weighted = plain * (1 + s**2) / (s**2 + 1e-7)
            else:
                c = j - layout.n_num
                logits = output[
                    layout.n_num + offsets[c] : layout.n_num + offsets[c + 1]
                ]
                codes = table.cat[table.cat_observed[:, c], c]
                p = np.bincount(codes, minlength=layout.cards[c]) + 0.01
                p = p / p.sum()
                z = max(-(p * np.log(p)).sum(), 0.01)
                plain = -logits.log_softmax(0)[table.cat[b, c]].item() / z
                weighted = plain
            out["main"][b, j] = weighted / rho
            out["warp"][b, j] = (scale[k] * cdf[k] - plain) ** 2 / (pdf[k] + 1e-7)
            out["weight"][b, j] = (rho - weighted) ** 2
    return out


@pytest.mark.parametrize("anchor", [0.0, None])
def test_cell_losses_equal_the_slow_reference(make_table, anchor):
    table = make_table(n=9, n_num=2, cards=(2, 4), missing=0.3)
    model = perturbed(table, anchor=anchor)
    assert (model.warp.anchor == 0) == (anchor == 0)
    with torch.no_grad():
        fast = model.cell_loss(
            batch_of(table, torch.float64), torch.Generator().manual_seed(3)
        )
        slow = slow_cell_losses(model, table, 3)
    torch.testing.assert_close(fast.main, slow["main"], rtol=1e-6, atol=0)
    torch.testing.assert_close(
        fast.aux["weight"], slow["weight"], rtol=1e-6, atol=1e-12
    )
    torch.testing.assert_close(fast.aux["warp"], slow["warp"], rtol=1e-6, atol=1e-12)


def test_parameter_count_of_the_papers_size():
    cards = (2, 9, 16, 7, 15, 6, 5, 2, 42)
    layout = Layout(tuple("abcdef"), tuple("ghijklmno"), cards)
    model = CDTD(layout)
    assert sum(p.numel() for p in model.parameters()) == 3_002_969


def test_untrained_losses_are_one_at_full_noise(make_table):
    # calibration: cross-entropy over entropy, and unit variance, on observed cells
    table = make_table(n=4000, n_num=1, cards=(2, 5), missing=0.4)
    num = table.num.copy()
    observed = table.num_observed[:, 0]
    values = num[observed, 0]
    num[observed, 0] = (values - values.mean()) / values.std()
    table = table.filled(num, table.cat)
    model = CDTD(table.layout, **SIZES)
    model.init_from_data(table)
    u = torch.ones(len(table))
    with torch.no_grad():
        sigma, noise = model.warp.sigma(u), torch.Generator().manual_seed(0)
        plain, _ = model.losses_at(batch_of(table), log_time(u), sigma, noise)
    observed = torch.from_numpy(table.observed)
    means = (plain * observed).sum(0) / observed.sum(0)
    torch.testing.assert_close(means, torch.ones(3), rtol=0, atol=0.02)


def test_class_frequencies_come_from_observed_cells_only(make_table):
    table = make_table(n=50, n_num=0, cards=(3,), missing=0.5)
    other = table.cat.copy()
    other[~table.cat_observed] = 2
    models = [CDTD(table.layout, **SIZES) for _ in range(2)]
    models[0].init_from_data(table)
    models[1].init_from_data(table.filled(table.num, other))
    assert torch.equal(models[0].net.head.bias, models[1].net.head.bias)
    assert torch.equal(models[0].entropy, models[1].entropy)


def test_warp_inverse_and_density():
    warp = TimeWarp((80.0, 100.0)).double()
    with torch.no_grad():
        warp.location.copy_(torch.tensor([-2.0, 0.5]))
        warp.raw_steepness.copy_(torch.tensor([1.0, -1.0]))
    u = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    sigma = warp.sigma(u)
    for group in (0, 1):
        torch.testing.assert_close(warp.time(sigma[:, group], group), u)
    # at the right scale, a loss curve equal to the warp is fitted without error
    group = torch.tensor([0, 1])
    scale = torch.nn.functional.softplus(warp.raw_scale)
    assert warp.fit_loss(sigma, scale * u[:, None], group).abs().max() < 1e-12


def test_the_anchor_is_the_share_of_pairs_not_observed_together(make_table):
    table = make_table(n=400, n_num=2, cards=(3,), missing=0.6)
    model = CDTD(table.layout, **SIZES, anchor=None)
    model.init_from_data(table)
    rate = table.observed.mean()
    assert model.warp.anchor.item() == pytest.approx(1 - rate**2)
    published = CDTD(table.layout, **SIZES)
    published.init_from_data(table)
    assert published.warp.anchor.item() == 0
    with pytest.raises(UsageError, match="anchor must lie between 0 and 1"):
        CDTD(table.layout, **SIZES, anchor=1.5)


def test_an_anchored_warp_spends_that_share_of_its_time_at_the_start():
    start, warp = TimeWarp((80.0,)).double(), TimeWarp((80.0,), anchored=True).double()
    with torch.no_grad():
        warp.location.fill_(-4.0)
        warp.raw_steepness.fill_(0.5)
        free = TimeWarp((80.0,)).double()
        free.load_state_dict(warp.state_dict(), strict=False)
        warp.anchor.fill_(0.6)
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    sigma = warp.sigma(u)[:, 0]
    mixed = 0.4 * free.time(sigma, 0) + 0.6 * start.time(sigma, 0)
    torch.testing.assert_close(mixed, u, rtol=0, atol=1e-8)
    torch.testing.assert_close(warp.time(sigma, 0), u, rtol=0, atol=1e-8)
    # the density is the slope of the warp
    odds = torch.logit(sigma / 80)[:, None]
    slope = torch.gradient(u, spacing=(sigma / 80,))[0]
    density = warp.density(odds)[:, 0]
    torch.testing.assert_close(density[50:-50], slope[50:-50], rtol=1e-3, atol=0)


def test_the_sampler_follows_the_free_warp_whatever_the_anchor(make_table):
    table = make_table(n=60, n_num=2, cards=(3,), missing=0.6)
    sigmas = {}
    for anchor in (0.0, 0.6, 0.97):
        model = CDTD(table.layout, **SIZES, anchor=anchor)
        with torch.no_grad():
            model.warp.location.copy_(torch.tensor([-5.0, -4.0]))
            model.warp.raw_steepness.fill_(0.3)
        sigmas[anchor] = model.sampler(200, "euler").sigma
    free = sigmas.pop(0.0)
    for sigma in sigmas.values():
        assert sigma[0].tolist() == [80.0, 100.0]
        assert sigma[-1].tolist() == [0.0, 0.0]
        assert (sigma.diff(dim=0) < 0).all()
        # a row has one time for both groups, so the steps are shared
        assert 0.9 < (sigma < 1).sum() / (free < 1).sum() < 1.1
    # sigmas even in the anchored time would leave few steps below 1
    thinned = model.warp.sigma(torch.linspace(1, 0, 201))
    assert (thinned < 1).sum() < 0.1 * (free < 1).sum()


def test_an_anchor_of_zero_is_the_published_warp():
    free, warp = TimeWarp((80.0, 100.0)), TimeWarp((80.0, 100.0), anchored=True)
    with torch.no_grad():
        warp.location.copy_(torch.tensor([-4.0, 0.5]))
    free.load_state_dict(warp.state_dict(), strict=False)
    u = torch.linspace(0, 1, 101)
    torch.testing.assert_close(warp.sigma(u), free.sigma(u), rtol=1e-5, atol=0)


@pytest.mark.parametrize("solver", ["euler", "dpmpp_2m"])
@pytest.mark.parametrize(
    ("n_num", "cards"),
    [(2, (3, 2)), (2, ()), (0, (3, 2)), (1, ()), (0, (4,)), (0, (1,))],
)
def test_samples_are_valid_for_any_mix_of_columns(make_table, n_num, cards, solver):
    table = make_table(n=20, n_num=n_num, cards=cards)
    model = CDTD(table.layout, **SIZES)
    model.init_from_data(table)
    samples = [
        model.sample(33, torch.Generator().manual_seed(5), steps=4, solver=solver)
        for _ in range(2)
    ]
    num, cat = samples[0]
    assert num.shape == (33, n_num)
    assert cat.shape == (33, len(cards))
    assert num.isfinite().all()
    assert ((cat >= 0) & (cat < torch.tensor(cards, dtype=torch.long))).all()
    assert torch.equal(num, samples[1].num)
    assert torch.equal(cat, samples[1].cat)


def test_a_reserved_level_is_never_emitted(make_table):
    table = make_table(n=30, n_num=0, cards=(2,))
    layout = Layout((), table.layout.cat_names, (3,), reserved=True)
    placeholders = np.full_like(table.cat, 2)
    model = CDTD(layout, **SIZES)
    # even if every observed cell is the placeholder
    model.init_from_data(
        Table(table.num, placeholders, np.ones_like(table.observed), layout)
    )
    cat = model.sample(200, torch.Generator().manual_seed(0), steps=3).cat
    assert cat.max() < 2


def test_the_sampler_follows_an_exact_denoiser_to_the_data(monkeypatch):
    """For x ~ N(mu, s^2) the exact denoiser and the flow have a closed form."""
    model = CDTD(Layout(("x",), (), ()), **SIZES).double()
    mu, s = 1.5, 0.4

    def exact(x_num, x_cat, sigma, time):
        variance = sigma[:, :1] ** 2
        return (s**2 * x_num + variance * mu) / (s**2 + variance), x_cat

    monkeypatch.setattr(model, "denoise", exact)
    noise = torch.randn(
        500, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    # the flow is linear: x(0) = mu + (x(T) - mu) s / sqrt(s^2 + sigma_max^2)
    expected = mu + (80 * noise - mu) * s / math.sqrt(s**2 + 80**2)

    def error(steps: int, solver: str) -> float:
        generator = torch.Generator().manual_seed(0)
        rows = model.sample(500, generator, steps=steps, solver=solver).num
        return (rows - expected).abs().max().item()

    # first order: half the step, half the error
    assert error(400, "euler") / error(800, "euler") == pytest.approx(2, abs=0.1)
    assert error(400, "dpmpp_2m") < 0.1 * error(400, "euler")


def test_mean_points_are_the_same_without_a_matrix_of_all_levels(monkeypatch):
    """For thousands of categories that matrix would take gigabytes."""
    model = CDTD(Layout(("x",), ("y", "z"), (3, 5)), width=8, depth=1)
    p = model.ragged.softmax(torch.randn(6, 8, generator=torch.Generator()))
    whole = model.sampler(4, "euler")
    monkeypatch.setattr("augmask.diffusion.cdtd.MOST_BLOCK", 10)
    parts = model.sampler(4, "euler")
    assert parts.block is None
    torch.testing.assert_close(parts.expected_points(p), whole.expected_points(p))
