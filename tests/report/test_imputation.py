from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.evaluation.evaluate import evaluate
from augmask.report.aggregates import Histogram
from augmask.report.imputation import (
    DRAWS,
    EXAMPLE_DRAWS,
    EXAMPLES,
    MOST_DRAWN,
    ROWS,
    drawn_cell,
    examples,
    measure_imputation,
    range_text,
)
from augmask.table.infer import infer_schema

RHO = 0.8
TINY = {"steps": 3, "width": 8, "depth": 1, "validation_fraction": 0.0}


def pairs(n: int, seed: int, missing: float = 0.0) -> pd.DataFrame:
    """Return x and y with a correlation of RHO, and whether y is above x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = RHO * x + np.sqrt(1 - RHO**2) * rng.normal(size=n)
    up = rng.random(n) < 1 / (1 + np.exp(-3 * x))
    frame = pd.DataFrame({"x": x, "y": y, "word": np.where(up, "up", "down")})
    hidden = rng.random((n, 2)) < missing
    return frame.assign(
        y=frame["y"].mask(hidden[:, 0]), word=frame["word"].mask(hidden[:, 1])
    )


class Exact:
    """Samples the true conditional distribution, or a too narrow or too sure one."""

    def __init__(self, real: pd.DataFrame, narrow: float = 1.0, sure: float = 1.0):
        self.schema_ = infer_schema(real)
        self.narrow, self.sure = narrow, sure
        self.rows: list[int] = []

    def impute(self, rows, n_draws, seed, **_):
        rng = np.random.default_rng(seed)
        self.rows.append(len(rows) * n_draws)
        completions = []
        for _ in range(n_draws):
            noise = self.narrow * np.sqrt(1 - RHO**2) * rng.normal(size=len(rows))
            p = 1 / (1 + np.exp(-3 * self.sure * rows["x"]))
            word = pd.Series(np.where(rng.random(len(rows)) < p, "up", "down"))
            completions.append(
                pd.DataFrame(
                    {
                        "x": rows["x"],
                        "y": rows["y"].fillna(RHO * rows["x"] + noise),
                        "word": rows["word"].astype(object).fillna(word),
                    }
                )
            )
        return completions


def parts_of(real: pd.DataFrame, **more: pd.DataFrame) -> dict:
    return {"real": real, "remasked": real, "schema": infer_schema(real), **more}


def measured(real: pd.DataFrame, model: object, numeric=("x", "y"), **more):
    return measure_imputation(
        parts_of(real, **more), model, list(real), numeric, seed=1
    )


def coverage(result, kind: str) -> dict[float, float]:
    lines = result.calibration.coverage
    lines = lines[lines["kind"] == kind]
    return dict(zip(lines["nominal"], lines["coverage"], strict=True))


@pytest.fixture
def many(monkeypatch):
    """Hide enough values to make sampling noise small."""
    monkeypatch.setattr("augmask.report.imputation.ROWS", 6000)


def test_the_true_distribution_is_calibrated(many):
    real, test = pairs(8000, 0, 0.3), pairs(8000, 1)
    result = measured(real, Exact(real), test=test)
    assert result.unseen
    assert result.like_real
    # Each test row gets the missing values of a real row.
    assert result.n_cells == pytest.approx(0.3 * 2 * 6000, rel=0.05)
    for kind in ("numeric", "categorical"):
        for nominal, share in coverage(result, kind).items():
            assert share == pytest.approx(nominal, abs=0.035), (kind, nominal)
    line = result.columns.set_index("column")
    best = np.sqrt((1 - RHO**2) * (1 + 1 / DRAWS))
    assert line.loc["y", "ratio"] == pytest.approx(best, abs=0.03)
    assert result.mean("ratio") == pytest.approx(best, abs=0.03)
    assert line.loc["word", "accuracy"] > line.loc["word", "baseline"] + 0.2
    # Shares of 20 draws are not probabilities, yet `expected` is unbiased.
    assert (result.shares["true"] - result.shares["expected"]).abs().max() < 0.05
    assert (result.shares["drawn"] - result.shares["expected"]).abs().max() > 0.02


def test_an_overconfident_model_has_low_coverage(many):
    real = pairs(8000, 0, 0.3)
    result = measured(real, Exact(real, narrow=0.4, sure=4.0))
    assert not result.unseen
    assert not result.like_real
    assert coverage(result, "numeric")[0.9] < 0.65
    assert coverage(result, "categorical")[0.9] < 0.87
    surest = result.shares.iloc[-1]
    assert surest["true"] < surest["expected"] - 0.05


def test_the_work_is_bounded_and_reproducible():
    real = pairs(3000, 0, 0.3)
    model = Exact(real)
    one, two = measured(real, model), measured(real, model)
    assert sum(model.rows) <= 2 * (ROWS * DRAWS + 300)
    assert one.n_rows == ROWS
    pd.testing.assert_frame_equal(one.columns, two.columns)
    assert [e.known for e in one.examples] == [e.known for e in two.examples]


def test_only_columns_with_missing_values_are_assessed():
    real = pairs(1000, 0, 0.3)
    assert set(measured(real, Exact(real)).columns["column"]) == {"y", "word"}


def test_without_missing_values_or_a_fitted_model_there_is_no_result():
    real = pairs(100, 0)
    assert measured(real, Exact(real)) is None
    incomplete = pairs(100, 0, 0.3)
    assert measured(incomplete, None) is None
    assert measured(incomplete, AugMask()) is None


def test_few_hidden_values_are_not_scored():
    real = pairs(40, 0, 0.3)
    result = measured(real, Exact(real))
    assert result.calibration is None
    assert 0 < result.n_cells < 50
    assert result.examples
    assert result.coverage == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UsageError("this backbone cannot impute"), "backbone cannot impute"),
        (DataError("cell 'Zaphod' is odd"), "other columns"),
    ],
)
def test_the_reason_why_a_model_cannot_impute_quotes_no_value(error, why):
    real = pairs(300, 0, 0.3)

    class Refuses(Exact):
        def impute(self, *_, **__):
            raise error

    result = measured(real, Refuses(real))
    assert why in result.why_not
    assert "Zaphod" not in result.why_not
    assert not result.examples


def test_a_model_of_another_table_is_reported():
    real = pairs(300, 0, 0.3)
    other = Exact(real.rename(columns={"y": "z", "word": "text"}))
    assert "other columns" in measured(real, other).why_not


def test_a_real_model_imputes_every_kind_of_column_but_not_missing_levels():
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "kg": rng.normal(70, 12, n),
            "age": rng.integers(20, 90, n).astype(float),
            "job": pd.Categorical(rng.choice(["smith", "cook", "clerk"], n)),
            "smokes": rng.random(n) < 0.3,
            "day": pd.date_range("2020-01-01", periods=n, freq="D"),
            "income": rng.gamma(2.0, 9.0, n),
        }
    )
    frame = frame.mask(rng.random(frame.shape) < 0.3)
    schema = {"income": {"missing_as": "level"}, "job": {"missing_as": "level"}}
    model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        model.fit(frame, schema=schema)
    synthetic = model.sample(n)
    scores = evaluate(frame, synthetic, schema=model.schema_, augmenter=None, n_jobs=1)
    schema = scores.parts["schema"]
    unknown = [c.name for c in schema if c.learned and not c.missing_is_level]
    numeric = scores.facts["columns"]["numeric"]
    result = measure_imputation(scores.parts, model, unknown, numeric)
    assert result.why_not == ""
    assert set(result.columns["column"]) == {"kg", "age", "smokes", "day"}
    assert {c.name for e in result.examples for c in e.drawn} <= set(
        result.columns.column
    )


def table(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(50, 10, n),
            "n": rng.integers(0, 6, n).astype(float),
            "day": pd.Timestamp("2021-01-01")
            + pd.to_timedelta(rng.integers(0, 700, n), "D"),
            "word": rng.choice(["up", "down"], n, p=[0.8, 0.2]),
            "id": "only",
        }
    )


def test_a_number_is_shown_as_a_range_that_hides_the_extremes_of_the_table():
    real = table()
    real.loc[3, "x"] = 98765.4
    for value in (98765.4, -1e9, 50.0):
        cell = drawn_cell(pd.DataFrame({"x": [value] * 9}), real, "x", True)
        assert cell.quantiles.min() >= cell.column.edges[0]
        assert cell.quantiles.max() <= cell.column.edges[-1]
        assert not cell.column.dates
        assert "9876" not in cell.summary
    days = drawn_cell(real[["day"]].head(30), real, "day", True)
    assert days.column.dates
    assert days.summary.startswith("median 202")


def test_the_outer_ranges_are_open_and_dates_are_dates():
    integers = Histogram(np.array([-0.5, 0.5, 1.5, 9.5]), {}, integer=True)
    texts = [range_text(value, integers) for value in (0, 1, 7)]
    assert texts == ["at most 0", "1", "at least 2"]
    days = Histogram(np.array([0.0, 31.0, 59.0, 90.0]), {}, dates=True)
    texts = [range_text(value, days) for value in (3, 40, 80)]
    assert texts == ["before 1970-02-01", "1970-02-01 to 1970-03-01", "from 1970-03-01"]
    alone = Histogram(np.array([0.0, 1.0]), {})
    assert range_text(0.3, alone) == "somewhere in its range"


def test_quantiles_and_shares_are_those_of_the_draws():
    real = table()
    draws = pd.DataFrame(
        {"x": np.linspace(40, 60, 101), "word": ["down"] * 75 + ["up"] * 26}
    )
    quantiles = drawn_cell(draws, real, "x", True).quantiles
    assert np.allclose(quantiles, [40.5, 42, 45, 50, 55, 58, 59.5])
    word = drawn_cell(draws, real, "word", False)
    assert word.summary == "down in 74 %"
    down = word.column.labels.index("down")
    assert abs(word.column.shares["synthetic"][down] - 75 / 101) < 1e-9
    assert word.column.shares["real"][down] < 0.3


def test_examples_cover_many_columns_and_count_what_is_left_out():
    real = table()
    missing = np.random.default_rng(1).random((400, 4)) < 0.4
    names = ["x", "n", "day", "word"]
    rows = real.copy()
    rows[names] = rows[names].mask(missing)
    rows.loc[:4, "id"] = "Zaphod"
    calls = []

    def impute(some: pd.DataFrame, draws: int) -> list[pd.DataFrame]:
        calls.append((len(some), draws))
        fill = {name: real[name].iloc[0] for name in names}
        return [some.fillna(fill) for _ in range(draws)]

    result = examples(rows, real, names, ["x", "n", "day"], impute, rng())
    assert calls == [(EXAMPLES, EXAMPLE_DRAWS)]
    assert {c.name for e in result for c in e.drawn} == set(names)
    for example in result:
        drawn = {c.name for c in example.drawn}
        assert 1 <= len(drawn) <= MOST_DRAWN
        assert not drawn & {name for name, _ in example.known}
        assert ("id", "only") in example.known or example.more_known
        assert len(drawn) + len(example.known) + example.more_known == 5
    assert "Zaphod" not in str([e.known for e in result])


def test_complete_and_empty_rows_are_no_examples():
    real = table()[["x", "word"]]
    for rows in (real, real.mask(np.ones(real.shape, bool))):
        assert examples(rows, real, ["x", "word"], ["x"], None, rng()) == []


def rng() -> np.random.Generator:
    return np.random.default_rng(2)
