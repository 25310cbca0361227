"""A column's cells in one plain numpy form, whatever pandas stored them as.

pandas has a dozen ways to keep the same values: numpy, nullable, Arrow-backed, object,
category. `read_cells` reduces them to six forms with an explicit mask, and refuses what
cannot be learned. Nothing is guessed here; `recover` looks behind the holes.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from augmask.errors import DataError

Form = Literal["integer", "float", "boolean", "text", "datetime", "empty"]
AnyArray = npt.NDArray[Any]

# Room for sums and differences; 1e308 in a table is a code, not a measurement.
MAX_NUMBER = 1e300

_UNLEARNABLE = {
    "m": "convert it to a number, e.g. seconds",
    "c": "split it into two numbers",
}
_OBJECTS: dict[str, Form] = {
    "string": "text",
    "boolean": "boolean",
    "integer": "integer",
    "floating": "float",
    "mixed-integer-float": "float",
    "decimal": "float",
    "datetime": "datetime",
    "datetime64": "datetime",
    "date": "datetime",
}


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column.

    Parameters
    ----------
    form : str
        integer (int64), float (float64), boolean (bool), text (str objects), datetime
        (datetime64 in UTC) or empty (nothing observed).
    values : array [n]
        Meaningless where `observed` is False.
    observed : bool array [n]
    dtype : str
        The pandas dtype as it came.
    tz : str or None
        Time zone of a datetime.
    categories : tuple or None
        All levels, when it came as a pandas `category`.
    ordered : bool
        Whether that category was ordered.
    """

    form: Form
    values: AnyArray
    observed: npt.NDArray[np.bool_]
    dtype: str
    tz: str | None = None
    categories: tuple[Any, ...] | None = None
    ordered: bool = False

    @cached_property
    def seen(self) -> AnyArray:
        """The observed values only."""
        return self.values[self.observed]

    @cached_property
    def coded(self) -> tuple[AnyArray, AnyArray]:
        """Codes of the observed values, and the different values they stand for."""
        codes, levels = pd.factorize(self.seen)
        return codes, levels

    @property
    def nullable(self) -> bool:
        """Whether the dtype it came in can hold holes without changing."""
        return self.dtype[:1].isupper() or self.dtype in ("boolean", "string")


