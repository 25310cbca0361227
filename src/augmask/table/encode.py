"""Frame to arrays and back.

`Codec` follows a schema: numbers are scaled, levels become codes, holes become False
in `observed`. Columns that are set aside (constants, empty ones, identifiers) are not
in the arrays at all, and every draw that decoding needs comes from a stream of its own
column, so adding such a column changes no bit of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import ArtifactError, DataError, SchemaError
from augmask.rng import stream
from augmask.table.cells import Cells, read_cells
from augmask.table.decode import (
    aside_series,
    kept_absent,
    learned_series,
    origin,
)
from augmask.table.link_facts import link_name, needs_flag
from augmask.table.links import cell_values, flags, following, in_order
from augmask.table.recover import (
    instants,
    is_code_like,
    number_share,
    to_boolean,
    to_datetime,
    to_float,
    to_integer,
)
from augmask.table.scale import QuantileNormal
from augmask.table.schema import NUMERIC, Column, Schema
from augmask.table.table import Layout, Table


def gate_name(column: Column) -> str:
    """Return the name of the feature that says where a kept hole is."""
    return f"{column.name} is missing"


def _needs_gate(column: Column) -> bool:
    """Whether holes are a feature of their own (a category has a level for them)."""
    return column.gated and column.kind != "category"


def build_layout(schema: Schema) -> Layout:
    """Return the features of a schema: numeric first, then categorical."""
    num = tuple(column.name for column in schema if column.kind in NUMERIC)
    cat: list[tuple[str, int]] = []
    for column in schema:
        if column.kind in ("category", "boolean"):
            cat.append((column.name, column.card))
        if _needs_gate(column):
            cat.append((gate_name(column), 2))
        if needs_flag(column):
            cat.append((link_name(column), 2))
    names = num + tuple(name for name, _ in cat)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"column {twice!r} has the name of a feature that another column needs; "
            "rename it"
        )
    return Layout(num, tuple(n for n, _ in cat), tuple(k for _, k in cat))


def _refuse(column: Column, cells: Cells) -> DataError:
    return DataError(
        f"column {column.name!r} was learned as {column.kind}, but now holds "
        f"{cells.form} cells such as {str(cells.seen[0])[:40]!r}"
    )


def numbers_of(cells: Cells, column: Column) -> npt.NDArray[np.float64]:
    """Return a numeric column's values relative to its origin."""
    if cells.form == "empty":
        return np.zeros(len(cells.values))
    if column.kind == "datetime":
        dates = to_datetime(cells)
        if dates is None or column.unit is None:
            raise _refuse(column, cells)
        return (instants(dates, column.unit) - origin(column)).astype(np.float64)
    if cells.form == "integer":
        return (cells.values - origin(column)).astype(np.float64)
    numbers = to_float(cells)
    if numbers is None:
        raise _refuse(column, cells)
    return numbers.values - origin(column)


def _said(level: str) -> Any:
    """Return the number or truth that a text stands for, if it is one."""
    if level.strip().lower() in ("true", "false"):
        return level.strip().lower() == "true"
    if not number_share([level]).all() or is_code_like([level]):
        return None
    try:
        return int(level)
    except ValueError:
        return float(level)


def _as_written(cells: Cells, levels: Sequence[str]) -> Cells:
    """Return numbers or truths as the levels that are written so.

    A file makes numbers of digits that were learned as text.
    """
    meant: dict[Any, list[str]] = {}
    for level in levels:
        meant.setdefault(_said(level), []).append(level)
    alone = {value: found[0] for value, found in meant.items() if len(found) == 1}
    alone.pop(None, None)
    truths = cells.form == "boolean"
    known = {v: level for v, level in alone.items() if isinstance(v, bool) == truths}
    codes, seen = cells.coded
    texts = np.array([known.get(value, "") for value in seen.tolist()], object)
    values = np.full(len(cells.values), "", object)
    values[cells.observed] = texts[codes]
    return replace(cells, form="text", values=values)


def level_places(cells: Cells, column: Column) -> npt.NDArray[np.int64]:
    """Return which of `every_level` each cell is, -1 for what is none of them."""
    levels = column.every_level
    found = np.full(len(cells.values), -1, np.int64)
    if isinstance(levels[0], str):
        plain = cells
        if cells.form != "text":
            plain = _as_written(cells, levels)
        codes, seen = plain.coded
        place = pd.Index(levels, dtype=object).get_indexer(seen.astype(object))
        if plain is not cells and not (place >= 0).any():
            raise _refuse(column, cells)
        found[cells.observed] = place[codes]
        return found
    # Whole numbers may be stored as floats, as objects, or as text.
    whole = all(isinstance(level, int) for level in levels)
    numbers = (to_integer(cells) if whole else None) or to_float(cells)
    exact = whole and numbers is not None and numbers.form == "integer"
    index = pd.Index(np.array(levels, np.int64 if exact else np.float64))
    # neighbours beyond 2**53 are one float
    if numbers is None or not index.is_unique:
        raise _refuse(column, cells)
    found[cells.observed] = index.get_indexer(numbers.seen)
    return found


