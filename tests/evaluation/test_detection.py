from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.detection import detection

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))
NAMES = ["x", "y", "z"], ["g"]


def mixed(rng, n):
    x = rng.normal(size=n)
    group = np.where(x + rng.normal(size=n) > 0, "up", "down")
    return pd.DataFrame(
        {"x": x, "y": x + 0.3 * rng.normal(size=n), "z": rng.normal(size=n), "g": group}
    )


def test_fresh_rows_pass_and_lost_dependence_is_detected():
    rng = np.random.default_rng(0)
    real, fresh = mixed(rng, 2000), mixed(rng, 2000)
    assert detection(real, fresh, *NAMES, seed=0).value == pytest.approx(0.5, abs=0.05)
    broken = fresh.assign(y=rng.permutation(fresh["y"]))
    result = detection(real, broken, *NAMES, seed=0)
    assert result.value > 0.85
    assert set(result.table["column"][:2]) == {"x", "y"}
    assert result.table["importance"].is_monotonic_decreasing
    assert result.table["importance"].sum() == pytest.approx(1)


def test_a_level_of_only_one_table_is_detected():
    rng = np.random.default_rng(1)
    real, fresh = mixed(rng, 600), mixed(rng, 600)
    strange = fresh.assign(g=fresh["g"].replace("up", "above"))
    result = detection(real, strange, *NAMES, seed=0)
    assert result.value > 0.7
    assert result.table["column"][0] == "g"


def test_codes_are_categories_not_numbers():
    # Even against odd codes: no threshold on the code separates them, a set does.
    rng = np.random.default_rng(2)
    real = pd.DataFrame({"k": 2 * rng.integers(0, 20, 1500)})
    odd = pd.DataFrame({"k": 2 * rng.integers(0, 20, 1500) + 1})
    assert detection(real, odd, [], ["k"], seed=0).value > 0.99


def test_the_longer_table_is_cut_and_the_note_says_so():
    rng = np.random.default_rng(3)
    real, fresh = mixed(rng, 900), mixed(rng, 400)
    result = detection(real, fresh, *NAMES, seed=0)
    assert result.rows == 400
    assert result.note.startswith("A random 400 of the 900 real rows were used")
    swapped = detection(fresh, real, *NAMES, seed=0)
    assert swapped.note.startswith("A random 400 of the 900 synthetic rows")
    assert detection(real, real, *NAMES, seed=0).note.startswith("All 900 rows")


def test_the_seed_decides_and_processes_do_not():
    rng = np.random.default_rng(4)
    real, fresh = mixed(rng, 2600), mixed(rng, 2700)
    one = detection(real, fresh, *NAMES, seed=5)
    two = detection(real, fresh, *NAMES, seed=5, n_jobs=2)
    assert one.value == two.value
    pd.testing.assert_frame_equal(one.table, two.table)
    assert detection(real, fresh, *NAMES, seed=6).value != one.value


def test_missing_values_are_refused_or_seen_by_trees():
    rng = np.random.default_rng(5)
    real, fresh = mixed(rng, 1500), mixed(rng, 1500)
    missing = [rng.random(real.shape) < 0.2 for _ in range(2)]
    real, masked = real.mask(missing[0]), fresh.mask(missing[1])
    with pytest.raises(DataError, match="'x' of the real table has"):
        detection(real, masked, *NAMES, seed=0)
    result = detection(real, masked, *NAMES, seed=0, allow_missing=True)
    assert result.value == pytest.approx(0.5, abs=0.05)
    # Other missing values reveal a table, though all values are right.
    more = fresh.mask(missing[1] & np.array([True, True, False, True]))
    result = detection(real, more, *NAMES, seed=0, allow_missing=True)
    assert result.value > 0.55
    assert result.table["column"][0] == "z"


def test_folds_must_fit_the_rows():
    rng = np.random.default_rng(6)
    real = mixed(rng, 30)
    with pytest.raises(UsageError, match="1 folds do not fit 30 rows"):
        detection(real, real, *NAMES, seed=0, folds=1)
    with pytest.raises(DataError, match="3 folds do not fit 1 rows"):
        detection(real[:1], real, *NAMES, seed=0)


@pytest.mark.skipif(
    not (DATA / "adult.csv.gz").is_file(), reason=f"adult.csv.gz is not in {DATA}"
)
@pytest.mark.parametrize("rows", [10_000, pytest.param(24_421, marks=pytest.mark.slow)])
def test_adult_holdout_passes_and_independent_columns_do_not(rows):
    adult = pd.read_csv(DATA / "adult.csv.gz").sample(2 * rows, random_state=0)
    numeric = adult.select_dtypes("number").columns.tolist()
    categorical = [c for c in adult if c not in numeric]
    real, other = adult[:rows], adult[rows:]
    result = detection(real, other, numeric, categorical, seed=0)
    assert 0.48 < result.value < 0.52
    rng = np.random.default_rng(0)
    shuffled = other.apply(lambda column: rng.permutation(column))
    assert detection(real, shuffled, numeric, categorical, seed=0).value > 0.95
