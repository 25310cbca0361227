"""`Codec`: a frame becomes arrays, and samples become a complete frame.

Numbers are scaled, levels become codes, missing values become False in `observed`.
Columns that are not learned (constants, empty ones, identifiers) have no feature, and
each column decodes with its own random stream, so that adding such a column changes no
bit of the others. Decoded values keep the dtype, the observed range, the decimals, the
lattice, the levels and the time zone of their column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import ArtifactError, DataError, SchemaError
from augmask.rng import stream
from augmask.table.cells import AnyArray, Cells
from augmask.table.dtype_recovery import (
    NUMPY_UNITS,
    any_leading_zero,
    are_numbers,
    instants,
    to_boolean,
    to_datetime,
    to_float,
    to_integer,
)
from augmask.table.formats import read_format
from augmask.table.functional_dependencies import (
    apply_dependency,
    cell_values,
    dependency_name,
    dependency_order,
    has_exceptions,
    observed_agreement,
    parents_of,
)
from augmask.table.identifiers import fresh_values
from augmask.table.lattice import round_to_lattice
from augmask.table.scale import QuantileNormal
from augmask.table.schema import CATEGORICAL, NUMERIC, Column, Schema, column_cells
from augmask.table.seen_combinations import keep_to_seen
from augmask.table.table import Layout, Table

Mask = npt.NDArray[np.bool_]


# -- features ---------------------------------------------------------------------


def indicator_name(column: Column) -> str:
    """Return the name of the feature that indicates missing values of a column."""
    return f"{column.name} is missing"


def _has_indicator(column: Column) -> bool:
    """Whether missing values have their own feature (a category has a level)."""
    return column.missing_is_level and column.kind != "category"


def build_layout(schema: Schema) -> Layout:
    """Return the features of a schema: numeric first, then categorical."""
    num = tuple(column.name for column in schema if column.kind in NUMERIC)
    cat: list[tuple[str, int]] = []
    for column in schema:
        if column.kind in CATEGORICAL:
            cat.append((column.name, column.n_codes))
        if _has_indicator(column):
            cat.append((indicator_name(column), 2))
        if has_exceptions(column):
            cat.append((dependency_name(column), 2))
    names = num + tuple(name for name, _ in cat)
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise SchemaError(
            f"column {duplicate!r} has the name of a feature that another column "
            "needs; rename it"
        )
    return Layout(num, tuple(n for n, _ in cat), tuple(k for _, k in cat))


# -- one column to numbers or codes -----------------------------------------------


def _wrong_type(column: Column, cells: Cells) -> DataError:
    return DataError(
        f"column {column.name!r} was learned as {column.kind}, but now holds "
        f"{cells.form} cells such as {str(cells.observed_values[0])[:40]!r}"
    )


def origin(column: Column) -> int:
    """Return what is subtracted before scaling.

    Nanoseconds since 1970 and long keys exceed the precision of a float; their distance
    from the smallest one mostly does not.
    """
    if column.kind == "float" or column.low is None or column.high is None:
        return 0
    # A wider distance could overflow 64 bits.
    return int(column.low) if int(column.high) - int(column.low) < 2**62 else 0


def encode_numbers(cells: Cells, column: Column) -> npt.NDArray[np.float64]:
    """Return the values of a numeric column relative to its origin."""
    if cells.form == "empty":
        return np.zeros(len(cells.values))
    if column.kind == "datetime":
        dates = to_datetime(cells)
        if dates is None or column.unit is None:
            raise _wrong_type(column, cells)
        return (instants(dates, column.unit) - origin(column)).astype(np.float64)
    if cells.form == "integer":
        return (cells.values - origin(column)).astype(np.float64)
    numbers = to_float(cells)
    if numbers is None:
        raise _wrong_type(column, cells)
    return numbers.values - origin(column)


def _parse_level(level: str) -> Any:
    """Return the number or boolean that a text spells, None if it spells none."""
    if level.strip().lower() in ("true", "false"):
        return level.strip().lower() == "true"
    if not are_numbers([level]).all() or any_leading_zero([level]):
        return None
    try:
        return int(level)
    except ValueError:
        return float(level)


def levels_spelled_by(form: str, levels: Iterable[str]) -> dict[Any, str]:
    """Return the text levels that spell a number or boolean, each by its value.

    A file reader makes numbers of digits that were learned as text.

    Parameters
    ----------
    form : str
        Of the cells that are read.
    levels : iterable of str

    Examples
    --------
    >>> levels_spelled_by("float", ["1.50", "2", "02", "b"])
    {1.5: '1.50', 2: '2'}
    """
    spellings: dict[Any, list[str]] = {}
    for level in levels:
        spellings.setdefault(_parse_level(level), []).append(level)
    spellings.pop(None, None)
    return {
        value: texts[0]
        for value, texts in spellings.items()
        if len(texts) == 1 and isinstance(value, bool) == (form == "boolean")
    }


def _as_text(cells: Cells, levels: Sequence[str]) -> Cells:
    """Return numbers or booleans as the text levels that spell them."""
    spelled = levels_spelled_by(cells.form, levels)
    codes, uniques = cells.factorized
    texts = np.array([spelled.get(value, "") for value in uniques.tolist()], object)
    return cells.with_values("text", texts[codes])


def level_indices(cells: Cells, column: Column) -> npt.NDArray[np.int64]:
    """Return the index of each cell in `all_levels`, -1 for any other value."""
    levels = column.all_levels
    indices = np.full(len(cells.values), -1, np.int64)
    if column.has_text_levels:
        texts = cells if cells.form == "text" else _as_text(cells, levels)
        codes, uniques = texts.factorized
        known = pd.Index(levels, dtype=object).get_indexer(uniques.astype(object))
        if texts is not cells and not (known >= 0).any():
            raise _wrong_type(column, cells)
        indices[cells.observed] = known[codes]
        return indices
    # Whole numbers may be stored as floats, as objects, or as text.
    whole = all(isinstance(level, int) for level in levels)
    numbers = (to_integer(cells) if whole else None) or to_float(cells)
    exact = whole and numbers is not None and numbers.form == "integer"
    index = pd.Index(np.array(levels, np.int64 if exact else np.float64))
    # Beyond 2**53 two neighbours are the same float.
    if numbers is None or not index.is_unique:
        raise _wrong_type(column, cells)
    indices[cells.observed] = index.get_indexer(numbers.observed_values)
    return indices


def encode_levels(cells: Cells, column: Column) -> npt.NDArray[np.int32]:
    """Return level codes, -1 for a value that is not a level."""
    if cells.form == "empty":
        return np.full(len(cells.values), -1, np.int32)
    if column.kind == "boolean":
        booleans = to_boolean(cells)
        if booleans is None:
            raise _wrong_type(column, cells)
        return booleans.values.astype(np.int32)
    indices = level_indices(cells, column)
    codes: npt.NDArray[np.int32] = np.minimum(indices, len(column.levels)).astype("i4")
    return codes


def encoded_column(
    frame: pd.DataFrame, column: Column, rows: Any = None
) -> tuple[Any, Mask]:
    """Return numbers or level codes of some rows, and where they are observed."""
    series = frame[column.label] if rows is None else frame[column.label].iloc[rows]
    cells = column_cells(series, column)
    if column.kind in NUMERIC:
        return encode_numbers(cells, column), cells.observed
    codes = encode_levels(cells, column)
    return codes, codes >= 0


# -- numbers or codes to one column -----------------------------------------------


def _mask_values(values: AnyArray, missing: Mask, column: Column) -> AnyArray:
    if column.kind == "datetime":
        values[missing] = "NaT"
        return values
    values = values.astype(np.float64 if column.kind == "float" else object)
    values[missing] = np.nan if column.value_dtype.startswith("float") else None
    return values


def decode_numbers(column: Column, x: AnyArray) -> AnyArray:
    """Return the values of a column from numbers relative to its origin."""
    low, high = column.low, column.high
    if column.lattice is not None and low is not None and high is not None:
        x = np.asarray(x + origin(column))
        values = round_to_lattice(x, column.lattice, low, high)
        if column.kind != "float":
            return np.rint(values).astype(np.int64)
    elif column.kind == "float":
        values = np.clip(x, low, high)
    else:
        # The largest float below 2**63; the next one would overflow.
        whole = np.rint(np.minimum(x, 2.0**63 - 1024)).astype(np.int64)
        return np.clip(whole + origin(column), low, high)
    return values if column.decimals is None else values.round(column.decimals)


def _dates(column: Column, whole: AnyArray) -> AnyArray:
    return whole.astype(f"datetime64[{NUMPY_UNITS[str(column.unit)]}]")


def _date_series(column: Column, dates: AnyArray) -> pd.Series:
    """Return dates in the resolution and time zone of the column."""
    resolution = column.value_dtype.split("[")[1].split("]")[0].split(",")[0]
    index = pd.DatetimeIndex(dates.astype(f"datetime64[{resolution}]"))
    if column.tz is not None and column.unit == "D":
        # Where the clock skips local midnight, take the next instant.
        summer = np.zeros(len(index), bool)
        index = index.tz_localize(
            column.tz, ambiguous=summer, nonexistent="shift_forward"
        )
    elif column.tz is not None:
        index = index.tz_localize("UTC").tz_convert(column.tz)
    return pd.Series(index)


def _categorical(column: Column, codes: AnyArray) -> pd.Categorical:
    categories = pd.Index(list(column.categories))
    dtype = pd.CategoricalDtype(categories, ordered=column.ordered)
    return pd.Categorical.from_codes(codes, dtype=dtype)


def _level_series(
    column: Column, codes: AnyArray, rng: np.random.Generator
) -> pd.Series:
    """Return levels for codes; for the shared code of rare levels, one of them."""
    n_levels = len(column.levels)
    index = codes.astype(np.int64)
    missing = np.zeros(len(codes), bool)
    if column.missing_is_level:
        missing = index == column.n_codes - 1
    levels: list[Any] = column.all_levels
    if column.rare_levels:
        weight = np.array([count for _, count in column.rare_levels], np.float64)
        rare = (index == n_levels) & ~missing
        chosen = rng.choice(len(weight), size=int(rare.sum()), p=weight / weight.sum())
        index[rare] = n_levels + chosen
    index[missing] = 0
    if column.dtype == "category":
        position = {level: i for i, level in enumerate(column.categories)}
        lookup = np.array([position[level] for level in levels], np.int64)
        return pd.Series(_categorical(column, np.where(missing, -1, lookup[index])))
    dtype = pd.api.types.pandas_dtype(column.dtype)
    if isinstance(dtype, pd.StringDtype):
        # Convert a string per level, not per cell.
        index[missing] = -1
        return pd.Series(pd.array(levels, dtype=dtype).take(index, allow_fill=True))
    values = np.array(levels, object if column.has_text_levels else None)[index]
    if missing.any():
        values = values.astype(object)
        values[missing] = None
    return pd.Series(values, dtype=column.dtype)


def learned_series(
    column: Column, values: AnyArray, missing: Mask | None, rng: np.random.Generator
) -> pd.Series:
    """Return the output cells of a learned column.

    `values` are level codes, or unscaled numbers relative to `origin`; `missing` says
    where a column with a missing indicator is missing; `rng` samples rare levels.
    """
    if column.kind == "category":
        return _level_series(column, values, rng)
    cells = values == 1 if column.kind == "boolean" else decode_numbers(column, values)
    if column.kind == "datetime":
        cells = _dates(column, cells)
    if missing is not None:
        cells = _mask_values(cells, missing, column)
    if column.kind == "datetime":
        return _date_series(column, cells)
    return pd.Series(cells, dtype=column.value_dtype)


def as_written(column: Column, values: pd.Series) -> pd.Series:
    """Return decoded values in the format of their column.

    Examples
    --------
    >>> price = Column("price", "integer", "", "object", format="$#,##0", low=0, high=9)
    >>> as_written(price, pd.Series([1234.0, None])).tolist()
    ['$1,234', None]
    """
    if column.format is None:
        return values
    known = values.notna().to_numpy()
    dtype = "datetime64[s]" if column.kind == "datetime" else np.float64
    texts = np.full(len(values), None, dtype=object)
    texts[known] = read_format(column.format).write(values[known].to_numpy(dtype=dtype))
    return pd.Series(texts, index=values.index, dtype=column.dtype)


def write_formats(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return decoded rows with every column in the format of the table."""
    written = {
        column.label: as_written(column, frame[column.label])
        for column in schema
        if column.format is not None and column.label in frame.columns
    }
    if not written:
        return frame
    result = frame.copy(deep=False)
    for label, series in written.items():
        result[label] = series
    result.attrs = frame.attrs
    return result


