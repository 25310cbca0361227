from __future__ import annotations

import numpy as np
import pandas as pd

from augmask.report.counts import Histogram
from augmask.report.imputation_examples import (
    DRAWS,
    HOLES,
    ROWS,
    examples,
    fan,
    range_of,
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


def test_a_number_is_told_as_a_range_that_does_not_show_the_ends_of_the_table():
    real = table()
    real.loc[3, "x"] = 98765.4
    for value, dates in ((98765.4, False), (-1e9, False), (50.0, False)):
        found = fan(pd.DataFrame({"x": [value] * 9}), real, "x", True)
        assert found.quantiles.min() >= found.picture.edges[0]
        assert found.quantiles.max() <= found.picture.edges[-1]
        assert found.picture.dates is dates
        assert "9876" not in found.says
    days = fan(real[["day"]].head(30), real, "day", True)
    assert days.picture.dates
    assert days.says.startswith("median 202")


def test_the_outer_ranges_are_open_and_dates_are_dates():
    whole = Histogram(np.array([-0.5, 0.5, 1.5, 9.5]), {}, False)
    texts = [range_of(value, whole, True) for value in (0, 1, 7)]
    assert texts == ["at most 0", "1", "at least 2"]
    days = Histogram(np.array([0.0, 31.0, 59.0, 90.0]), {}, True)
    texts = [range_of(value, days, False) for value in (3, 40, 80)]
    assert texts == ["before 1970-02-01", "1970-02-01 to 1970-03-01", "from 1970-03-01"]
    alone = Histogram(np.array([0.0, 1.0]), {}, False)
    assert range_of(0.3, alone, False) == "somewhere in its range"


def test_quantiles_and_shares_are_those_of_the_draws():
    real = table()
    drawn = pd.DataFrame(
        {"x": np.linspace(40, 60, 101), "word": ["down"] * 75 + ["up"] * 26}
    )
    found = fan(drawn, real, "x", True).quantiles
    assert np.allclose(found, [40.5, 42, 45, 50, 55, 58, 59.5])
    word = fan(drawn, real, "word", False)
    assert word.says == "down in 74 %"
    down = word.picture.labels.index("down")
    assert abs(word.picture.shares["synthetic"][down] - 75 / 101) < 1e-9
    assert word.picture.shares["real"][down] < 0.3


def test_examples_show_as_many_columns_as_they_can_and_say_what_is_left_out():
    real = table()
    holes = np.random.default_rng(1).random((400, 4)) < 0.4
    names = ["x", "n", "day", "word"]
    rows = real.copy()
    rows[names] = rows[names].mask(holes)
    rows.loc[:4, "id"] = "Zaphod"
    asked = []

    def impute(some: pd.DataFrame, draws: int) -> list[pd.DataFrame]:
        asked.append((len(some), draws))
        fill = {name: real[name].iloc[0] for name in names}
        return [some.fillna(fill) for _ in range(draws)]

    found = examples(rows, real, names, ["x", "n", "day"], impute, rng())
    assert asked == [(ROWS, DRAWS)]
    assert {f.name for e in found for f in e.fans} == set(names)
    for example in found:
        shown = {f.name for f in example.fans}
        assert 1 <= len(shown) <= HOLES
        assert not shown & {name for name, _ in example.known}
        assert ("id", "only") in example.known or example.more_known
        assert len(shown) + len(example.known) + example.more_known == 5
    assert "Zaphod" not in str([e.known for e in found])


def test_rows_of_which_nothing_or_everything_is_known_are_no_examples():
    real = table()[["x", "word"]]
    for rows in (real, real.mask(np.ones(real.shape, bool))):
        assert examples(rows, real, ["x", "word"], ["x"], None, rng()) == []


def rng() -> np.random.Generator:
    return np.random.default_rng(2)
