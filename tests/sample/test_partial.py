from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import ConditionError, DataError, UsageError
from augmask.model import AugMask
from augmask.sample.source import Source

OPTIONS = {"steps": 200, "batch": 128, "sampling_steps": 12, "ema": 0.98}
OPTIONS |= {"width": 32, "depth": 1, "time_width": 8}


def make_frame(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "key": [f"K{i:04d}" for i in range(n)],
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "day": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "packs": rng.poisson(9, n).astype(float),
        }
    )
    frame["end"] = frame["day"] + pd.to_timedelta(rng.integers(0, 90, n), "D")
    frame.loc[rng.random(n) < 0.5, "packs"] = np.nan
    return frame


@pytest.fixture(scope="module")
def model():
    made = AugMask(augmenter="ecdf", options=OPTIONS, device="cpu")
    schema = {"packs": {"missing_as": "level", "kind": "integer"}}
    with pytest.warns(UserWarning, match="identifiers"):
        return made.fit(make_frame(), schema, constraints=["day <= end"])


def test_each_row_keeps_what_it_gives(model):
    wanted = pd.DataFrame(
        {
            "weight": [71.3, None, 55.0, None] * 10,
            "job": ["cook", "smith", None, None] * 10,
            "day": ["2024-02-29", None, "2024-03-01", None] * 10,
            "key": ["mine", None, None, None] * 10,
        }
    )
    rows = model.sample(where=wanted)
    assert list(rows.columns) == list(make_frame().columns)
    assert len(rows) == 40
    for name in ("weight", "job", "key"):
        seen = wanted[name].notna()
        assert (rows[name][seen] == wanted[name][seen]).all()
    days = pd.to_datetime(wanted["day"])
    assert (rows["day"][days.notna()] == days.dropna()).all()
    assert not rows.drop(columns="packs").isna().any().any()
    assert (rows["day"] <= rows["end"]).all()
    assert rows["age"].nunique() > 10
    # a column that keeps its holes is drawn too: some rows have one, some have not
    assert 0 < rows["packs"].isna().sum() < 40
    assert rows.dtypes.equals(model.sample(5).dtypes)


def test_the_number_of_rows_is_that_of_the_frame(model):
    wanted = pd.DataFrame({"age": [20, 30]})
    assert len(model.sample(2, where=wanted)) == 2
    with pytest.raises(UsageError, match=r"partial rows, 2, got 3"):
        model.sample(3, where=wanted)


@pytest.mark.parametrize(
    ("wanted", "error", "says"),
    [
        ({"agee": [1]}, ConditionError, "'agee'.*did you mean 'age'"),
        ({"job": ["cock"]}, ConditionError, "'cock' in column 'job'.*never seen"),
        ({"age": ["old"]}, DataError, "'age'"),
        (
            {"day": ["2024-05-05"], "end": ["2024-01-05"]},
            ConditionError,
            "1 of 1 partial rows broke a rule",
        ),
    ],
)
def test_what_cannot_be_completed(model, wanted, error, says):
    with pytest.raises(error, match=says):
        model.sample(where=pd.DataFrame(wanted))


def test_rows_that_are_drawn_again_keep_identifiers_of_their_own(model, monkeypatch):
    asked = pd.DataFrame({"job": ["cook", "smith"] * 100})
    first = model.sample(where=asked)
    turns = []
    decoded = Source.decoded

    def counted(source, num, *more):
        turns.append(len(num))
        return decoded(source, num, *more)

    monkeypatch.setattr(Source, "decoded", counted)
    rows = model.sample(where=asked)
    pd.testing.assert_frame_equal(rows, first)
    assert turns[0] == 200
    assert len(turns) > 1, "no row was drawn again"
    assert rows["key"].is_unique
    assert not rows["key"].isin(make_frame()["key"]).any()
    # those of the rows of a plain sample, in their order
    assert rows["key"].tolist() == model.sample(200)["key"].tolist()
