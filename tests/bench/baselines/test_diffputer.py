"""DiffPuter recovers a known distribution and ignores missing values."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from augmask.table.table import Layout
from augmask_bench.baselines.diffputer import PAPER, SMALL, DiffPuterSettings, fit

from .known import correlation, made, only, shares, with_other_rubbish

CPU = torch.device("cpu")
TINY = DiffPuterSettings(2, 2, 5, 2, 8, batch_size=64, max_steps=5)


def test_a_known_distribution_is_recovered():
    truth = made(missing=0.0)
    model = fit(made(), replace(SMALL, max_steps=600, trials=3), 0, CPU)
    num, cat = model.sample(3000, 1)
    # the mean of draws has less spread than a draw, as published
    assert correlation(num) == pytest.approx(correlation(truth.num), abs=0.12)
    assert np.allclose(shares(cat), shares(truth.cat), atol=0.07)
    assert np.all((num.std(0) > 0.75) & (num.std(0) < 1.1))


def test_values_of_missing_cells_are_not_read():
    table = made(n=80, missing=0.4)
    first, second = (
        fit(t, TINY, 0, CPU).sample(20, 1) for t in (table, with_other_rubbish(table))
    )
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


@pytest.mark.parametrize(("num", "cat"), [((0, 1), ()), ((), (0,)), ((0,), ())])
def test_any_kind_of_table(num, cat):
    table = only(made(n=40), num, cat)
    numbers, codes = fit(table, TINY, 0, CPU).sample(7, 0)
    assert numbers.shape == (7, len(num))
    assert codes.shape == (7, len(cat))
    assert np.isfinite(numbers).all()
    assert (codes >= 0).all()
    assert (codes < 3).all()
    assert numbers.dtype == np.float32
    assert codes.dtype == np.int32


def test_a_column_without_observed_cells_and_a_constant_one():
    table = made(n=50)
    observed = table.observed.copy()
    observed[:, 0] = False
    num = table.num.copy()
    num[:, 1] = 2.0
    table = replace(table, num=num, observed=observed)
    numbers, codes = fit(table, TINY, 0, CPU).sample(20, 0)
    assert np.isfinite(numbers).all()
    # nothing beneath a missing cell is learned, not even of a whole column
    other = fit(with_other_rubbish(table), TINY, 0, CPU).sample(20, 0)
    assert np.array_equal(other[0], numbers)
    assert np.array_equal(other[1], codes)


def test_one_row_is_a_table_too():
    numbers, codes = fit(made(n=1), TINY, 0, CPU).sample(2, 0)
    assert np.isfinite(numbers).all()
    assert numbers.shape == (2, 2)
    assert codes.shape == (2, 1)
    assert ((codes >= 0) & (codes < 3)).all()


def test_a_complete_table_needs_one_iteration():
    model = fit(made(n=40, missing=0.0), TINY, 0, CPU)
    assert model.facts["ended"] == "no missing value"
    assert len(model.facts["iterations"]) == 1


def test_the_same_seed_gives_the_same_rows():
    table = made(n=60)
    first, again = (fit(table, TINY, 3, CPU).sample(9, 1) for _ in range(2))
    other = fit(table, TINY, 4, CPU).sample(9, 1)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_the_placeholder_is_never_emitted():
    table = made(n=60)
    layout = Layout(("x", "y"), ("c",), (4,), reserved=True)
    table = replace(table, cat=np.full_like(table.cat, 3), layout=layout)
    _, codes = fit(table, TINY, 0, CPU).sample(20, 0)
    assert codes.max() < 3


def test_it_ends_in_time_and_says_so():
    endless = replace(TINY, iterations=3, trials=10**6, max_steps=10**9, epochs=10**9)
    model = fit(made(n=100), replace(endless, patience=10**9), 0, CPU, seconds=1.5)
    iterations = model.facts["iterations"]
    assert {one["ended"] for one in iterations} == {"time"}
    assert iterations[0]["trials"] < 10**6


def test_epochs_bound_the_steps_of_an_m_step():
    assert PAPER.steps(29_305) == int(np.ceil(10_001 * 29_305 / 4096))
    assert replace(PAPER, max_steps=3000).steps(29_305) == 3000
    # a batch is never larger than the table
    assert PAPER.steps(100) == 10_001


@pytest.mark.parametrize(
    ("losses", "chosen", "ended"),
    [
        ([1.0, 0.9, 1.1, 1.2], 3, "iterations"),
        ([1.0, 0.9, 1.9, 1.2], 3, "iterations"),
        ([1.0, 0.9, 1.9, 1.9], 1, "check"),
        ([1.0, math.nan], 0, "check"),
    ],
)
def test_the_last_network_that_passed_the_check_generates(
    monkeypatch, losses, chosen, ended
):
    values = iter(losses)
    monkeypatch.setattr(
        "augmask_bench.baselines.diffputer._Iterations.validation_loss",
        lambda *_: next(values),
    )
    facts = fit(made(n=40), replace(TINY, iterations=4), 0, CPU).facts
    assert (facts["chosen"], facts["ended"]) == (chosen, ended)
    assert len(facts["iterations"]) == len(losses)
