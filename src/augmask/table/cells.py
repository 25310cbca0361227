"""Cells: the values of one column in a plain numpy form, with an explicit mask.

pandas has a dozen ways to store the same values: numpy, nullable, Arrow-backed, object,
category. `read_cells` reduces them to six forms and refuses what cannot be learned. It
guesses nothing; `recover` finds the type that missing values have hidden.
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

from augmask.errors import DataError, brief_repr
from augmask.table.formats import read_format

Form = Literal["integer", "float", "boolean", "text", "datetime", "empty"]
AnyArray = npt.NDArray[Any]

# Leaves room for sums and differences; 1e308 in a table is no measurement.
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
        Arbitrary where `observed` is False.
    observed : bool array [n]
    dtype : str
        The pandas dtype of the input.
    tz : str or None
        Time zone of a datetime.
    categories : tuple or None
        All levels of a pandas `category`.
    ordered : bool
        Whether that category is ordered.
    """

    form: Form
    values: AnyArray
    observed: npt.NDArray[np.bool_]
    dtype: str
    tz: str | None = None
    categories: tuple[Any, ...] | None = None
    ordered: bool = False

    @cached_property
    def observed_values(self) -> AnyArray:
        """The observed values only."""
        return self.values[self.observed]

    @cached_property
    def factorized(self) -> tuple[AnyArray, AnyArray]:
        """Codes of the observed values, and the distinct values that they index."""
        codes, levels = pd.factorize(self.observed_values)
        return codes, levels

    def with_values(self, form: Form, known: Any, **changes: Any) -> Cells:
        """Return cells of another form; `known` are the observed values, in order."""
        known = np.asarray(known)
        empty = "" if form == "text" else "NaT" if form == "datetime" else 0
        values = np.full(len(self.values), empty, known.dtype)
        values[self.observed] = known
        return replace(self, form=form, values=values, **changes)

    @property
    def nullable(self) -> bool:
        """Whether the dtype of the input can represent missing values."""
        return self.dtype[:1].isupper() or self.dtype in ("boolean", "string")


