"""CTGAN and TVAE through their package: known truth, streams, time and edges."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.bench.baselines import known
from tests.bench.baselines.noticed import all_states

from augmask.errors import DataError, UsageError
from augmask_bench.baselines import ctgan, tvae
from augmask_bench.baselines.ctgan import CtganSettings, Sampler
from augmask_bench.baselines.tvae import TvaeSettings
from augmask_bench.peers import why_unusable

CPU = torch.device("cpu")
TINY = {
    ctgan: CtganSettings(steps=3, batch_size=50, embedding_dim=8, widths=(8,)),
    tvae: TvaeSettings(steps=3, batch_size=50, embedding_dim=8, widths=(8,)),
}
here = pytest.mark.skipif(why_unusable("ctgan") != "", reason=why_unusable("ctgan"))
both = pytest.mark.parametrize("peer", [ctgan, tvae], ids=["ctgan", "tvae"])


class TwoColumns:
    """Stands in for the package's sampler: rows by level of two columns."""

    dim = 7

    def __init__(self):
        self._rid_by_cat_cols = [
            [np.array([0, 1, 2, 3]), np.array([4, 5])],
            [np.array([0, 5]), np.array([1, 2]), np.array([3, 4])],
        ]


def test_rows_are_drawn_evenly_among_those_with_the_level():
    sampler = Sampler(TwoColumns(), np.random.default_rng(0), "frequency")
    data = np.arange(6)[:, None] * [1, 10]
    col, opt = np.repeat([0, 0, 1], 4000), np.repeat([0, 1, 2], 4000)
    rows = sampler.sample_data(data, 12_000, col, opt)
    assert (rows[:, 1] == 10 * rows[:, 0]).all()
    counts = [
        np.bincount(part, minlength=6) / 4000 for part in rows[:, 0].reshape(3, -1)
    ]
    expected = [[0.25] * 4 + [0, 0], [0] * 4 + [0.5] * 2, [0, 0, 0, 0.5, 0.5, 0]]
    np.testing.assert_allclose(counts, expected, atol=0.03)
    assert sampler.dim == 7


@here
def test_rows_fit_the_conditions_of_the_package():
    from ctgan.data_sampler import DataSampler
    from ctgan.data_transformer import SpanInfo

    rng = np.random.default_rng(0)
    one_hot = np.eye(3)[rng.integers(3, size=60)]
    spans = [[SpanInfo(1, "tanh"), SpanInfo(1, "softmax")], [SpanInfo(3, "softmax")]]
    data = np.concatenate([rng.normal(size=(60, 2)), one_hot], axis=1)
    sampler = Sampler(DataSampler(data, spans, True), rng, "frequency")
    _, _, col, opt = sampler.sample_condvec(500)
    rows = sampler.sample_data(data, 500, col, opt)
    assert (rows[:, 2:].argmax(axis=1) == opt).all()
    assert sampler.sample_data(data, 5, None, None).shape == (5, 5)


@here
def test_levels_of_new_rows_are_the_package_s_or_as_often_as_in_the_table():
    table = known.made(missing=0.0)
    found = {}
    for draw in ctgan.LEVEL_DRAWS:
        settings = replace(TINY[ctgan], level_draw=draw)
        sampler = ctgan.fit(table, settings, 0, CPU)._model._data_sampler
        levels = sampler.sample_original_condvec(5000)
        assert (levels.sum(axis=1) == 1).all()
        # the package orders levels as they appear
        found[draw] = np.sort(levels.mean(axis=0))
    there = np.sort(known.shares(table.cat))
    np.testing.assert_allclose(found["frequency"], there, atol=0.03)
    np.testing.assert_allclose(found["log-frequency"], [0.29, 0.32, 0.38], atol=0.03)
    assert ctgan.PAPER.level_draw == "log-frequency"
    with pytest.raises(UsageError, match="level_draw"):
        replace(TINY[ctgan], level_draw="often")


def gap(num, cat):
    """Return how far apart two classes are in the first number."""
    return num[cat[:, 0] == 1, 0].mean() - num[cat[:, 0] == 0, 0].mean()


@here
def test_tvae_finds_the_known_law():
    table = known.made(missing=0.0)
    settings = TvaeSettings(steps=600, batch_size=100, embedding_dim=16, widths=(64,))
    num, cat = tvae.fit(table, settings, 0, CPU).sample(3000, 1)
    np.testing.assert_allclose(num.mean(axis=0), 0, atol=0.25)
    np.testing.assert_allclose(num.std(axis=0), 1, atol=0.2)
    assert abs(known.correlation(num) - known.correlation(table.num)) < 0.15
    # it is known to prefer frequent classes
    assert np.abs(known.shares(cat) - known.shares(table.cat)).max() < 0.25
    assert gap(num, cat) > gap(table.num, table.cat) / 2


@here
def test_ctgan_moves_towards_the_known_law():
    # adversarial training is slow: the tie to the class comes first
    table = known.made(missing=0.0)
    settings = CtganSettings(
        steps=800,
        batch_size=100,
        embedding_dim=16,
        widths=(64,),
        lr=2e-3,
        level_draw="frequency",
    )
    num, cat = ctgan.fit(table, settings, 0, CPU).sample(3000, 1)
    assert known.correlation(num) > 0.4
    assert np.abs(known.shares(cat) - known.shares(table.cat)).max() < 0.05
    assert gap(num, cat) > gap(table.num, table.cat) / 2


@here
@both
def test_same_seed_same_rows_and_nobody_notices(peer, capsys):
    # more than 500 rows: the package then starts workers, if it is let
    table = known.made(n=600, missing=0.0)
    before = all_states()
    a, b, c = (peer.fit(table, TINY[peer], seed, CPU) for seed in (0, 0, 1))
    rows = [a.sample(70, 5), b.sample(70, 5), a.sample(70, 5)]
    others = [c.sample(70, 5), a.sample(70, 6)]
    assert all_states() == before
    assert capsys.readouterr() == ("", "")
    for num, cat in rows[1:]:
        np.testing.assert_array_equal(num, rows[0][0])
        np.testing.assert_array_equal(cat, rows[0][1])
    for num, _ in others:
        assert (num != rows[0][0]).any()


@here
@both
def test_training_takes_the_steps_or_the_time_asked_for(peer):
    table = known.made(n=120, missing=0.0)
    settings = replace(TINY[peer], steps=7)
    whole = peer.fit(table, settings, 0, CPU)
    # two or three steps an epoch, and whole epochs
    assert whole.facts["steps"] == {ctgan: 8, tvae: 9}[peer]
    assert whole.facts["ended"] == "steps"
    short = peer.fit(table, replace(settings, steps=10**6), 0, CPU, seconds=0.0)
    assert short.facts["epochs"] == 1
    assert short.facts["ended"] == "time"
    assert short.sample(9, 0)[0].shape == (9, 2)


@here
@both
@pytest.mark.parametrize("columns", [([0, 1], []), ([], [0]), ([1], [])])
def test_tables_of_one_kind_and_fewer_rows_than_a_batch(peer, columns):
    table = known.only(known.made(n=37, missing=0.0), *columns)
    num, cat = peer.fit(table, TINY[peer], 0, CPU).sample(23, 0)
    assert num.shape == (23, table.layout.n_num)
    assert cat.shape == (23, table.layout.n_cat)
    assert np.isfinite(num).all()
    assert ((cat >= 0) & (cat < 3)).all()


@here
@both
def test_missing_values_are_refused(peer):
    with pytest.raises(DataError, match="needs a complete table"):
        peer.fit(known.made(n=50), TINY[peer], 0, CPU)
