from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from augmask.errors import UsageError
from augmask.sample.imputations import ClassProbs, Imputations, ImputedColumn, pool


def make_imputations(draws: int = 4) -> Imputations:
    """Return a number, a date and a category, each missing in another row."""
    frame = pd.DataFrame(
        {
            "x": [0.5, 9.0, 1.5],
            "day": pd.to_datetime(["2020-01-01", "2020-01-03", "1999-09-09"]),
            "job": pd.Categorical(["smith", "cook", "cook"]),
        },
        index=["a", "b", "c"],
    )
    days = pd.date_range("2021-03-01", periods=draws)
    jobs = ["cook", "cook", "cook", "smith"] * draws
    kind = frame["job"].dtype
    filled = {
        "x": ImputedColumn(
            np.array([1]), [pd.Series([float(k)]) for k in range(draws)]
        ),
        "day": ImputedColumn(
            np.array([2]),
            [pd.Series([d]).astype(frame["day"].dtype) for d in days],
        ),
        "job": ImputedColumn(
            np.array([0]),
            [pd.Series([jobs[k]], dtype=kind) for k in range(draws)],
            ClassProbs(["cook", "smith"], np.array([[0.75, 0.25]])),
        ),
    }
    return Imputations(frame, filled, draws)


def test_each_draw_is_a_complete_frame():
    imputations = make_imputations()
    assert len(imputations) == 4
    assert [f["x"].tolist() for f in imputations] == [[0.5, k, 1.5] for k in range(4)]
    assert imputations[-1]["job"].tolist() == ["smith", "cook", "cook"]
    assert imputations[2]["day"].iloc[2] == pd.Timestamp("2021-03-03")
    assert [f["x"].iloc[1] for f in imputations[1:3]] == [1.0, 2.0]
    for frame in imputations:
        pd.testing.assert_series_equal(frame.dtypes, imputations[0].dtypes)
    # frames are copies
    copy = imputations[0]
    copy.loc["a", "x"] = -1
    assert imputations[0].loc["a", "x"] == 0.5
    with pytest.raises(IndexError, match="draw 4 is out of range: there are 4 draws"):
        imputations[4]


def test_the_long_frame_numbers_the_draws_and_repeats_the_index():
    long = make_imputations().long()
    assert long["draw"].tolist() == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    assert long.index.tolist() == ["a", "b", "c"] * 4
    pd.testing.assert_frame_equal(
        long[long["draw"] == 3].drop(columns="draw"), make_imputations()[2]
    )


def test_the_summary_of_each_kind():
    table = make_imputations().summary(confidence=0.8).set_index("column")
    x, day, job = (table.loc[name] for name in ("x", "day", "job"))
    assert (x["row"], day["row"], job["row"]) == ("b", "c", "a")
    assert x["mean"] == 1.5
    assert x["sd"] == pytest.approx(np.std([0, 1, 2, 3], ddof=1))
    # normal theory for one more draw: 4 draws are too few for order statistics
    reach = stats.t.ppf(0.9, 3) * x["sd"] * np.sqrt(1.25)
    assert (x["lower"], x["upper"]) == pytest.approx((1.5 - reach, 1.5 + reach))
    assert day["mean"] == pd.Timestamp("2021-03-02 12:00")
    assert day["sd"] == pytest.approx(x["sd"])
    assert day["lower"] < day["mean"] < day["upper"]
    assert (job["mode"], job["probability"]) == ("cook", 0.75)
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert job["entropy"] == pytest.approx(entropy)


def test_categories_are_summarized_by_class_probabilities_not_by_counts():
    imputations, class_probs = (
        make_imputations(),
        ClassProbs(["cook", "smith"], np.array([[0.3, 0.7]])),
    )
    job = imputations._imputed["job"]._replace(class_probs=class_probs)
    imputations = Imputations(
        imputations._frame, imputations._imputed | {"job": job}, 4
    )
    job = imputations.summary().set_index("column").loc["job"]
    assert (job["mode"], job["probability"]) == ("smith", 0.7)
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    assert job["entropy"] == pytest.approx(entropy)
    assert imputations.best()["job"].iloc[0] == "smith"
    # the draws are unchanged
    assert [frame["job"].iloc[0] for frame in imputations] == ["cook"] * 3 + ["smith"]


