from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.demo.clinic import clinic, clinic_with_missing

RANGES = {
    "age": (18, 98),
    "height_cm": (142, 206),
    "weight_kg": (30, 225),
    "bmi": (15, 52.5),
    "cigarettes": (0, 60),
    "glucose": (3, 27),
    "systolic": (82, 232),
    "crp": (0.1, 480),
    "oxygen": (68, 100),
    "stay_days": (0, 60),
}
KINDS = {
    "int64": {"age", "height_cm", "cigarettes", "systolic", "oxygen", "stay_days"},
    "float64": {"weight_kg", "bmi", "glucose", "crp"},
    "bool": {"smoker", "diabetic", "readmitted"},
    "category": {"sex", "insurance", "diagnosis", "triage"},
    "datetime64[ns]": {"visit_date"},
}


@pytest.fixture(scope="module")
def visits() -> pd.DataFrame:
    return clinic()


def test_the_table_is_complete_and_has_the_documented_columns(visits):
    assert len(visits) == 5000
    assert not visits.isna().to_numpy().any()
    for kind, names in KINDS.items():
        assert {name for name in visits if visits[name].dtype == kind} == names
    assert visits["triage"].cat.ordered
    assert visits["patient"].is_unique
    assert visits["patient"].str.fullmatch(r"P-\d{6}").all()


def test_values_are_plausible(visits):
    for name, (low, high) in RANGES.items():
        assert visits[name].between(low, high).all(), name
    for name in KINDS["float64"]:
        np.testing.assert_allclose(visits[name], visits[name].round(1), rtol=1e-12)
    assert visits["visit_date"].dt.year.between(2021, 2024).all()
    births = visits["diagnosis"].astype(str).str.startswith("O")
    assert (visits.loc[births, "sex"] == "female").all()
    assert visits.loc[births, "age"].max() < 45
    prostate = visits["diagnosis"].isin(["C61", "N40"])
    assert (visits.loc[prostate, "sex"] == "male").all()


def test_marginals_are_awkward(visits):
    assert visits["crp"].skew() > 3
    assert 0.5 < (visits["stay_days"] == 0).mean() < 0.75
    assert 0.6 < (visits["cigarettes"] == 0).mean() < 0.85
    share = visits["diagnosis"].value_counts(normalize=True)
    assert 50 <= (share > 0).sum() <= 70
    assert share.iloc[0] > 10 * share.iloc[-10]
    for name in ("sex", "insurance", "triage"):
        assert visits[name].value_counts(normalize=True).min() > 0.01
    winter = visits["visit_date"].dt.month.isin([12, 1, 2]).mean()
    assert winter > 0.3


def test_dependence_is_strong_and_not_linear(visits):
    by = visits.groupby
    # One column from two others, exactly.
    metres = visits["height_cm"] / 100
    pd.testing.assert_series_equal(
        visits["bmi"], (visits["weight_kg"] / metres**2).round(1), check_names=False
    )
    # A hump: the middle-aged are heaviest.
    bmi = by(pd.cut(visits["age"], [0, 30, 50, 65, 80, 100]), observed=True)["bmi"]
    assert bmi.mean().iloc[2] > bmi.mean().iloc[[0, 4]].max() + 1
    # An interaction: pressure of women is flat up to 50, and steep after.
    women = visits[visits["sex"] == "female"]
    before, after = women["age"] < 50, women["age"] >= 50
    assert abs(women[before].corr(numeric_only=True).loc["age", "systolic"]) < 0.3
    assert women[after].corr(numeric_only=True).loc["age", "systolic"] > 0.5
    # A mixture: two humps of glucose in diabetics, one elsewhere.
    sick = visits.loc[visits["diabetic"], "glucose"]
    assert sick.between(9.3, 10.3).mean() < 0.5 * sick.between(6.9, 7.9).mean()
    assert sick.between(9.3, 10.3).mean() < 0.7 * sick.between(12.7, 13.7).mean()
    assert visits.loc[~visits["diabetic"], "glucose"].max() < 8.5
    # A product: the urgent stay longer, and among them the old far longer.
    stay = by([visits["triage"] >= "orange", visits["age"] > 65])["stay_days"].mean()
    assert stay[True, True] > 1.5 * stay[True, False] > 3 * stay[False, False]
    # A threshold, and a category that follows season.
    assert (by(visits["age"] >= 65)["insurance"].value_counts()[False, "senior"]) < 30
    lungs = visits["diagnosis"].astype(str).str.startswith("J")
    cold = visits["visit_date"].dt.month.isin([11, 12, 1, 2])
    assert lungs[cold].mean() > 1.7 * lungs[~cold].mean()


def test_missing_values(visits):
    complete, incomplete = clinic_with_missing()
    pd.testing.assert_frame_equal(complete, visits)
    assert list(incomplete) == list(complete)
    missing = incomplete.isna()
    assert not missing["patient"].any()
    rates = missing.drop(columns="patient").mean()
    assert rates.between(0.35, 0.45).all()
    assert not missing.drop(columns="patient").all(axis=1).any()
    for name in complete:
        observed = ~missing[name]
        assert (incomplete[name][observed] == complete[name][observed]).all()


def test_same_seed_same_table():
    pd.testing.assert_frame_equal(clinic(300, seed=4), clinic(300, seed=4))
    assert not clinic(300, seed=4)["crp"].equals(clinic(300, seed=5)["crp"])
    first, again = clinic_with_missing(300, seed=4), clinic_with_missing(300, seed=4)
    pd.testing.assert_frame_equal(first[1], again[1])
