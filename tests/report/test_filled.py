from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.evaluation.tables import read_tables
from augmask.report.filled import DRAWS, ROWS, fill_missing
from augmask.table.infer import infer_schema

RHO = 0.8
TINY = {"steps": 3, "width": 8, "depth": 1, "holdout": 0.0}


def pairs(n: int, seed: int, holes: float = 0.0) -> pd.DataFrame:
    """Return x and y with a correlation of RHO, and whether y is above x."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = RHO * x + np.sqrt(1 - RHO**2) * rng.normal(size=n)
    up = rng.random(n) < 1 / (1 + np.exp(-3 * x))
    frame = pd.DataFrame({"x": x, "y": y, "word": np.where(up, "up", "down")})
    hidden = rng.random((n, 2)) < holes
    return frame.assign(
        y=frame["y"].mask(hidden[:, 0]), word=frame["word"].mask(hidden[:, 1])
    )


class Exact:
    """Knows the law; its draws are too narrow or too sure by a factor."""

    def __init__(self, real: pd.DataFrame, narrow: float = 1.0, sure: float = 1.0):
        self.schema_ = infer_schema(real)
        self.narrow, self.sure = narrow, sure
        self.rows: list[int] = []

    def impute(self, rows, draws, seed, _progress):
        rng = np.random.default_rng(seed)
        self.rows.append(len(rows) * draws)
        found = []
        for _ in range(draws):
            noise = self.narrow * np.sqrt(1 - RHO**2) * rng.normal(size=len(rows))
            p = 1 / (1 + np.exp(-3 * self.sure * rows["x"]))
            word = pd.Series(np.where(rng.random(len(rows)) < p, "up", "down"))
            found.append(
                pd.DataFrame(
                    {
                        "x": rows["x"],
                        "y": rows["y"].fillna(RHO * rows["x"] + noise),
                        "word": rows["word"].astype(object).fillna(word),
                    }
                )
            )
        return found


def parts_of(real: pd.DataFrame, **more: pd.DataFrame) -> dict:
    return {"real": real, "remasked": real, "schema": infer_schema(real), **more}


def filled(real: pd.DataFrame, model: object, numeric=("x", "y"), **more):
    return fill_missing(parts_of(real, **more), model, list(real), numeric, seed=1)


def coverage(found, kind: str) -> dict[float, float]:
    lines = found.calibration.coverage
    lines = lines[lines["kind"] == kind]
    return dict(zip(lines["nominal"], lines["found"], strict=True))


@pytest.fixture
def many(monkeypatch):
    """Hide so many cells that chance is small."""
    monkeypatch.setattr("augmask.report.filled.ROWS", 6000)


def test_a_model_that_knows_the_law_gets_what_the_law_gives(many):
    real, test = pairs(8000, 0, 0.3), pairs(8000, 1)
    found = filled(real, Exact(real), test=test)
    assert found.unseen
    assert found.like_real
    # each test row got the holes of a real row
    assert found.n_cells == pytest.approx(0.3 * 2 * 6000, rel=0.05)
    for kind in ("numeric", "categorical"):
        for nominal, share in coverage(found, kind).items():
            assert share == pytest.approx(nominal, abs=0.035), (kind, nominal)
    line = found.columns.set_index("column")
    best = np.sqrt((1 - RHO**2) * (1 + 1 / DRAWS))
    assert line.loc["y", "ratio"] == pytest.approx(best, abs=0.03)
    assert found.mean("ratio") == pytest.approx(best, abs=0.03)
    assert line.loc["word", "exact"] > line.loc["word", "frequent"] + 0.2
    # shares of 20 draws are not probabilities, yet the truth is where they say
    assert (found.shares["found"] - found.shares["right"]).abs().max() < 0.05
    assert (found.shares["drawn"] - found.shares["right"]).abs().max() > 0.02


def test_a_model_that_is_too_sure_is_found_out(many):
    real = pairs(8000, 0, 0.3)
    found = filled(real, Exact(real, narrow=0.4, sure=4.0))
    assert not found.unseen
    assert not found.like_real
    assert coverage(found, "numeric")[0.9] < 0.65
    assert coverage(found, "categorical")[0.9] < 0.87
    surest = found.shares.iloc[-1]
    assert surest["found"] < surest["right"] - 0.05


def test_the_work_is_bounded_and_the_same_every_time():
    real = pairs(3000, 0, 0.3)
    model = Exact(real)
    one, two = filled(real, model), filled(real, model)
    assert sum(model.rows) <= 2 * (ROWS * DRAWS + 300)
    assert one.n_rows == ROWS
    pd.testing.assert_frame_equal(one.columns, two.columns)
    assert [e.known for e in one.examples] == [e.known for e in two.examples]


def test_only_columns_with_holes_are_hidden_from():
    real = pairs(1000, 0, 0.3)
    assert set(filled(real, Exact(real)).columns["column"]) == {"y", "word"}


def test_without_holes_or_without_a_fitted_model_there_is_nothing_to_say():
    real = pairs(100, 0)
    assert filled(real, Exact(real)) is None
    holed = pairs(100, 0, 0.3)
    assert filled(holed, None) is None
    assert filled(holed, AugMask()) is None


def test_few_cells_are_too_few():
    real = pairs(40, 0, 0.3)
    found = filled(real, Exact(real))
    assert found.calibration is None
    assert 0 < found.n_cells < 50
    assert found.examples
    assert found.covered == []


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UsageError("a backbone needs the method way"), "the method way"),
        (DataError("cell 'Zaphod' is odd"), "other columns"),
    ],
)
def test_why_a_model_cannot_fill_is_one_sentence_without_cells(error, why):
    real = pairs(300, 0, 0.3)

    class Refuses(Exact):
        def impute(self, *_):
            raise error

    found = filled(real, Refuses(real))
    assert why in found.why_not
    assert "Zaphod" not in found.why_not
    assert found.examples == []


def test_a_model_of_another_table_is_told():
    real = pairs(300, 0, 0.3)
    other = Exact(real.rename(columns={"y": "z", "word": "text"}))
    assert "other columns" in filled(real, other).why_not


def test_a_real_model_fills_every_kind_of_column_and_leaves_level_holes_alone():
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
    tables = read_tables(frame, model.sample(n), schema=model.schema_)
    rows = tables.shown(tables.real)
    parts = {"real": rows, "remasked": rows, "schema": tables.shown_schema}
    unknown = [c.name for c in tables.shown_schema if c.learned and not c.gated]
    found = fill_missing(parts, model, unknown, tables.numeric)
    assert found.why_not == ""
    assert set(found.columns["column"]) == {"kg", "age", "smokes", "day"}
    assert {f.name for e in found.examples for f in e.fans} <= set(found.columns.column)
