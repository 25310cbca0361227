"""TabSyn recovers a known law, works on any table, and repeats itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from augmask.diffusion.ragged import Ragged
from augmask.table.table import Layout
from augmask_bench.baselines.tabsyn import (
    PAPER,
    SMALL,
    TabSynSettings,
    TokenVae,
    VaeSettings,
    fit,
    train_vae,
)
from augmask_bench.baselines.training import Clock, generator

from .known import correlation, made, only, shares

CPU = torch.device("cpu")
TINY = replace(
    SMALL,
    vae=replace(SMALL.vae, steps=5, batch_size=64),
    steps=5,
    batch_size=64,
    units=16,
    sampling_steps=5,
)


def test_a_known_law_is_recovered():
    table = made(missing=0.0)
    vae = replace(SMALL.vae, steps=200, batch_size=256)
    quick = replace(SMALL, vae=vae, steps=1200, units=128, batch_size=256)
    num, cat = fit(table, quick, 0, CPU).sample(3000, 1)
    assert correlation(num) == pytest.approx(correlation(table.num), abs=0.05)
    assert np.allclose(shares(cat), shares(table.cat), atol=0.06)
    assert np.allclose(num.std(0), table.num.std(0), atol=0.1)


def test_the_autoencoder_gives_rows_back_and_loosens_its_pull():
    table = made(missing=0.0)
    ragged = Ragged(table.layout.cards)
    torch.manual_seed(0)
    vae = TokenVae(2, ragged, 4, 2)
    num, cat = torch.tensor(table.num), torch.tensor(table.cat).long()
    rows = torch.arange(len(table))
    settings = VaeSettings(steps=200, batch_size=256, lr=1e-2, beta_after=2)
    facts = train_vae(
        vae, num, cat, rows[150:], rows[:150], settings, generator(CPU, 0), Clock()
    )
    assert facts["beta"] < settings.beta
    numbers, logits = vae.decode(vae.latents(num, cat))
    assert (ragged.argmax(logits) == cat).float().mean() > 0.97
    assert (numbers - num).square().mean() < 0.05


def test_the_divergence_is_that_of_two_normals():
    vae = TokenVae(1, Ragged(()), 4, 1)
    num, cat = torch.randn(50, 1), torch.zeros(50, 0, dtype=torch.long)
    mean, log_variance = vae.encode(num, cat)
    one = torch.distributions.Normal(mean, (log_variance / 2).exp())
    standard = torch.distributions.Normal(0.0, 1.0)
    expected = torch.distributions.kl_divergence(one, standard).mean()
    assert torch.allclose(vae.terms(num, cat, torch.zeros(50, 1, 4))[2], expected)


def test_the_latent_is_what_the_encoder_calls_its_mean_and_reads_every_cell():
    vae = TokenVae(2, Ragged((3,)), 4, 2)
    num, cat = torch.randn(4, 2), torch.tensor([[0], [1], [2], [0]])
    mean, _ = vae.encode(num, cat)
    assert mean.shape == (4, 3, 4)
    assert torch.equal(vae.latents(num, cat), mean)
    # cells look around: another level moves the latents of the numbers as well
    other = vae.latents(num, (cat + 1) % 3)
    assert (other[:, :2] != mean[:, :2]).any(2).all()


def test_the_published_autoencoder_is_as_small_as_it_says():
    """8.5 thousand weights for Adult."""
    cards = (9, 16, 7, 15, 6, 5, 2, 42, 2)
    vae = TokenVae(6, Ragged(cards), PAPER.vae.token, PAPER.vae.depth)
    assert sum(p.numel() for p in vae.parameters()) == pytest.approx(8500, rel=0.1)


@pytest.mark.parametrize(("num", "cat"), [((0, 1), ()), ((), (0,)), ((0,), ())])
def test_any_kind_of_table(num, cat):
    table = only(made(n=40, missing=0.0), num, cat)
    model = fit(table, TINY, 0, CPU)
    numbers, codes = model.sample(7, 0)
    assert numbers.shape == (7, len(num))
    assert codes.shape == (7, len(cat))
    assert np.isfinite(numbers).all()
    assert (codes >= 0).all()
    assert (codes < 3).all()
    assert numbers.dtype == np.float32
    assert codes.dtype == np.int32


def test_one_row_is_a_table_too():
    numbers, codes = fit(made(n=1, missing=0.0), TINY, 0, CPU).sample(2, 0)
    assert np.isfinite(numbers).all()
    assert numbers.shape == (2, 2)
    assert codes.shape == (2, 1)
    assert ((codes >= 0) & (codes < 3)).all()


def test_the_same_seed_gives_the_same_rows():
    table = made(n=60, missing=0.0)
    first, again = (fit(table, TINY, 3, CPU).sample(9, 1) for _ in range(2))
    other = fit(table, TINY, 4, CPU).sample(9, 1)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_every_cell_counts_also_where_nothing_was_observed():
    table = made(n=60, missing=0.5)
    known = replace(table, observed=np.ones_like(table.observed))
    first, second = (fit(t, TINY, 0, CPU).sample(9, 1) for t in (table, known))
    assert np.array_equal(first[0], second[0])


def test_the_placeholder_is_never_emitted():
    table = made(n=60, missing=0.0)
    layout = Layout(("x", "y"), ("c",), (4,), reserved=True)
    table = replace(table, cat=np.full_like(table.cat, 3), layout=layout)
    _, codes = fit(table, TINY, 0, CPU).sample(20, 0)
    assert codes.max() < 3


def test_it_ends_in_time_and_says_so():
    endless = TabSynSettings(
        VaeSettings(steps=10**9, batch_size=64), steps=10**9, units=8
    )
    model = fit(made(n=200, missing=0.0), endless, 0, CPU, seconds=1.0)
    assert model.facts["vae"]["ended"] == "time"
    assert model.facts["diffusion"]["ended"] == "time"
    assert model.facts["vae"]["steps"] > 0


def test_networks_are_made_on_the_cpu_whatever_the_device(monkeypatch):
    # their parts are read while they are made; on a GPU this once mixed two devices
    class Stop(Exception):
        pass

    def look(n_num, ragged, token, depth):
        assert ragged.column.device.type == "cpu"
        raise Stop

    monkeypatch.setattr("augmask_bench.baselines.tabsyn.TokenVae", look)
    with pytest.raises(Stop):
        fit(made(n=20), TINY, 0, torch.device("meta"))
