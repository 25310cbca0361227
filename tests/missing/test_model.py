from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from augmask.augmentation.marginal import Ecdf
from augmask.errors import DataError, UsageError
from augmask.missing.model import (
    MissingModel,
    draw_missing,
    fit_missing_model,
    with_missing,
)
from augmask.missing.simulate import ampute
from augmask.table.codec import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema

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


def hide(frame, rates, seed=99):
    """Hide cells; `rates` is {column: probability per row}."""
    rng = np.random.default_rng(seed)
    observed = np.ones(frame.shape, dtype=bool)
    for name, rate in rates.items():
        observed[:, frame.columns.get_loc(name)] = rng.random(len(frame)) >= rate
    return with_missing(frame, observed)


def draw_hidden(model, rows, seed=1):
    observed = model.draw_mask(rows, np.random.default_rng(seed))
    return pd.DataFrame(~observed, columns=model.columns_)


def test_mar_depending_on_a_number_a_level_and_a_value_that_may_be_missing():
    n = 20_000
    table = people(n)
    rate = expit(2 * table["age"] - 1)
    income = hide(table, {"income": rate})
    # The town is hidden where an observed income is high, so indirectly by age.
    high_income = income["income"].fillna(-9) > 1
    incomplete = income.assign(
        town=hide(table, {"town": np.where(high_income, 0.9, 0.45)}, seed=98)["town"]
    )
    rows = people(n, seed=5)
    hidden = draw_hidden(MissingModel().fit(incomplete), rows)
    assert not hidden[["age", "smokes", "packs", "brand"]].to_numpy().any()
    bins = pd.cut(rows["age"], [-9, -1.5, -0.5, 0.5, 1.5, 9])
    expected = expit(2 * rows["age"] - 1).groupby(bins, observed=True).mean()
    got = hidden["income"].groupby(bins, observed=True).mean()
    assert np.abs(got - expected).max() < 0.03
    high = (rows["income"] > 1) & ~hidden["income"]
    # The step at 1 lies inside a bin, which blurs it a little.
    assert hidden["town"][high].mean() == pytest.approx(0.9, abs=0.05)
    assert hidden["town"][~high].mean() == pytest.approx(0.45, abs=0.03)


def test_deterministic_missingness_stays_deterministic():
    n = 5000
    table = people(n)
    not_applicable = ~table["smokes"]
    incomplete = hide(table, {"packs": not_applicable, "brand": not_applicable})
    incomplete = incomplete.assign(income=hide(table, {"income": 0.4})["income"])
    incomplete["unknown"] = np.nan
    rows = people(n, seed=5).assign(unknown=0.0)
    hidden = draw_hidden(MissingModel().fit(incomplete), rows)
    assert (hidden["packs"] == hidden["brand"]).all()
    assert (hidden["packs"] == ~rows["smokes"]).all()
    assert hidden["unknown"].all()
    assert hidden["income"].mean() == pytest.approx(0.4, abs=0.02)


def test_a_column_missing_whenever_either_of_two_others_is():
    n = 10_000
    table = people(n)
    incomplete = hide(table, {"income": 0.2, "packs": expit(table["age"] - 2)})
    either = incomplete["income"].isna() | incomplete["packs"].isna()
    incomplete = incomplete.assign(brand=hide(table, {"brand": either})["brand"])
    hidden = draw_hidden(MissingModel().fit(incomplete), people(n, seed=5))
    assert (hidden["brand"] == (hidden["income"] | hidden["packs"])).all()


def test_mcar_is_drawn_from_the_rates_alone():
    incomplete = ampute(people(4000), mechanism="mcar", ratio=0.3, seed=2)
    model = MissingModel().fit(incomplete)
    # 15 pairs of columns at 1 % per column: at most one false positive.
    assert sum(len(factor.weights) for factor in model.factors_) <= 1
    hidden = draw_hidden(model, people(20_000, seed=5))
    assert np.abs(hidden.mean() - incomplete.isna().mean()).max() < 0.01


def test_the_seed_and_not_the_column_order_decides_and_new_levels_are_accepted():
    table = people(3000)
    incomplete = hide(table, {"income": np.where(table["town"] == "Metz", 0.8, 0.1)})
    model = MissingModel().fit(incomplete)
    rows = people(500).assign(town=["Nice", "Metz"] * 250)
    assert draw_hidden(model, rows).equals(draw_hidden(model, rows[rows.columns[::-1]]))
    assert not draw_hidden(model, rows).equals(draw_hidden(model, rows, seed=2))
    rates = draw_hidden(model, rows)["income"].groupby(rows["town"]).mean()
    assert rates["Metz"] > 0.7 > 0.5 > rates["Nice"]


