from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.coverage import alpha_beta
from augmask.evaluation.privacy import privacy

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))
NAMES = ["x", "y", "z"], ["g", "h"]
COMPLETE = [
    "dcr_share",
    "copies",
    "nndr",
    "nndr_ratio",
    "attack_auc",
    "attack_tpr",
    "beta_excess",
]
OBSERVED = [
    "dcr_share_observed",
    "copies_observed",
    "attack_auc_observed",
    "attack_tpr_observed",
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
    found = privacy(real, fresh, holdout, *NAMES, seed=0)
    assert found.table["measure"].tolist() == COMPLETE
    assert found.flagged == []
    assert found.value == pytest.approx(0.5, abs=0.05)
    by_name = found.table.set_index("measure")
    betas = [alpha_beta(real, t, *NAMES)[1].value for t in (fresh, holdout)]
    assert by_name.loc["beta_excess", "value"] == betas[0] - betas[1]
    low, value, high = by_name.loc["dcr_share", ["low", "value", "high"]]
    assert low < value < high
    assert found.table["meaning"].str.endswith(".").all()
    assert "no formal guarantee" in found.note
    assert found.rows == {"real": 1500, "holdout": 1500, "synthetic": 1500}


def test_a_bootstrap_copy_is_flagged_by_every_number(tables):
    real, _, holdout = tables
    copy = bootstrap(real, np.random.default_rng(1))
    found = privacy(real, copy, holdout, *NAMES, seed=0)
    assert found.flagged == COMPLETE
    by_name = found.table.set_index("measure")["value"]
    assert by_name["copies"] == 1.0
    assert by_name["nndr"] == 0.0
    assert by_name["attack_tpr"] == pytest.approx(1 - np.exp(-1), abs=0.04)
    assert by_name["beta_excess"] > 0.3
    # The other way round nothing is copied from the training rows.
    assert privacy(holdout, copy, real, *NAMES, seed=0).flagged == []


def test_some_copies_among_fresh_rows_are_found(tables):
    real, fresh, holdout = tables
    some = pd.concat([fresh[150:], real[:150]])
    flagged = privacy(real, some, holdout, *NAMES, seed=0).flagged
    assert {"dcr_share", "copies", "nndr", "attack_tpr"} <= set(flagged)


def test_copies_of_the_seen_cells_hide_behind_the_unseen_ones(tables):
    # A generator that copies what it saw and fills the rest from other rows.
    real, fresh, holdout = tables
    rng = np.random.default_rng(2)
    seen = pd.DataFrame(rng.random(real.shape) > 0.5, columns=real.columns)
    filled = real.where(seen, fresh).astype(real.dtypes)
    found = privacy(real, filled, holdout, *NAMES, seed=0, observed=seen)
    assert found.table["measure"].tolist() == COMPLETE + OBSERVED
    share = found.table.set_index("measure")["value"]
    assert share["dcr_share_observed"] > share["dcr_share"] + 0.05
    assert set(OBSERVED) <= set(found.flagged)
    # From the incomplete table itself: the same cells, and no others.
    alone = privacy(real.where(seen), filled, holdout, *NAMES, seed=0)
    assert alone.table["measure"].tolist() == OBSERVED
    assert alone.value == pytest.approx(share["dcr_share_observed"], abs=0.02)
    clean = privacy(real.where(seen), fresh, holdout, *NAMES, seed=0)
    assert clean.flagged == []
    assert clean.value == pytest.approx(0.5, abs=0.05)


def test_a_holdout_keeps_holes_of_its_own(tables):
    real, fresh, holdout = tables
    rng = np.random.default_rng(3)
    real, holdout = (t.mask(rng.random(t.shape) < 0.4) for t in (real, holdout))
    found = privacy(real, fresh, holdout, *NAMES, seed=0)
    assert found.table["measure"].tolist() == OBSERVED
    assert found.flagged == []
    assert found.value == pytest.approx(0.5, abs=0.05)


def test_sides_are_made_equally_long_and_that_is_said(tables):
    real, fresh, holdout = tables
    found = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=4)
    assert found.rows == {"real": 500, "holdout": 500, "synthetic": 700}
    assert "500 of the 1,500 real rows were drawn" in found.note
    assert found.flagged == []
    same = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=4)
    pd.testing.assert_frame_equal(found.table, same.table)
    other = privacy(real, fresh[:700], holdout[:500], *NAMES, seed=5)
    assert other.value != found.value
    # β-recall too: few synthetic rows are set against as few holdout rows.
    assert privacy(real, fresh[:200], holdout, *NAMES, seed=4).flagged == []


def test_what_cannot_be_compared_is_said(tables):
    real, fresh, holdout = tables
    gap = fresh.assign(z=fresh["z"].where(fresh["z"] > 0.1))
    with pytest.raises(DataError, match="'z' has holes in the synthetic"):
        privacy(real, gap, holdout, *NAMES, seed=0)
    with pytest.raises(DataError, match="has 1; pass at least 2"):
        privacy(real, fresh, holdout[:1], *NAMES, seed=0)
    seen = real.notna().drop(columns="h")
    with pytest.raises(UsageError, match=r"lacks the columns \['h'\]"):
        privacy(real, fresh, holdout, *NAMES, seed=0, observed=seen)
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
    found = privacy(real, fresh, holdout, *names, seed=0)
    assert found.flagged == []
    assert 0.48 < found.value < 0.52
    copy = bootstrap(real, np.random.default_rng(0))
    assert privacy(real, copy, holdout, *names, seed=0).flagged == COMPLETE