def type_name(value: object) -> str:
    """Return what a user calls the type of a cell."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    return "number" if isinstance(value, numbers.Number) else type(value).__name__


def _refuse_mixture(name: str, values: Sequence[Any]) -> DataError:
    """Return the error about a column whose cells have several types."""
    examples: dict[str, Any] = {}
    for value in values:
        examples.setdefault(type_name(value), value)
    if len(examples) == 1:
        kind, value = examples.popitem()
        return DataError(
            f"column {name!r} must hold numbers, text, booleans or dates, got {kind} "
            f"cells such as {str(value)[:40]!r}; convert or drop it"
        )
    (one, a), (two, b) = list(examples.items())[:2]
    return DataError(
        f"column {name!r} must hold cells of one type, got {one} ({a!r}) and {two} "
        f"({b!r}); convert it, e.g. frame[{name!r}].astype(str), or declare what "
        "stands for a hole in the schema"
    )


def _whole(name: str, values: AnyArray) -> AnyArray:
    """Return int64, or raise when a value is beyond 64 bits."""
    try:
        beyond = len(values) > 0 and int(values.max()) > np.iinfo(np.int64).max
        whole = values.astype(np.int64)
    except OverflowError:
        beyond = True
    if beyond:
        raise DataError(
            f"whole numbers in column {name!r} must fit in 64 bits, got "
            f"{int(values.max())}; convert it to text or to float"
        )
    return whole


def _finite(name: str, values: AnyArray) -> AnyArray:
    count = int(np.isinf(values).sum())
    if count:
        raise DataError(
            f"column {name!r} must hold finite numbers, {count} of its cells are "
            "infinite; replace them by a number or by a hole"
        )
    largest = np.abs(values[~np.isnan(values)]).max(initial=0.0)
    if largest > MAX_NUMBER:
        raise DataError(
            f"numbers in column {name!r} must not exceed {MAX_NUMBER:g}, got "
            f"{largest:g}; replace it by a hole"
        )
    return values


def _writable(name: str, texts: AnyArray) -> None:
    """Raise when a text is no valid Unicode, which no file format could take."""
    try:
        pa.array(texts, type=pa.large_string())
    except UnicodeEncodeError as error:
        raise DataError(
            f"text in column {name!r} must be valid Unicode, got {error.object!a}; "
            "repair or drop it"
        ) from error


def _datetime_cells(series: pd.Series) -> Cells:
    zone = getattr(series.dtype, "tz", None)
    dtype, tz = str(series.dtype), None
    if zone is not None:
        tz = str(zone)
        try:
            pd.api.types.pandas_dtype(dtype)
        except TypeError:
            # A zone that has no name of its own is kept as the instants it means.
            tz, dtype = "UTC", f"datetime64[{series.dtype.unit}, UTC]"
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    values = series.to_numpy()
    return Cells("datetime", values, ~np.isnat(values), dtype, tz)


def _string_cells(series: pd.Series, name: str) -> Cells:
    """Return the cells of a column that can hold nothing but text.

    Equal texts become one object: a long column would otherwise be several times as
    large as its levels and codes.
    """
    codes, found = pd.factorize(series)
    levels = np.append(np.asarray(found, dtype=object), "")
    _writable(name, levels)
    # the code of a hole is -1
    return Cells("text", levels[codes], codes >= 0, str(series.dtype))


def _object_cells(series: pd.Series, name: str) -> Cells:
    observed = series.notna().to_numpy()
    seen = series.to_numpy(dtype=object)[observed]
    dtype = str(series.dtype)
    if not len(seen):
        return Cells("empty", np.empty(len(series), object), observed, dtype)
    kind = pd.api.types.infer_dtype(seen, skipna=False)
    form = _OBJECTS.get(kind)
    if form is None and not any(isinstance(v, (bool, complex)) for v in seen):
        form = "float" if all(isinstance(v, numbers.Number) for v in seen) else None
    if form is None:
        raise _refuse_mixture(name, seen)
    values: AnyArray
    if form == "datetime":
        try:
            plain = pd.Series(pd.to_datetime(series))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"dates in column {name!r} must share one time zone; convert them with "
                "pandas.to_datetime(..., utc=True)"
            ) from error
        return _datetime_cells(plain)
    if form == "text":
        _writable(name, seen)
        values = np.full(len(series), "", dtype=object)
        values[observed] = seen
    elif form == "integer":
        values = np.zeros(len(series), dtype=np.int64)
        values[observed] = _whole(name, seen)
    elif form == "boolean":
        values = np.zeros(len(series), dtype=np.bool_)
        values[observed] = seen.astype(np.bool_)
    else:
        values = np.zeros(len(series), dtype=np.float64)
        values[observed] = _finite(name, seen.astype(np.float64))
        observed = observed & ~np.isnan(values)
    return Cells(form, values, observed, dtype)


def _category_cells(series: pd.Series, name: str) -> Cells:
    dtype = series.dtype
    inner = read_cells(pd.Series(dtype.categories), name)
    if inner.form == "datetime" or not len(inner.values):
        # Dates have an order and distances of their own: read them as dates.
        return read_cells(series.astype(dtype.categories.dtype), name)
    codes = series.cat.codes.to_numpy()
    return replace(
        inner,
        values=inner.values[np.maximum(codes, 0)],
        observed=codes >= 0,
        dtype="category",
        categories=tuple(inner.values.tolist()),
        ordered=bool(dtype.ordered),
    )


def _from_arrow(series: pd.Series) -> pd.Series:
    """Return an Arrow-backed column in pandas' own types."""
    kind = series.dtype.pyarrow_dtype
    if pa.types.is_integer(kind):
        return series.astype("UInt64" if str(kind) == "uint64" else "Int64")
    if pa.types.is_boolean(kind):
        return series.astype("boolean")
    if pa.types.is_floating(kind):
        return pd.Series(series.to_numpy(dtype=np.float64, na_value=np.nan))
    array = pa.chunked_array(pa.array(series.array))
    return array.to_pandas(date_as_object=False)


