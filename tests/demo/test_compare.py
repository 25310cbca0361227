"""The demo: a short run for its files, a full one for the order of strategies."""

from __future__ import annotations

import pandas as pd
import pytest

from augmask.demo.compare import FILES, compare_strategies
from augmask.model import load

pytestmark = pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")


def test_the_demo_writes_tables_a_model_and_a_report(tmp_path):
    results = list(compare_strategies(tmp_path / "out", n=300, steps=20))
    assert [r.strategy for r in results] == ["NoAug", "AugFull", "AugMask", "real"]
    scores = ("shape", "trend", "alpha_precision", "beta_recall", "mle")
    assert all(0 < getattr(r, s) <= 1.1 for r in results for s in scores)
    # Twenty steps learn little; real rows score best.
    *learned, real = results
    for r in learned:
        assert r.shape < real.shape
        assert r.trend < real.trend
        assert r.beta_recall < real.beta_recall
        assert r.c2st_auc > real.c2st_auc + 0.2
        assert r.trend_worst < r.trend
        assert r.trend_worst < real.trend_worst
        assert " with " in r.worst_pair
    assert real.c2st_auc == pytest.approx(0.5, abs=0.1)
    assert {p.name for p in (tmp_path / "out").iterdir()} == set(FILES)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "re-masked" in page
    assert "triage" in page
    synthetic = pd.read_csv(tmp_path / "out" / "clinic-synthetic.csv")
    assert synthetic.shape == (300, 19)
    assert not synthetic.isna().any().any()
    assert pd.read_csv(tmp_path / "out" / "clinic-incomplete.csv").isna().any().any()
    again = load(tmp_path / "out" / "clinic.augmask").sample(5)
    assert again.shape == (5, 19)


@pytest.mark.slow
def test_augmask_beats_augfull_beats_noaug(tmp_path):
    noaug, augfull, augmask, real = compare_strategies(tmp_path)
    assert real.shape > augmask.shape > augfull.shape > noaug.shape
    assert real.trend > augmask.trend > augfull.trend > noaug.trend
