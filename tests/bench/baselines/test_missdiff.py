"""MissDiff's chain with an exact network, its own against torch's, a known law."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.bench.baselines import known
from torch import nn

from augmask.errors import UsageError
from augmask.table.table import Layout, Table
from augmask_bench.baselines.missdiff import (
    PAPER,
    SMALL,
    Chain,
    Coding,
    Encoder,
    MissDiff,
    MissDiffNet,
    MissDiffSettings,
    dropped,
    fit,
    observed_error,
)

CPU = torch.device("cpu")
TINY = replace(SMALL, epochs=2, timesteps=5, channels=4, time_width=8, position_width=8)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Exact(nn.Module):
    """The noise that is expected in a normal law of independent entries."""

    def __init__(self, mean, spread):
        super().__init__()
        self.mean, self.variance = torch.tensor(mean), torch.tensor(spread) ** 2
        self.signal = torch.from_numpy(Chain.quadratic(PAPER).signal).float()

    def forward(self, x, times):
        left = self.signal[times][:, None]
        off = x - left.sqrt() * self.mean
        return (1 - left).sqrt() * off / (left * self.variance + 1 - left)


def spread_of_steps_back(spread):
    """Return the spread after all steps from q(x_{t-1} | x_t, E[x_0 | x_t])."""
    beta, signal = Chain.quadratic(PAPER)
    variance = 1.0
    for t in reversed(range(100)):
        earlier = signal[t - 1] if t else 1.0
        guess = signal[t] ** 0.5 * spread**2 / (signal[t] * spread**2 + 1 - signal[t])
        of_guess = earlier**0.5 * beta[t] / (1 - signal[t])
        of_now = (1 - beta[t]) ** 0.5 * (1 - earlier) / (1 - signal[t])
        variance *= (of_guess * guess + of_now) ** 2
        variance += beta[t] * (1 - earlier) / (1 - signal[t])
    return variance**0.5


def test_an_exact_network_gives_the_law_back():
    table = Table(
        np.array([[-2.0], [3.0]]),
        np.zeros((2, 1), np.int32),
        np.ones((2, 2), bool),
        Layout(("x",), ("c",), (2,)),
    )
    # in the units of the coding: shift -3 and factor 6
    net = Exact([0.6, 0.4, -0.4], [0.2, 0.4, 0.4])
    model = MissDiff(net, Coding(table, "minmax_offset"), PAPER, {})
    num, cat = model.sample(40_000, seed=0)
    assert num.mean() == pytest.approx(0.6 * 6 - 3, abs=0.02)
    # a hundred steps with the smaller of the two usual noises lose some spread
    assert num.std() == pytest.approx(6 * spread_of_steps_back(0.2), rel=0.015)
    assert num.std() == pytest.approx(6 * 0.2, rel=0.1)
    # the first entry of the block is larger with probability Φ(0.8 / √2 s)
    chance = (1 + math.erf(0.8 / (2 * spread_of_steps_back(0.4)))) / 2
    assert (cat == 0).mean() == pytest.approx(chance, abs=0.01)


def test_numbers_go_into_the_unit_interval_and_back():
    table = known.made(n=200)
    coding = Coding(table, "minmax_offset")
    num, cat = torch.from_numpy(table.num), torch.from_numpy(table.cat).long()
    x = coding.encoded(num, cat)
    for j in range(2):
        seen = x[torch.from_numpy(table.num_observed[:, j]), j]
        assert seen.max() == pytest.approx(1.0)
        assert seen.min() == pytest.approx(1 / coding.factor[j].item())
    assert set(x[:, 2:].flatten().tolist()) == {-1.0, 1.0}
    back, codes = coding.decoded(x)
    assert torch.allclose(back, num, atol=1e-5)
    assert torch.equal(codes, cat)


def test_the_loss_is_the_mean_over_observed_entries():
    signal = torch.from_numpy(Chain.quadratic(PAPER).signal)
    clean = torch.randn(6, 4, dtype=torch.float64, generator=seeded())
    seen = (torch.rand(6, 4, generator=seeded(1)) < 0.6).double()

    def net(x, times, noise):
        return x * times[:, None] / 50

    loss = observed_error(net, clean, seen, signal, seeded(2))
    g = seeded(2)
    times = (100 * torch.rand(6, dtype=torch.float64, generator=g)).long()
    eps = torch.randn(6, 4, dtype=torch.float64, generator=g)
    errors = []
    for i in range(6):
        kept = signal[times[i]].item()
        for j in range(4):
            x = kept**0.5 * clean[i, j] + (1 - kept) ** 0.5 * eps[i, j]
            if seen[i, j]:
                errors.append((eps[i, j] - x * times[i] / 50) ** 2)
    assert loss.item() == pytest.approx(np.mean(errors))
    nothing = torch.zeros_like(seen)
    assert observed_error(net, clean, nothing, signal, seeded()).item() == 0.0


def test_the_encoder_is_torchs_layer():
    torch.manual_seed(0)
    ours = Encoder(8, 2, 16, 0.1).double()
    theirs = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.1, activation="gelu", batch_first=True
    ).double()
    with torch.no_grad():
        for p in ours.parameters():
            p.copy_(torch.randn(p.shape))
        attention = theirs.self_attn
        attention.in_proj_weight.copy_(ours.qkv.weight)
        attention.in_proj_bias.copy_(ours.qkv.bias)
        attention.out_proj.load_state_dict(ours.out.state_dict())
        for name, own in (("linear1", "up"), ("linear2", "down")):
            theirs.get_submodule(name).load_state_dict(getattr(ours, own).state_dict())
        for name in ("norm1", "norm2"):
            theirs.get_submodule(name).load_state_dict(
                ours.get_submodule(name).state_dict()
            )
    tokens = torch.randn(3, 5, 8, dtype=torch.float64)
    assert torch.allclose(ours(tokens, None), theirs.eval()(tokens), atol=1e-10)
    # the path that is taken with dropout is the same function
    ours.dropout = 1e-12
    assert torch.allclose(ours(tokens, seeded()), ours(tokens, None), atol=1e-9)


def test_dropout_draws_from_the_generator_it_is_given():
    x, before = torch.ones(200, 200), torch.random.get_rng_state()
    out = dropped(x, 0.1, seeded())
    assert torch.equal(before, torch.random.get_rng_state())
    assert (out == 0).float().mean().item() == pytest.approx(0.1, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert dropped(x, 0.1, None) is x


def test_the_network_has_the_papers_size_and_starts_at_a_constant():
    net = MissDiffNet(110, 100)
    assert sum(p.numel() for p in net.parameters()) == pytest.approx(8.92e6, rel=1e-3)
    small = MissDiffNet(4, 10, channels=8, heads=2, time_width=8, position_width=8)
    out = small(torch.randn(5, 4), torch.arange(5))
    assert torch.allclose(out, out[0, 0].expand(5, 4))


def test_a_column_is_known_by_its_place():
    net = MissDiffNet(3, 10, channels=8, heads=2, time_width=8, position_width=8)
    nn.init.ones_(net.lower.weight)
    out = net(torch.zeros(1, 3), torch.tensor([4]))[0].detach()
    assert len({round(value, 5) for value in out.tolist()}) == 3


def test_the_rate_falls_four_times():
    rates = [PAPER.rate(epoch) for epoch in (0, 61, 62, 124, 125, 187, 225, 249)]
    falls = [round(math.log10(PAPER.lr / rate)) for rate in rates]
    assert falls == [0, 0, 1, 1, 2, 3, 4, 4]


def test_marginals_come_back():
    table = known.made()
    settings = replace(SMALL, epochs=50, numeric_scaling="shared")
    num, cat = fit(table, settings, 0, CPU).sample(1500, seed=1)
    truth = known.made(n=20_000, missing=0.0, seed=9)
    shares = np.bincount(cat[:, 0], minlength=3) / len(cat)
    true = np.bincount(truth.cat[:, 0], minlength=3) / len(truth)
    assert shares == pytest.approx(true, abs=0.08)
    for j in range(2):
        for q in (0.1, 0.5, 0.75, 0.9):
            assert np.quantile(num[:, j], q) == pytest.approx(
                np.quantile(truth.num[:, j], q), abs=0.35
            )
    # nothing is said about dependence: in so short a training the correlation, .78 in
    # truth, is anything from .1 to .5, as the seed will have it


@pytest.mark.parametrize("scaling", ["minmax_offset", "shared"])
def test_what_lies_beneath_missing_values_is_not_read_and_seeds_decide(scaling):
    table = known.made(n=100)
    settings = replace(TINY, numeric_scaling=scaling, dropout=0.1)
    before = torch.random.get_rng_state()
    num, cat = fit(table, settings, 3, CPU).sample(50, seed=1)
    model = fit(known.with_other_rubbish(table), settings, 3, CPU)
    again_num, again_cat = model.sample(50, seed=1)
    assert np.array_equal(num, again_num)
    assert np.array_equal(cat, again_cat)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not np.array_equal(num, model.sample(50, seed=2)[0])
    assert not np.array_equal(num, fit(table, settings, 4, CPU).sample(50, seed=1)[0])


@pytest.mark.parametrize(
    "columns", [((0, 1), ()), ((), (0,)), ((1,), ()), ((0,), (0,))]
)
def test_any_mix_of_columns_works(columns):
    table = known.only(known.made(n=30), *columns)
    model = fit(table, TINY, 0, CPU)
    for n in (0, 40):
        num, cat = model.sample(n, seed=0)
        assert num.shape == (n, len(columns[0]))
        assert cat.shape == (n, len(columns[1]))
        assert (num.dtype, cat.dtype) == (np.float32, np.int32)
        assert np.isfinite(num).all()
        assert ((cat >= 0) & (cat < 3)).all()


def test_a_column_without_a_cell_and_reserved_codes():
    layout = replace(known.LAYOUT, cards=(4,), reserved=True)
    table = replace(known.made(n=80), layout=layout)
    table.observed[:, 0] = False
    num, cat = fit(table, TINY, 0, CPU).sample(1000, seed=0)
    assert np.isfinite(num).all()
    assert set(np.unique(cat)) == {0, 1, 2}


def test_the_budget_ends_the_training():
    model = fit(known.made(n=100), replace(TINY, epochs=99), 0, CPU, seconds=0.0)
    assert model.facts["ended"] == "time"
    assert model.facts["steps"] == 2


def test_wrong_settings_say_so():
    with pytest.raises(UsageError, match="numeric_scaling must be one of"):
        MissDiffSettings(numeric_scaling="robust")
    with pytest.raises(UsageError, match="multiple of heads"):
        fit(known.made(n=9), replace(TINY, channels=5), 0, CPU)
