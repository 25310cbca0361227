from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import UsageError
from augmask.missing.simulate import ampute, as_numbers, draw_mask

RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)
EVERY_MECHANISM = [
    ("mcar", "equal"),
    ("mar", "equal"),
    ("mar", "diffputer"),
    ("mnar", "equal"),
]


def correlated(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Skewed, correlated columns on wildly different scales, one of them constant."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 1))
    values = np.exp(0.6 * common + 0.6 * rng.standard_normal((n, d)))
    values *= 10.0 ** rng.integers(-3, 6, d)
    if d > 2:
        values[:, 1] = 7.0
    return values


def mixed() -> pd.DataFrame:
    n = 60
    return pd.DataFrame(
        {
            "count": np.arange(n),
            "amount": np.linspace(0, 1, n),
            "yes": np.arange(n) % 3 == 0,
            "grade": pd.Categorical(["b", "a", "c"] * 20, ["c", "b", "a"], True),
            "town": ["Oslo", "Bergen"] * 30,
            "when": pd.date_range("2024-01-01", periods=n, freq="D"),
            "zoned": pd.date_range("2024-01-01", periods=n, freq="h", tz="Asia/Tokyo"),
            "took": pd.to_timedelta(np.arange(n), unit="h"),
            "nullable": pd.array(np.arange(n), dtype="Int64"),
            "flag": pd.array([True, False] * 30, dtype="boolean"),
            "anything": pd.Series([1, "x", 2.5] * 20, dtype=object),
            "truth": pd.Series([True, False, None] * 20, dtype=object),
            "nothing": pd.Series([None] * n, dtype=object),
        }
    )


@pytest.mark.parametrize(
    ("mechanism", "d", "ratio"),
    [
        (mechanism, d, ratio)
        for mechanism in ("mcar", "mar", "mnar")
        for d in (2, 11, 15, 25)
        for ratio in RATIOS
        if mechanism != "mar" or ratio < 1 - 1 / d
    ],
)
def test_every_column_loses_the_target_share(mechanism, d, ratio):
    rng = np.random.default_rng(d)
    observed = draw_mask(correlated(20_000, d), mechanism, ratio, rng)
    assert abs(1 - observed.mean() - ratio) < 0.01
    np.testing.assert_allclose(1 - observed.mean(axis=0), ratio, atol=0.02)
    if mechanism == "mar":
        assert observed.any(axis=1).all()


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7])
def test_diffputer_keeps_some_columns_complete_and_hides_more_of_the_rest(ratio):
    d, share = 20, 0.3 if ratio <= 0.3 else 0.1
    rng = np.random.default_rng(3)
    observed = draw_mask(correlated(20_000, d), "mar", ratio, rng, mar="diffputer")
    rates = 1 - observed.mean(axis=0)
    assert (rates == 0).sum() == round(share * d)
    np.testing.assert_allclose(rates[rates > 0], ratio / (1 - share), atol=0.02)


@pytest.mark.parametrize(
    ("mar", "ratio"),
    [("equal", 0.3), ("equal", 0.9), ("diffputer", 0.3), ("diffputer", 0.7)],
)
def test_a_mar_mask_does_not_depend_on_hidden_values(mar, ratio):
    # Other values in hidden cells and the same randomness give the same mask, so its
    # probability is a function of the observed cells, which is MAR.
    values = correlated(3000, 12)
    observed = draw_mask(values, "mar", ratio, np.random.default_rng(1), mar)
    other = np.where(observed, values, correlated(3000, 12, seed=9) ** 2)
    again = draw_mask(other, "mar", ratio, np.random.default_rng(1), mar)
    np.testing.assert_array_equal(again, observed)


def test_a_mar_mask_depends_on_observed_values():
    values = correlated(3000, 12)
    observed = draw_mask(values, "mar", 0.3, np.random.default_rng(1))
    other = np.where(observed, values[::-1], values)
    again = draw_mask(other, "mar", 0.3, np.random.default_rng(1))
    assert (again != observed).mean() > 0.05


def test_an_mnar_mask_depends_on_hidden_values():
    values = correlated(3000, 12)
    observed = draw_mask(values, "mnar", 0.3, np.random.default_rng(1))
    other = np.where(observed, values, correlated(3000, 12, seed=9) ** 2)
    again = draw_mask(other, "mnar", 0.3, np.random.default_rng(1))
    assert (again != observed).mean() > 0.02


def largest_gap(mechanism: str) -> float:
    """Largest distance of hidden and observed means, in standard errors."""
    n = 20_000
    rng = np.random.default_rng(2)
    values = 0.8 * rng.standard_normal((n, 1)) + 0.6 * rng.standard_normal((n, 10))
    observed = draw_mask(values, mechanism, 0.5, rng)
    gaps = [
        values[~s, j].mean() - values[s, j].mean() for j, s in enumerate(observed.T)
    ]
    return float(np.abs(gaps).max() * np.sqrt(n / 4))


def test_hidden_values_differ_from_observed_ones_unless_mcar():
    assert largest_gap("mcar") < 4
    assert largest_gap("mar") > 10
    assert largest_gap("mnar") > 10