def test_dates_and_declared_missing_codes():
    n = 4000
    table = people(n)
    table["seen"] = pd.Timestamp("2020-01-01", tz="Europe/Paris") + pd.to_timedelta(
        np.arange(n), unit="h"
    )
    late = np.arange(n) >= n / 2
    table["packs"] = np.where(late, -999, table["packs"])
    missing = pd.DataFrame(False, table.index, table.columns).assign(packs=late)
    hidden = draw_hidden(MissingModel().fit(table, missing=missing), table)
    assert (hidden["packs"] == late).mean() > 0.95
    assert not hidden.drop(columns="packs").to_numpy().any()


def test_invalid_input_is_refused():
    table = people(50)
    with pytest.raises(NotFittedError, match="call fit first"):
        MissingModel().draw_mask(table, np.random.default_rng(0))
    with pytest.raises(DataError, match="none"):
        MissingModel().fit(table[:0])
    with pytest.raises(UsageError, match="shape"):
        MissingModel().fit(table, missing=table[["age"]].isna())
    with pytest.raises(UsageError, match="shape"):
        with_missing(table, np.ones((50, 2), dtype=bool))
    model = MissingModel().fit(table)
    with pytest.raises(DataError, match="'town' is absent"):
        model.draw_mask(table.drop(columns="town"), np.random.default_rng(0))
    with pytest.raises(DataError, match="'age' was numeric"):
        model.draw_mask(table.assign(age="old"), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["nafld1", "smoking", "storms", "loans"])
def test_rates_and_patterns_of_real_incomplete_tables(name):
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
    hidden = draw_hidden(MissingModel().fit(table), rows)
    assert time.process_time() - start < 30
    real = table.isna()
    assert np.abs(hidden.mean() - real.mean()).max() < 0.01
    shares = [
        h.value_counts(normalize=True).rename_axis(range(h.shape[1]))
        for h in (real, hidden)
    ]
    top = shares[0].head(10)
    assert np.abs(top - shares[1].reindex(top.index, fill_value=0)).max() < 0.015


def test_fitting_a_wide_table_takes_time_linear_in_its_columns():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(50, 1500))
    frame = pd.DataFrame(np.where(rng.random(values.shape) < 0.2, np.nan, values))
    frame[1] = np.where(values[:, 0] > 0, np.nan, frame[1])
    frame[0] = np.where(values[:, 0] > 0, "a", "b")
    began = time.process_time()
    model = MissingModel().fit(frame.rename(columns=str))
    assert time.process_time() - began < 15
    # the relevant column is still hidden among all of them
    factor = next(f for f in model.factors_ if 1 in f.columns)
    assert 0 in factor.weights


def test_relevant_columns_are_found_when_they_are_screened_on_a_sample_of_rows(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 40))).rename(columns=str)
    mask = np.zeros(frame.shape, dtype=bool)
    mask[:, 39] = rng.random(2000) < np.where(frame["7"] > 0, 0.6, 0.05)
    missing = pd.DataFrame(mask, columns=frame.columns)
    full = MissingModel().fit(frame, missing=missing).factors_[0]
    assert set(full.weights) == {7}
    monkeypatch.setattr("augmask.missing.model.MAX_CELLS", 8_000)
    screened = MissingModel().fit(frame, missing=missing).factors_[0]
    assert set(screened.weights) == {7}
    np.testing.assert_array_equal(screened.weights[7], full.weights[7])


def rng(seed=0):
    return np.random.default_rng(seed)


def fit_on(frame, schema=None):
    """Return the missingness model of a frame, and complete rows like its own."""
    codec = Codec.fit(frame, infer_schema(frame, schema), 0)
    table = codec.encode(frame, 0)
    filled = Ecdf().fit(table, rng()).draw(rng(1))
    rows = codec.decode(filled.num, filled.cat, rng(2))
    return fit_missing_model(frame, codec, table, rng(3)), rows


@pytest.fixture
def survey():
    """Integer, float, boolean, text, date, identifier and constant, all incomplete."""
    n = 4000
    at, draw = np.arange(n), rng(7)
    frame = pd.DataFrame(
        {
            "id": [f"P{i:05d}" for i in at],
            "age": draw.integers(18, 90, n).astype(float),
            "weight": draw.normal(70, 9, n),
            "smokes": pd.Series(draw.random(n) < 0.3, dtype=object),
            "packs": draw.poisson(9, n).astype(float),
            "town": draw.choice(["Pau", "Metz", "Brest"], n),
            "seen": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(draw.integers(0, 900, n), "D"),
            "country": "FR",
            7: draw.integers(2**60, 2**60 + 9000, n),
        }
    )
    non_smokers = ~frame["smokes"].astype(bool)
    frame.loc[non_smokers, "packs"] = np.nan
    for name, rate in {"id": 0.1, "weight": 0.4, "smokes": 0.2, "country": 0.3}.items():
        frame.loc[draw.random(n) < rate, name] = None
    frame.loc[draw.random(n) < 0.2, ["town", "seen"]] = None
    frame["age"] = frame["age"].mask(draw.random(n) < 0.05)
    frame[7] = frame[7].astype("Int64").mask(draw.random(n) < 0.2)
    return frame


