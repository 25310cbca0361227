"""`fit_many`: many models, trained at the same time on one device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from augmask.errors import TrainingDiverged, UsageError
from augmask.model import AugMask
from augmask.prepare import prepare_fit
from augmask.progress import Progress, silent
from augmask.train import parallel
from augmask.train.loop import all_or_raise, train_many


def fit_many(
    models: Sequence[AugMask],
    tables: Sequence[Any],
    schema: Any = None,
    progress: Progress = silent,
) -> None:
    """Fit each model to its table, all of them in turns.

    A network this small leaves much of a GPU idle. Trained in turns, each on a stream
    of its own, several take less time than one after the other; a CPU has nothing to
    gain. Every model becomes what its own `fit` would have made of it: bit for bit on a
    CPU, but for rounding on a GPU.

    Parameters
    ----------
    models : sequence of AugMask
        With any strategies, seeds and backbones.
    tables : sequence
        One for each model, see `AugMask.fit`; the same may stand several times.
    schema : Schema, path or mapping, optional
        Of all tables.
    progress : callable

    Raises
    ------
    TrainingDiverged
        When a training broke down for good; all other models are fitted then.

    Examples
    --------
    >>> import pandas as pd
    >>> df = pd.DataFrame({"x": [1, None, 2.5, 3] * 5, "y": ["a", "b", None, "b"] * 5})
    >>> options = {"steps": 3}
    >>> models = [
    ...     AugMask(augmenter="ecdf", preset="fast", options=options, seed=seed)
    ...     for seed in (0, 1)
    ... ]
    >>> fit_many(models, [df, df])
    >>> len(models[1].sample(2))
    2
    """
    if len(models) != len(tables):
        raise UsageError(
            f"every model needs a table: got {len(models)} models and "
            f"{len(tables)} tables"
        )
    if len({id(model) for model in models}) < len(models):
        raise UsageError("a model can be fitted once at a time; make a clone of it")
    if parallel.launched():
        raise UsageError(
            "models that are fitted together share one device; start without torchrun"
        )
    ready = [
        prepare_fit(model, table, schema, None, progress)
        for model, table in zip(models, tables, strict=True)
    ]
    every = [trainer for each in ready for trainer in each.trainers]
    results = iter(train_many(every, progress))
    broken: list[TrainingDiverged] = []
    for model, each in zip(models, ready, strict=True):
        mine = list(islice(results, len(each.trainers)))
        try:
            model._take(each, all_or_raise(mine))
        except TrainingDiverged as error:
            broken.append(error)
    if broken:
        raise broken[0]
