from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from augmask.errors import DataError
from augmask.evaluation.alpha_beta import alpha_beta
from augmask.evaluation.neighbours import Points
from augmask.evaluation.privacy import privacy, row_measures, wilson

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))
NAMES = ["x", "y", "z"], ["g", "h"]
COMPLETE = [
    "dcr_share",
    "copies",
    "nndr",
    "nndr_ratio",
    "mia_auc",
    "mia_tpr",
    "beta_excess",
]
OBSERVED = [
    "dcr_share_observed",
    "copies_observed",
    "mia_auc_observed",
    "mia_tpr_observed",
]


def mixed(rng, n):
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "y": x + rng.normal(size=n),
            "z": rng.exponential(size=n),
            "g": rng.choice(list("abcd"), n, p=[0.5, 0.3, 0.15, 0.05]),
            "h": x + rng.normal(size=n) > 0,
        }
    )


def bootstrap(frame, rng):
    return frame.iloc[rng.integers(0, len(frame), len(frame))]


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    return [mixed(rng, 1500) for _ in range(3)]


def test_fresh_rows_are_clean(tables):
    real, fresh, holdout = tables
    result = privacy(real, fresh, holdout, *NAMES, seed=0)
    assert result.table["measure"].tolist() == COMPLETE
    assert result.flagged == []
    assert result.value == pytest.approx(0.5, abs=0.05)
    by_name = result.table.set_index("measure")
    betas = [alpha_beta(real, t, *NAMES)[1].value for t in (fresh, holdout)]
    assert by_name.loc["beta_excess", "value"] == betas[0] - betas[1]
    low, value, high = by_name.loc["dcr_share", ["low", "value", "high"]]
    assert low < value < high
    assert result.table["meaning"].str.endswith(".").all()
    assert "no formal guarantee" in result.note
    assert result.rows == {"real": 1500, "holdout": 1500, "synthetic": 1500}


def test_a_bootstrap_copy_is_flagged_by_every_measure(tables):
    real, _, holdout = tables
    copy = bootstrap(real, np.random.default_rng(1))
    result = privacy(real, copy, holdout, *NAMES, seed=0)
    assert result.flagged == COMPLETE
    by_name = result.table.set_index("measure")["value"]
    assert by_name["copies"] == 1.0
    assert by_name["nndr"] == 0.0
    assert by_name["mia_tpr"] == pytest.approx(1 - np.exp(-1), abs=0.04)
    assert by_name["beta_excess"] > 0.3
    # The other way round nothing is copied from the training rows.
    assert privacy(holdout, copy, real, *NAMES, seed=0).flagged == []


def test_some_copies_among_fresh_rows_are_found(tables):
    real, fresh, holdout = tables
    some = pd.concat([fresh[150:], real[:150]])
    flagged = privacy(real, some, holdout, *NAMES, seed=0).flagged
    assert {"dcr_share", "copies", "nndr", "mia_tpr"} <= set(flagged)


def test_copies_of_observed_cells_are_found_among_imputed_ones(tables):
    # A generator that copies what it saw and imputes the rest from other rows.
    real, fresh, holdout = tables
    rng = np.random.default_rng(2)
    observed = pd.DataFrame(rng.random(real.shape) > 0.5, columns=real.columns)
    copied = real.where(observed, fresh).astype(real.dtypes)
    on_rows = privacy(real, copied, holdout, *NAMES, seed=0)
    on_cells = privacy(real.where(observed), copied, holdout, *NAMES, seed=0)
    assert on_cells.table["measure"].tolist() == OBSERVED
    assert on_cells.flagged == OBSERVED
    assert on_cells.value > on_rows.value + 0.05
    clean = privacy(real.where(observed), fresh, holdout, *NAMES, seed=0)
    assert clean.flagged == []
    assert clean.value == pytest.approx(0.5, abs=0.05)


def test_the_holdout_may_have_missing_values(tables):
    real, fresh, holdout = tables
    rng = np.random.default_rng(3)
    real, holdout = (t.mask(rng.random(t.shape) < 0.4) for t in (real, holdout))
    result = privacy(real, fresh, holdout, *NAMES, seed=0)
    assert result.table["measure"].tolist() == OBSERVED
    assert result.flagged == []
    assert result.value == pytest.approx(0.5, abs=0.05)


