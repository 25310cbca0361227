"""scikit-learn's IterativeImputer on standardised numbers and one column per level.

Columns of all levels sum to one and tell each other exactly, so that a missing one
stays at its first guess, the mean; without a column for the last level they do not. The
first coding (`levels = "all"`) was found to be the better one for most numbers and the
second for levels, so both are in the panel. Levels beyond the twenty most frequent have
no column, and with more than a hundred columns each is predicted from thirty: it would
not finish otherwise.
"""

from __future__ import annotations

import warnings

import numpy as np
from job import Coded, job
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

MOST = 20

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task = job()
    coded = Coded.of(task.frame(), task.kinds)
    whole = task.options.get("levels") == "all"
    blocks, shown = [], []
    for j, name in enumerate(coded.names):
        column = coded.values[:, j]
        if name not in coded.levels:
            mean, sd = np.nanmean(column), np.nanstd(column) or 1.0
            blocks.append((column[:, None] - mean) / sd)
            shown.append((mean, sd))
            continue
        seen = column[~np.isnan(column)].astype(int)
        counts = np.bincount(seen, minlength=len(coded.levels[name]))
        kept = np.argsort(-counts, kind="stable")[:MOST]
        hot = (column[:, None] == (kept if whole else kept[:-1])).astype(float)
        hot[np.isnan(column)] = np.nan
        blocks.append(hot)
        shown.append(kept)
    x = np.hstack(blocks)
    near = 30 if x.shape[1] > 100 else None
    imputer = IterativeImputer(
        random_state=task.seed, n_nearest_features=near, keep_empty_features=True
    )
    filled = imputer.fit_transform(x)
    made, at = coded.values.copy(), 0
    for j, how in enumerate(shown):
        wide = blocks[j].shape[1]
        part, missing = filled[:, at : at + wide], np.isnan(coded.values[:, j])
        at += wide
        if isinstance(how, tuple):
            made[missing, j] = part[missing, 0] * how[1] + how[0]
        else:
            chances = part[missing]
            if not whole:
                last = 1 - chances.sum(axis=1, keepdims=True)
                chances = np.hstack([chances, last])
            made[missing, j] = how[chances.argmax(axis=1)]
    task.write([coded.frame(made)])
