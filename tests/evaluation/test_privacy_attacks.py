from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from augmask.evaluation.gower import Points
from augmask.evaluation.privacy_attacks import of_rows, wilson


def line(*x):
    n = len(x)
    whole = np.ones((n, 1), bool)
    return Points(np.array(x, float)[:, None], np.zeros((n, 0), int), whole)


def test_wilson_equals_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (510, 1000)):
        want = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((want.low, want.high), abs=1e-7)


def test_every_number_by_hand():
    synthetic = line(0.0, 0.25, 0.5, 1.0)
    training, holdout = line(0.0, 0.375, 0.75), line(0.125, 0.5, 0.625)
    found = {m.measure: m for m in of_rows(synthetic, training, holdout)}
    # Nearest: training 0, 1/8, 1/8, 1/4; holdout 1/8, 1/8, 0, 3/8.
    assert found["dcr_share"].value == (2 + 1 / 2) / 4
    assert (found["copies"].value, found["copies"].reference) == (1 / 4, 1 / 4)
    # Ratios: training 0, 1/2, 1/2, 2/5; holdout 1/4, 1/2, 0, 3/4.
    assert found["nndr"].value == pytest.approx(np.quantile([0, 0.5, 0.5, 0.4], 0.05))
    assert found["nndr"].reference == pytest.approx(
        np.quantile([0.25, 0.5, 0, 0.75], 0.05)
    )
    assert found["nndr_ratio"].value == pytest.approx(
        found["nndr"].value / found["nndr"].reference
    )
    back = [0, 0.125, 0.25, 0.125, 0, 0.125]
    auc = roc_auc_score([1, 1, 1, 0, 0, 0], -np.array(back))
    assert found["attack_auc"].value == pytest.approx(auc)
    # One record in three has distance 0 on either side: tied, a coin decides.
    assert found["attack_tpr"].value == pytest.approx(0.01)
    assert not any(m.flagged for m in found.values())


def test_a_table_of_few_distinct_rows_is_no_copier():
    # Copies abound on both sides, by chance.
    rng = np.random.default_rng(0)
    tables = [
        Points(
            np.zeros((800, 0)), rng.integers(0, 3, (800, 3)), np.ones((800, 3), bool)
        )
        for _ in range(3)
    ]
    found = {m.measure: m for m in of_rows(*tables)}
    assert found["copies"].value == found["copies"].reference == 1.0
    assert found["dcr_share"].value == 0.5
    assert found["nndr_ratio"].value == 1.0
    assert found["attack_auc"].value == 0.5
    assert found["attack_tpr"].value == pytest.approx(0.01)
    assert not any(m.flagged for m in found.values())
