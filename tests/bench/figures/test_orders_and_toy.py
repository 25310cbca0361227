"""Figures of the paper that need few runs or none."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask_bench.figures import preprocessing, toy
from augmask_bench.figures.preprocessing import impute_then_scale, scale_then_impute
from augmask_bench.theory.toy import tolerance


def test_only_scaling_first_leaves_observed_values_standard_normal():
    values = np.random.default_rng(0).lognormal(size=3000)
    ours, other = scale_then_impute(values), impute_then_scale(values, 7000)
    assert abs(ours.observed.mean()) < 0.01
    assert ours.observed.std() == pytest.approx(1, abs=0.01)
    # the imputed values take the middle, and push observed ones apart
    assert other.observed.std() > 1.5
    between = np.abs(other.observed - other.imputed) < 0.5
    assert between.mean() < 0.02 < (np.abs(ours.observed) < 0.5).mean()


def test_the_preprocessing_figure_shows_a_kept_table(run, tmp_path):
    results = pd.DataFrame([run(), run(seed=1)])
    assert preprocessing.needs(results) == ""
    assert "completed run" in preprocessing.needs(results.assign(status="failed"))
    with pytest.raises(DataError, match="need kept rows"):
        preprocessing.draw(results, tmp_path)
    rng = np.random.default_rng(0)
    real = pd.DataFrame(
        {
            "flag": pd.Series(["a", "b"] * 200, dtype="category"),
            "few": rng.integers(0, 3, 400),
            "many": rng.exponential(size=400),
        }
    )
    for folder, name in (("real", "table-0-f00d"), ("samples", results["run"][0])):
        (tmp_path / folder).mkdir()
        real.to_parquet(tmp_path / folder / f"{name}.parquet")
    figure = preprocessing.draw(results, tmp_path)
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["impute, then scale", "scale, then impute (ours)"]
    assert "sd 1.00" in figure.axes[1].get_xlabel()
    assert "table, column 'many', MCAR 0.7" in figure.get_supxlabel()
    figure.savefig(io.BytesIO())


def test_the_errors_of_the_toy_cross_at_the_tolerance():
    bound = tolerance(toy.EXAMPLE)
    errors = toy.curves(toy.EXAMPLE, bound * np.array([0.5, 1, 1.5]))
    gap = (errors["AugFull"] - errors["AugMask"]).to_numpy()
    assert gap[0] < -0.01
    assert abs(gap[1]) < 1e-12
    assert gap[2] > 0.01


def test_the_toy_figure_needs_no_runs():
    assert toy.needs(pd.DataFrame()) == ""
    figure = toy.draw(pd.DataFrame())
    left, right = figure.axes
    exact, simulated = left.lines[0], left.lines[2]
    assert len(simulated.get_xdata()) == 1
    assert np.ptp(exact.get_ydata()) > 0.01
    assert "tolerates" in right.get_title()
    figure.savefig(io.BytesIO())
