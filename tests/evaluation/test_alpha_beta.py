from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation import alpha_beta as module
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.neighbours import nearest_rows


def reference(real, synthetic, numeric, categorical):
    """α-precision and β-recall by the definition, one row at a time, float64."""
    points = {"x": [], "s": []}
    for key, frame in (("x", real), ("s", synthetic)):
        columns = []
        for name in numeric:
            low, high = real[name].min(), real[name].max()
            columns.append((frame[name].to_numpy(float) - low) / ((high - low) or 1))
        for name in categorical:
            for level in real[name].unique():
                columns.append((frame[name] == level).to_numpy(float))
        points[key] = np.stack(columns, axis=1)
    x, s = points["x"], points["s"]

    def length(v):
        return np.sqrt((v**2).sum(axis=-1))

    levels = [k / 29 for k in range(30)]
    from_centre = length(x - x.mean(axis=0))
    s_from_centre = length(s - x.mean(axis=0))
    off = 0.0
    for a in levels:
        radius = np.quantile(from_centre, a)
        off += abs(a - np.mean(s_from_centre <= radius))
    alpha = 1 - off / sum(levels)

    covered, spread = [], []
    for i in range(len(x)):
        to_real = [length(x[i] - x[j]) for j in range(len(x)) if j != i]
        to_synthetic = [length(x[i] - row) for row in s]
        chosen = to_synthetic.index(min(to_synthetic))
        covered.append(min(to_synthetic) <= min(to_real))
        spread.append(length(s[chosen] - s.mean(axis=0)))
    off = 0.0
    for a in levels:
        radius = np.quantile(spread, a)
        both = [c and t <= radius for c, t in zip(covered, spread, strict=True)]
        off += abs(a - np.mean(both))
    return alpha, 1 - off / sum(levels)


def table(rng, n, steps, levels="abc"):
    # Numbers of the form k / steps over exactly 0..1, so scaling keeps them exact.
    frame = pd.DataFrame(
        {
            "x": rng.integers(0, steps + 1, n) / steps,
            "y": rng.integers(0, steps + 1, n) / steps,
            "g": rng.choice(list(levels), n),
            "b": rng.random(n) < 0.3,
        }
    )
    frame.loc[0, ["x", "y"]] = 0.0
    frame.loc[1, ["x", "y"]] = 1.0
    return frame


# A coarse grid is full of ties and repeated rows, a fine one nearly free of them.
@pytest.mark.parametrize("steps", [2, 4, 64, 1 << 20])
def test_equal_to_the_reference(steps):
    rng = np.random.default_rng(steps)
    real = table(rng, 120, steps)
    # Other row counts, a level that real rows lack, a wild row.
    synthetic = table(rng, 90, steps, levels="abz")
    synthetic.loc[5, "x"] = 300.0
    names = ["x", "y"], ["g", "b"]
    alpha, beta = alpha_beta(real, synthetic, *names)
    want = reference(real, synthetic, *names)
    assert (alpha.value, beta.value) == pytest.approx(want, abs=1e-12)
    assert alpha.table["quantile"].tolist() == pytest.approx(
        [k / 29 for k in range(30)]
    )


def mixed(rng, n):
    x = rng.normal(size=n)
    y = x + rng.normal(size=n)
    group = rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])
    return pd.DataFrame({"x": x, "y": y, "z": rng.exponential(size=n), "g": group})


def test_a_perfect_sampler_has_beta_one_half_and_a_copier_more():
    rng = np.random.default_rng(0)
    real, other = mixed(rng, 3000), mixed(rng, 3000)
    names = ["x", "y", "z"], ["g"]
    alpha, beta = alpha_beta(real, other, *names)
    assert alpha.value > 0.97
    assert 0.47 < beta.value < 0.53
    copies = real.iloc[rng.integers(0, len(real), len(real))]
    assert alpha_beta(real, copies, *names)[1].value > 0.8


def test_independent_columns_lose_beta():
    rng = np.random.default_rng(1)
    x = rng.normal(size=1500)
    real = pd.DataFrame({"x": x, "y": x + 0.01 * rng.normal(size=1500)})
    broken = real.assign(y=rng.permutation(real["y"]))
    assert alpha_beta(real, broken, ["x", "y"], [])[1].value < 0.15


def test_a_collapsed_table_scores_near_zero():
    rng = np.random.default_rng(2)
    real = mixed(rng, 500)
    centre = real.assign(x=real["x"].mean(), y=real["y"].mean(), z=1.0, g=0)
    alpha, beta = alpha_beta(real, centre, ["x", "y", "z"], ["g"])
    assert 0 <= alpha.value < 0.1
    assert 0 <= beta.value < 0.1


def test_the_cache_is_keyed_by_the_contents_of_the_real_table(monkeypatch):
    searches = []

    def counting(queries, base, skip_self=False, n_jobs=None):
        searches.append(skip_self)
        return nearest_rows(queries, base, skip_self, n_jobs)

    rng = np.random.default_rng(3)
    real, synthetic = mixed(rng, 80), mixed(rng, 80)
    changed = real.assign(x=real["x"] ** 3)
    names = ["x", "y", "z"], ["g"]
    plain, of_changed = (
        [s.value for s in alpha_beta(table, synthetic, *names)]
        for table in (real, changed)
    )
    monkeypatch.setattr(module, "nearest_rows", counting)
    cache: dict[str, np.ndarray] = {}
    for _ in range(2):
        got = alpha_beta(real, synthetic, *names, cache=cache)
        assert [s.value for s in got] == plain
    assert searches == [True, False, False]
    got = alpha_beta(changed, synthetic, *names, cache=cache)
    assert searches[3:] == [True, False]
    assert [s.value for s in got] == of_changed


def test_subsampling_is_seeded():
    rng = np.random.default_rng(5)
    real, synthetic = mixed(rng, 300), mixed(rng, 50)
    names = ["x", "y", "z"], ["g"]

    def score(seed):
        got = alpha_beta(
            real, synthetic, *names, rows=60, rng=np.random.default_rng(seed)
        )
        return [s.value for s in got]

    assert score(0) == score(0)
    assert score(0) != score(1)
    with pytest.raises(UsageError, match="a generator"):
        alpha_beta(real, synthetic, *names, rows=60)


def test_one_real_row_is_refused():
    frame = pd.DataFrame({"x": [1.0]})
    with pytest.raises(DataError, match="at least 2"):
        alpha_beta(frame, frame, ["x"], [])