def differences(real, sampled):
    a, b = (f.isna().to_numpy(float) for f in (real, sampled))
    rates = np.abs(a.mean(0) - b.mean(0)).max()
    together = np.abs(a.T @ a / len(a) - b.T @ b / len(b)).max()
    return rates, together


def test_every_kind_of_column_gets_its_missing_values_back(survey):
    model, rows = fit_on(survey, {"7": "integer"})
    sampled = draw_missing(model, rows, rng(4))
    rates, together = differences(survey, sampled)
    assert rates < 0.02
    assert together < 0.03
    assert (sampled["town"].isna() == sampled["seen"].isna()).all()
    smokes = sampled["smokes"].fillna(True).astype(bool)
    assert sampled["packs"][~smokes].isna().all()
    # observed cells have the row's value
    for name in rows:
        observed = sampled[name].notna()
        assert (sampled[name][observed] == rows[name][observed]).all()


def test_dtypes_do_not_depend_on_which_cells_are_missing(survey):
    model, rows = fit_on(survey, {"7": "integer"})
    expected = draw_missing(model, rows, rng(4)).dtypes
    assert str(expected["packs"]) == "float64"
    assert str(expected["smokes"]) == "object"
    assert str(expected[7]) == "Int64"
    assert expected["seen"].kind == "M"
    for start in range(0, 40, 2):
        part = rows.iloc[start : start + 2].reset_index(drop=True)
        assert draw_missing(model, part, rng(start)).dtypes.equals(expected)


def test_missing_values_modelled_as_a_level_are_left_to_the_generator(survey):
    model, rows = fit_on(survey, {"packs": {"missing_as": "level"}, "7": "integer"})
    sampled = draw_missing(model, rows, rng(4))
    assert sampled["packs"].isna().equals(rows["packs"].isna())


def test_a_stored_model_draws_the_same_missing_values(survey):
    model, rows = fit_on(survey, {"7": "integer"})
    facts = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    restored = MissingModel.from_parts(facts, model.arrays())
    pd.testing.assert_frame_equal(
        draw_missing(restored, rows, rng(4)), draw_missing(model, rows, rng(4))
    )
    facts["columns"].pop()
    with pytest.raises(ValueError, match="does not match its columns"):
        MissingModel.from_parts(facts, model.arrays())


def test_a_complete_table_stays_complete():
    frame = pd.DataFrame({"x": rng().normal(size=200), "n": [*range(50)] * 4})
    model, rows = fit_on(frame)
    pd.testing.assert_frame_equal(draw_missing(model, rows, rng()), rows)


@pytest.mark.parametrize("name", ["nafld1", "loans"])
def test_missing_values_of_real_tables_come_back(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent; set AUGMASK_DATA")
    frame = read_frame(path)
    model, rows = fit_on(frame)
    rates, together = differences(frame, draw_missing(model, rows, rng(4)))
    assert rates < 0.02
    assert together < 0.03


def test_calibration_restores_rates_and_keeps_odds_ratios():
    n = 20_000
    age = rng(1).uniform(20, 80, n)
    missing = rng(2).random(n) < np.where(age > 50, 0.6, 0.2)
    frame = pd.DataFrame({"age": age, "income": np.where(missing, np.nan, 1.0)})
    frame["never"] = np.where(age < 30, np.nan, 2.0)  # deterministic
    model = MissingModel().fit(frame)
    # a generator with too many young people
    young = np.where(rng(3).random(n) < 0.7, 20 + 0.5 * (age - 20), age)
    rows = pd.DataFrame({"age": young, "income": 1.0, "never": 2.0})
    plain = ~model.draw_mask(rows, rng(4))
    calibrated = ~model.calibrated(rows, rng(5)).draw_mask(rows, rng(4))
    rate = missing.mean()
    assert abs(plain[:, 1].mean() - rate) > 0.05
    assert abs(calibrated[:, 1].mean() - rate) < 0.01
    # the odds ratio of old and young stays, and what is certain stays certain
    rates = [np.mean(calibrated[part, 1]) for part in (young > 50, young < 50)]
    ratio = rates[0] / (1 - rates[0]) * (1 - rates[1]) / rates[1]
    assert ratio == pytest.approx(1.5 / 0.25, rel=0.15)
    assert calibrated[young < 25, 2].all()
    assert not calibrated[young > 35, 2].any()
    # the model itself has not changed
    np.testing.assert_array_equal(~model.draw_mask(rows, rng(4)), plain)
