"""A small incomplete table with every common kind of column."""

from __future__ import annotations

import numpy as np
import pandas as pd


def make_frame(n: int = 60, missing: float = 0.3, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kg = rng.normal(70, 12, n)
    frame = pd.DataFrame(
        {
            "kg": kg.round(1),
            "age": (kg / 2 + rng.normal(0, 9, n)).round(),
            "job": np.where(kg > 70, "smith", rng.choice(["cook", "clerk"], n)),
            "smokes": rng.random(n) < 0.3,
        }
    )
    return frame.mask(rng.random(frame.shape) < missing)
