"""Train tabular diffusion models on incomplete tables, generate complete ones.

The steps and their packages::

    incomplete frame --table--> Table(num, cat, observed) --augmentation--> Completions
      --diffusion, train--> denoiser --sample--> rows --table--> complete frame
      --evaluation--> scores

`missing` simulates and describes missing values. Heavy libraries are imported when a
name is first used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augmask.augmentation.augment import augment
    from augmask.demo.clinic import load_clinic
    from augmask.diffusion.base import Batch, CellLoss
    from augmask.diffusion.reduce import observed_mean
    from augmask.errors import (
        ArtifactError,
        AugMaskError,
        AugMaskWarning,
        ConditionError,
        DataError,
        SchemaError,
        TrainingDiverged,
        UsageError,
    )
    from augmask.evaluation.evaluate import evaluate
    from augmask.imputer import AugMaskImputer
    from augmask.inspection import inspect
    from augmask.missing.simulate import ampute
    from augmask.model import AugMask, fit_many, load
    from augmask.sample.imputations import pool
    from augmask.table.frames import read_table
    from augmask.table.infer import infer_schema
    from augmask.table.schema import Schema

__version__ = "0.1.0"

# Where each public name lives; its module is imported on first use.
_HOME = {
    "ArtifactError": "augmask.errors",
    "AugMask": "augmask.model",
    "AugMaskError": "augmask.errors",
    "AugMaskImputer": "augmask.imputer",
    "AugMaskWarning": "augmask.errors",
    "Batch": "augmask.diffusion.base",
    "CellLoss": "augmask.diffusion.base",
    "ConditionError": "augmask.errors",
    "DataError": "augmask.errors",
    "Schema": "augmask.table.schema",
    "SchemaError": "augmask.errors",
    "TrainingDiverged": "augmask.errors",
    "UsageError": "augmask.errors",
    "ampute": "augmask.missing.simulate",
    "augment": "augmask.augmentation.augment",
    "evaluate": "augmask.evaluation.evaluate",
    "fit_many": "augmask.model",
    "infer_schema": "augmask.table.infer",
    "inspect": "augmask.inspection",
    "load": "augmask.model",
    "load_clinic": "augmask.demo.clinic",
    "observed_mean": "augmask.diffusion.reduce",
    "pool": "augmask.sample.imputations",
    "read_table": "augmask.table.frames",
}
__all__ = [
    "ArtifactError",
    "AugMask",
    "AugMaskError",
    "AugMaskImputer",
    "AugMaskWarning",
    "Batch",
    "CellLoss",
    "ConditionError",
    "DataError",
    "Schema",
    "SchemaError",
    "TrainingDiverged",
    "UsageError",
    "ampute",
    "augment",
    "evaluate",
    "fit_many",
    "infer_schema",
    "inspect",
    "load",
    "load_clinic",
    "observed_mean",
    "pool",
    "read_table",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'augmask' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
