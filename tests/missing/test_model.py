from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from augmask.errors import DataError, NotFittedError, UsageError
from augmask.missing.model import MissingModel, with_holes
from augmask.missing.simulate import ampute

DATA = Path(os.environ.get("AUGMASK_DATA", "../shared/data"))


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n)
    return pd.DataFrame(
        {
            "age": age,
            "income": age + rng.normal(size=n),
            "town": rng.choice(["Pau", "Metz", "Brest"], n, p=[0.5, 0.3, 0.2]),
            "smokes": rng.random(n) < 0.3,
            "packs": rng.poisson(3, n),
            "brand": rng.choice(["a", "b"], n),
        }
    )


def punch(frame, holes, seed=99):
    """Holes as {column: chance per row}."""
    rng = np.random.default_rng(seed)
    observed = np.ones(frame.shape, dtype=bool)
    for name, chance in holes.items():
        observed[:, frame.columns.get_loc(name)] = rng.random(len(frame)) >= chance
    return with_holes(frame, observed)


def hidden(model, rows, seed=1):
    drawn = model.observed(rows, np.random.default_rng(seed))
    return pd.DataFrame(~drawn, columns=model.columns_)


def test_mar_by_a_number_a_level_and_a_value_that_may_be_missing_itself():
    n = 20_000
    table = people(n)
    chance = expit(2 * table["age"] - 1)
    income = punch(table, {"income": chance})
    # The town is hidden where a shown income is high, so twice indirectly by age.
    seen = income["income"].fillna(-9) > 1
    holed = income.assign(
        town=punch(table, {"town": np.where(seen, 0.9, 0.45)}, seed=98)["town"]
    )
    rows = people(n, seed=5)
    found = hidden(MissingModel().fit(holed), rows)
    assert not found[["age", "smokes", "packs", "brand"]].to_numpy().any()
    bins = pd.cut(rows["age"], [-9, -1.5, -0.5, 0.5, 1.5, 9])
    expected = expit(2 * rows["age"] - 1).groupby(bins, observed=True).mean()
    got = found["income"].groupby(bins, observed=True).mean()
    assert np.abs(got - expected).max() < 0.03
    high = (rows["income"] > 1) & ~found["income"]
    # The step at 1 lies inside a bin, which blurs it a little.
    assert found["town"][high].mean() == pytest.approx(0.9, abs=0.05)
    assert found["town"][~high].mean() == pytest.approx(0.45, abs=0.03)


def test_patterns_that_are_rules_are_kept_as_rules():
    n = 5000
    table = people(n)
    not_applicable = ~table["smokes"]
    holed = punch(table, {"packs": not_applicable, "brand": not_applicable})
    holed = holed.assign(income=punch(table, {"income": 0.4})["income"])
    holed["unknown"] = np.nan
    rows = people(n, seed=5).assign(unknown=0.0)
    found = hidden(MissingModel().fit(holed), rows)
    assert (found["packs"] == found["brand"]).all()
    assert (found["packs"] == ~rows["smokes"]).all()
    assert found["unknown"].all()
    assert found["income"].mean() == pytest.approx(0.4, abs=0.02)


def test_a_cell_that_misses_if_either_of_two_misses():
    n = 10_000
    table = people(n)
    holed = punch(table, {"income": 0.2, "packs": expit(table["age"] - 2)})
    either = holed["income"].isna() | holed["packs"].isna()
    holed = holed.assign(brand=punch(table, {"brand": either})["brand"])
    found = hidden(MissingModel().fit(holed), people(n, seed=5))
    assert (found["brand"] == (found["income"] | found["packs"])).all()


def test_holes_at_random_are_drawn_by_their_rate_alone():
    holed = ampute(people(4000), "mcar", 0.3, seed=2)
    model = MissingModel().fit(holed)
    # 15 pairs of columns at a level of 1 % per column: one false alarm at the most.
    assert sum(len(factor.weights) for factor in model.factors_) <= 1
    found = hidden(model, people(20_000, seed=5))
    assert np.abs(found.mean() - holed.isna().mean()).max() < 0.01


