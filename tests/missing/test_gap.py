from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError
from augmask.missing.gap import factorization_gap


def gaussian(correlation, n=20_000, seed=0):
    rng = np.random.default_rng(seed)
    names = list("abcdef")[: len(correlation)]
    x = rng.multivariate_normal(np.zeros(len(names)), correlation, n)
    return pd.DataFrame(x, columns=names), rng


def test_co_missingness_of_a_small_example():
    frame = pd.DataFrame(
        {"a": [1.0, None, None, 4.0], "b": [1.0, None, 3.0, 4.0], "c": [1.0] * 4}
    )
    gap = factorization_gap(frame)
    assert gap.joint.to_numpy().tolist() == [
        [0.5, 0.25, 0.0], [0.25, 0.25, 0.0], [0.0, 0.0, 0.0]
    ]  # fmt: skip
    assert gap.conditional.loc["a", "b"] == 0.5
    assert gap.conditional.loc["b", "a"] == 1.0
    assert gap.conditional.loc["c"].isna().all()
    assert sorted(gap.columns["column"]) == ["a", "b"]


def test_two_missing_gaussians_give_their_partial_correlation_times_co_missingness():
    """ρ_ab|c by the textbook formula; b is missing in half of the rows without a."""
    r_ab, r_ac, r_bc = 0.7, 0.5, 0.6
    frame, rng = gaussian([[1, r_ab, r_ac], [r_ab, 1, r_bc], [r_ac, r_bc, 1]])
    partial = (r_ab - r_ac * r_bc) / np.sqrt((1 - r_ac**2) * (1 - r_bc**2))
    a = rng.random(len(frame)) < 0.4
    b = a & (rng.random(len(frame)) < 0.5)
    incomplete = frame.assign(a=frame["a"].mask(a), b=frame["b"].mask(b))
    gap = factorization_gap(incomplete)
    lines = gap.columns.set_index("column")
    assert lines.loc["a", "bound"] == pytest.approx(0.5 * partial, abs=0.03)
    assert lines.loc["b", "bound"] == pytest.approx(partial, abs=0.03)
    assert lines.loc["b", "partner"] == "a"
    # Half of the incomplete rows lack one cell only and lose nothing.
    assert gap.bound == pytest.approx(0.5 * partial, abs=0.03)


def test_a_third_column_explains_the_pair_only_where_it_is_observed():
    """a and b are copies of c with noise: unrelated given c, related without it."""
    frame, rng = gaussian([[1.0]])
    c = frame["a"]
    noise = rng.normal(size=(2, len(c)))
    table = pd.DataFrame({"a": c + noise[0], "b": c + noise[1], "c": c})
    missing = rng.random(len(c)) < 0.3
    observed = factorization_gap(
        table.assign(a=table.a.mask(missing), b=table.b.mask(missing))
    )
    hidden = factorization_gap(table.mask(np.repeat(missing[:, None], 3, axis=1)))
    assert observed.bound < 0.05
    # Given nothing, c has correlation 1/√2 with each of the two.
    assert hidden.bound == pytest.approx(2 / np.sqrt(2), abs=0.05)


def test_the_bound_holds_for_linear_denoisers():
    """|Δ| / P_diag for random Γ = JᵀJ against the bound, as in the paper's equation."""
    sigma = np.array([[1, 0.6, 0.3], [0.6, 1, -0.5], [0.3, -0.5, 1]])
    frame, rng = gaussian(sigma.tolist())
    missing = np.repeat(rng.random((len(frame), 1)) < 0.3, 3, axis=1)
    bound = factorization_gap(frame.mask(missing)).bound
    worst = 0.0
    for _ in range(2000):
        j = rng.normal(size=(2, 3))
        part = (j.T @ j) * sigma
        diagonal = np.trace(part)
        worst = max(worst, abs(part.sum() - diagonal) / diagonal)
    assert worst <= bound + 0.03
    assert bound == pytest.approx(np.abs(sigma - np.eye(3)).sum(axis=1).max(), abs=0.03)


def test_levels_that_determine_each_other_and_levels_that_do_not():
    rng = np.random.default_rng(0)
    town = rng.choice(["Pau", "Metz", "Brest", "Nice"], 5000)
    code = pd.Series(town).map({"Pau": 4, "Metz": 1, "Brest": 3, "Nice": 2}).astype(str)
    missing = np.repeat(rng.random((5000, 1)) < 0.3, 2, axis=1)
    same = pd.DataFrame({"town": town, "code": code}).mask(missing)
    assert factorization_gap(same).bound > 0.98
    other = pd.DataFrame({"town": town, "code": rng.permutation(code)}).mask(missing)
    assert factorization_gap(other).bound < 0.1


def test_a_pair_never_observed_together_counts_as_fully_dependent():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 900))
    third = np.arange(900) % 3
    frame = pd.DataFrame({"x": np.where(third == 0, x, np.nan)})
    frame["y"] = np.where(third == 1, y, np.nan)
    gap = factorization_gap(frame)
    assert gap.columns["bound"].tolist() == pytest.approx([0.5, 0.5])
    assert gap.bound == pytest.approx(1 / 3)


def test_tables_without_dependence_to_lose():
    complete = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert factorization_gap(complete).bound == 0
    empty = pd.DataFrame(
        {"a": [1.0, None, 2.0], "none": [None] * 3, "one": [7, 7, None]}
    )
    gap = factorization_gap(empty)
    assert gap.bound == 0
    assert gap.joint.loc["none", "none"] == 1
    with pytest.raises(DataError, match="has none; pass at least one row"):
        factorization_gap(complete[:0])
