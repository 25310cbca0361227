"""The floor: every column drawn by itself from its observed values."""

from __future__ import annotations

import numpy as np
import pandas as pd
from job import job

if __name__ == "__main__":
    task = job()
    rng = np.random.default_rng(task.seed)
    frame = task.frame()
    drawn = {
        name: frame[name]
        .dropna()
        .to_numpy()[rng.integers(frame[name].notna().sum(), size=task.rows)]
        for name in frame
    }
    task.write([pd.DataFrame(drawn)])
