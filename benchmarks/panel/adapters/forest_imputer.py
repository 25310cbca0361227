"""miceforest at its defaults, several data sets, five rounds each."""

from __future__ import annotations

import miceforest
import pandas as pd
from job import Coded, job


def impute(
    table: pd.DataFrame, draws: int, seed: int, levels: str = "normal"
) -> miceforest.ImputationKernel:
    """Return five rounds; levels matched in its other way where the default breaks."""
    how = {
        name: levels if table[name].dtype == "category" else "normal" for name in table
    }
    kernel = miceforest.ImputationKernel(
        table, num_datasets=draws, random_state=seed, mean_match_strategy=how
    )
    try:
        kernel.mice(5, num_threads=1)
    except ValueError:
        # A level that trees are sure of has infinite odds, which its search refuses.
        if levels == "fast":
            raise
        return impute(table, draws, seed, "fast")
    return kernel


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
    kernel = impute(table, task.draws, task.seed)
    made = []
    for i in range(task.draws):
        filled = kernel.complete_data(dataset=i)
        made.append(coded.frame(filled.astype(float).to_numpy()))
    task.write(made)
