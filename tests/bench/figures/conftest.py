"""Results of imaginary grids, with known effects."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

LABELS = {"cdtd": "CDTD", "tabdiff": "TabDiff"}


@pytest.fixture
def run():
    """Return a function that makes one row of results."""

    def make(**facts):
        score = facts.pop("score", 0.7)
        generator = facts.get("generator", "cdtd")
        kind = {"all": "AugFull", "observed": "AugMask"}.get(facts.get("supervise"), "")
        defaults = {
            "dataset": "table",
            "mechanism": "mcar",
            "ratio": 0.5,
            "seed": 0,
            "method": f"{LABELS.get(generator, generator)} + {kind}",
            "generator": "cdtd",
            "strategy": kind,
            "augmenter": "lgbm-s",
            "supervise": "observed",
            "aware": False,
            "completions": "one",
            "eta": np.nan,
            "lam": np.nan,
            "status": "done",
            "reason": "",
            "shape": score + 0.1,
            "trend": score + 0.05,
            "alpha_precision": score - 0.05,
            "beta_recall": score - 0.1,
            "mle": score,
            "augment_seconds": 1.0,
        }
        line = defaults | facts
        text = json.dumps(line, default=str)
        line["real"] = "f00d"
        line["run"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return line

    return make


@pytest.fixture
def grid(run):
    """Return a function that makes all combinations of lists; `score` is a function."""

    def make(score, seeds=2, datasets=2, noise=0.004, **lists):
        rng = np.random.default_rng(0)
        names = [*lists, "seed", "dataset"]
        values = [
            *lists.values(),
            range(seeds),
            [f"table_{d}" for d in range(datasets)],
        ]
        combinations = pd.MultiIndex.from_product(values, names=names)
        lines = []
        for cell in combinations:
            facts = dict(zip(names, cell, strict=True))
            shift = 0.05 * int(facts["dataset"][-1]) + noise * rng.normal()
            lines.append(run(**facts, score=score(facts) + shift))
        return pd.DataFrame(lines)

    return make