def test_same_draws_from_the_same_seed_and_unseen_levels_are_no_obstacle():
    table = people(3000)
    holed = punch(table, {"income": np.where(table["town"] == "Metz", 0.8, 0.1)})
    model = MissingModel().fit(holed)
    rows = people(500).assign(town=["Nice", "Metz"] * 250)
    assert hidden(model, rows).equals(hidden(model, rows[rows.columns[::-1]]))
    assert not hidden(model, rows).equals(hidden(model, rows, seed=2))
    rates = hidden(model, rows)["income"].groupby(rows["town"]).mean()
    assert rates["Metz"] > 0.7 > 0.5 > rates["Nice"]


def test_dates_and_declared_codes():
    n = 4000
    table = people(n)
    table["seen"] = pd.Timestamp("2020-01-01", tz="Europe/Paris") + pd.to_timedelta(
        np.arange(n), unit="h"
    )
    late = np.arange(n) >= n / 2
    table["packs"] = np.where(late, -999, table["packs"])
    holes = pd.DataFrame(False, table.index, table.columns).assign(packs=late)
    found = hidden(MissingModel().fit(table, holes=holes), table)
    assert (found["packs"] == late).mean() > 0.95
    assert not found.drop(columns="packs").to_numpy().any()


def test_what_is_refused():
    table = people(50)
    with pytest.raises(NotFittedError):
        MissingModel().observed(table, np.random.default_rng(0))
    with pytest.raises(DataError, match="none"):
        MissingModel().fit(table[:0])
    with pytest.raises(UsageError, match="shape"):
        MissingModel().fit(table, holes=table[["age"]].isna())
    with pytest.raises(UsageError, match="shape"):
        with_holes(table, np.ones((50, 2), dtype=bool))
    model = MissingModel().fit(table)
    with pytest.raises(DataError, match="'town' is absent"):
        model.observed(table.drop(columns="town"), np.random.default_rng(0))
    with pytest.raises(DataError, match="'age' was numeric"):
        model.observed(table.assign(age="old"), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["nafld1", "smoking", "storms", "loans"])
def test_rates_and_patterns_of_really_incomplete_tables(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path}; set AUGMASK_DATA")
    table = pd.read_csv(path)
    rng = np.random.default_rng(0)
    # Complete rows that keep every observed value in place.
    rows = table.copy()
    for column in rows:
        known = rows[column].dropna()
        fill = known.iloc[rng.integers(len(known), size=len(rows))].to_numpy()
        rows[column] = rows[column].where(rows[column].notna(), pd.Series(fill))
    start = time.process_time()
    found = hidden(MissingModel().fit(table), rows)
    assert time.process_time() - start < 30
    real = table.isna()
    assert np.abs(found.mean() - real.mean()).max() < 0.01
    shares = [
        h.value_counts(normalize=True).rename_axis(range(h.shape[1]))
        for h in (real, found)
    ]
    top = shares[0].head(10)
    assert np.abs(top - shares[1].reindex(top.index, fill_value=0)).max() < 0.015


def test_a_very_wide_table_takes_time_in_proportion_to_its_columns():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 1500))
    frame = pd.DataFrame(np.where(rng.random(values.shape) < 0.2, np.nan, values))
    frame[1] = np.where(values[:, 0] > 0, np.nan, frame[1])
    frame[0] = np.where(values[:, 0] > 0, "a", "b")
    began = time.process_time()
    model = MissingModel().fit(frame.rename(columns=str))
    assert time.process_time() - began < 15
    # what matters is still found among all of them
    factor = next(f for f in model.factors_ if 1 in f.columns)
    assert 0 in factor.weights


def test_columns_that_matter_are_found_in_a_table_too_large_to_test_them_all(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 40))).rename(columns=str)
    hidden = np.zeros(frame.shape, dtype=bool)
    hidden[:, 39] = rng.random(2000) < np.where(frame["7"] > 0, 0.6, 0.05)
    holes = pd.DataFrame(hidden, columns=frame.columns)
    whole = MissingModel().fit(frame, holes=holes).factors_[0]
    assert set(whole.weights) == {7}
    monkeypatch.setattr("augmask.missing.factor.MOST_CELLS", 8_000)
    bounded = MissingModel().fit(frame, holes=holes).factors_[0]
    assert set(bounded.weights) == {7}
    np.testing.assert_array_equal(bounded.weights[7], whole.weights[7])
