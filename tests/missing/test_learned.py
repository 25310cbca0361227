from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.augmentation.marginal import Ecdf
from augmask.missing.learned import draw_missing, fit_missing_model
from augmask.missing.model import MissingModel
from augmask.table.encode import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema

DATA = Path(os.environ.get("AUGMASK_DATA", "../shared/data"))


def rng(seed=0):
    return np.random.default_rng(seed)


def learned(frame, schema=None):
    """Return the model of a frame's holes, and complete rows like its own."""
    codec = Codec.fit(frame, infer_schema(frame, schema), 0)
    table = codec.encode(frame, 0)
    filled = Ecdf().fit(table, rng()).draw(rng(1))
    rows = codec.decode(filled.num, filled.cat, rng(2))
    return fit_missing_model(frame, codec, table, rng(3)), rows


@pytest.fixture
def survey():
    """Whole, decimal, flag, word, date, key and a constant, each with holes."""
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
    none = ~frame["smokes"].astype(bool)
    frame.loc[none, "packs"] = np.nan
    for name, rate in {"id": 0.1, "weight": 0.4, "smokes": 0.2, "country": 0.3}.items():
        frame.loc[draw.random(n) < rate, name] = None
    frame.loc[draw.random(n) < 0.2, ["town", "seen"]] = None
    frame["age"] = frame["age"].mask(draw.random(n) < 0.05)
    frame[7] = frame[7].astype("Int64").mask(draw.random(n) < 0.2)
    return frame


def gaps(real, made):
    a, b = (f.isna().to_numpy(float) for f in (real, made))
    rates = np.abs(a.mean(0) - b.mean(0)).max()
    together = np.abs(a.T @ a / len(a) - b.T @ b / len(b)).max()
    return rates, together


def test_every_kind_of_column_gets_its_holes_back(survey):
    model, rows = learned(survey, {"7": "integer"})
    made = draw_missing(model, rows, rng(4))
    rates, together = gaps(survey, made)
    assert rates < 0.02
    assert together < 0.03
    assert (made["town"].isna() == made["seen"].isna()).all()
    shown = made["smokes"].notna() & ~made["smokes"].fillna(False).astype(bool)
    assert made["packs"][shown].isna().all()
    # what is not a hole is the row's own value
    for name in rows:
        kept = made[name].notna()
        assert (made[name][kept] == rows[name][kept]).all()


def test_dtypes_do_not_depend_on_where_the_holes_fell(survey):
    model, rows = learned(survey, {"7": "integer"})
    whole = draw_missing(model, rows, rng(4)).dtypes
    assert str(whole["packs"]) == "float64"
    assert str(whole["smokes"]) == "object"
    assert str(whole[7]) == "Int64"
    assert whole["seen"].kind == "M"
    for start in range(0, 40, 2):
        part = rows.iloc[start : start + 2].reset_index(drop=True)
        assert draw_missing(model, part, rng(start)).dtypes.equals(whole)


def test_a_hole_that_is_a_value_is_left_to_the_generator(survey):
    model, rows = learned(survey, {"packs": {"missing_as": "level"}, "7": "integer"})
    made = draw_missing(model, rows, rng(4))
    assert made["packs"].isna().equals(rows["packs"].isna())


def test_a_file_gives_the_same_holes(survey):
    model, rows = learned(survey, {"7": "integer"})
    facts = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    again = MissingModel.from_parts(facts, model.arrays())
    pd.testing.assert_frame_equal(
        draw_missing(again, rows, rng(4)), draw_missing(model, rows, rng(4))
    )
    facts["columns"].pop()
    with pytest.raises(ValueError, match="do not fit"):
        MissingModel.from_parts(facts, model.arrays())


def test_a_complete_table_has_no_holes_to_give():
    frame = pd.DataFrame({"x": rng().normal(size=200), "n": [*range(50)] * 4})
    model, rows = learned(frame)
    pd.testing.assert_frame_equal(draw_missing(model, rows, rng()), rows)


@pytest.mark.parametrize("name", ["nafld1", "loans"])
def test_real_holes_come_back(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent; set AUGMASK_DATA")
    frame = read_frame(path)
    model, rows = learned(frame)
    rates, together = gaps(frame, draw_missing(model, rows, rng(4)))
    assert rates < 0.02
    assert together < 0.03


def test_rows_that_are_off_get_the_rates_of_the_table_and_keep_what_matters():
    n = 20_000
    age = rng(1).uniform(20, 80, n)
    miss = rng(2).random(n) < np.where(age > 50, 0.6, 0.2)
    frame = pd.DataFrame({"age": age, "income": np.where(miss, np.nan, 1.0)})
    frame["never"] = np.where(age < 30, np.nan, 2.0)  # a rule, not a chance
    model = MissingModel().fit(frame)
    # a generator with too many young people
    young = np.where(rng(3).random(n) < 0.7, 20 + 0.5 * (age - 20), age)
    rows = pd.DataFrame({"age": young, "income": 1.0, "never": 2.0})
    plain = ~model.observed(rows, rng(4))
    suited = ~model.suited(rows, rng(5)).observed(rows, rng(4))
    rate = miss.mean()
    assert abs(plain[:, 1].mean() - rate) > 0.05
    assert abs(suited[:, 1].mean() - rate) < 0.01
    # the odds of old and young stay as far apart, and rules stay rules
    odds = [np.mean(suited[part, 1]) for part in (young > 50, young < 50)]
    ratio = odds[0] / (1 - odds[0]) * (1 - odds[1]) / odds[1]
    assert ratio == pytest.approx(1.5 / 0.25, rel=0.15)
    assert suited[young < 25, 2].all()
    assert not suited[young > 35, 2].any()
    # the model itself has not changed
    np.testing.assert_array_equal(~model.observed(rows, rng(4)), plain)
