"""MIWAE against its bound, computed cell by cell, and a law that is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from tests.bench.baselines import known

from augmask.errors import TrainingDiverged, UsageError
from augmask.table.table import Layout, Table
from augmask_bench.baselines.miwae import (
    DF_MIN,
    SCALE_MIN,
    MiwaeNet,
    MiwaeSettings,
    fit,
    student_log_density,
)

CPU = torch.device("cpu")
TINY = MiwaeSettings(epochs=2, batch_size=64, latent=3, hidden=8, k=4)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_density_is_students():
    x, loc = torch.randn(2, 50, dtype=torch.float64, generator=seeded())
    scale, df = 3 * torch.rand(2, 50, dtype=torch.float64, generator=seeded(1))
    ours = student_log_density(x, loc, scale, df + 3)
    theirs = stats.t.logpdf(x, df + 3, loc, scale)
    assert np.allclose(ours, theirs, atol=1e-12)


def slow_bound(net, real, codes, seen, eps):
    """Compute a row's bound by loops over its draws and cells."""
    softplus = torch.nn.functional.softplus
    cards = (3, 2)
    entries = [x if s else 0.0 for x, s in zip(real, seen[:2], strict=True)]
    for code, card, s in zip(codes, cards, seen[2:], strict=True):
        entries += [float(s and level == code) for level in range(card)]
    row = torch.tensor([entries], dtype=torch.float64)
    mean, rho = net.code(net.encoder(row))[0].chunk(2)
    q = torch.distributions.Normal(mean, softplus(rho) + 1e-6)
    prior = torch.distributions.Normal(torch.zeros_like(mean), 1.0)
    terms = []
    for e in eps:
        z = q.loc + q.scale * e
        out = net.head(net.decoder(z[None]))[0]
        term = prior.log_prob(z).sum() - q.log_prob(z).sum()
        for j in range(2):
            law = torch.distributions.StudentT(
                softplus(out[4 + j]) + DF_MIN, out[j], softplus(out[2 + j]) + SCALE_MIN
            )
            if seen[j]:
                term = term + law.log_prob(torch.tensor(real[j]))
        start = 6
        for j, card in enumerate(cards):
            chance = torch.log_softmax(out[start : start + card], 0)[codes[j]]
            term = term + chance if seen[2 + j] else term
            start += card
        terms.append(term)
    return torch.logsumexp(torch.stack(terms), 0) - math.log(len(terms))


def test_the_bound_weighs_every_draw_by_the_observed_cells():
    torch.manual_seed(0)
    layout = Layout(("x", "y"), ("a", "b"), (3, 2))
    net = MiwaeNet(layout, replace(TINY, k=5)).double()
    real = torch.randn(4, 2, dtype=torch.float64, generator=seeded())
    codes = torch.tensor([[0, 1], [2, 0], [1, 1], [2, 1]])
    seen = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    bound = net.bound(real, codes, seen, seeded(7))
    eps = torch.randn(4, 5, 3, dtype=torch.float64, generator=seeded(7))
    slow = [
        slow_bound(net, *cells)
        for cells in zip(real.tolist(), codes.tolist(), seen.tolist(), eps, strict=True)
    ]
    assert torch.allclose(bound, torch.stack(slow), atol=1e-10)


def test_weights_start_orthogonal():
    net = MiwaeNet(known.LAYOUT, replace(TINY, hidden=32))
    for name in ("encoder.0", "encoder.2", "code", "decoder.0", "head"):
        weight = net.get_submodule(name).weight.detach()
        square = (
            weight @ weight.T if len(weight) < weight.shape[1] else weight.T @ weight
        )
        assert torch.allclose(square, torch.eye(len(square)), atol=1e-5), name