@pytest.mark.parametrize(("mechanism", "mar"), EVERY_MECHANISM)
def test_the_seed_decides_and_the_input_is_untouched(mechanism, mar):
    frame = mixed()
    before = frame.copy(deep=True)
    first = ampute(frame, mechanism=mechanism, ratio=0.3, seed=5, mar=mar)
    again = ampute(frame, mechanism=mechanism, ratio=0.3, seed=5, mar=mar)
    pd.testing.assert_frame_equal(again, first)
    pd.testing.assert_frame_equal(frame, before)
    other = ampute(frame, mechanism=mechanism, ratio=0.3, seed=6, mar=mar)
    assert (other.isna() != first.isna()).to_numpy().any()
    # A write to the result must not reach the input either.
    untouched = ampute(frame, mechanism=mechanism, ratio=0.0, mar=mar)
    pd.testing.assert_frame_equal(untouched, before)
    untouched.iloc[0, 0] = 99
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(("mechanism", "mar"), EVERY_MECHANISM)
def test_observed_cells_keep_their_values_and_columns_a_fitting_dtype(mechanism, mar):
    frame = mixed()
    incomplete = ampute(frame, mechanism=mechanism, ratio=0.3, mar=mar)
    assert list(incomplete) == list(frame)
    assert incomplete.index.equals(frame.index)
    changed = {"count": "float64", "yes": "object"}
    for name in frame:
        observed = incomplete[name].notna()
        if observed.all():  # a deciding column
            assert mar == "diffputer"
            continue
        assert incomplete[name].dtype == changed.get(name, frame[name].dtype)
        assert incomplete[name][observed].tolist() == frame[name][observed].tolist()


def test_existing_missing_values_stay_and_decide_nothing():
    frame = mixed().mask(np.random.default_rng(0).random((60, 13)) < 0.2)
    incomplete = ampute(frame, mechanism="mar", ratio=0.4)
    assert incomplete.isna().to_numpy()[frame.isna().to_numpy()].all()
    assert incomplete.isna().to_numpy().sum() > frame.isna().to_numpy().sum()
    values = correlated(500, 6)
    values[3] = np.inf
    values[:, 2] = np.nan
    for mechanism in ("mcar", "mar", "mnar"):
        observed = draw_mask(values, mechanism, 0.3, np.random.default_rng(0))
        assert not observed[:, 2].any()
        assert 0.5 < observed[:, [0, 1, 3, 4, 5]].mean() < 0.9


def test_frames_keep_index_and_names_of_any_type():
    frame = pd.DataFrame(np.ones((40, 3)), index=[9, 1] * 20, columns=["a", 5, "b"])
    incomplete = ampute(frame, mechanism="mar", ratio=0.3)
    assert incomplete.columns.equals(frame.columns)
    assert incomplete.index.equals(frame.index)
    assert incomplete.isna().any().all()


def test_polars_frames_and_files(tmp_path):
    polars = pytest.importorskip("polars")
    frame = mixed()[["count", "amount", "town"]]
    frame.to_csv(tmp_path / "table.csv", index=False)
    missing = ampute(frame, mechanism="mar", ratio=0.3).isna()
    table = polars.from_pandas(frame)
    for source in (table, table.to_arrow(), tmp_path / "table.csv"):
        hidden = ampute(source, mechanism="mar", ratio=0.3)
        if not isinstance(hidden, pd.DataFrame):
            assert type(hidden) is type(source)
            assert hidden.schema == source.schema
            hidden = hidden.to_pandas()
        pd.testing.assert_frame_equal(hidden.isna(), missing)


def test_levels_count_by_rank_among_those_that_occur():
    frame = pd.DataFrame(
        {
            "grade": pd.Categorical(["low", "high", None], ["low", "mid", "high"]),
            "text": ["b", None, "a"],
            "when": pd.to_datetime(["2024-01-03", None, "2024-01-01"]),
        }
    )
    nan = np.nan
    expected = [[0, 1, 2], [1, nan, nan], [nan, 0, 0]]
    np.testing.assert_array_equal(as_numbers(frame), expected)


def test_arrow_dtypes():
    pytest.importorskip("pyarrow")
    frame = mixed()[["count", "yes", "town", "when", "took"]]
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    np.testing.assert_allclose(as_numbers(arrow), as_numbers(frame))
    assert ampute(arrow, mechanism="mar", ratio=0.3).dtypes.equals(arrow.dtypes)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("mechanism", ["mcar", "mar", "mnar"])
def test_tiny_tables(mechanism, n):
    assert ampute(mixed().head(n), mechanism=mechanism, ratio=0.3).shape == (n, 13)
    empty = draw_mask(np.empty((0, 4)), mechanism, 0.3, np.random.default_rng(0))
    assert empty.shape == (0, 4)


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5, float("nan"), "0.3", None])
def test_ratio_must_be_a_share(ratio):
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        ampute(mixed(), ratio=ratio)


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'mcar'"):
        ampute(mixed(), mechanism="MCAR")
    with pytest.raises(UsageError, match="did you mean 'diffputer'"):
        ampute(mixed(), mechanism="mar", mar="diffputter")


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        (1, {"mechanism": "mar"}, "at least 2 columns"),
        (1, {"mechanism": "mnar"}, "at least 2 columns"),
        (2, {"mechanism": "mar", "ratio": 0.5}, "below 0.5 with 2 columns"),
        (10, {"mechanism": "mar", "ratio": 0.9}, "below 0.9 with 10 columns"),
        (12, {"mechanism": "mar", "ratio": 0.9, "mar": "diffputer"}, "use mar='equal'"),
    ],
)
def test_unreachable_ratios_are_refused(columns, settings, message):
    with pytest.raises(UsageError, match=message):
        ampute(mixed().iloc[:, :columns], **settings)


ODD = [10**400, pd.NA, np.ones(2), {"a": 1}, object(), float("nan")]


@pytest.mark.parametrize("name", ["seed", "ratio", "mechanism", "mar"])
@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_odd_arguments_are_a_usage_error(name, value):
    with pytest.raises(UsageError, match=name):
        ampute(mixed(), **{name: value})
