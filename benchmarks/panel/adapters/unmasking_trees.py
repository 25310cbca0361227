"""UnmaskingTrees at its defaults; levels are told as such."""

from __future__ import annotations

from job import LEVELS, Coded, job
from utrees import UnmaskingTrees

if __name__ == "__main__":
    task = job()
    coded = Coded.of(task.frame(), task.kinds)
    told = [
        "categorical"
        if kind in LEVELS
        else "integer"
        if kind == "integer"
        else "continuous"
        for kind in task.kinds.values()
    ]
    model = UnmaskingTrees(random_state=task.seed)
    model.fit(coded.values, quantize_cols=told)
    if task.task == "synthesize":
        made = [model.generate(n_generate=task.rows)]
    else:
        made = list(model.impute(n_impute=task.draws))
    task.write([coded.frame(values) for values in made])
