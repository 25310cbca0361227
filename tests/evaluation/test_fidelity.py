from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.fidelity import shape, trend

NUMERIC = ["age", "income", "ratio", "visit"]
CATEGORICAL = ["sex", "city", "grade", "member"]

# From sdmetrics 0.32.0 (pandas 2.3.3, numpy 2.3.5) on `fractions(400, 1, 0.0)` and
# `fractions(350, 5, 1.3)`: sdmetrics.reports.single_table.QualityReport with
# real_correlation_threshold = real_association_threshold = 0 and num_rows_subsample =
# None; sdtypes numerical, datetime for "visit", categorical.
SDMETRICS_SHAPE = {
    "age": 0.9642857142857143,
    "income": 0.9817857142857143,
    "ratio": 0.94,
    "visit": 0.9685714285714285,
    "sex": 0.9985714285714286,
    "city": 0.9825,
    "grade": 0.7942857192857142,
    "member": 0.9960714285714286,
}
SDMETRICS_TREND_VALUE = 0.9103042035598667
# In the order of combinations(NUMERIC + CATEGORICAL, 2).
SDMETRICS_TREND = [
    *(0.998217846381511, 0.9962359958756755, 0.997925861695438, 0.9360714285714286),
    *(0.9135714285714286, 0.7564285714285715, 0.9571428571428572, 0.9968935603342023),
    *(0.9436851448084126, 0.9525, 0.9425, 0.7685714285714286, 0.9742857142857143),
    *(0.9948450048667399, 0.9332142857142857, 0.9303571428571429, 0.7525000000000001),
    *(0.9671428571428572, 0.9910714285714286, 0.9235714285714286, 0.785),
    *(0.9639285714285715, 0.9592857142857143, 0.7942857142857143, 0.9639285714285715),
    *(0.6489285714285714, 0.9528571428571428, 0.7935714285714286),
]
# The same for `with_missing` of both tables.
INCOMPLETE = ["age", "ratio", "visit"], ["city", "member"]
SDMETRICS_INCOMPLETE_SHAPE = [
    *(0.9576381308799834, 0.9351703342529031, 0.9610371979364648, 0.9855622966675459),
    0.9900048285852245,
]
SDMETRICS_INCOMPLETE_TREND = [
    *(0.9986718067433422, 0.9849495616492185, 0.8724999999999999, 0.9153571428571429),
    *(0.9994808690112159, 0.8996428571428572, 0.9410714285714286, 0.9010714285714285),
    *(0.9353571428571429, 0.9535714285714285),
]


def fractions(n: int, step: int, drift: float) -> pd.DataFrame:
    """A table of plain fractions: the same on every platform and numpy version."""
    i = np.arange(n)
    u, v, w = ((i * a * step + 17) % 1009 / 1009 for a in (389, 571, 787))
    days = pd.to_timedelta((700 * w).astype(int), unit="D")
    town = ((3.9 * v + u / 9 + drift / 9) % 4).astype(int)
    return pd.DataFrame(
        {
            "age": (18 + 60 * u + drift).astype(int),
            "income": 1000 * u**2 / (1.05 - v),
            "ratio": 0.6 * u + 0.4 * v + drift / 50,
            "visit": pd.Timestamp("2020-01-01") + days,
            "sex": np.where(w + 0.3 * u > 0.6, "f", "m"),
            "city": np.array(["Pau", "Metz", "Brest", "Lyon"])[town],
            "grade": (5 * v * (1 + drift / 5)).astype(int),
            "member": u * v > 0.2,
        }
    )


def with_missing(frame: pd.DataFrame) -> pd.DataFrame:
    i = np.arange(len(frame))
    names = [*INCOMPLETE[0], *INCOMPLETE[1]]
    missing = {name: i * (2 + j) % 11 < 1 + j for j, name in enumerate(names)}
    return frame[names].mask(pd.DataFrame(missing))


