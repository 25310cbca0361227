from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation.alike import missing_alike
from augmask.evaluation.detect import detection

NAMES = list("abcdef")


def table(seed, n=600, rate=0.3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1)) + rng.normal(size=(n, 6))
    return pd.DataFrame(x, columns=NAMES).mask(rng.random((n, 6)) < rate)


def auc(first, second):
    return detection(first, second, NAMES, [], seed=0, holes="feature").value


def test_patterns_that_were_not_learned_do_not_tell_the_tables_apart():
    real, fresh = table(0, 1500), table(1, 1500, 0.5)
    assert auc(real, fresh) > 0.7  # by the missing values alone
    alike = missing_alike(real, fresh, np.random.default_rng(0))
    assert auc(*alike) == pytest.approx(0.5, abs=0.05)
    assert alike[0].isna().equals(alike[1].isna())


def test_values_still_do():
    rng = np.random.default_rng(0)
    real = table(0, 1500)
    broken = table(1, 1500).apply(lambda column: rng.permutation(column))
    plain, alike = auc(real, broken), auc(*missing_alike(real, broken, rng))
    assert plain > 0.65
    assert alike > plain - 0.04


def test_rows_of_equal_patterns_lose_nothing():
    real = table(0)
    other = table(1).where(real.notna().to_numpy()).fillna(0.0).where(real.notna())
    left, right = missing_alike(real, other, np.random.default_rng(0))
    assert left.notna().sum().sum() == real.notna().sum().sum()
    assert sorted(left["a"].dropna()) == sorted(real["a"].dropna())
    assert right.isna().equals(left.isna())


def test_values_stay_in_their_rows_and_types():
    real = table(0).assign(word=["x", None, "z"] * 200)
    other = table(1, 500).assign(word="y")
    left, right = missing_alike(real, other, np.random.default_rng(0))
    assert len(left) == len(right) == 500
    assert set(left["word"].dropna()) <= {"x", "z"}
    whole = real.dropna()
    complete = left.dropna()
    assert len(complete)
    assert len(complete.merge(whole, how="inner")) == len(complete)


def test_complete_tables_stay_as_they_are():
    first, second = table(0, rate=0), table(1, rate=0)
    left, right = missing_alike(first, second, np.random.default_rng(0))
    assert left is first
    assert right is second
