"""Scores of small tables without the slow metrics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from augmask.evaluation.results import Entry, Scores
from augmask.table.infer import infer_schema

MakeScores = Callable[..., Scores]


def entry(value: float, title: str = "Shape") -> Entry:
    return Entry(value, 0.98, 0.6, "fidelity", "higher", title, "It tells something.")


@pytest.fixture
def make_scores() -> MakeScores:
    """Return a function that makes `Scores` like `evaluate`, without slow metrics."""

    def make(real: pd.DataFrame, synthetic: pd.DataFrame, **parts: object) -> Scores:
        schema = infer_schema(real)
        kinds = ("integer", "float", "datetime")
        numeric = [c.name for c in schema if c.kind in kinds]
        categorical = [c.name for c in schema if c.kind in ("category", "boolean")]
        names = [*numeric, *categorical]
        tables = {"real": real[names], "synthetic": synthetic[names]}
        complete = not real[names].isna().any(axis=None)
        if not complete:
            tables["remasked"] = synthetic[names].mask(real[names].isna().to_numpy())
        values = np.linspace(0.9, 0.5, len(names))
        return Scores(
            {"shape": entry(0.97), "trend": entry(0.7, "Trend")},
            {"columns": pd.DataFrame({"column": names, "score": values})},
            {
                "columns": {"numeric": numeric, "categorical": categorical},
                "complete": complete,
                "seed": 0,
            },
            {**tables, "schema": schema, **parts},
        )

    return make