def slow_ks(real, synthetic):
    points = sorted({*real, *synthetic})
    gaps = [
        abs(np.mean([v <= p for v in real]) - np.mean([v <= p for v in synthetic]))
        for p in points
    ]
    return 1 - max(gaps)


def slow_tv(real, synthetic):
    r, s = Counter(real), Counter(synthetic)
    cells = {*r, *s}
    return 1 - sum(abs(r[c] / len(real) - s[c] / len(synthetic)) for c in cells) / 2


def slow_bins(values, low, high, open_ends):
    width = (high - low) / 10
    bins = [int((v - low) / width) for v in values]
    return [min(max(b, 0), 9) for b in bins] if open_ends else bins


def slow_rho(a, b):
    if len(set(a)) == 1 or len(set(b)) == 1:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def slow_trend(real, synthetic, numeric, categorical, edges):
    scores = {}
    for a, b in combinations([*numeric, *categorical], 2):
        if b in numeric:
            s = [synthetic[name] for name in (a, b)]
            if edges == "real":
                s = [v.clip(real[v.name].min(), real[v.name].max()) for v in s]
            scores[a, b] = 1 - abs(slow_rho(real[a], real[b]) - slow_rho(*s)) / 2
            continue
        r, s = list(real[a]), list(synthetic[a])
        if a in numeric and edges == "real":
            low, high = min(r), max(r)
            r, s = (slow_bins(v, low, high, open_ends=True) for v in (r, s))
        elif a in numeric:
            r, s = (slow_bins(v, min(v), max(v), open_ends=False) for v in (r, s))
        pairs_r = list(zip(r, real[b], strict=True))
        pairs_s = list(zip(s, synthetic[b], strict=True))
        scores[a, b] = slow_tv(pairs_r, pairs_s)
    return scores


def random_table(n, rng, shift):
    # Multiples of 1/64 over a range of 10: bin edges are exact, so both codes agree.
    x = np.clip(np.round(rng.normal(5, 2, n) * 64) / 64, 0, 10)
    x[:2] = 0, 10
    y = np.clip(np.round((x + rng.exponential(2, n)) * 64) / 64, 0, 10)
    y[:2] = 0, 10
    return pd.DataFrame(
        {
            "x": x,
            "y": y,
            "few": rng.choice(["a", "b", "c"], n),
            # Hundreds of levels, many unseen on the other side: the sparse path.
            "many": rng.integers(shift, 300 + shift, n),
            "more": [f"id{k}" for k in rng.integers(0, 400, n)],
        }
    )


