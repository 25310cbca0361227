"""The preconditioned denoiser before training, against Bayes' rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from augmask.diffusion import build_backbone
from augmask.diffusion import edm_preconditioning as edm
from augmask.diffusion.base import Batch
from augmask.diffusion.cdtd import CAT, CDTD, NUM
from augmask.diffusion.ragged import Ragged
from augmask.diffusion.table_precondition import Preconditioner
from augmask.errors import UsageError
from augmask.table.table import Layout, Table

SMALL = {"width": 12, "depth": 1, "time_width": 8, "low_noise": 100.0}
FREQUENCIES = (np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.9]))
CORRELATIONS = np.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 1.0]])


def make_table(n: int = 4000, n_num: int = 3, n_cat: int = 2) -> Table:
    """Return complete rows: correlated numbers and independent categories."""
    rng = np.random.default_rng(0)
    num = rng.multivariate_normal(np.zeros(3), CORRELATIONS, n)[:, :n_num]
    cat = np.stack([rng.choice(len(p), n, p=p) for p in FREQUENCIES], 1)[:, :n_cat]
    layout = Layout(
        ("x", "y", "z")[:n_num], ("a", "b")[:n_cat], (3, 2)[:n_cat], reserved=False
    )
    return Table(num, cat, np.ones((n, n_num + n_cat), dtype=bool), layout)


def untrained(table: Table, cat_width: int = 4, seed: int = 0) -> CDTD:
    model = build_backbone(
        "cdtd",
        table.layout,
        seed,
        precondition="table",
        cat_width=cat_width,
        **SMALL,
    )
    assert isinstance(model, CDTD)
    model.double()
    model.init_from_data(table)
    return model


def noisy(model: CDTD, table: Table, sigmas: tuple[float, float]):
    """Return noisy numbers and points of a table, and their sigma."""
    rng = torch.Generator().manual_seed(3)
    sigma = torch.tensor([sigmas], dtype=torch.float64)
    num = torch.from_numpy(table.num)
    points = model.category_points()[
        model.ragged.slots(torch.from_numpy(table.cat))
    ].detach()
    x_num, x_cat = (
        x + s * torch.randn(x.shape, generator=rng, dtype=torch.float64)
        for x, s in ((num, sigmas[NUM]), (points, sigmas[CAT]))
    )
    return x_num, x_cat, sigma


@pytest.mark.parametrize("sigmas", [(0.05, 0.2), (0.7, 1.5), (20.0, 30.0)])
def test_untrained_it_is_bayes_rule_for_normal_numbers_and_independent_categories(
    sigmas,
):
    table = make_table(n=400)
    model = untrained(table)
    x_num, x_cat, sigma = noisy(model, table, sigmas)
    time = model.net.embed_time(torch.zeros(1, dtype=torch.float64))
    denoised, logits = model.denoise(x_num, x_cat, sigma, time)

    preconditioner = model.preconditioner
    assert preconditioner is not None
    r = (preconditioner.axes * preconditioner.variance @ preconditioner.axes.T).numpy()
    normal = np.linalg.solve(r + sigmas[NUM] ** 2 * np.eye(3), r).T
    np.testing.assert_allclose(
        denoised.detach().numpy(), x_num.numpy() @ normal.T, atol=1e-6
    )

    points, p = model.category_points().detach().numpy(), model.ragged.softmax(logits)
    for column, (first, last) in enumerate(((0, 3), (3, 5))):
        counts = np.bincount(table.cat[:, column]) + 0.01
        weights = [
            share * multivariate_normal.pdf(x_cat[:, column], v, sigmas[CAT] ** 2)
            for share, v in zip(counts / counts.sum(), points[first:last], strict=True)
        ]
        bayes = np.stack(weights, 1)
        bayes /= bayes.sum(1, keepdims=True)
        probs = p[:, first:last].detach().numpy()
        np.testing.assert_allclose(probs, bayes, atol=1e-5)


def test_untrained_samples_follow_a_gaussian_copula():
    table = make_table()
    model = untrained(table).float()
    rows = model.sample(4000, torch.Generator().manual_seed(0), 60, "dpmpp_2m")
    np.testing.assert_allclose(np.corrcoef(rows.num.T), CORRELATIONS, atol=0.06)
    for codes, p in zip(rows.cat.T, FREQUENCIES, strict=True):
        np.testing.assert_allclose(np.bincount(codes) / 4000, p, atol=0.03)


def test_without_correlations_numbers_are_preconditioned_as_in_edm():
    x, f = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    sigma = torch.logspace(-2, 2, 7)[:, None]
    plain = Preconditioner(3, Ragged((2,)))
    torch.testing.assert_close(
        plain.denoised(x, f, sigma), edm.denoised(x, f, sigma), rtol=1e-5, atol=1e-6
    )
    inputs = plain.inputs(x, torch.zeros(7, 2), torch.zeros(2, 4), sigma)
    for part in (inputs[:, :3], inputs[:, 3:6]):
        torch.testing.assert_close(part, edm.scaled_input(x, sigma))


@pytest.mark.parametrize("sigma", [0.02, 0.5, 5.0, 80.0])
def test_the_network_predicts_each_number_in_units_of_its_uncertainty(sigma):
    """Its target has unit variance in every column, at every sigma."""
    table = make_table(n=20_000)
    preconditioner = untrained(table).preconditioner
    assert preconditioner is not None
    num, s = torch.from_numpy(table.num), torch.tensor([[sigma]]).double()
    rng = torch.Generator().manual_seed(1)
    x = num + sigma * torch.randn(num.shape, generator=rng, dtype=torch.float64)
    skip = preconditioner.denoised(x, torch.zeros_like(x), s)
    unit = preconditioner.denoised(x, torch.ones_like(x), s) - skip
    target = ((num - skip) / unit).square().mean(0)
    torch.testing.assert_close(target, torch.ones_like(target), rtol=0.05, atol=0)


def _shares(cat_width: int, copies: int) -> np.ndarray:
    """Return what each column adds to the variance of the first layer, times columns.

    The first number, the first category with three levels and the one with two; the
    table has `copies` of each of the five columns.
    """
    n = 2000
    once = make_table(n)
    names = [f"{name}{i}" for i in range(copies) for name in "xyz"]
    levels = [f"{name}{i}" for i in range(copies) for name in "ab"]
    rng = np.random.default_rng(1)
    columns = [
        np.concatenate(
            [
                rng.permutation(column)[:, None]
                for _ in range(copies)
                for column in of.T
            ],
            1,
        )
        for of in (once.num, once.cat)
    ]
    layout = Layout(tuple(names), tuple(levels), copies * (3, 2))
    table = Table(*columns, np.ones((n, 5 * copies), dtype=bool), layout)
    shares = []
    for seed in range(8):
        model = untrained(table, cat_width, seed)
        assert model.preconditioner is not None
        x_num, x_cat, sigma = noisy(model, table, (0.1, 0.1))
        points = model.category_points()
        evidence = model.preconditioner.evidence(x_cat, points, sigma[:, CAT, None])
        inputs = model.preconditioner.inputs(
            x_num, evidence, points, sigma[:, NUM, None]
        )
        weight = model.net.project.weight
        d, e = layout.n_num, cat_width
        parts = [[0, d], range(2 * d, 2 * d + e), range(2 * d + e, 2 * d + 2 * e)]
        shares.append(
            [
                (inputs[:, list(part)] @ weight[:, list(part)].T).var(0).mean().item()
                for part in parts
            ]
        )
    return layout.n_features * np.mean(shares, 0)


def test_a_column_weighs_the_same_whatever_its_width_and_the_other_columns():
    alone = _shares(cat_width=8, copies=1)
    for cat_width, copies in ((32, 1), (8, 8), (32, 8)):
        among_others = _shares(cat_width, copies)
        np.testing.assert_allclose(among_others, alone, rtol=0.35)
    # a number and a category with three levels weigh alike
    assert 0.3 < alone[1] / alone[0] < 1.5


def test_pure_noise_of_a_category_does_not_reach_the_network():
    table = make_table(n=500)
    model = untrained(table)
    assert model.preconditioner is not None
    points = model.category_points()
    spread = []
    for s_cat in (0.1, 100.0):
        x_num, x_cat, sigma = noisy(model, table, (0.1, s_cat))
        evidence = model.preconditioner.evidence(x_cat, points, sigma[:, CAT, None])
        inputs = model.preconditioner.inputs(
            x_num, evidence, points, sigma[:, NUM, None]
        )
        spread.append(inputs[:, 6:].var(0).sum().item())
    assert spread[0] > 0.3
    assert spread[1] < 1e-3


def test_correlations_come_from_cells_that_were_observed_together():
    table = make_table()
    rng = np.random.default_rng(5)
    observed = rng.random(table.observed.shape) < 0.6
    layout = table.layout
    hidden = [
        Table(np.where(observed[:, :3], table.num, junk), table.cat, observed, layout)
        for junk in (0.0, 7.0)
    ]
    one, other = (untrained(each).preconditioner for each in hidden)
    assert one is not None
    assert other is not None
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    r = (one.axes * one.variance @ one.axes.T).numpy()
    np.testing.assert_allclose(r, CORRELATIONS, atol=0.06)


def test_columns_never_observed_together_and_duplicated_columns():
    table = make_table(n=300)
    num = table.num.copy()
    num[:, 2] = num[:, 0]
    observed = table.observed.copy()
    observed[:150, 0] = False
    observed[150:, 1] = False
    observed[:, 4] = False
    model = untrained(Table(num, table.cat, observed, table.layout)).float()
    assert model.preconditioner is not None
    assert model.preconditioner.variance.min() >= 1e-3
    batch = Batch(torch.from_numpy(num).float(), torch.from_numpy(table.cat))
    model.cell_loss(batch, torch.Generator().manual_seed(0)).main.mean().backward()
    for p in model.parameters():
        assert p.grad is None or p.grad.isfinite().all()


@pytest.mark.parametrize(("n_num", "n_cat"), [(3, 0), (0, 2), (1, 1)])
def test_a_table_of_one_kind_trains_and_samples(n_num, n_cat):
    table = make_table(200, n_num, n_cat)
    model = untrained(table).float()
    batch = Batch(torch.from_numpy(table.num).float(), torch.from_numpy(table.cat))
    losses = model.cell_loss(batch, torch.Generator().manual_seed(0)).main
    assert losses.shape == (200, n_num + n_cat)
    losses.mean().backward()
    rows = model.sample(50, torch.Generator().manual_seed(0), 20, "dpmpp_2m")
    assert rows.num.isfinite().all()
    assert abs(rows.num.numpy()).max(initial=0) < norm.isf(1e-9)


def test_the_published_model_has_no_preconditioner():
    layout = make_table().layout
    model = build_backbone("cdtd", layout, 0, **SMALL)
    assert not [name for name in model.state_dict() if "preconditioner" in name]
    with pytest.raises(UsageError, match="precondition must be one of"):
        build_backbone("cdtd", layout, 0, precondition="row", **SMALL)


def test_gradients_are_the_same_bits_with_two_threads():
    """As test_loss_laws.py checks for the default keywords of all backbones."""
    table = make_table()
    model = untrained(table).float()
    batch = Batch(torch.from_numpy(table.num).float(), torch.from_numpy(table.cat))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = []
        for _ in range(4):
            loss = model.cell_loss(batch, torch.Generator().manual_seed(0)).main.mean()
            runs.append(
                torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
            )
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        for a, b in zip(runs[0], run, strict=True):
            assert a is None or torch.equal(a, b)


@pytest.mark.parametrize(("n_cat", "wide"), [(2, False), (60, True)])
def test_only_a_wide_table_has_a_direct_path(n_cat, wide):
    layout = Layout(("x",), tuple(f"c{j}" for j in range(n_cat)), n_cat * (3,))
    for how, expected in (("table", wide), ("cell", False)):
        model = build_backbone("cdtd", layout, 0, precondition=how, **SMALL)
        assert isinstance(model, CDTD)
        assert (model.net.direct is not None) == expected


def test_a_short_training_learns_a_strong_pair_among_many_categories():
    """Two dependent numbers beside 40 columns of noise."""
    n, steps = 2000, 60
    rng = np.random.default_rng(0)
    num = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], n)
    cat = rng.integers(0, 4, (n, 40))
    layout = Layout(("x", "y"), tuple(f"c{j}" for j in range(40)), 40 * (4,))
    table = Table(num, cat, np.ones((n, 42), dtype=bool), layout)
    correlation = {}
    for how in ("cell", "table"):
        model = build_backbone("cdtd", layout, 0, precondition=how, **SMALL)
        model.init_from_data(table)
        adam = torch.optim.Adam(model.parameters(), 2e-3)
        for step in range(steps):
            part = slice(100 * (step % 20), 100 * (step % 20 + 1))
            batch = Batch(
                torch.from_numpy(num[part]).float(), torch.from_numpy(cat[part])
            )
            noise = torch.Generator().manual_seed(step)
            adam.zero_grad()
            model.cell_loss(batch, noise).main.mean().backward()
            adam.step()
        rows = model.sample(
            1000, torch.Generator().manual_seed(0), 40, solver="dpmpp_2m"
        )
        correlation[how] = float(np.corrcoef(rows.num.T)[0, 1])
    assert correlation["cell"] < 0.5
    assert correlation["table"] == pytest.approx(0.9, abs=0.05)
