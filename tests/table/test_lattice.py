from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from augmask.errors import SchemaError
from augmask.table import lattice as lattices
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema
from augmask.table.schema import Schema

ROWS = 8_000


def generated(values, seed=0, n=20_000, settings=None):
    """Return what a perfect sampler would give for a column."""
    frame = pd.DataFrame({"x": values})
    schema = infer_schema(frame, {"x": settings} if settings else None)
    # a model file stores it as JSON
    schema = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    codec = Codec.fit(frame, schema, dequantize=0)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 1)) * 1.02
    return codec.decode(scores, np.zeros((n, 0), np.int32), rng)["x"].to_numpy(), codec


def share_on(values, step):
    return float(np.mean(np.abs(values / step - np.rint(values / step)) < 1e-6))


def test_one_odd_cell_changes_nothing():
    rng = np.random.default_rng(0)
    plain = rng.lognormal(0.5, 0.4, ROWS).round(3)
    odd = plain.copy()
    odd[17] = 2.291288598525979
    drawn, codec = generated(odd)
    assert codec.schema["x"].decimals == 3
    assert share_on(drawn, 0.001) == 1
    assert np.isin(drawn.round(3), plain).mean() == np.isin(drawn, plain).mean()


def test_a_rare_decimal_does_not_make_whole_numbers_fractional():
    rng = np.random.default_rng(0)
    values = rng.integers(10_000, 90_000, ROWS).astype(float)
    values[:40] += 0.25
    drawn, _ = generated(values)
    assert share_on(drawn, 1) == 1


def test_decimals_of_the_few_that_are_no_zeros_count():
    rng = np.random.default_rng(0)
    values = np.zeros(ROWS)
    values[:60] = rng.lognormal(2, 1, 60).round(2)
    assert infer_schema(pd.DataFrame({"x": values}))["x"].decimals == 2


def test_rounding_noise_is_no_precision():
    rng = np.random.default_rng(0)
    values = rng.integers(100, 100_000, (ROWS, 3)) / 100
    summed = values[:, 0] + values[:, 1] + values[:, 2]
    assert (summed != summed.round(2)).mean() > 0.02
    assert infer_schema(pd.DataFrame({"x": summed}))["x"].decimals == 2


@pytest.mark.parametrize(("step", "n"), [(5, 32), (5, 3_000), (25, 400), (0.5, 900)])
def test_multiples_stay_multiples(step, n):
    rng = np.random.default_rng(1)
    values = step * (2 + np.floor(n * rng.beta(2, 4, ROWS)))
    drawn, _ = generated(values)
    assert share_on(drawn, step) == 1
    assert values.min() <= drawn.min() < drawn.max() <= values.max()


def test_multiples_with_a_few_exceptions():
    rng = np.random.default_rng(1)
    values = 100 * np.floor(900 * rng.beta(2, 4, ROWS))
    values[:20] += 37
    drawn, _ = generated(values)
    assert share_on(drawn, 100) == 1


def test_multiples_may_start_anywhere():
    rng = np.random.default_rng(1)
    values = 2.5 + 5 * np.floor(2_000 * rng.beta(2, 4, ROWS))
    drawn, _ = generated(values)
    assert share_on(drawn - 2.5, 5) == 1


@pytest.mark.parametrize("whole", [0.7, 0.95])
def test_whole_or_half_is_kept_at_its_rate(whole):
    rng = np.random.default_rng(2)
    values = np.floor(3_000 * rng.beta(2, 4, ROWS))
    values += 0.5 * (rng.random(ROWS) > whole)
    drawn, _ = generated(values)
    assert share_on(drawn, 0.5) == 1
    assert share_on(drawn, 1) == pytest.approx(whole, abs=0.03)