@pytest.mark.parametrize("edges", ["real", "sdmetrics"])
def test_shape_and_trend_equal_the_slow_reference(edges):
    rng = np.random.default_rng(3)
    real, synthetic = random_table(301, rng, 0), random_table(257, rng, 40)
    # One column inside the real range, one that goes beyond it.
    synthetic["x"] = (synthetic["x"] * 64 // 2) / 64
    synthetic["y"] *= 1.5
    names = ["x", "y"], ["few", "many", "more"]
    got = shape(real, synthetic, *names).table.set_index("column")["score"]
    for column in got.index:
        slow = slow_ks if column in names[0] else slow_tv
        want = slow(list(real[column]), list(synthetic[column]))
        assert got[column] == pytest.approx(want, abs=1e-12)
    want_pairs = slow_trend(real, synthetic, *names, edges)
    result = trend(real, synthetic, *names, edges=edges)
    got_pairs = result.table.set_index(["first", "second"])["score"].to_dict()
    assert got_pairs == pytest.approx(want_pairs, abs=1e-12)
    assert result.value == pytest.approx(np.mean(list(want_pairs.values())), abs=1e-12)


def test_parity_with_sdmetrics():
    real, synthetic = fractions(400, 1, 0.0), fractions(350, 5, 1.3)
    columns = shape(real, synthetic, NUMERIC, CATEGORICAL).table
    got = columns.set_index("column")["score"].to_dict()
    # sdmetrics counts a millionth of a row for each level that real rows lack.
    assert got.pop("grade") == pytest.approx(SDMETRICS_SHAPE["grade"], abs=1e-8)
    want = {k: v for k, v in SDMETRICS_SHAPE.items() if k != "grade"}
    assert got == pytest.approx(want, abs=1e-12)

    result = trend(real, synthetic, NUMERIC, CATEGORICAL, edges="sdmetrics")
    pairs = result.table.set_index(["first", "second"])["score"].to_dict()
    order = combinations(NUMERIC + CATEGORICAL, 2)
    assert pairs == pytest.approx(
        dict(zip(order, SDMETRICS_TREND, strict=True)), abs=1e-12
    )
    assert result.value == pytest.approx(SDMETRICS_TREND_VALUE, abs=1e-12)


def test_one_outlier_moves_real_edges_little_and_own_edges_much():
    real = fractions(1000, 1, 0.0)
    synthetic = real.copy()
    synthetic.loc[0, ["income", "ratio"]] = 10 * real[["income", "ratio"]].max()
    moved = {}
    for edges in ("real", "sdmetrics"):
        pairs = trend(real, synthetic, ["ratio", "income"], CATEGORICAL, edges).table
        moved[edges] = 1 - pairs.loc[pairs["kind"] == "mixed", "score"].mean()
    assert moved["real"] < 0.005
    assert moved["sdmetrics"] > 0.3


@pytest.mark.parametrize("spread", ["even", "heavy tails"])
def test_one_outlier_row_does_not_decide_the_correlations(spread):
    rng = np.random.default_rng(0)
    common = rng.normal(size=(2000, 1))
    values = common + 0.5 * rng.normal(size=(2000, 6))
    values = np.exp(values) if spread == "heavy tails" else values
    frame = pd.DataFrame(values, columns=list("abcdef"))
    real, synthetic = frame[:1000], frame[1000:].reset_index(drop=True)
    wild = synthetic.copy()
    wild.loc[0, ["a", "b"]] = 10 * frame[["a", "b"]].max()

    def moved(edges):
        before, after = (
            trend(real, table, list("abcdef"), [], edges) for table in (synthetic, wild)
        )
        return abs(before.value - after.value)

    assert moved("real") < 0.005
    assert moved("sdmetrics") > 0.02


def test_numbers_within_the_real_range_are_correlated_as_they_are():
    rng = np.random.default_rng(1)
    real = random_table(300, rng, 0)
    synthetic = real.iloc[rng.integers(300, size=200)]
    ours, theirs = (
        trend(real, synthetic, ["x", "y"], [], edges).table
        for edges in ("real", "sdmetrics")
    )
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def test_missing_values_are_treated_as_sdmetrics_does():
    real, synthetic = (
        with_missing(fractions(*options)) for options in ((400, 1, 0.0), (350, 5, 1.3))
    )
    columns = shape(real, synthetic, *INCOMPLETE, allow_missing=True)
    assert columns.table["score"].tolist() == pytest.approx(
        SDMETRICS_INCOMPLETE_SHAPE, abs=1e-12
    )
    result = trend(real, synthetic, *INCOMPLETE, "sdmetrics", allow_missing=True)
    pairs = result.table.set_index(["first", "second"])["score"].to_dict()
    order = combinations([*INCOMPLETE[0], *INCOMPLETE[1]], 2)
    want = dict(zip(order, SDMETRICS_INCOMPLETE_TREND, strict=True))
    assert pairs == pytest.approx(want, abs=1e-12)
    assert result.value == pytest.approx(np.mean(SDMETRICS_INCOMPLETE_TREND), abs=1e-12)


def test_complete_tables_score_the_same_if_missing_values_are_allowed():
    real, synthetic = fractions(400, 1, 0.0), fractions(350, 5, 1.3)
    for score in (shape, partial(trend, edges="sdmetrics")):
        plain = score(real, synthetic, NUMERIC, CATEGORICAL).table
        allowed = score(real, synthetic, NUMERIC, CATEGORICAL, allow_missing=True).table
        pd.testing.assert_frame_equal(plain, allowed, rtol=0, atol=1e-14)


def test_numbers_never_observed_together_have_no_score():
    x = np.arange(6.0)
    real = pd.DataFrame({"x": x, "y": x, "z": x})
    real.loc[:2, "y"] = None
    real.loc[3:, "z"] = None
    synthetic = pd.DataFrame({"x": x, "y": x, "z": -x})
    result = trend(real, synthetic, list("xyz"), [], "sdmetrics", allow_missing=True)
    assert result.table["score"].tolist() == pytest.approx([1, 0, np.nan], nan_ok=True)
    assert result.value == pytest.approx(0.5)


def test_missing_values_are_refused_unless_allowed():
    real = pd.DataFrame({"x": [1.0, None], "g": ["a", None]})
    full = pd.DataFrame({"x": [1.0, 2.0], "g": ["a", "b"]})
    for names in (["x"], []), ([], ["g"]):
        for tables in (real, full), (full, real):
            with pytest.raises(DataError, match="has 1 missing"):
                shape(*tables, *names)
            with pytest.raises(DataError, match="has 1 missing"):
                trend(*tables, *names, edges="sdmetrics")
    with pytest.raises(UsageError, match="compare_remasked"):
        trend(real, full, ["x"], ["g"], allow_missing=True)
    empty = full.assign(x=np.nan, g=None)
    for name, names in ("x", (["x"], [])), ("g", ([], ["g"])):
        with pytest.raises(
            DataError, match=f"'{name}' of the synthetic table has no obs"
        ):
            shape(real, empty, *names, allow_missing=True)


def test_a_collapsed_column_is_scored_not_dropped():
    x = np.arange(10.0)
    real = pd.DataFrame({"x": x, "y": x, "z": -x})
    synthetic = real.assign(y=0.1)
    for edges in ("real", "sdmetrics"):
        result = trend(real, synthetic, ["x", "y", "z"], [], edges=edges)
        scores = result.table.set_index(["first", "second"])["score"]
        assert scores["x", "y"] == pytest.approx(0.5)
        assert scores["y", "z"] == pytest.approx(0.5)
        assert scores["x", "z"] == pytest.approx(1.0)
        assert result.value == pytest.approx(2 / 3)


def test_a_constant_real_column_can_be_matched():
    real = pd.DataFrame({"x": [2.0] * 6, "g": list("aabbab")})
    assert trend(real, real, ["x"], ["g"]).value == 1.0
    off = real.assign(x=7.0)
    assert trend(real, off, ["x"], ["g"]).value == 0.0
    assert shape(real, off, ["x"], ["g"]).table["score"].tolist() == [0.0, 1.0]


def test_float_noise_is_not_a_difference():
    real = pd.DataFrame({"x": [0.3, 0.3, 1.0]})
    noisy = pd.DataFrame({"x": [0.1 + 0.2, 0.3, 1.0]})
    assert shape(real, noisy, ["x"], []).value == 1.0


def test_huge_numbers_do_not_overflow():
    real = pd.DataFrame({"x": [1e300, 2e300, 3e300], "y": [1.0, 2.0, 3.0]})
    assert trend(real, real, ["x", "y"], []).value == pytest.approx(1.0)
    assert shape(real, real, ["x", "y"], []).value == 1.0


def test_one_column_has_no_trend():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    result = trend(frame, frame, ["x"], [])
    assert np.isnan(result.value)
    assert result.table.empty


def test_unknown_edges_are_refused():
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    with pytest.raises(UsageError, match="'quantile'"):
        trend(frame, frame, ["x"], [], edges="quantile")