def test_sides_are_cut_to_equal_length_and_the_note_says_so(tables):
    real, fresh, holdout = tables
    result = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=4)
    assert result.rows == {"real": 500, "holdout": 500, "synthetic": 700}
    assert "500 of the 1,500 real rows were sampled" in result.note
    assert result.flagged == []
    same = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=4)
    pd.testing.assert_frame_equal(result.table, same.table)
    other = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=5)
    assert other.value != result.value
    # β-recall too: few synthetic rows are set against as few holdout rows.
    assert privacy(real, fresh[:200], holdout, *NAMES, seed=4).flagged == []


def test_bad_inputs_are_refused(tables):
    real, fresh, holdout = tables
    gap = fresh.assign(z=fresh["z"].where(fresh["z"] > 0.1))
    with pytest.raises(DataError, match="'z' has missing values in the synthetic"):
        privacy(real, gap, holdout, *NAMES, seed=0)
    with pytest.raises(DataError, match="has 1; pass at least 2"):
        privacy(real, fresh, holdout[:1], *NAMES, seed=0)
    with pytest.raises(DataError, match="only 0 pairs"):
        privacy(real.mask(real.notna()), fresh, holdout, *NAMES, seed=0)


adult_only = pytest.mark.skipif(
    not (DATA / "adult.csv.gz").is_file(), reason=f"adult.csv.gz is not in {DATA}"
)


def adult_thirds(rows):
    adult = pd.read_csv(DATA / "adult.csv.gz").sample(3 * rows, random_state=0)
    numeric = adult.select_dtypes("number").columns.tolist()
    names = numeric, [c for c in adult if c not in numeric]
    return [adult[i * rows : (i + 1) * rows] for i in range(3)], names


@adult_only
@pytest.mark.parametrize("rows", [4_000, pytest.param(16_000, marks=pytest.mark.slow)])
def test_adult(rows):
    (real, fresh, holdout), names = adult_thirds(rows)
    result = privacy(real, fresh, holdout, *names, seed=0)
    assert result.flagged == []
    assert 0.48 < result.value < 0.52
    copy = bootstrap(real, np.random.default_rng(0))
    assert privacy(real, copy, holdout, *names, seed=0).flagged == COMPLETE


def line(*x):
    n = len(x)
    observed = np.ones((n, 1), bool)
    return Points(np.array(x, float)[:, None], np.zeros((n, 0), int), observed)


def test_wilson_equals_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (510, 1000)):
        want = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((want.low, want.high), abs=1e-7)


def test_every_measure_of_a_small_example():
    synthetic = line(0.0, 0.25, 0.5, 1.0)
    training, holdout = line(0.0, 0.375, 0.75), line(0.125, 0.5, 0.625)
    measures = {m.measure: m for m in row_measures(synthetic, training, holdout)}
    # Nearest: training 0, 1/8, 1/8, 1/4; holdout 1/8, 1/8, 0, 3/8.
    assert measures["dcr_share"].value == (2 + 1 / 2) / 4
    assert (measures["copies"].value, measures["copies"].reference) == (1 / 4, 1 / 4)
    # Ratios: training 0, 1/2, 1/2, 2/5; holdout 1/4, 1/2, 0, 3/4.
    assert measures["nndr"].value == pytest.approx(
        np.quantile([0, 0.5, 0.5, 0.4], 0.05)
    )
    assert measures["nndr"].reference == pytest.approx(
        np.quantile([0.25, 0.5, 0, 0.75], 0.05)
    )
    assert measures["nndr_ratio"].value == pytest.approx(
        measures["nndr"].value / measures["nndr"].reference
    )
    back = [0, 0.125, 0.25, 0.125, 0, 0.125]
    auc = roc_auc_score([1, 1, 1, 0, 0, 0], -np.array(back))
    assert measures["mia_auc"].value == pytest.approx(auc)
    # One record in three has distance 0 on either side: tied, a coin decides.
    assert measures["mia_tpr"].value == pytest.approx(0.01)
    assert not any(m.flagged for m in measures.values())


def test_a_table_of_few_distinct_rows_is_not_flagged():
    # Copies abound on both sides, by chance.
    rng = np.random.default_rng(0)
    tables = [
        Points(
            np.zeros((800, 0)), rng.integers(0, 3, (800, 3)), np.ones((800, 3), bool)
        )
        for _ in range(3)
    ]
    measures = {m.measure: m for m in row_measures(*tables)}
    assert measures["copies"].value == measures["copies"].reference == 1.0
    assert measures["dcr_share"].value == 0.5
    assert measures["nndr_ratio"].value == 1.0
    assert measures["mia_auc"].value == 0.5
    assert measures["mia_tpr"].value == pytest.approx(0.01)
    assert not any(m.flagged for m in measures.values())
