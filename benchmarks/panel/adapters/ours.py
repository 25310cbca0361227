"""Ours, with no option but the path unless a run names some."""

from __future__ import annotations

import warnings
from pathlib import Path

from job import job

import augmask as am
from augmask.errors import AugMaskWarning

if __name__ == "__main__":
    warnings.simplefilter("ignore", AugMaskWarning)
    task = job()
    frame = task.frame()
    model = am.AugMask(seed=task.seed, device="cpu", **task.options)
    model.fit(Path(task.table).with_suffix(".csv"), holdout=0)
    said = {"preset": model.preset_, "training": model.training_}
    if task.task == "synthesize":
        task.write([model.sample(task.rows, seed=task.seed)], **said)
    else:
        path = Path(task.table).with_suffix(".csv")
        found = model.impute(path, n_draws=max(2, task.draws), seed=task.seed)
        task.write(list(found), **said)
