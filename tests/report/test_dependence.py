from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.report.counts import FEWEST
from augmask.report.dependence import dependence, joint


def people(n: int, seed: int, strength: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "x": x,
            "y": -strength * x + rng.normal(size=n),
            "z": np.where(strength * x + rng.normal(size=n) > 0, "up", "down"),
            "w": rng.choice(list("pqr"), n),
        }
    )


def test_matrices_show_what_hangs_together_and_nothing_by_chance():
    tables = {"real": people(4000, 0, 2.0), "synthetic": people(4000, 1, 0.0)}
    found = dependence(tables, ["x", "y"], ["z", "w"])
    at = {name: i for i, name in enumerate(found.names)}
    assert found.real[at["x"], at["y"]] == pytest.approx(-0.894, abs=0.02)
    assert found.real[at["x"], at["z"]] > 0.6
    assert found.real[at["w"]].max() == 1
    assert np.abs(np.delete(found.real[at["w"]], at["w"])).max() < 0.06
    assert np.abs(found.synthetic - np.eye(4)).max() < 0.06
    assert (found.real == found.real.T).all()


def test_pairs_that_are_never_seen_together_stay_blank():
    real = people(400, 0, 1.0)
    real.loc[:199, "x"] = None
    real.loc[200:, "y"] = None
    real.loc[200:, "z"] = None
    found = dependence({"real": real, "synthetic": real}, ["x", "y"], ["z", "w"])
    at = {name: i for i, name in enumerate(found.names)}
    assert np.isnan(found.real[at["x"], at["y"]])
    assert np.isnan(found.real[at["x"], at["z"]])
    assert found.real[at["y"], at["z"]] > 0.2
    assert joint({"real": real, "synthetic": real}, "x", "y", 0.5, ["x", "y"]) is None


def test_joint_cells_with_few_rows_are_hidden():
    real = people(300, 0, 1.0)
    pair = joint({"real": real, "synthetic": people(900, 1, 1.0)}, "x", "z", 0.5, ["x"])
    shown = pair.real[~np.isnan(pair.real)]
    assert pair.real.shape == (pair.first.size, 2)
    assert shown.min() * 300 >= FEWEST - 1e-9
    assert np.isnan(pair.real).any()
    assert shown.sum() <= 1
