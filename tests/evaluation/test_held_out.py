from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, norm

from augmask.errors import DataError, UsageError
from augmask.evaluation.held_out import calibration, hide

N, M = 6000, 20
LEVELS = np.array(["a", "b", "c"])


def chances(x):
    scores = np.exp(np.stack([2 * x, np.zeros_like(x), -2 * x], axis=1))
    return scores / scores.sum(axis=1, keepdims=True)


def pick(p, rng):
    return LEVELS[(rng.random((len(p), 1)) > p.cumsum(axis=1)[:, :2]).sum(axis=1)]


def draw(x, rng, sharpen=1.0):
    """Rows of the conditional distribution given x; overconfident if sharpen > 1."""
    p = chances(x) ** sharpen
    return pd.DataFrame(
        {
            "x": x,
            "y": x + 0.5 / sharpen * rng.normal(size=len(x)),
            "kind": pick(p / p.sum(axis=1, keepdims=True), rng),
        }
    )


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    truth = draw(x, rng)
    _, hidden = hide(truth, 0.5, rng)
    return truth, hidden, x, rng


def score(case, draws):
    truth, hidden, *_ = case
    rng = np.random.default_rng(1)
    return calibration(truth, hidden, draws, ["y"], ["kind"], rng=rng)


@pytest.mark.parametrize("m", [2, 5, M])
def test_draws_from_the_true_distribution_are_calibrated_for_any_number(case, m):
    _, _, x, rng = case
    result = score(case, [draw(x, rng) for _ in range(m)])
    off = (result.coverage["coverage"] - result.coverage["nominal"]).abs()
    assert (off < 4 * result.coverage["standard_error"]).all()
    assert np.abs(result.pit.to_numpy() - 0.1).max() < 4 * np.sqrt(0.09 / (N / 2))
    assert result.n_draws == m


def test_draws_that_are_too_narrow_have_low_coverage(case):
    _, _, x, rng = case
    result = score(case, [draw(x, rng, sharpen=2.0) for _ in range(M)])
    coverage = result.coverage.set_index(["kind", "nominal"])["coverage"]
    # Half the spread: the 80 % interval covers what ±0.64 standard deviations do.
    expected = norm.cdf(norm.ppf(0.9) / 2) * 2 - 1
    assert coverage["numeric", 0.8] == pytest.approx(expected, abs=0.04)
    assert coverage["categorical", 0.8] < 0.77
    assert coverage["categorical", 0.9] < 0.86
    pit = result.pit.loc["y"].to_numpy()
    assert min(pit[0], pit[-1]) > 2 * pit[4:6].max()
    assert result.pit.loc["kind"].to_numpy()[-1] > 0.14


def test_the_true_distribution_scores_best(case):
    truth, _, x, rng = case
    best = score(case, [draw(x, rng) for _ in range(M)]).columns
    for other in (
        [draw(x, rng, sharpen=2.0) for _ in range(M)],
        [draw(x, rng, sharpen=0.5) for _ in range(M)],
        [truth.sample(N, replace=True, random_state=i) for i in range(M)],
    ):
        worse = score(case, other).columns
        assert (best["score"] < worse["score"]).all()
        assert best["log_score"][1] < worse["log_score"][1]


def test_marginal_draws_are_calibrated_too_but_have_no_skill(case):
    truth, *_ = case
    draws = [truth.sample(N, replace=True, random_state=i) for i in range(M)]
    result = score(case, draws)
    off = (result.coverage["coverage"] - result.coverage["nominal"]).abs()
    assert off.max() < 0.03
    assert result.columns["skill"].abs().max() < 0.02
    assert abs(result.skill) < 0.02


def test_crps_of_a_gaussian_and_that_few_draws_do_not_bias_it(case):
    _, _, x, rng = case
    exact = 0.5 / np.sqrt(np.pi)  # of the true distribution, sd 0.5
    for m in (2, M):
        lines = score(case, [draw(x, rng) for _ in range(m)]).columns
        assert lines["score"][0] == pytest.approx(exact, rel=0.05)
    # The floor is a Gaussian of variance 1.25, whatever the draws.
    floor = np.sqrt(1.25 / np.pi)
    assert lines["reference"][0] == pytest.approx(floor, rel=0.05)
    assert lines["skill"][0] == pytest.approx(1 - exact / floor, abs=0.03)


def test_fair_brier_score_does_not_depend_on_the_number_of_draws(case):
    _, _, x, rng = case
    p = chances(x)
    exact = (1 - (p**2).sum(axis=1)).mean()
    for m in (2, M):
        lines = score(case, [draw(x, rng) for _ in range(m)]).columns
        assert lines["score"][1] == pytest.approx(exact, rel=0.05)


def test_ranks_are_uniform_when_truth_and_draws_are_tied():
    """A column of few integers: without random ties PIT would not be uniform."""
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame({"y": rng.integers(0, 3, 4000)}) for _ in range(8)]
    truth, *draws = frames
    _, hidden = hide(truth, 0.9, rng)
    result = calibration(truth, hidden, draws, ["y"], [], rng=rng)
    steps = np.repeat(np.arange(10) / 10 + 0.05, (result.pit.loc["y"] * 3600).round())
    assert kstest(steps, "uniform").statistic < 0.08


def test_hide_takes_the_share_from_every_column_and_only_observed_cells():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(1000) < 0.5, np.nan, 1.0),
            "b": ["x"] * 1000,
            "c": [True] * 1000,
            "few": [1.0, 2.0, 3.0] + [np.nan] * 997,
            "none": [np.nan] * 1000,
        },
        index=range(5, 1005),
    )
    masked, hidden = hide(frame, 0.5, rng)
    observed = frame.notna()
    assert not (hidden & ~observed).to_numpy().any()
    assert (masked.isna() == (~observed | hidden)).to_numpy().all()
    assert hidden["a"].sum() == round(observed["a"].sum() / 2)
    assert hidden[["b", "c"]].sum().tolist() == [500, 500]
    assert hidden[["few", "none"]].sum().tolist() == [1, 0]
    assert (masked["b"].dropna() == "x").all()


def test_dates_and_mixed_dtypes_of_truth_and_draws():
    rng = np.random.default_rng(0)
    n = 500
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), "D")
    truth = pd.DataFrame({"day": days, "flag": (rng.random(n) < 0.3).astype(object)})
    draws = [
        pd.DataFrame(
            {"day": rng.permutation(days), "flag": rng.permutation(truth["flag"])}
        ).astype({"day": "datetime64[s]", "flag": bool})
        for _ in range(5)
    ]
    _, hidden = hide(truth, 0.6, rng)
    result = calibration(truth, hidden, draws, ["day"], ["flag"], rng=rng)
    assert result.columns["cells"].tolist() == [300, 300]
    assert abs(result.columns["skill"][0]) < 0.2


def test_bad_inputs_are_refused(case):
    truth, hidden, _, rng = case
    for share in (0, 1, -0.1):
        with pytest.raises(UsageError, match="above 0 and below 1, got"):
            hide(truth, share, rng)
    with pytest.raises(UsageError, match="at least 2 draws"):
        score(case, [truth])
    with pytest.raises(DataError, match="draw 1 has 5"):
        score(case, [truth, truth[:5]])
    cell = int(np.flatnonzero(hidden["y"])[0])
    masked = truth.assign(y=truth["y"].where(truth.index != cell))
    with pytest.raises(DataError, match="draw 1 table has 1 missing"):
        score(case, [truth, masked])
    with pytest.raises(DataError, match="has hidden cells"):
        calibration(truth, hidden & False, [truth] * 2, ["y"], [], rng=rng)
