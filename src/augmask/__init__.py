"""Train tabular diffusion models on incomplete tables, generate complete ones.

The way of the data, and the folders::

    frame with holes --table--> Table(num, cat, observed) --augmentation--> Completions
      --diffusion, train--> denoiser --sample--> codes --table--> complete frame
      --evaluation--> scores

`missing` makes and describes holes. Heavy libraries are loaded on first use of a name.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from augmask.augmentation.frame import augment
    from augmask.diffusion.reduce import observed_mean
    from augmask.evaluation.evaluate import evaluate
    from augmask.imputer import AugMaskImputer
    from augmask.many_models import fit_many
    from augmask.missing.simulate import ampute
    from augmask.model import AugMask, load
    from augmask.sample.multiple import pool
    from augmask.table.infer import infer_schema
    from augmask.table.schema import Schema

__version__ = "0.1.0"
__all__ = [
    "AugMask",
    "AugMaskImputer",
    "Schema",
    "ampute",
    "augment",
    "evaluate",
    "fit_many",
    "infer_schema",
    "load",
    "observed_mean",
    "pool",
]

_HOME = {
    "AugMask": "augmask.model",
    "AugMaskImputer": "augmask.imputer",
    "Schema": "augmask.table.schema",
    "ampute": "augmask.missing.simulate",
    "augment": "augmask.augmentation.frame",
    "evaluate": "augmask.evaluation.evaluate",
    "fit_many": "augmask.many_models",
    "infer_schema": "augmask.table.infer",
    "load": "augmask.model",
    "observed_mean": "augmask.diffusion.reduce",
    "pool": "augmask.sample.multiple",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'augmask' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
