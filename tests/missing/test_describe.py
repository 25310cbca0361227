from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask.errors import UsageError
from augmask.missing.describe import describe


def test_a_small_example():
    frame = pd.DataFrame(
        {
            "a": [1.0, None, None, 4.0],
            "b": ["x", None, None, "y"],
            "full": [1, 2, 3, 4],
            "empty": [None] * 4,
            "when": pd.to_datetime([None, "2024-01-01", "2024-01-02", "2024-01-03"]),
        }
    )
    facts = describe(frame)
    assert facts.rate == 9 / 20
    assert facts.column_rates.to_dict() == {
        "a": 0.5, "b": 0.5, "full": 0.0, "empty": 1.0, "when": 0.25
    }  # fmt: skip
    assert facts.complete_rows == 0
    assert facts.patterns[0] == (("a", "b", "empty"), 2)
    assert set(facts.patterns[1:]) == {(("empty", "when"), 1), (("empty",), 1)}
    assert list(facts.co_missing) == ["a", "b", "when"]
    assert facts.co_missing.loc["a", "b"] == pytest.approx(1)
    # phi of (1100 against 0001): (0*1 - 2*1) / sqrt(2*2*3*1)
    assert facts.co_missing.loc["a", "when"] == pytest.approx(-2 / np.sqrt(12))
    stored = json.loads(json.dumps(facts.to_dict(), allow_nan=False))
    assert stored["patterns"][0] == {"missing": ["a", "b", "empty"], "rows": 2}
    assert stored["column_rates"]["when"] == 0.25


def test_declared_missing_codes_count():
    frame = pd.DataFrame({"a": [-999, 2], "b": [1, 2]})
    assert describe(frame).rate == 0
    facts = describe(frame, frame == -999)
    assert facts.rate == 0.25
    assert dict(facts.patterns) == {("a",): 1, (): 1}
    with pytest.raises(UsageError, match="shape"):
        describe(frame, frame[["a"]] == -999)


def test_ten_patterns_are_listed_and_all_are_counted():
    rng = np.random.default_rng(0)
    missing_cells = pd.DataFrame(rng.random((500, 9)) < 0.3)
    facts = describe(missing_cells.astype(float), missing_cells)
    counts = missing_cells.value_counts()
    assert facts.n_patterns == len(counts)
    assert [count for _, count in facts.patterns] == counts.head(10).tolist()
    # More than eight columns, so that bits are packed into two bytes.
    for missing, count in facts.patterns:
        same = (missing_cells == missing_cells.columns.isin(missing)).all(axis=1)
        assert same.sum() == count


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0), (1, 1), (5, 2)])
def test_complete_tables(shape):
    facts = describe(pd.DataFrame(np.ones(shape)))
    assert facts.rate == 0
    assert facts.complete_rows == shape[0]
    assert facts.co_missing.shape == (0, 0)
    assert (facts.column_rates == 0).all()
    assert sum(count for _, count in facts.patterns) == shape[0]


def test_a_single_incomplete_column():
    facts = describe(pd.DataFrame({"a": [1.0, None], "b": [1, 2]}))
    assert facts.co_missing.to_numpy().tolist() == [[1.0]]
