"""The constants that stand in for LightGBM say what LightGBM would say."""

import numpy as np
import pytest

from augmask.augmentation import conditional
from augmask.augmentation.conditional import (
    fit_and_predict,
    fit_classes,
    fit_column,
    fit_numeric,
    learned_rows,
    longest_first,
    smooth,
)
from augmask.table.table import Layout, Table


@pytest.mark.parametrize("n", [5, 19, 39])
def test_too_few_rows_for_a_split_need_no_trees(n, monkeypatch):
    rng = np.random.default_rng(0)
    u = rng.normal(size=(n, 3)).astype(np.float32)
    y = rng.normal(size=n).astype(np.float32)
    labels = np.arange(n) % 3 + 1
    constant = fit_numeric(u, y, "paper").predict(u)
    frequencies = fit_classes(u, labels, 5).predict(u)
    monkeypatch.setattr(conditional, "can_split", lambda *_: True)
    boosted = fit_numeric(u, y, "paper").predict(u)
    classes = fit_classes(u, labels, 5).predict(u)
    np.testing.assert_allclose(constant.mu, boosted.mu, atol=1e-6)
    np.testing.assert_allclose(constant.sigma, boosted.sigma, rtol=1e-5)
    np.testing.assert_allclose(frequencies.p, classes.p, atol=1e-5)


def test_out_of_fold_residuals_of_a_constant_are_leave_one_out():
    y = np.array([1.0, 2.0, 6.0], dtype=np.float32)
    u = np.zeros((3, 1), dtype=np.float32)
    left_over = [y[i] - np.delete(y, i).mean() for i in range(3)]
    log_variance = np.mean(np.log(np.square(left_over) + 1e-6)) + 1.2704
    model = fit_numeric(u, y, "log-chi2")
    assert model.log_variance == pytest.approx(log_variance, rel=1e-5)


def test_models_survive_the_trip_as_text():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(300, 2)).astype(np.float32)
    y = (u[:, 0] + 0.1 * rng.normal(size=300)).astype(np.float32)
    labels = np.digitize(u[:, 1], [-0.5, 0.5])
    number, classes = fit_numeric(u, y, "paper"), fit_classes(u, labels, 3)
    np.testing.assert_array_equal(
        number.packed().unpacked().predict(u).sigma, number.predict(u).sigma
    )
    np.testing.assert_array_equal(
        classes.packed().unpacked().predict(u).p, classes.predict(u).p
    )
    assert isinstance(number.packed().mean, str)


def test_smoothing_keeps_a_distribution():
    p = np.random.default_rng(0).dirichlet(np.ones(7), size=20).astype(np.float32)
    smoothed = smooth(p)
    np.testing.assert_allclose(smoothed, 0.95 * p + 0.05 / 7, rtol=1e-6)
    np.testing.assert_allclose(smoothed.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(smooth(np.ones((2, 1), np.float32)), 1)


def test_columns_of_many_classes_come_first_and_complete_ones_not_at_all():
    n = 10
    layout = Layout(("x", "whole"), ("two", "many"), (2, 40))
    observed = np.ones((n, 4), dtype=bool)
    observed[0, [0, 2, 3]] = False
    table = Table(np.zeros((n, 2)), np.zeros((n, 2), int), observed, layout)
    assert longest_first(table) == [(3, 40), (0, None), (2, 2)]


def test_a_large_table_is_learned_from_a_part_of_its_rows():
    """The part is random, and another for each column; every hole is predicted."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.arange(300, dtype=np.float32)[:, None], 2, axis=1)
    observed = rng.random(x.shape) > 0.4
    parts = [
        learned_rows(observed[:, j], 50, np.random.default_rng([7, j])) for j in (0, 1)
    ]
    for j, rows in enumerate(parts):
        assert observed[rows, j].all()
        assert len(np.unique(rows)) == 50
        assert (np.diff(rows) > 0).all()
        # Not the first, nor the last: the mean of 50 of 300 rows, by four deviations.
        assert abs(rows.mean() - 150) < 4 * 300 / np.sqrt(12 * 50)
    assert set(parts[0]) != set(parts[1])
    model = fit_column(x, observed, 2, 1, None, "paper", learn=(20, 7))
    chosen = learned_rows(observed[:, 1], 20, np.random.default_rng([7, 1]))
    # Twenty rows cannot be split, so what was learned is their mean.
    assert model.mean == pytest.approx(x[chosen, 1].mean())


@pytest.mark.parametrize("holes", [1, 64, 65, 200])
def test_holes_are_predicted_alike_in_pieces(monkeypatch, holes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    x[:, 2] = rng.integers(3, size=400)
    observed = np.ones_like(x, dtype=bool)
    observed[:holes] = False
    for j, card in ((0, None), (2, 3)):
        whole = fit_and_predict(x, observed, 2, j, card, "paper")
        monkeypatch.setattr(conditional, "PREDICT_ROWS", 64)
        pieces = fit_and_predict(x, observed, 2, j, card, "paper")
        monkeypatch.undo()
        for one, other in zip(whole.arrays(), pieces.arrays(), strict=True):
            assert len(one) == holes
            np.testing.assert_array_equal(one, other)