def type_name(value: object) -> str:
    """Return the type of a cell in words."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    return "number" if isinstance(value, numbers.Number) else type(value).__name__


def _mixed_types(name: str, values: Sequence[Any]) -> DataError:
    """Return the error for a column of several types, or of one that is unsupported."""
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
        f"({b!r}); convert it, e.g. frame[{name!r}].astype(str), or declare "
        "missing-value codes as na_values in the schema"
    )


def _to_int64(name: str, values: AnyArray) -> AnyArray:
    """Return int64, or raise if a value does not fit."""
    try:
        beyond = len(values) > 0 and int(values.max()) > np.iinfo(np.int64).max
        whole = values.astype(np.int64)
    except OverflowError:
        beyond = True
    if beyond:
        raise DataError(
            f"whole numbers in column {name!r} must fit in 64 bits, got "
            f"{brief_repr(int(values.max()))}; convert it to text or to float"
        )
    return whole


def _finite(name: str, values: AnyArray) -> AnyArray:
    count = int(np.isinf(values).sum())
    if count:
        raise DataError(
            f"column {name!r} must hold finite numbers, {count} of its cells are "
            "infinite; replace them by a number or a missing value"
        )
    largest = np.abs(values[~np.isnan(values)]).max(initial=0.0)
    if largest > MAX_NUMBER:
        raise DataError(
            f"numbers in column {name!r} must not exceed {MAX_NUMBER:g}, got "
            f"{largest:g}; replace it by a missing value"
        )
    return values


def _check_unicode(name: str, texts: AnyArray) -> None:
    """Raise if a text is not valid Unicode, which no file format can store."""
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
            # pandas cannot parse the name of this zone: keep the instants.
            tz, dtype = "UTC", f"datetime64[{series.dtype.unit}, UTC]"
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    values = series.to_numpy()
    return Cells("datetime", values, ~np.isnat(values), dtype, tz)


def _string_cells(series: pd.Series, name: str) -> Cells:
    """Return the cells of a column of pandas' string type.

    Equal texts share one object, which makes a long column several times smaller.
    """
    codes, uniques = pd.factorize(series)
    levels = np.append(np.asarray(uniques, dtype=object), "")
    _check_unicode(name, levels)
    # A missing value has the code -1.
    return Cells("text", levels[codes], codes >= 0, str(series.dtype))


def _object_cells(series: pd.Series, name: str) -> Cells:
    observed = series.notna().to_numpy()
    known = series.to_numpy(dtype=object)[observed]
    dtype = str(series.dtype)
    if not len(known):
        return Cells("empty", np.empty(len(series), object), observed, dtype)
    kind = pd.api.types.infer_dtype(known, skipna=False)
    form = _OBJECTS.get(kind)
    if form is None and not any(isinstance(v, (bool, complex)) for v in known):
        form = "float" if all(isinstance(v, numbers.Number) for v in known) else None
    if form is None:
        raise _mixed_types(name, known)
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
        _check_unicode(name, known)
        values = np.full(len(series), "", dtype=object)
        values[observed] = known
    elif form == "integer":
        values = np.zeros(len(series), dtype=np.int64)
        values[observed] = _to_int64(name, known)
    elif form == "boolean":
        values = np.zeros(len(series), dtype=np.bool_)
        values[observed] = known.astype(np.bool_)
    else:
        values = np.zeros(len(series), dtype=np.float64)
        values[observed] = _finite(name, known.astype(np.float64))
        observed = observed & ~np.isnan(values)
    return Cells(form, values, observed, dtype)


def _categorical_cells(series: pd.Series, name: str) -> Cells:
    dtype = series.dtype
    inner = read_cells(pd.Series(dtype.categories), name)
    if inner.form == "datetime" or not len(inner.values):
        # Dates have distances, which categories have not.
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
    """Return an Arrow-backed column in native pandas types."""
    kind = series.dtype.pyarrow_dtype
    if pa.types.is_integer(kind):
        return series.astype("UInt64" if str(kind) == "uint64" else "Int64")
    if pa.types.is_boolean(kind):
        return series.astype("boolean")
    if pa.types.is_floating(kind):
        return pd.Series(series.to_numpy(dtype=np.float64, na_value=np.nan))
    array = pa.chunked_array(pa.array(series.array))
    return array.to_pandas(date_as_object=False)


def _mask_na_values(cells: Cells, na_values: Sequence[Any]) -> Cells:
    """Mask the cells that equal one of the declared codes."""
    if cells.form == "text":
        # CSV files may leave blanks around the codes.
        texts = {str(code).strip() for code in na_values}
        codes, levels = pd.factorize(cells.values)
        declared = np.array([level.strip() in texts for level in levels])[codes]
    elif cells.form in ("integer", "float"):
        codes = pd.to_numeric(pd.Series(na_values, dtype=object), errors="coerce")
        declared = np.isin(cells.values, codes.dropna().to_numpy(np.float64))
    elif cells.form == "datetime":
        dates = pd.Series([str(code) for code in na_values])
        instants = pd.to_datetime(dates, errors="coerce", utc=True, format="ISO8601")
        naive = instants.dt.tz_localize(None).dropna().to_numpy()
        declared = np.isin(cells.values, naive.astype(cells.values.dtype))
    else:
        return cells
    return replace(cells, observed=cells.observed & ~declared)


def parse_format(cells: Cells, pattern: str, name: str) -> Cells:
    """Return text as the numbers or instants that it spells, other cells as they are.

    Examples
    --------
    >>> cells = read_cells(pd.Series(["14:30", None]), "start")
    >>> parse_format(cells, "%H:%M", "start").observed_values
    array(['1970-01-01T14:30:00'], dtype='datetime64[s]')
    """
    if cells.form != "text":
        return cells
    form = read_format(pattern)
    codes, levels = cells.factorized
    parsed = form.parse(levels)
    wrong = np.isnan(parsed.astype(np.float64)) if form.kind != "datetime" else None
    wrong = np.isnat(parsed) if wrong is None else wrong
    if wrong.any():
        raise DataError(
            f"column {name!r} has the format {pattern!r}, and {levels[wrong][0]!r} has "
            f"another; if it means a missing value, name it: --na '{name}="
            f"{levels[wrong][0]}' or na_values in the schema"
        )
    known = parsed[codes]
    if form.kind == "integer":
        known = known.astype(np.int64)
    return cells.with_values(form.kind, known)  # type: ignore[arg-type]


def read_cells(
    series: pd.Series, name: str, na_values: Sequence[Any] = (), form: str | None = None
) -> Cells:
    """Return a column's cells and which of them are observed.

    Parameters
    ----------
    series : pandas.Series
    name : str
        Name of the column, for messages.
    na_values : sequence
        Values that encode a missing value, besides NaN, None, NaT and NA.
    form : str, optional
        The pattern in which text spells numbers or dates (see `formats`).

    Examples
    --------
    >>> cells = read_cells(pd.Series([True, None, False]), "alive")
    >>> cells.form, cells.observed.tolist()
    ('boolean', [True, False, True])
    >>> grades = pd.Series([1, -9, 3])
    >>> read_cells(grades, "grade", na_values=[-9]).observed_values
    array([1, 3])
    """
    if form is not None:
        return parse_format(read_cells(series, name, na_values), form, name)
    dtype = series.dtype
    if na_values:
        if dtype.kind == "O":
            # A text code among numbers would count as a mixture of types.
            texts = {str(code).strip() for code in na_values}
            is_code = [isinstance(v, str) and v.strip() in texts for v in series]
            series = series.mask(is_code)
        cells = _mask_na_values(read_cells(series, name), na_values)
        return cells if cells.observed.any() else replace(cells, form="empty")
    if isinstance(dtype, pd.ArrowDtype):
        series = _from_arrow(series)
        dtype = series.dtype
    if isinstance(dtype, pd.SparseDtype):
        return read_cells(series.sparse.to_dense(), name)
    if isinstance(dtype, pd.CategoricalDtype):
        cells = _categorical_cells(series, name)
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
        if dtype.kind == "b":
            cells = Cells("boolean", values.astype(bool), observed, str(dtype))
        else:
            cells = Cells("integer", _to_int64(name, values), observed, str(dtype))
    elif dtype.kind == "f":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        cells = Cells("float", _finite(name, values), ~np.isnan(values), str(dtype))
    else:
        fix = _UNLEARNABLE.get(dtype.kind, "convert it to numbers, text or dates")
        raise DataError(f"column {name!r} has the type {dtype}, {fix}")
    return cells if cells.observed.any() else replace(cells, form="empty")


def as_floats(series: pd.Series) -> npt.NDArray[np.float64] | None:
    """Return numbers or dates as float64 with NaN; None for any other column.

    Dates become seconds since 1970, whatever unit the table stores.

    Examples
    --------
    >>> as_floats(pd.Series(pd.to_datetime(["1970-01-02", None]))).tolist()
    [86400.0, nan]
    >>> as_floats(pd.Series(["a", "b"])) is None
    True
    """
    if isinstance(series.dtype, pd.DatetimeTZDtype):
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if series.dtype.kind in "mM":
        ticks = series.to_numpy().astype(f"{series.dtype.kind}8[us]")
        return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64) / 1e6)
    try:
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return None
    return np.asarray(values, dtype=np.float64)
