"""P(observed | row): which cells of a row one would have seen.

The mask m of a row is drawn column by column, columns with few holes first:

    P(m | x) = Π_j P(m_j | m_<j, values of x_<j that are observed)

where "< j" are the complete columns and those with fewer holes than column j. So a hole
may depend on every value that the row still shows when its turn comes (MAR), and on the
holes before it (patterns). Columns that are always missing together are drawn as one.

Each factor is a logistic regression on bins: a column is cut into quantile bins or
levels, a hole being one more bin, and every bin has a weight. At the optimum the model
repeats the share of holes in every bin of every column that it uses, up to a weak
ridge. Hence the rates, the pairwise co-missingness and the dependence on each single
value are those of the table, without any tuning. A column enters only if a χ² test says
that it matters; if none does, the holes are drawn by their rate. A bin that misses
without exception ("no packs for non-smokers") is taken as a rule.

What it cannot know: dependence on the hidden value itself (MNAR), which leaves no trace
in the table, and dependence on a column that has more holes than the one in question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from augmask.errors import DataError, NotFittedError, UsageError
from augmask.missing.bins import HOLE, Bins, Codes, Floats
from augmask.missing.factor import Factor, Ordered, fit_factor
from augmask.missing.simulate import punch
from augmask.table.table import BoolArray


def with_holes(frame: pd.DataFrame, observed: BoolArray) -> pd.DataFrame:
    """Return a copy of a frame that shows only the observed cells.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    >>> with_holes(frame, np.array([[True, False], [True, True]]))["b"].isna().tolist()
    [True, False]
    """
    if observed.shape != frame.shape:
        raise UsageError(
            f"`observed` must have the shape of the table, {frame.shape}, got "
            f"{observed.shape}"
        )
    parts = [punch(frame.iloc[:, j], ~observed[:, j]) for j in range(frame.shape[1])]
    return pd.concat(parts, axis=1).set_axis(frame.columns, axis=1)


class MissingModel:
    """Learn from an incomplete table which cells of a row are seen.

    Attributes
    ----------
    columns_ : pandas.Index
        The columns of the table.
    bins_ : tuple of Bins
        How each of them is cut.
    factors_ : tuple of Factor
        One per group of columns with the same holes, in the order of drawing.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 4000)
    >>> income = np.where(rng.random(4000) < (age > 50) * 0.8, np.nan, 100.0)
    >>> table = pd.DataFrame({"age": age, "income": income})
    >>> model = MissingModel().fit(table)
    >>> rows = pd.DataFrame({"age": [25.0, 75.0] * 500, "income": 100.0})
    >>> seen = model.observed(rows, rng)
    >>> seen[::2, 1].mean() > 0.97, 0.1 < seen[1::2, 1].mean() < 0.3
    (np.True_, np.True_)
    """

    columns_: pd.Index
    bins_: tuple[Bins, ...]
    factors_: tuple[Factor, ...]

    def fit(
        self,
        frame: pd.DataFrame,
        numeric: Sequence[str] | None = None,
        holes: pd.DataFrame | None = None,
    ) -> Self:
        """Learn from a table with holes.

        Parameters
        ----------
        frame : pandas.DataFrame
        numeric : sequence of str, optional
            Columns whose order means something. Numbers and dates by default.
        holes : pandas.DataFrame of bool, optional
            True where a cell is a hole, as in `describe`; NaN, None and NaT by default.
        """
        if not len(frame):
            raise DataError(
                "Holes are learned from rows, but the table has none; pass at least "
                "one row."
            )
        hidden = (frame.isna() if holes is None else holes).to_numpy(dtype=bool)
        if hidden.shape != frame.shape:
            raise UsageError(
                f"holes must have the shape of the table, {frame.shape}, got "
                f"{hidden.shape}"
            )
        if holes is not None:
            frame = with_holes(frame, ~hidden)
        bins: list[Bins] = []
        codes: list[Codes] = []
        for name in frame.columns:
            kind = frame[name].dtype
            ordered = kind.kind in "mM" or (
                is_numeric_dtype(kind) and not is_bool_dtype(kind)
            )
            cut = Bins.of(frame[name], ordered if numeric is None else name in numeric)
            bins.append(cut)
            codes.append(np.where(hidden[:, len(codes)], HOLE, cut.codes(frame[name])))
        sizes = [cut.count for cut in bins]

        groups: dict[bytes, list[int]] = {}
        for j in np.argsort(hidden.sum(axis=0), kind="stable"):
            groups.setdefault(hidden[:, j].tobytes(), []).append(int(j))
        table = Ordered.of(
            [j for group in groups.values() for j in group], codes, sizes
        )
        earlier = 0
        factors = []
        for group in groups.values():
            hole = hidden[:, group[0]]
            if hole.any():
                factors.append(fit_factor(tuple(group), hole, table.first(earlier)))
            earlier += len(group)
        self.columns_ = frame.columns
        self.bins_ = tuple(bins)
        self.factors_ = tuple(factors)
        return self

    def observed(self, rows: pd.DataFrame, rng: np.random.Generator) -> BoolArray:
        """Draw which cells of complete rows one would have seen.

        Parameters
        ----------
        rows : pandas.DataFrame
            With the columns of the fitted table.
        rng : numpy.random.Generator

        Returns
        -------
        bool array [n, d]
            The paper's m; columns as in `columns_`.
        """
        return self._drawn(rows, rng, suit=False)[0]

    def suited(self, rows: pd.DataFrame, rng: np.random.Generator) -> Self:
        """Return the model that gives such rows the table's share of holes.

        Generated rows are nearly those of the table, not quite, and holes that depend
        on them are then too many or too few. Only intercepts change: what a hole
        depends on stays.

        Parameters
        ----------
        rows : pandas.DataFrame
            Complete rows, as those into which holes will be drawn.
        rng : numpy.random.Generator
        """
        model = copy(self)
        model.factors_ = self._drawn(rows, rng, suit=True)[1]
        return model

    def _drawn(
        self, rows: pd.DataFrame, rng: np.random.Generator, suit: bool
    ) -> tuple[BoolArray, tuple[Factor, ...]]:
        """Return which cells are seen, and the factors that decided it."""
        if not hasattr(self, "factors_"):
            raise NotFittedError("Call fit before observed: no holes were learned yet.")
        absent = [name for name in self.columns_ if name not in rows.columns]
        if absent:
            raise DataError(
                f"Rows to be masked have every column of the incomplete table, but "
                f"{absent[0]!r} is absent; add it."
            )
        n = len(rows)
        codes = [
            cut.codes(rows[name])
            for name, cut in zip(self.columns_, self.bins_, strict=True)
        ]
        observed = np.ones((n, len(codes)), dtype=bool)
        used = []
        for learned in self.factors_:
            factor = learned.suited(codes, n) if suit else learned
            hole = rng.random(n) < factor.chance(codes, n)
            for j in factor.columns:
                observed[hole, j] = False
                codes[j] = np.where(hole, HOLE, codes[j])
            used.append(factor)
        return observed, tuple(used)

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned, less its arrays, as JSON-safe contents."""
        return {
            "columns": [str(name) for name in self.columns_],
            "levels": [
                None if cut.edges is not None else list(cut.levels)
                for cut in self.bins_
            ],
            "factors": [
                {
                    "columns": list(factor.columns),
                    "intercept": factor.intercept,
                    "rate": factor.rate,
                    "depends_on": list(factor.weights),
                }
                for factor in self.factors_
            ],
        }

    def arrays(self) -> dict[str, Floats]:
        """Return the edges of bins and the weights of factors as plain arrays."""
        edges = {
            f"edges.{j}": cut.edges
            for j, cut in enumerate(self.bins_)
            if cut.edges is not None
        }
        weights = {
            f"weights.{i}": np.concatenate(list(factor.weights.values()))
            for i, factor in enumerate(self.factors_)
            if factor.weights
        }
        return edges | weights

    @classmethod
    def from_parts(cls, facts: Mapping[str, Any], arrays: Mapping[str, Floats]) -> Self:
        """Rebuild from `to_dict()` and `arrays()`; raises where they do not fit."""
        bins = []
        for j, levels in enumerate(facts["levels"]):
            edges = None if levels is not None else arrays[f"edges.{j}"]
            bins.append(Bins(edges, tuple(levels or ())))
        factors = []
        for i, stored in enumerate(facts["factors"]):
            used = [int(k) for k in stored["depends_on"]]
            sizes = [bins[k].count for k in used]
            flat = arrays[f"weights.{i}"] if used else np.zeros(0)
            if flat.shape != (sum(sizes),) or not np.isfinite(flat).all():
                raise ValueError("its stored holes do not fit its columns")
            parts = np.split(flat, np.cumsum(sizes))[:-1]
            columns = tuple(int(j) for j in stored["columns"])
            weights = dict(zip(used, parts, strict=True))
            intercept, rate = float(stored["intercept"]), float(stored["rate"])
            factors.append(Factor(columns, intercept, weights, rate))
        if len(bins) != len(facts["columns"]) or any(
            not 0 <= j < len(bins) for factor in factors for j in factor.columns
        ):
            raise ValueError("its stored holes do not fit its columns")
        model = cls()
        model.columns_ = pd.Index(list(facts["columns"]))
        model.bins_, model.factors_ = tuple(bins), tuple(factors)
        return model
