"""How far `lgbm-s` draws: the measure, and the figures of the docs."""

from __future__ import annotations

import json
from pathlib import Path

import drawn_spread
import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parents[3]


def made(_name):
    """Return two numbers of which the second is the first and as much noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1500)
    frame = pd.DataFrame(
        {"x": x, "y": x + rng.normal(size=1500), "c": ["a", "b"] * 750}
    )
    kinds = {"x": "float", "y": "float", "c": "category"}
    return frame, {"target": "c", "task": "classification", "kinds": kinds}


def test_the_error_is_that_of_hidden_cells(monkeypatch):
    monkeypatch.setattr(drawn_spread, "load", made)
    run = drawn_spread.measure("made", 0.3, 0)
    assert run["rows"] == 900
    for line in run["columns"]:
        assert abs(line["hidden"] / 900 - 0.3) < 0.05
        # scaled, x alone leaves sqrt(1/2), or 1 where it is hidden too; trees add some
        assert 0.7 < line["real"] < 1.1
        assert 0.3 < line["ratio"] < 0.6
        assert not line["heaped"]


def test_the_docs_have_the_figures_of_the_file():
    results = ROOT / "benchmarks" / "results" / "drawn_spread.json"
    runs = pd.DataFrame(json.loads(results.read_text())["runs"])
    assert set(zip(runs["mechanism"], runs["missing"], strict=True)) == {("mcar", 0.7)}
    assert (runs.groupby("table").size() == 2).all()
    means = runs.groupby("table")["ratio"].mean()
    page = " ".join((ROOT / "docs" / "how-it-works.md").read_text().split())
    adult, magic = (
        f"{means[name]:.2f}".removeprefix("0") for name in ("adult", "magic")
    )
    assert f"was {adult} of the true error on Adult and {magic} on Magic" in page
    assert results.name in page


@pytest.mark.parametrize("values", [[3.0, -4.0], [0.0]])
def test_the_root_mean_square(values):
    wanted = np.sqrt(np.mean(np.array(values) ** 2))
    assert drawn_spread.root_mean_square(np.float32(values)) == wanted