def test_a_known_law_comes_back():
    table = known.made()
    settings = MiwaeSettings(epochs=120, batch_size=256, latent=8, hidden=64, k=10)
    num, cat = fit(table, settings, 0, CPU).sample(6000, seed=1)
    truth = known.made(n=20_000, missing=0.0, seed=9)
    assert np.corrcoef(num.T)[0, 1] == pytest.approx(
        np.corrcoef(truth.num.T)[0, 1], abs=0.07
    )
    for level in range(3):
        rows, true = cat[:, 0] == level, truth.cat[:, 0] == level
        assert rows.mean() == pytest.approx(true.mean(), abs=0.04)
        # the class goes with the clusters
        assert num[rows].mean(0) == pytest.approx(truth.num[true].mean(0), abs=0.25)
    assert num.std(0) == pytest.approx([1.0, 1.0], abs=0.1)


@pytest.mark.parametrize("likelihood", ["mixed", "student"])
def test_what_lies_beneath_missing_values_is_not_read_and_seeds_decide(likelihood):
    table, settings = known.made(n=100), replace(TINY, likelihood=likelihood)
    before = torch.random.get_rng_state()
    num, cat = fit(table, settings, 3, CPU).sample(50, seed=1)
    model = fit(known.with_other_rubbish(table), settings, 3, CPU)
    again_num, again_cat = model.sample(50, seed=1)
    assert np.array_equal(num, again_num)
    assert np.array_equal(cat, again_cat)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not np.array_equal(num, model.sample(50, seed=2)[0])
    assert not np.array_equal(num, fit(table, settings, 4, CPU).sample(50, seed=1)[0])


@pytest.mark.parametrize("likelihood", ["mixed", "student"])
@pytest.mark.parametrize(
    "columns", [((0, 1), ()), ((), (0,)), ((1,), ()), ((0,), (0,))]
)
def test_any_mix_of_columns_works(likelihood, columns):
    table = known.only(known.made(n=30), *columns)
    model = fit(table, replace(TINY, likelihood=likelihood), 0, CPU)
    for n in (0, 40):
        num, cat = model.sample(n, seed=0)
        assert num.shape == (n, len(columns[0]))
        assert cat.shape == (n, len(columns[1]))
        assert (num.dtype, cat.dtype) == (np.float32, np.int32)
        assert np.isfinite(num).all()
        assert ((cat >= 0) & (cat < 3)).all()


@pytest.mark.parametrize("likelihood", ["mixed", "student"])
def test_a_column_without_a_cell_and_reserved_codes(likelihood):
    layout = replace(known.LAYOUT, cards=(4,), reserved=True)
    table = replace(known.made(n=80), layout=layout)
    table.observed[:, 0] = False
    model = fit(table, replace(TINY, likelihood=likelihood), 0, CPU)
    num, cat = model.sample(3000, seed=0)
    assert np.isfinite(num).all()
    assert set(np.unique(cat)) == {0, 1, 2}


def test_codes_as_numbers_come_back_rounded():
    rng = np.random.default_rng(0)
    codes = np.where(rng.random((400, 1)) < 0.5, 3, 7).astype(np.int32)
    layout = Layout((), ("c",), (9,))
    table = Table(np.empty((400, 0)), codes, np.ones((400, 1), bool), layout)
    settings = replace(TINY, likelihood="student", epochs=60, hidden=32, k=8)
    _, cat = fit(table, settings, 0, CPU).sample(2000, seed=0)
    # a Student law per z is smeared over neighbours, around the mean of the codes
    assert cat.mean() == pytest.approx(codes.mean(), abs=0.5)
    assert cat.std() == pytest.approx(codes.std(), abs=0.7)


def test_the_budget_ends_the_training():
    model = fit(known.made(n=100), replace(TINY, epochs=1000), 0, CPU, seconds=0.0)
    assert model.facts["ended"] == "time"
    assert model.facts["steps"] == 2
    assert np.isfinite(model.sample(5, seed=0)[0]).all()


def test_wrong_settings_and_a_lost_training_say_so():
    with pytest.raises(UsageError, match="likelihood must be one of"):
        MiwaeSettings(likelihood="normal")
    with pytest.raises(TrainingDiverged, match="lower the learning rate"):
        fit(known.made(n=100), replace(TINY, lr=1e30, epochs=20), 0, CPU)