def test_heaps_at_round_numbers_keep_their_rate():
    rng = np.random.default_rng(2)
    values = rng.lognormal(11, 0.6, ROWS)
    to = rng.choice([1, 100, 1000], ROWS, p=[0.1, 0.3, 0.6])
    values = (values / to).round() * to
    drawn, _ = generated(values)
    for step in (100, 1000):
        assert share_on(drawn, step) == pytest.approx(share_on(values, step), abs=0.05)


def test_few_irregular_values_are_the_only_ones():
    rng = np.random.default_rng(3)
    rates = np.unique(rng.uniform(5, 30, 58).round(2))
    drawn, _ = generated(rng.choice(rates, ROWS))
    assert np.isin(drawn, rates).all()
    thirds = np.array([0.0, 1 / 3, 0.5, 2 / 3, 1.0, 0.1, 0.7])
    drawn, _ = generated(rng.choice(thirds, ROWS))
    assert np.isin(drawn, thirds).all()


def test_a_value_seen_once_is_not_repeated():
    rng = np.random.default_rng(3)
    values = rng.choice([1.0, 2.0, 3.5, 7.25, 9.0], ROWS)
    values[5] = 4.4444444
    drawn, codec = generated(values)
    assert set(drawn) == {1.0, 2.0, 3.5, 7.25, 9.0}
    assert codec.schema["x"].decimals == 2


def test_numbers_without_a_lattice_have_none():
    rng = np.random.default_rng(4)
    for values in (
        rng.normal(size=ROWS),
        rng.integers(0, 10**6, ROWS),
        rng.integers(0, 10**6, 12),
        rng.normal(50, 9, ROWS).round(1),
        rng.integers(2**60, 2**62, ROWS),
    ):
        assert infer_schema(pd.DataFrame({"x": values}))["x"].lattice is None


def test_what_was_observed_comes_back():
    rng = np.random.default_rng(5)
    for values in (
        np.floor(3_000 * rng.beta(2, 4, 500)) / 2,
        rng.choice([0.1, 1 / 3, 4.0], 500),
        5 * rng.integers(0, 900, 500),
        np.where(rng.random(500) < 0.8, 100, 7) * rng.integers(1, 900, 500),
    ):
        frame = pd.DataFrame({"x": values})
        codec = Codec.fit(frame, infer_schema(frame), dequantize=0)
        table = codec.encode(frame, 0)
        back = codec.decode(table.num, table.cat, rng)["x"].to_numpy()
        np.testing.assert_array_equal(back, values)


def test_declared_decimals_win():
    values = np.arange(ROWS) * 5.0 % 4_000
    drawn, codec = generated(values, settings={"kind": "float", "decimals": 1})
    assert codec.schema["x"].lattice is None
    assert share_on(drawn, 5) < 0.5


def test_the_reason_names_the_step():
    reason = infer_schema(pd.DataFrame({"x": np.arange(900) % 301 * 5}))["x"].reason
    assert "multiples of 5" in reason


@pytest.mark.parametrize(
    "lattice",
    [
        {"steps": [[0, 1.0]]},
        {"steps": [[5, 2.0]]},
        {"steps": "no"},
        {"support": [3, 1]},
        {"support": []},
        {"anchor": float("nan"), "steps": [[5, 1.0]]},
        {"colour": 1},
        {},
    ],
)
def test_damaged_lattices_are_refused(lattice):
    data = infer_schema(pd.DataFrame({"x": np.arange(900) % 301 * 5})).to_dict()
    data["columns"][0]["lattice"] = lattice
    with pytest.raises(SchemaError, match="lattice"):
        Schema.from_dict(data)


def test_the_ends_of_the_range_are_nodes_in_spite_of_rounding():
    # 5.53 + 4 * 20.76 is 88.57000000000001, which is beyond the largest value
    lattice = {"steps": [[20.76, 1.0]], "anchor": 5.53}
    ends = np.array([-77.51, 88.57])
    assert lattices.round_to_lattice(ends, lattice, *ends).tolist() == ends.tolist()
