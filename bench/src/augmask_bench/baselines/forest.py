"""ForestDiff, through the package ForestDiffusion (Jolicoeur-Martineau et al. 2024).

Flow matching with boosted trees instead of a network, on incomplete tables. The package
has three bugs with incomplete categories (docs/research/baselines.md), which are
avoided here: categories of three or more levels are passed one-hot, a missing one as a
block of NaN, and not declared as categories; labels and batches are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from augmask.errors import DataError
from augmask.packages import library_versions
from augmask.rng import stream, stream_seed
from augmask_bench.baselines.plain import Rows
from augmask_bench.peers import isolated, require

if TYPE_CHECKING:
    from augmask.table.table import Layout, Table

Matrix = npt.NDArray[np.float64]

# The package clips generated values to a range. In one-hot columns that would cause
# ties, which the first level wins: their range is never reached.
FAR = 1e3


@dataclass(frozen=True)
class ForestSettings:
    """Settings of ForestDiff.

    Parameters
    ----------
    n_t : int
        Number of noise scales; each has a model for every encoded column.
    duplicate_K : int
        Number of noisy copies of each training row.
    n_estimators, max_depth, eta
        Trees of a model, their depth and the learning rate.
    max_rows : int, optional
        Number of training rows, drawn at random; default: all.
    """

    n_t: int = 20
    duplicate_K: int = 10
    n_estimators: int = 100
    max_depth: int = 7
    eta: float = 0.3
    max_rows: int | None = None


PAPER = ForestSettings()
SMALL = ForestSettings(
    n_t=8, duplicate_K=2, n_estimators=20, max_depth=3, max_rows=1_000
)


def blocks_of(layout: Layout) -> list[slice]:
    """Return the encoded columns of each categorical feature.

    Two levels need one column, more levels one column each.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> blocks_of(Layout(("age",), ("sex", "city"), (2, 3)))
    [slice(1, 2, None), slice(2, 5, None)]
    """
    blocks, at = [], layout.n_num
    for card in layout.cards:
        width = 1 if card <= 2 else card
        blocks.append(slice(at, at + width))
        at += width
    return blocks


def encoded(table: Table) -> Matrix:
    """Return numbers, binary columns and one-hot blocks; missing values are NaN."""
    layout = table.layout
    widths = [block.stop - block.start for block in blocks_of(layout)]
    parts = [table.num.astype(np.float64)]
    for j, width in enumerate(widths):
        codes = table.cat[:, j]
        one = codes[:, None].astype(np.float64)
        parts.append(one if width == 1 else np.eye(width)[codes])
    x = np.concatenate(parts, axis=1)
    observed = np.repeat(table.observed, [1] * layout.n_num + widths, axis=1)
    x[~observed] = np.nan
    return x


def decoded(x: Matrix, layout: Layout) -> Rows:
    """Return the numbers, and the code with the largest value in each block."""
    cat = np.zeros((len(x), layout.n_cat), np.int32)
    for j, block in enumerate(blocks_of(layout)):
        one = block.stop - block.start == 1
        part = x[:, block]
        cat[:, j] = part[:, 0] >= 0.5 if one else part.argmax(axis=1)
    return x[:, : layout.n_num], cat


class Forest:
    """Fitted boosted trees for every noise scale and encoded column.

    Attributes
    ----------
    facts : dict
        Training rows, encoded columns, models, and the version.
    """

    def __init__(self, model: Any, layout: Layout, facts: dict[str, object]) -> None:
        self._model = model
        self._layout = layout
        self.facts = facts

    def sample(self, n: int, seed: int) -> Rows:
        """Return the numbers and codes of `n` rows."""
        with isolated(stream_seed(seed, "ForestDiff", "sample")):
            x = self._model.generate(batch_size=n)
        return decoded(x, self._layout)


def fit(table: Table, settings: ForestSettings, seed: int, threads: int = 1) -> Forest:
    """Fit ForestDiff to an incomplete table with unscaled numbers.

    Parameters
    ----------
    table : Table
        See `plain_codec`.
    settings : ForestSettings
    seed : int
    threads : int
        Number of models fitted in parallel.
    """
    require("ForestDiffusion")
    layout = table.layout
    x = encoded(table)
    if settings.max_rows is not None and len(x) > settings.max_rows:
        draw = stream(seed, "ForestDiff", "rows")
        x = x[draw.choice(len(x), settings.max_rows, replace=False)]
    x = x[~np.isnan(x).all(axis=1)]
    empty = np.isnan(x).all(axis=0)
    if empty.any() or not len(x):
        raise DataError(
            "ForestDiff needs an observed value in every encoded column, got "
            f"{int(empty.sum())} columns without any in the chosen rows; raise max_rows"
        )
    low, high = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
    one_hot = [b for b in blocks_of(layout) if b.stop - b.start > 1]
    for block in one_hot:
        low[block], high[block] = -FAR, FAR
    own = stream_seed(seed, "ForestDiff", "fit")
    with isolated(own):
        from ForestDiffusion import ForestDiffusionModel

        model = ForestDiffusionModel(
            x,
            label_y=None,
            n_t=settings.n_t,
            duplicate_K=settings.duplicate_K,
            model="xgboost",
            diffusion_type="flow",
            max_depth=settings.max_depth,
            n_estimators=settings.n_estimators,
            eta=settings.eta,
            tree_method="hist",
            reg_alpha=0.0,
            reg_lambda=0.0,
            subsample=1.0,
            bin_indexes=[],
            cat_indexes=[],
            int_indexes=[],
            # one model for all columns fails if there is only one column
            p_in_one=x.shape[1] > 1,
            true_min_max_values=[low[None], high[None]],
            n_jobs=threads,
            n_batch=1,
            seed=own % 2**31,
            nthread=1,
        )
    facts: dict[str, object] = {
        "learned_rows": len(x),
        "encoded_columns": x.shape[1],
        "models": settings.n_t * (1 if model.p_in_one else x.shape[1]),
        **library_versions("ForestDiffusion", "xgboost"),
    }
    return Forest(model, layout, facts)