@pytest.mark.parametrize("draws", [6, 40])
def test_an_interval_covers_a_further_draw_with_its_confidence(draws):
    rng = np.random.default_rng(0)
    n = 4000
    values = [pd.Series(rng.normal(size=n)) for _ in range(draws)]
    frame = pd.DataFrame({"x": np.zeros(n)})
    imputations = Imputations(
        frame, {"x": ImputedColumn(np.arange(n), values)}, draws
    ).summary(0.9)
    new = rng.normal(size=n)
    covered = ((imputations["lower"] < new) & (new < imputations["upper"])).mean()
    assert covered == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / n))


def interval(draws):
    """Return the ends of the 90 % intervals of draws [m, n]."""
    m, n = draws.shape
    frame, values = pd.DataFrame({"x": np.zeros(n)}), [pd.Series(row) for row in draws]
    table = Imputations(frame, {"x": ImputedColumn(np.arange(n), values)}, m).summary(
        0.9
    )
    return table["lower"].to_numpy(), table["upper"].to_numpy()


def test_ends_are_order_statistics_and_a_point_mass_leaves_its_tail_to_the_other_end():
    spread = np.arange(1.0, 40)  # two draws of 40 on either side

    def ends(draws):
        return tuple(end.item() for end in interval(draws[:, None]))

    assert ends(spread) == (2, 38)
    mass = np.where(spread <= 5, 0, spread)
    assert ends(mass) == (0, 36)
    assert ends(-mass) == (-36, 0)
    # one draw beyond the point mass is a part of the tail
    beyond = np.where(spread <= 6, 0, spread)
    beyond[0] = -1
    assert ends(beyond) == (0, 37)
    # few equal draws are not a point mass but chance, or rounding
    assert ends(np.where(spread <= 4, 0, spread)) == (0, 38)
    assert ends(np.full(39, 7.0)) == (7, 7)


def test_the_interval_of_mostly_zero_draws_is_short_and_covers_with_its_confidence():
    rng, n = np.random.default_rng(1), 20_000

    def draw(*shape):
        return np.where(rng.random(shape) < 0.7, 0, rng.exponential(size=shape))

    draws, new = draw(20, n), draw(n)
    lower, upper = interval(draws)
    assert (lower == 0).all()
    covered = (new <= upper).mean()
    assert covered == pytest.approx(0.9, abs=0.015)
    assert (upper <= np.quantile(draws, 0.95, axis=0, method="weibull")).all()


def test_a_summary_without_imputed_cells_is_empty_and_one_draw_is_refused():
    frame = pd.DataFrame({"x": [1.0]})
    assert len(Imputations(frame, {}, 3).summary()) == 0
    with pytest.raises(UsageError, match="at least 2 draws"):
        Imputations(frame, {}, 1).summary()
    with pytest.raises(UsageError, match=r"confidence must be .* below 1, got 90"):
        make_imputations().summary(90)


def test_rubins_rules_in_a_small_example():
    # estimates 10, 12, 14; variances 1, 2, 3: W = 2, B = 4, T = 2 + 4/3 * 4 = 22/3
    pooled = pool([10, 12, 14], [1, 2, 3], confidence=0.95)
    assert (pooled.estimate, pooled.within, pooled.between) == (12, 2, 4)
    assert pooled.total == pytest.approx(22 / 3)
    # lambda = (16/3) / (22/3) = 8/11; df = 2 / lambda^2 = 121/32
    assert pooled.df == pytest.approx(121 / 32)
    half = stats.t.ppf(0.975, 121 / 32) * np.sqrt(22 / 3)
    assert (pooled.lower, pooled.upper) == pytest.approx((12 - half, 12 + half))
    # Barnard and Rubin: 50 * 51/53 * 3/11 observed degrees of freedom
    bounded = pool([10, 12, 14], [1, 2, 3], complete_df=50)
    observed_df = 50 * 51 / 53 * 3 / 11
    assert bounded.df == pytest.approx(1 / (32 / 121 + 1 / observed_df))


def test_equal_estimates_leave_the_variance_within():
    pooled = pool([3.0, 3.0], [4.0, 4.0])
    assert (pooled.total, pooled.df) == (4.0, np.inf)
    assert pooled.upper == pytest.approx(3 + 2 * stats.norm.ppf(0.975))


@pytest.mark.parametrize(
    ("estimates", "variances"),
    [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, -1.0])],
)
def test_invalid_estimates_are_refused(estimates, variances):
    with pytest.raises(UsageError, match="at least"):
        pool(estimates, variances)
