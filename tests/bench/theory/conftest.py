"""A small incomplete frame of two kinds of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def make_frame():
    def make(n=300, missing=0.3, seed=0):
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=n)
        frame = pd.DataFrame(
            {
                "a": shared + 0.3 * rng.normal(size=n),
                "b": shared + 0.3 * rng.normal(size=n),
                "c": np.where(shared + 0.5 * rng.normal(size=n) > 0, "yes", "no"),
                "d": rng.choice(["x", "y", "z"], size=n),
            }
        )
        return frame.mask(rng.random(frame.shape) < missing)

    return make