def codes_of(cells: Cells, column: Column) -> npt.NDArray[np.int32]:
    """Return level codes, -1 for a value that is no level."""
    if cells.form == "empty":
        return np.full(len(cells.values), -1, np.int32)
    if column.kind == "boolean":
        truth = to_boolean(cells)
        if truth is None:
            raise _refuse(column, cells)
        return truth.values.astype(np.int32)
    found = level_places(cells, column)
    capped: npt.NDArray[np.int32] = np.minimum(found, len(column.levels)).astype("i4")
    return capped


class Codec:
    """Turns frames into tables and codes into complete frames.

    Parameters
    ----------
    schema : Schema
    scalers : dict of str to QuantileNormal
        The scaling of each numeric feature.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> frame = pd.DataFrame({"kg": [71.5, None, 60.25], "sex": ["f", "m", None]})
    >>> codec = Codec.fit(frame, infer_schema(frame))
    >>> codec.layout.names, codec.layout.cards
    (('kg', 'sex'), (2,))
    >>> table = codec.encode(frame)
    >>> table.observed.tolist()
    [[True, True], [False, True], [True, False]]
    >>> codec.decode(table.num, table.cat, np.random.default_rng(0))["kg"].tolist()[::2]
    [71.5, 60.25]
    """

    def __init__(self, schema: Schema, scalers: Mapping[str, QuantileNormal]) -> None:
        self.schema = schema
        self.layout = build_layout(schema)
        self._linked = in_order(schema)
        self._scalers = {name: scalers[name] for name in self.layout.num_names}

    @classmethod
    def fit(
        cls, frame: pd.DataFrame, schema: Schema, spread: int | None = None
    ) -> Codec:
        """Fit the scalings on the observed cells of a frame.

        `spread` as in `encode`, where the same is to be given.
        """
        scalers = {}
        for column in schema:
            if column.kind in NUMERIC:
                cells = _column_cells(frame, column)
                if not cells.observed.any():
                    raise DataError(
                        f"column {column.name!r} has no value to learn from; infer its "
                        "schema from this frame"
                    )
                seen = numbers_of(cells, column)[cells.observed]
                ties = _ties(spread, column)
                scalers[column.name] = QuantileNormal.fit(seen, ties)
        return cls(schema, scalers)

    def encode(self, frame: pd.DataFrame, spread: int | None = None) -> Table:
        """Return the arrays of a frame.

        Columns that the schema does not name are ignored. A level that was never
        seen in fitting is a hole.

        Parameters
        ----------
        frame : pandas.DataFrame
        spread : int, optional
            Seed for spreading tied numbers over their scores (see `scale`); without
            it they share one score, as in the paper.
        """
        n, layout = len(frame), self.layout
        num = np.zeros((n, layout.n_num), np.float64)
        cat = np.zeros((n, layout.n_cat), np.int32)
        observed = np.ones((n, layout.n_features), np.bool_)
        place = {name: i for i, name in enumerate(layout.names)}
        for column in self.schema:
            if not column.learned:
                continue
            cells = _column_cells(frame, column)
            at = place[column.name]
            seen = cells.observed
            if column.kind in NUMERIC:
                scaler, ties = self._scalers[column.name], _ties(spread, column)
                z = scaler.transform(numbers_of(cells, column), ties)
                num[:, at] = np.where(seen, z, 0.0)
            else:
                codes = codes_of(cells, column)
                seen = seen & (codes >= 0)
                if column.gated and column.kind == "category":
                    codes = np.where(cells.observed, codes, column.card - 1)
                    seen = seen | ~cells.observed
                cat[:, at - layout.n_num] = np.where(seen, codes, 0)
            observed[:, at] = seen
            if _needs_gate(column):
                gate = place[gate_name(column)] - layout.n_num
                cat[:, gate] = ~cells.observed
        self._encode_links(frame, cat, observed)
        return Table(num, cat, observed, layout)

    def _encode_links(
        self,
        frame: pd.DataFrame,
        cat: npt.NDArray[np.int32],
        observed: npt.NDArray[np.bool_],
    ) -> None:
        """Write where a column follows another one, if both cells are observed."""
        layout = self.layout

        def values(column: Column) -> npt.NDArray[Any]:
            return cell_values(_column_cells(frame, column), column)

        for column in self.schema:
            if needs_flag(column):
                at = layout.cat_names.index(link_name(column))
                others = [self.schema[n] for n in (column.follows or {})["column"]]
                same, known = flags(column, [*map(values, others)], values(column))
                cat[:, at] = same
                observed[:, layout.n_num + at] = known

    def decode(
        self,
        num: npt.NDArray[Any],
        cat: npt.NDArray[Any],
        rng: np.random.Generator,
        start: int = 0,
        derive: bool = True,
    ) -> pd.DataFrame:
        """Return the complete frame of scaled numbers and codes.

        Parameters
        ----------
        num : float array [n, d_num]
        cat : int array [n, d_cat]
        rng : numpy.random.Generator
            Exactly one integer is drawn from it; rare levels are drawn from streams
            that are derived from it by column name.
        start : int
            Number of the first row in the whole output; identifiers go on from it.
        derive : bool
            Whether cells are derived from others where the schema says so. Not for a
            table's own rows: what stands in a hole implies nothing.

        Returns
        -------
        pandas.DataFrame
            Columns in their original order, with recovered dtypes.
        """
        layout, n = self.layout, len(num)
        if num.shape != (n, layout.n_num) or cat.shape != (n, layout.n_cat):
            raise ValueError(f"{num.shape=} and {cat.shape=} do not fit {layout}")
        cards = np.array(layout.cards, np.int64)
        if cat.size and (cat.min() < 0 or (cat >= cards).any()):
            worst = int(np.argmax(((cat < 0) | (cat >= cards)).any(axis=0)))
            raise ValueError(
                f"codes of feature {layout.cat_names[worst]!r} must lie in 0 .. "
                f"{cards[worst] - 1}, got {cat[:, worst].min()} .. "
                f"{cat[:, worst].max()}"
            )
        if not np.isfinite(num).all():
            worst = int(np.argmin(np.isfinite(num).all(axis=0)))
            raise ArtifactError(
                f"the model gives numbers that are not finite in column "
                f"{layout.num_names[worst]!r}; fit it again"
            )
        seed = int(rng.integers(2**63))
        num_at = {name: i for i, name in enumerate(layout.num_names)}
        cat_at = {name: i for i, name in enumerate(layout.cat_names)}
        if derive:
            cat = self._absences_kept(cat, cat_at, seed)
        columns = []
        for column in self.schema:
            if not column.learned:
                columns.append(aside_series(column, n, start))
                continue
            draws = stream(seed, column.name)
            if column.kind in NUMERIC:
                z = num[:, num_at[column.name]]
                values = self._scalers[column.name].inverse(z)
            else:
                values = cat[:, cat_at[column.name]]
            hole = None
            if _needs_gate(column):
                hole = cat[:, cat_at[gate_name(column)]] == 1
            columns.append(learned_series(column, values, hole, draws))
        frame = pd.concat(columns, axis=1, ignore_index=True) if columns else None
        frame = pd.DataFrame(index=range(n)) if frame is None else frame
        frame.columns = pd.Index([column.label for column in self.schema])
        for column in self._linked if derive else ():
            others = [self.schema[n].label for n in (column.follows or {})["column"]]
            flag = None
            if needs_flag(column):
                flag = cat[:, cat_at[link_name(column)]] == 1
            frame[column.label] = following(
                column, frame[column.label], [frame[label] for label in others], flag
            )
        return frame

    def _absences_kept(
        self, cat: npt.NDArray[Any], cat_at: Mapping[str, int], seed: int
    ) -> npt.NDArray[Any]:
        """Return codes in which cells are missing where another column says so."""
        told = [c for c in self.schema if c.gated and c.absent and c.absent["plain"]]
        if not told:
            return cat
        cat = cat.copy()
        # what tells is missing less often than what is told
        for column in sorted(told, key=lambda one: one.missing):
            assert column.absent is not None
            about = self.schema[column.absent["where"][0][0]]
            own = column.name if column.kind == "category" else gate_name(column)
            cat[:, cat_at[own]] = kept_absent(
                column,
                about,
                cat[:, cat_at[about.name]],
                cat[:, cat_at[own]],
                stream(seed, column.name, "absent"),
            )
        return cat

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return everything fitted as plain arrays, for a model file."""
        return {
            f"{i}.{key}": array
            for i, name in enumerate(self.layout.num_names)
            for key, array in self._scalers[name].arrays().items()
        }

    @classmethod
    def from_arrays(
        cls, schema: Schema, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> Codec:
        """Rebuild from a schema and `arrays()`; raises `SchemaError` on a misfit."""
        scalers = {}
        for i, name in enumerate(build_layout(schema).num_names):
            own = {
                key: arrays[f"{i}.{key}"]
                for key in ("quantiles", "moments", "tails")
                if f"{i}.{key}" in arrays
            }
            try:
                scalers[name] = QuantileNormal.from_arrays(own)
            except (KeyError, ValueError) as error:
                raise SchemaError(
                    f"the stored scaling of column {name!r} is damaged: {error}"
                ) from error
        return cls(schema, scalers)


def _ties(spread: int | None, column: Column) -> np.random.Generator | None:
    """Return a column's own stream, so that other columns do not shift its draws."""
    return None if spread is None else stream(spread, "ties", column.name)


def _column_cells(frame: pd.DataFrame, column: Column) -> Cells:
    """Return a column of a frame by its label, or by the label's text."""
    label: Any = column.label
    if label not in frame.columns:
        same = [other for other in frame.columns if str(other) == column.name]
        if not same:
            raise DataError(
                f"the table must have the column {column.name!r} that was learned"
            )
        label = same[0]
    return read_cells(frame[label], column.name, column.na_values)