def parse_formats(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return a table of the user's with values instead of formatted text."""
    labels = {str(label): label for label in frame.columns}
    parsed = frame
    for column in schema:
        label = labels.get(column.name)
        if column.format is None or label is None:
            continue
        cells = column_cells(frame[label], column)
        if parsed is frame:
            parsed = frame.copy()
        if cells.form == "empty":
            parsed[label] = pd.Series([None] * len(frame), frame.index, dtype=object)
        else:
            values = pd.Series(cells.values, frame.index)
            parsed[label] = values.astype(
                "Int64" if cells.form == "integer" else values.dtype
            ).mask(~cells.observed)
    return parsed


def unlearned_series(column: Column, n: int, start: int) -> pd.Series:
    """Return `n` cells of a column that is not learned, from output row `start` on."""
    if column.kind == "identifier":
        values = fresh_values(column.form or {}, start, n)
        return pd.Series(values, dtype=column.dtype)
    empty = column.kind == "all-missing"
    if column.dtype == "category":
        code = -1 if empty else column.categories.index(column.value)
        return pd.Series(_categorical(column, np.full(n, code)))
    if empty:
        na = pd.NaT if column.dtype.startswith("datetime") else None
        return pd.Series([na] * n, dtype=column.dtype)
    if column.unit is not None:
        return _date_series(column, _dates(column, np.full(n, column.value)))
    return pd.Series(np.full(n, column.value, dtype=object), dtype=column.dtype)


def _apply_structural_missingness(
    column: Column,
    parent: Column,
    parent_codes: AnyArray,
    codes: AnyArray,
    rng: np.random.Generator,
) -> AnyArray:
    """Return codes that are missing exactly where the parent column implies it.

    `codes` are those of a category, or of the missing indicator of another column. A
    category that is missing where it should not be gets a random level.
    """
    assert column.missing_where is not None
    _, operator, levels = column.missing_where["where"][0]
    implying = [
        code
        for code, level in enumerate(parent.levels)
        if (level in levels) == (operator == "in")
    ]
    inside = np.isin(parent_codes, implying)
    # A missing parent implies nothing.
    known = parent_codes < len(parent.levels)
    if column.kind != "category":
        return np.where(known, inside, codes)
    missing_code = column.n_codes - 1
    wrong = known & ~inside & (codes == missing_code)
    counts = np.array(column.missing_where["counts"], np.float64)
    codes = np.where(inside, missing_code, codes)
    codes[wrong] = rng.choice(len(counts), int(wrong.sum()), p=counts / counts.sum())
    return codes


# -- all columns ------------------------------------------------------------------


class Codec:
    """Encodes frames as tables and decodes samples to complete frames.

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
        self._dependent = dependency_order(schema)
        self._scalers = {name: scalers[name] for name in self.layout.num_names}

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        schema: Schema,
        dequantize: int | None = None,
        expected_extremes: bool = False,
    ) -> Codec:
        """Fit the scalings on the observed cells of a frame.

        Pass the same `dequantize` to `encode`. With `expected_extremes`, see
        `augmask.table.scale`.
        """
        scalers = {}
        for column in schema:
            if column.kind in NUMERIC:
                cells = _column_cells(frame, column)
                if not cells.observed.any():
                    raise DataError(
                        f"column {column.name!r} has no value to learn from; infer the "
                        "schema from this frame"
                    )
                numbers = encode_numbers(cells, column)[cells.observed]
                rng = _tie_rng(dequantize, column)
                scalers[column.name] = QuantileNormal.fit(
                    numbers, rng, expected_extremes
                )
        return cls(schema, scalers)

    def encode(self, frame: pd.DataFrame, dequantize: int | None = None) -> Table:
        """Return the arrays of a frame.

        Columns that the schema does not name are ignored. A level that was not there
        in fitting counts as missing.

        Parameters
        ----------
        frame : pandas.DataFrame
        dequantize : int, optional
            Seed for dequantizing tied numbers (see `scale`); without it they share the
            midpoint, as in the paper.
        """
        n, layout = len(frame), self.layout
        num = np.zeros((n, layout.n_num), np.float64)
        cat = np.zeros((n, layout.n_cat), np.int32)
        observed = np.ones((n, layout.n_features), np.bool_)
        position = {name: i for i, name in enumerate(layout.names)}
        for column in self.schema:
            if not column.learned:
                continue
            cells = _column_cells(frame, column)
            at = position[column.name]
            known = cells.observed
            if column.kind in NUMERIC:
                numbers, rng = (
                    encode_numbers(cells, column),
                    _tie_rng(dequantize, column),
                )
                z = self._scalers[column.name].transform(numbers, rng)
                num[:, at] = np.where(known, z, 0.0)
            else:
                codes = encode_levels(cells, column)
                known = known & (codes >= 0)
                if column.missing_is_level and column.kind == "category":
                    codes = np.where(cells.observed, codes, column.n_codes - 1)
                    known = known | ~cells.observed
                cat[:, at - layout.n_num] = np.where(known, codes, 0)
            observed[:, at] = known
            if _has_indicator(column):
                at = position[indicator_name(column)]
                cat[:, at - layout.n_num] = ~cells.observed
        for column in self.schema:
            if has_exceptions(column):
                parents = [
                    self.schema[n] for n in (column.determined_by or {})["columns"]
                ]
                values = [
                    cell_values(_column_cells(frame, each), each)
                    for each in (*parents, column)
                ]
                agrees, known = observed_agreement(column, values[:-1], values[-1])
                at = position[dependency_name(column)]
                cat[:, at - layout.n_num] = agrees
                observed[:, at] = known
        return Table(num, cat, observed, layout)

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
            Exactly one integer is drawn from it, the seed of the columns' streams.
        start : int
            Number of the first row in the entire output, for identifiers.
        derive : bool
            Whether to derive cells from others where the schema says so. Pass False for
            the rows of an encoded frame: beneath a missing value, codes imply nothing.

        Returns
        -------
        pandas.DataFrame
            Columns in their original order, with recovered dtypes.
        """
        layout, n = self.layout, len(num)
        self._check_arrays(num, cat)
        seed = int(rng.integers(2**63))
        num_at = {name: i for i, name in enumerate(layout.num_names)}
        cat_at = {name: i for i, name in enumerate(layout.cat_names)}
        if derive:
            cat = self._with_structural_missingness(cat, cat_at, seed)
        columns = []
        for column in self.schema:
            if not column.learned:
                columns.append(unlearned_series(column, n, start))
                continue
            column_rng = stream(seed, column.name)
            if column.kind in NUMERIC:
                z = num[:, num_at[column.name]]
                values = self._scalers[column.name].inverse(z)
            else:
                values = cat[:, cat_at[column.name]]
            missing = None
            if _has_indicator(column):
                missing = cat[:, cat_at[indicator_name(column)]] == 1
            columns.append(learned_series(column, values, missing, column_rng))
        frame = pd.concat(columns, axis=1, ignore_index=True) if columns else None
        frame = pd.DataFrame(index=range(n)) if frame is None else frame
        frame.columns = pd.Index([column.label for column in self.schema])
        for column in self._dependent if derive else ():
            parents = [frame[self.schema[name].label] for name in parents_of(column)]
            if column.seen_with is not None:
                # a stream of its own: cells of other columns stay as they are
                column_rng = stream(seed, column.name, "seen")
                frame[column.label] = keep_to_seen(
                    column, frame[column.label], parents, column_rng
                )
                continue
            where = None
            if has_exceptions(column):
                where = cat[:, cat_at[dependency_name(column)]] == 1
            frame[column.label] = apply_dependency(
                column, frame[column.label], parents, where
            )
        return frame

    def _check_arrays(self, num: npt.NDArray[Any], cat: npt.NDArray[Any]) -> None:
        layout, n = self.layout, len(num)
        if num.shape != (n, layout.n_num) or cat.shape != (n, layout.n_cat):
            raise ValueError(f"{num.shape=} and {cat.shape=} do not fit {layout}")
        cards = np.array(layout.cards, np.int64)
        if cat.size and (cat.min() < 0 or (cat >= cards).any()):
            j = int(np.argmax(((cat < 0) | (cat >= cards)).any(axis=0)))
            raise ValueError(
                f"codes of feature {layout.cat_names[j]!r} must lie in 0 .. "
                f"{cards[j] - 1}, got {cat[:, j].min()} .. {cat[:, j].max()}"
            )
        if not np.isfinite(num).all():
            j = int(np.argmin(np.isfinite(num).all(axis=0)))
            raise ArtifactError(
                f"the model returns numbers that are not finite in column "
                f"{layout.num_names[j]!r}; fit it again"
            )

    def _with_structural_missingness(
        self, cat: npt.NDArray[Any], cat_at: Mapping[str, int], seed: int
    ) -> npt.NDArray[Any]:
        """Return codes that are missing exactly where the schema implies it."""
        if not any(column.missing_where for column in self.schema):
            return cat
        cat = cat.copy()
        # A parent is missing less often than its children.
        for column in sorted(self.schema, key=lambda each: each.missing_rate):
            finding = column.missing_where
            if not column.missing_is_level or not finding or not finding["structural"]:
                continue
            parent = self.schema[finding["where"][0][0]]
            own = column.name if column.kind == "category" else indicator_name(column)
            cat[:, cat_at[own]] = _apply_structural_missingness(
                column,
                parent,
                cat[:, cat_at[parent.name]],
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
        """Rebuild from a schema and `arrays()`; or raise `SchemaError`."""
        scalers = {}
        for i, name in enumerate(build_layout(schema).num_names):
            stored = {
                key: arrays[f"{i}.{key}"]
                for key in ("quantiles", "moments", "tails")
                if f"{i}.{key}" in arrays
            }
            try:
                scalers[name] = QuantileNormal.from_arrays(stored)
            except (KeyError, ValueError) as error:
                raise SchemaError(
                    f"the stored scaling of column {name!r} is damaged: {error}"
                ) from error
        return cls(schema, scalers)


def _tie_rng(seed: int | None, column: Column) -> np.random.Generator | None:
    """Return a random stream per column, so that columns do not affect each other."""
    return None if seed is None else stream(seed, "ties", column.name)


def _column_cells(frame: pd.DataFrame, column: Column) -> Cells:
    """Return a column of a frame by its label, or by the label's text."""
    label: Any = column.label
    if label not in frame.columns:
        label = next((other for other in frame if str(other) == column.name), None)
        if label is None:
            raise DataError(
                f"the table must have the column {column.name!r} that was learned"
            )
    return column_cells(frame[label], column)