def _mask_declared(cells: Cells, holes: Sequence[Any]) -> Cells:
    """Turn declared codes into holes."""
    if cells.form == "text":
        # Codes are compared without the blanks that CSV files leave around them.
        wanted = {str(code).strip() for code in holes}
        codes, levels = pd.factorize(cells.values)
        declared = np.array([level.strip() in wanted for level in levels])[codes]
    elif cells.form in ("integer", "float"):
        numbers_ = pd.to_numeric(pd.Series(holes, dtype=object), errors="coerce")
        declared = np.isin(cells.values, numbers_.dropna().to_numpy(np.float64))
    elif cells.form == "datetime":
        texts = pd.Series([str(code) for code in holes])
        instants = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
        naive = instants.dt.tz_localize(None).dropna().to_numpy()
        declared = np.isin(cells.values, naive.astype(cells.values.dtype))
    else:
        return cells
    return replace(cells, observed=cells.observed & ~declared)


def read_cells(series: pd.Series, name: str, holes: Sequence[Any] = ()) -> Cells:
    """Return a column's cells and which of them are observed.

    Parameters
    ----------
    series : pandas.Series
    name : str
        Name of the column, for messages.
    holes : sequence
        Codes that stand for a hole, besides NaN, None, NaT and NA.

    Examples
    --------
    >>> cells = read_cells(pd.Series([True, None, False]), "alive")
    >>> cells.form, cells.observed.tolist()
    ('boolean', [True, False, True])
    >>> read_cells(pd.Series([1, -9, 3]), "grade", holes=[-9]).seen
    array([1, 3])
    """
    dtype = series.dtype
    if holes:
        if dtype.kind == "O":
            # A code among cells of another type would pass for a mixture of types.
            texts = {str(code).strip() for code in holes}
            odd = [isinstance(v, str) and v.strip() in texts for v in series]
            series = series.mask(odd)
        cells = _mask_declared(read_cells(series, name), holes)
        return cells if cells.observed.any() else replace(cells, form="empty")
    if isinstance(dtype, pd.ArrowDtype):
        series = _from_arrow(series)
        dtype = series.dtype
    if isinstance(dtype, pd.SparseDtype):
        return read_cells(series.sparse.to_dense(), name)
    if isinstance(dtype, pd.CategoricalDtype):
        cells = _category_cells(series, name)
    elif isinstance(dtype, pd.StringDtype):
        cells = _string_cells(series, name)
    elif dtype.kind == "O":
        cells = _object_cells(series, name)
    elif dtype.kind == "M":
        cells = _datetime_cells(series)
    elif dtype.kind in "iub":
        observed = series.notna().to_numpy()
        plain = np.uint64 if dtype.kind == "u" else np.int64
        values = series.to_numpy(dtype=plain, na_value=0)
        form: Form = "boolean" if dtype.kind == "b" else "integer"
        values = values.astype(bool) if form == "boolean" else _whole(name, values)
        cells = Cells(form, values, observed, str(dtype))
    elif dtype.kind == "f":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        cells = Cells("float", _finite(name, values), ~np.isnan(values), str(dtype))
    else:
        fix = _UNLEARNABLE.get(dtype.kind, "convert it to numbers, text or dates")
        raise DataError(f"column {name!r} has the type {dtype}, {fix}")
    return cells if cells.observed.any() else replace(cells, form="empty")
