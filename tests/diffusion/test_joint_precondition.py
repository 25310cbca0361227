"""CDTD's start from a linear model of numbers and levels together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from augmask.diffusion import build_backbone
from augmask.diffusion.cdtd import CAT, CDTD, NUM
from augmask.diffusion.joint_precondition import (
    SHARED,
    _mean_and_covariance,
    _without_chance,
    shared,
    spread_points,
)
from augmask.diffusion.sampling import InpaintTask, inpaint, inpainting_sampler
from augmask.table.table import Layout, Table

SMALL = {"width": 12, "depth": 1, "time_width": 8, "low_noise": 100.0, "cat_width": 4}
CORRELATIONS = np.array([[1.0, 0.8, 0.5], [0.8, 1.0, 0.3], [0.5, 0.3, 1.0]])


def make_table(n: int = 4000) -> Table:
    """Return numbers, a category that follows one, and one that follows both."""
    rng = np.random.default_rng(0)
    num = rng.multivariate_normal(np.zeros(3), CORRELATIONS, n)
    a = np.digitize(num[:, 0] + rng.normal(0, 0.5, n), [-0.7, 0.6])
    b = num[:, 2] + 0.8 * (a == 0) + rng.normal(0, 0.5, n) > 0.5
    layout = Layout(("x", "y", "z"), ("a", "b"), (3, 2))
    return Table(num, np.stack([a, b], 1), np.ones((n, 5), dtype=bool), layout)


def untrained(table: Table, precondition: str = "joint") -> CDTD:
    model = build_backbone("cdtd", table.layout, 0, precondition=precondition, **SMALL)
    assert isinstance(model, CDTD)
    model.init_from_data(table)
    return model


def noisy(model: CDTD, table: Table, sigma: torch.Tensor):
    """Return noisy numbers and points of a table."""
    rng = torch.Generator().manual_seed(3)
    num = torch.from_numpy(table.num).float()
    codes = torch.from_numpy(table.cat).long()
    points = model.category_points()[model.ragged.slots(codes)]
    x_num = num + sigma[:, NUM, None] * torch.randn(num.shape, generator=rng)
    noise = torch.randn(points.shape, generator=rng)
    return x_num, points + sigma[:, CAT, None, None] * noise


def test_untrained_rows_have_the_dependence_of_numbers_and_levels():
    table = make_table()
    model = untrained(table)
    rows = model.sample(4000, torch.Generator().manual_seed(0), 60, "dpmpp_2m")
    np.testing.assert_allclose(np.corrcoef(rows.num.T), CORRELATIONS, atol=0.06)
    for level in range(3):
        real, new = table.cat[:, 0] == level, rows.cat[:, 0].numpy() == level
        assert new.mean() == pytest.approx(real.mean(), abs=0.03)
        means = rows.num.numpy()[new].mean(0)
        np.testing.assert_allclose(means, table.num[real].mean(0), atol=0.15)
        shares = rows.cat.numpy()[new, 1].mean(), table.cat[real, 1].mean()
        assert shares[0] == pytest.approx(shares[1], abs=0.06)


@pytest.mark.parametrize("sigmas", [(0.05, 0.2), (0.7, 1.5), (20.0, 30.0)])
def test_untrained_it_denoises_normal_numbers_as_bayes_rule_does(sigmas):
    table = make_table(400)
    numbers = Table(
        table.num,
        table.cat[:, :0],
        table.observed[:, :3],
        Layout(("x", "y", "z"), (), ()),
    )
    model = untrained(numbers)
    sigma = torch.tensor([sigmas])
    x_num, x_cat = noisy(model, numbers, sigma)
    denoised, _ = model.denoise(x_num, x_cat, sigma, model.net.embed_time(sigma[:, 0]))
    assert model.joint is not None
    r, mean = model.joint.covariance.numpy(), model.joint.mean.numpy()
    gain = r @ np.linalg.inv(r + sigmas[NUM] ** 2 * np.eye(3))
    exact = mean + (x_num.numpy() - mean) @ gain.T
    np.testing.assert_allclose(denoised.detach().numpy(), exact, atol=1e-4)


@pytest.mark.parametrize("sigmas", [(0.1, 0.3), (0.5, 1.0), (3.0, 5.0)])
def test_other_cells_make_levels_more_likely_than_their_own_noise_tells(sigmas):
    """A log score: what the others know must help, at every sigma."""
    table = make_table()
    sigma = torch.tensor([sigmas])
    codes = torch.from_numpy(table.cat).long()
    losses = []
    for precondition in ("joint", "table"):
        model = untrained(table, precondition)
        # the same points, so that noise hides the same
        model.embedding.data = untrained(table).embedding.data
        x_num, x_cat = noisy(model, table, sigma)
        time = model.net.embed_time(sigma[:, 0])
        _, logits = model.denoise(x_num, x_cat, sigma, time)
        losses.append(float(model.ragged.cross_entropy(logits, codes).detach().mean()))
    assert losses[0] <= losses[1] + 1e-3
    if sigmas[NUM] == 0.5:
        assert losses[0] < 0.9 * losses[1]


def test_rows_that_share_a_sigma_are_denoised_as_alone():
    table = make_table(3 * SHARED - 5)
    model = untrained(table)
    times = shared(torch.linspace(0.3, 0.6, len(table)))
    sigma = model.warp.sigma(times).detach()
    x_num, x_cat = noisy(model, table, sigma)
    embedded = model.net.embed_time(times.log())
    together = model.denoise(x_num, x_cat, sigma, embedded)
    for i in (0, SHARED - 1, SHARED, len(table) - 1):
        one = slice(i, i + 1)
        alone = model.denoise(x_num[one], x_cat[one], sigma[one], embedded[one])
        for part, of_all in zip(alone, together, strict=True):
            torch.testing.assert_close(part, of_all[one], rtol=1e-4, atol=1e-4)


def test_imputing_150_normal_rows_is_nearly_as_good_as_with_the_true_law():
    """The mean of 60 draws errs by at most 8 % more than the exact conditional mean."""
    rng = np.random.default_rng(5)
    law = 0.5 + 0.5 * np.eye(5)
    x = rng.multivariate_normal(np.zeros(5), law, 150)
    seen = rng.random(x.shape) < 0.85
    names = ("v", "w", "x", "y", "z")
    table = Table(
        np.where(seen, x, 0.0), np.zeros((150, 0), int), seen, Layout(names, (), ())
    )
    model = untrained(table)
    exact = np.zeros_like(x)
    for i, known in enumerate(seen):
        slope = np.linalg.solve(law[np.ix_(known, known)], law[np.ix_(known, ~known)])
        exact[i, ~known] = x[i, known] @ slope
    draws = 60
    batch = model_batch(np.repeat(np.where(seen, x, 0.0), draws, 0))
    task = InpaintTask(
        batch,
        torch.from_numpy(np.repeat(seen, draws, 0)),
        torch.zeros(150 * draws, 0, dtype=torch.bool),
        rounds=model.inpaint_config.rounds,
        resample_sigmas=model.inpaint_config.resample_sigmas,
    )
    rows, _ = inpaint(inpainting_sampler(model), torch.Generator().manual_seed(0), task)
    mean = rows.num.numpy().reshape(150, draws, 5).mean(1)
    error = np.sqrt(((mean - x)[~seen] ** 2).mean())
    assert error < 1.08 * np.sqrt(((exact - x)[~seen] ** 2).mean())


def model_batch(num: np.ndarray):
    from augmask.diffusion.base import Batch

    none = torch.zeros(len(num), 0, dtype=torch.long)
    return Batch(torch.from_numpy(num).float(), none)


def test_cells_missing_at_random_do_not_shift_the_mean():
    """y is seen where x is low; available cells alone would give a mean of -.6."""
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 4000)
    observed = np.ones_like(x, dtype=bool)
    observed[:, 1] = x[:, 0] < 0
    mean, covariance = _mean_and_covariance(np.where(observed, x, 0.0), observed)
    np.testing.assert_allclose(mean, 0, atol=0.06)
    np.testing.assert_allclose(covariance[0, 1], 0.8, atol=0.06)


def test_chance_is_taken_out_of_a_covariance_and_strong_relations_stay():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 12))
    x[:, 1] = 0.95 * x[:, 0] + np.sqrt(1 - 0.95**2) * x[:, 1]
    raw = np.corrcoef(x.T)
    columns = [slice(0, 1), slice(1, 2), slice(2, 12)]
    shrunken = _without_chance(raw, columns, np.ones((150, 3), dtype=bool))
    assert shrunken[0, 1] == pytest.approx(raw[0, 1], abs=0.01)
    chance, left = (float((r[:2, 2:] ** 2).sum()) for r in (raw, shrunken))
    assert left < chance / 4
    assert np.linalg.eigvalsh(shrunken)[0] > 0


@pytest.mark.parametrize(("card", "least"), [(2, 3.9), (3, 2.9), (5, 2.0)])
def test_points_of_a_column_keep_apart(card, least):
    points = spread_points((card, 7), 4)[:card]
    squared = (points[:, None] - points[None]).square().sum(2)
    assert float(squared[~torch.eye(card, dtype=torch.bool)].min()) > least
