"""scikit-learn's IterativeImputer on standardised numbers and one column per level.

The last level has no column: columns that sum to one tell each other exactly, and every
missing one would stay at its first guess, the mean. Levels beyond the twenty most
frequent have none either, and with more than a hundred columns each is predicted from
thirty: it would not finish otherwise.
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
        hot = (column[:, None] == kept[:-1]).astype(float)
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
        part, hole = filled[:, at : at + wide], np.isnan(coded.values[:, j])
        at += wide
        if isinstance(how, tuple):
            made[hole, j] = part[hole, 0] * how[1] + how[0]
        else:
            last = 1 - part[hole].sum(axis=1, keepdims=True)
            made[hole, j] = how[np.hstack([part[hole], last]).argmax(axis=1)]
    task.write([coded.frame(made)])
