"""miceforest at its defaults, several data sets."""

from __future__ import annotations

import miceforest
import pandas as pd
from job import Coded, job

if __name__ == "__main__":
    task = job()
    coded = Coded.of(task.frame(), task.kinds)
    # Plain names: LightGBM refuses some letters.
    names = [f"c{j}" for j in range(len(coded.names))]
    table = pd.DataFrame(coded.values, columns=names)
    for short, name in zip(names, coded.names, strict=True):
        if name in coded.levels:
            whole = table[short].astype("Int64")
            table[short] = whole.astype("category")
    kernel = miceforest.ImputationKernel(
        table, num_datasets=task.draws, random_state=task.seed
    )
    kernel.mice(5, num_threads=1)
    made = []
    for i in range(task.draws):
        filled = kernel.complete_data(dataset=i)
        made.append(coded.frame(filled.astype(float).to_numpy()))
    task.write(made)
