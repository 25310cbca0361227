"""The real, synthetic and test tables of an evaluation, read so that columns agree.

`read_tables` reads all tables by the schema of the real one. Whatever file or dtype a
table came in, each column then holds either floats or dates (numeric) or levels
(categorical); NaN, NaT and declared codes are missing. Levels that the real table lacks
are kept and cost the generator its score.

A missing value that the schema declares a `level` is a value: it becomes one more level
of a category. A number or date gets a second column, "x is missing", and the median as
a placeholder; both tables have the same one, so it does not affect the comparison.

Metrics read single columns with `numbers` and `level_codes`. Levels are compared by
value, as Python does: 1, 1.0 and True are one level, "1" is another. A column that is
text in one table and numbers in the other is refused, because no level would match and
the score would silently be zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.errors import DataError, UsageError, brief_repr, did_you_mean
from augmask.rng import stream
from augmask.table.cells import Cells, as_floats
from augmask.table.codec import indicator_name, levels_spelled_by
from augmask.table.dtype_recovery import to_boolean, to_datetime, to_float
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.schema import NUMERIC, Column, Schema, column_cells
from augmask.validation import ValueSpec

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Frames = Mapping[str, pd.DataFrame]


class ColumnNames(TypedDict):
    """The columns to compare, as the keyword arguments of a metric."""

    numeric: list[str]
    categorical: list[str]


MISSING_LEVEL = "(missing)"
GATE = ("no", "yes")
# Three folds of two halves need six rows; fewer than this say nothing anyway.
MIN_ROWS = 10
SUBSAMPLE = ValueSpec(int, lowest=MIN_ROWS, highest=10**11)


def check_tables(
    tables: Frames, numeric: Sequence[str], categorical: Sequence[str]
) -> None:
    """Raise unless every table has rows and each named column exactly once.

    Examples
    --------
    >>> check_tables({"real": pd.DataFrame({"age": [31, 54]})}, ["age"], ["sex"])
    Traceback (most recent call last):
    augmask.errors.DataError: the real table has 0 columns named 'sex', not one; name \
columns that all tables share
    """
    names = [*numeric, *categorical]
    if not names:
        raise UsageError(
            "no columns to compare: `numeric` and `categorical` are both empty; name "
            "at least one column"
        )
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(
            f"column {repeated[0]!r} is listed more than once; list it as numeric or "
            "as categorical"
        )
    for label, frame in tables.items():
        if not len(frame):
            raise DataError(f"the {label} table has no rows; pass at least one")
        for name in names:
            count = int((frame.columns == name).sum())
            if count != 1:
                raise DataError(
                    f"the {label} table has {count} columns named {name!r}, not one; "
                    "name columns that all tables share"
                )


def _refuse_missing(missing: npt.NDArray[np.bool_], column: str, table: str) -> None:
    count = int(missing.sum())
    if count:
        raise DataError(
            f"column {column!r} of the {table} table has {count} missing or infinite "
            "values; drop or fill them first"
        )


def numbers(tables: Frames, column: str, allow_missing: bool = False) -> list[Floats]:
    """Return a numeric column of each table as float64; dates become seconds.

    With `allow_missing`, missing values become NaN; otherwise they are refused.

    Examples
    --------
    >>> day = pd.DataFrame({"visit": pd.to_datetime(["1970-01-02"])})
    >>> numbers({"real": day}, "visit")
    [array([86400.])]
    """
    columns = []
    for label, frame in tables.items():
        missing = frame[column].isna().to_numpy(dtype=bool)
        if not allow_missing:
            _refuse_missing(missing, column, label)
        values = as_floats(frame[column])
        if values is None:
            raise DataError(
                f"column {column!r} of the {label} table is {frame[column].dtype}, not "
                "numbers or dates; list it as categorical"
            )
        _refuse_missing(~(np.isfinite(values) | missing), column, label)
        columns.append(values)
    return columns


def level_codes(
    tables: Frames, column: str, allow_missing: bool = False
) -> tuple[list[Codes], list[Any], int]:
    """Return a categorical column of each table as codes that mean the same level.

    Returns
    -------
    codes : list of int arrays
        One per table. With `allow_missing`, missing values have code -1; otherwise
        they are refused.
    levels : list
        The level behind each code. Levels of the first table come first.
    n_first : int
        How many levels the first table has; it lacks those from `n_first` on.

    Examples
    --------
    >>> real = pd.DataFrame({"city": ["Pau", "Metz", "Pau"]})
    >>> synthetic = pd.DataFrame({"city": ["Metz", "Brest"]})
    >>> codes, levels, n_first = level_codes({"real": real, "new": synthetic}, "city")
    >>> [c.tolist() for c in codes], levels, n_first
    ([[0, 1, 0], [1, 2]], ['Pau', 'Metz', 'Brest'], 2)
    """
    known: dict[Any, int] = {}
    coded: list[Codes] = []
    n_first: int | None = None
    text_first: set[bool] = set()
    for label, frame in tables.items():
        local, unique = pd.factorize(frame[column])
        if not allow_missing:
            _refuse_missing(local < 0, column, label)
        values = pd.Index(unique).astype(object).tolist()
        translate = [known.setdefault(value, len(known)) for value in values]
        # The last entry is what code -1, a missing value, is looked up as.
        coded.append(np.asarray([*translate, -1], dtype=np.int64)[local])
        n_first = len(known) if n_first is None else n_first
        text = {isinstance(value, str) for value in values}
        text_first = text_first or text
        # A column without values has no type that could differ.
        if text and text.isdisjoint(text_first):
            first = next(iter(tables))
            raise DataError(
                f"column {column!r} is text in only one of the {first} table "
                f"({tables[first][column].dtype}) and the {label} table "
                f"({frame[column].dtype}); convert one of them"
            )
    return coded, list(known), n_first or 0


def some_rows(frame: pd.DataFrame, most: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return at most `most` random rows of a table, in order."""
    if len(frame) <= most:
        return frame
    return frame.iloc[np.sort(rng.choice(len(frame), most, replace=False))]


def one_hot(codes: Codes, n_levels: int) -> Floats:
    """Return 0/1 indicators; a code outside 0 .. `n_levels` - 1 gets a row of zeros."""
    return np.asarray(codes[:, None] == np.arange(n_levels), dtype=np.float64)


def _as_level(value: Any, known: Mapping[Any, Any]) -> Any:
    """Return the level that equals a number; a new integer has no decimal point."""
    return known.get(value, int(value) if float(value).is_integer() else value)


def as_kind(cells: Cells, column: Column) -> pd.Series | None:
    """Return the cells in the form of the column's kind, None if they do not fit it.

    Levels that the schema does not know are kept.

    Examples
    --------
    >>> grade = infer_schema(pd.DataFrame({"grade": [1, 2] * 9}))["grade"]
    >>> from augmask.table.cells import read_cells
    >>> as_kind(read_cells(pd.Series(["2", None, "7"]), "grade"), grade).tolist()
    [2, nan, 7]
    >>> as_kind(read_cells(pd.Series(["good"]), "grade"), grade) is None
    True
    """
    if column.kind in ("integer", "float"):
        floats = to_float(cells)
        if floats is None:
            return None
        return pd.Series(np.where(cells.observed, floats.values, np.nan))
    if column.kind == "datetime":
        dates = to_datetime(cells)
        return None if dates is None else pd.Series(dates.values).where(cells.observed)
    known = column.all_levels
    textual = column.has_text_levels
    convert = to_boolean if column.kind == "boolean" else to_float
    plain = cells if textual else convert(cells)
    if plain is None:
        return None
    codes, unique = plain.factorized
    levels = unique.tolist()
    if textual:
        spelled = {} if cells.form == "text" else levels_spelled_by(cells.form, known)
        levels = [spelled.get(value, str(value)) for value in levels]
    if textual and cells.form != "text" and set(levels).isdisjoint(known):
        # A file in which "3" is the only level reads as numbers.
        return None
    if column.kind != "boolean" and not textual:
        same = {level: level for level in known}
        levels = [_as_level(value, same) for value in levels]
    categories = [*known, *(level for level in levels if level not in known)]
    place = {level: i for i, level in enumerate(categories)}
    all_codes = np.full(len(cells.values), -1)
    all_codes[cells.observed] = np.array([place[v] for v in levels], np.int64)[codes]
    dtype = pd.CategoricalDtype(pd.Index(categories, dtype=object))
    return pd.Series(pd.Categorical.from_codes(all_codes, dtype=dtype))


def _kind_error(cells: Cells, column: Column, label: str) -> DataError:
    """Return the error for cells that do not fit the column's kind."""

    def fits(value: Any) -> bool:
        values = np.array([value], dtype=cells.values.dtype)
        one = replace(cells, values=values, observed=np.ones(1, bool))
        return as_kind(one, column) is not None

    # Many cells may be fine; show the first that is not.
    unfit = (value for value in pd.unique(cells.observed_values) if not fits(value))
    kind: str = column.kind
    if kind == "category":
        kind = f"a category of {'text' if column.has_text_levels else 'numbers'}"
    return DataError(
        f"column {column.name!r} is {kind} in the real table, but in the {label} table "
        f"it is {cells.form} ({cells.dtype}) with cells such as "
        f"{str(next(unfit, cells.observed_values[0]))[:40]!r}; convert it, or declare "
        "its kind in the schema"
    )


def _columns_as_kinds(frame: pd.DataFrame, schema: Schema, label: str) -> pd.DataFrame:
    """Return the scored columns in the form of their kinds."""
    labels = {str(name): name for name in frame.columns}
    columns: dict[str, pd.Series] = {}
    for column in schema:
        if not column.learned:
            continue
        try:
            cells = column_cells(frame[labels[column.name]], column)
        except DataError as error:
            raise DataError(f"the {label} table: {error}") from error
        series: pd.Series | None
        if cells.form == "empty":
            missing = pd.NaT if column.kind == "datetime" else np.nan
            series = pd.Series([missing] * len(frame))
            if column.kind not in NUMERIC:
                series = series.astype("category")
        else:
            series = as_kind(cells, column)
        if series is None:
            raise _kind_error(cells, column, label)
        columns[column.name] = series
    return pd.DataFrame(columns)


def _missing_as_values(
    frame: pd.DataFrame, schema: Schema, placeholders: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the frame with values for what the schema does not count as missing."""
    columns: dict[str, pd.Series] = {}
    gates: dict[str, pd.Series] = {}
    for column in schema:
        if not column.learned:
            continue
        series = frame[column.name]
        if column.missing_is_level and column.kind in NUMERIC:
            gates[indicator_name(column)] = pd.Series(
                pd.Categorical.from_codes(series.isna().astype(np.int8), GATE)
            )
            series = series.fillna(placeholders[column.name])
        elif column.missing_is_level:
            series = series.cat.add_categories([MISSING_LEVEL]).fillna(MISSING_LEVEL)
        columns[column.name] = series
    return pd.DataFrame(columns | gates)


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of an evaluation; see `read_tables`.

    Parameters
    ----------
    schema : Schema
        Schema of the real table.
    numeric, categorical : list of str
        The columns that are scored.
    real, synthetic : pandas.DataFrame
        Those columns; only `real` and `test` may have missing values.
    test : pandas.DataFrame or None
        Real rows that the generator has not seen.
    source : pandas.DataFrame
        The rows of `real` as they were passed, for augmenters.
    placeholders : mapping of str to value
        Values of numbers and dates whose missing values are a level.
    left_out : mapping of str to str
        Columns of the real table that are not scored, and why.
    notes : list of str
        What else to know when reading the scores.
    incomplete_synthetic : pandas.DataFrame or None
        The synthetic rows as they were passed, if values are missing in them. Those in
        `synthetic` are then drawn column by column, so that only distributions of
        single columns mean anything.
    """

    schema: Schema
    numeric: list[str]
    categorical: list[str]
    real: pd.DataFrame
    synthetic: pd.DataFrame
    test: pd.DataFrame | None
    source: pd.DataFrame
    placeholders: Mapping[str, Any]
    left_out: Mapping[str, str]
    notes: list[str]
    incomplete_synthetic: pd.DataFrame | None = None

    @property
    def columns(self) -> ColumnNames:
        """The scored columns, as keyword arguments."""
        return {"numeric": self.numeric, "categorical": self.categorical}

    @property
    def complete(self) -> bool:
        """Whether the real table has no missing values."""
        return bool(self.real.notna().to_numpy().all())

    @property
    def complete_test(self) -> pd.DataFrame | None:
        """The test rows if they have no missing values."""
        complete = self.test is not None and bool(self.test.notna().to_numpy().all())
        return self.test if complete else None

    def read_like_real(
        self, frame: pd.DataFrame, label: str, names: Sequence[str]
    ) -> pd.DataFrame:
        """Return some scored columns of another table with this schema."""
        part = Schema(tuple(c for c in self.schema if c.name in names))
        columns = _columns_as_kinds(frame, part, label)
        return _missing_as_values(columns, part, self.placeholders)

    @property
    def display_schema(self) -> Schema:
        """The schema of `for_display`: labels as text, and "x is missing" columns."""
        gates = (
            Column(
                indicator_name(self.schema[name]),
                "category",
                f"whether {name!r} has a value",
                "category",
                levels=GATE,
                categories=GATE,
            )
            for name in self.placeholders
        )
        named = (replace(column, label=column.name) for column in self.schema)
        return Schema((*named, *gates))

    def for_display(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a scored table without placeholders, for plots."""
        without = {
            name: frame[name].mask(frame[indicator_name(self.schema[name])] == GATE[1])
            for name in self.placeholders
        }
        return frame.assign(**without)


def _read(source: Any, label: str) -> pd.DataFrame:
    try:
        frame = read_frame(source)
    except DataError as error:
        raise DataError(f"the {label} table: {error}") from error
    if len(frame) < MIN_ROWS:
        raise DataError(
            f"the {label} table has {len(frame)} rows, too few to score; pass at least "
            f"{MIN_ROWS}"
        )
    return frame


def _listed_names(names: list[str], most: int = 8) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def _unknown_columns(schema: Schema, frame: pd.DataFrame, label: str) -> list[str]:
    """Return the columns that the real table lacks; raise if one is absent here."""
    names = [str(name) for name in frame.columns]
    scored = [column.name for column in schema if column.learned]
    if not set(scored) & set(names):
        raise DataError(
            f"the real and the {label} table have no scored column in common: "
            f"{_listed_names(scored)} against {_listed_names(names)}; rename the "
            "columns of one of them"
        )
    for name in scored:
        if name not in names:
            raise DataError(
                f"column {name!r} is absent from the {label} table"
                f"{did_you_mean(name, names)}"
            )
    return [name for name in names if name not in schema.names]


def _check_target(target: str, schema: Schema) -> None:
    if not isinstance(target, str) or target not in schema.names:
        hint = did_you_mean(brief_repr(target), schema.names)
        raise DataError(
            f"the real table has no column {brief_repr(target)} to predict{hint}"
        )
    if not schema[target].learned:
        raise DataError(
            f"the target {target!r} is set aside as {schema[target].kind}: "
            f"{schema[target].reason}; choose another target or declare its kind in "
            "the schema"
        )


def first_permuted(
    frame: pd.DataFrame, n: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Return the first `n` rows of a permutation, in order and numbered anew."""
    rows = np.sort(rng.permutation(len(frame))[:n])
    return frame.iloc[rows].reset_index(drop=True)


def _without_empty(schema: Schema, real: pd.DataFrame) -> Schema:
    """Return the schema with columns that have no value set aside."""
    empty = missing_mask(real, schema).all()
    return Schema(
        tuple(
            replace(column, kind="all-missing", reason="no value in the rows sampled")
            if column.learned and empty[column.label]
            else column
            for column in schema
        )
    )


def _check_missing(real: pd.DataFrame, synthetic: pd.DataFrame) -> pd.DataFrame | None:
    """Return the synthetic rows if values are missing where the real table's are."""
    missing = synthetic.isna().sum()
    for name, count in missing.items():
        subject = f"column {name!r} of the synthetic table has {count} missing values"
        if count and count == len(synthetic):
            raise DataError(f"{subject} and no other; leave it out of both tables")
        if count and real[name].notna().all():
            raise DataError(
                f"{subject}; the real one has none: drop those rows or fill them "
                "(`augmask sample` gives complete rows)"
            )
    return synthetic if missing.any() else None


def _filled_from_own_column(
    frame: pd.DataFrame, rng: np.random.Generator
) -> pd.DataFrame:
    """Return the frame with missing values drawn from those of their column."""
    filled = {}
    for name in frame:
        column = frame[name].copy()
        missing = column.isna().to_numpy(dtype=bool)
        if missing.any():
            drawn = rng.choice(np.flatnonzero(~missing), missing.sum())
            column[missing] = column.iloc[drawn].array
        filled[name] = column
    return pd.DataFrame(filled)


def check_subsample(subsample: Any) -> int | None:
    """Return how many rows to score, or raise if so few cannot be."""
    if subsample is None:
        return None
    checked: int = SUBSAMPLE.checked("subsample", subsample)
    return checked


def read_tables(
    real: Any,
    synthetic: Any,
    test: Any = None,
    target: str | None = None,
    *,
    schema: Any = None,
    subsample: int | None = None,
    seed: int = 0,
) -> Tables:
    """Read the tables of an evaluation and make their columns agree.

    Parameters are those of `evaluate`.

    Examples
    --------
    >>> real = pd.DataFrame({"age": range(20, 32), "sex": list("fm") * 6, "id": "a"})
    >>> synthetic = real.assign(sex="x", more=1)
    >>> tables = read_tables(real, synthetic)
    >>> tables.numeric, tables.categorical, dict(tables.left_out)
    (['age'], ['sex'], {'id': "constant: one value only: 'a'"})
    >>> tables.notes
    ["Not scored, because the real table lacks it: 'more' of the synthetic table."]
    """
    subsample = check_subsample(subsample)
    sources: dict[str, Any] = {"real": real, "synthetic": synthetic}
    if test is not None:
        sources["test"] = test
    frames: Frames = {label: _read(source, label) for label, source in sources.items()}
    inferred = infer_schema(frames["real"], schema)
    if subsample is not None:
        frames = {
            label: first_permuted(frame, subsample, stream(seed, "subsample", label))
            for label, frame in frames.items()
        }
        inferred = _without_empty(inferred, frames["real"])
    left_out = {c.name: f"{c.kind}: {c.reason}" for c in inferred if not c.learned}
    if len(left_out) == len(inferred):
        name, reason = next(iter(left_out.items()))
        raise DataError(
            f"no column can be scored: all {len(inferred)} are set aside, {name!r} "
            f"because it is {reason}; declare a kind in the schema"
        )
    if target is not None:
        _check_target(target, inferred)
    notes = []
    for label in [label for label in frames if label != "real"]:
        unknown = _unknown_columns(inferred, frames[label], label)
        if unknown:
            notes.append(
                "Not scored, because the real table lacks it: "
                f"{_listed_names(unknown)} of the {label} table."
            )
    if subsample is not None:
        notes.append(f"Scored a random sample of at most {subsample:,} rows per table.")
    plain = {
        label: _columns_as_kinds(frame, inferred, label)
        for label, frame in frames.items()
    }
    placeholders = {
        column.name: plain["real"][column.name].median()
        for column in inferred
        if column.missing_is_level and column.kind in NUMERIC
    }
    scored = {
        label: _missing_as_values(frame, inferred, placeholders)
        for label, frame in plain.items()
    }
    incomplete = _check_missing(scored["real"], scored["synthetic"])
    if incomplete is not None:
        scored["synthetic"] = _filled_from_own_column(
            incomplete, stream(seed, "synthetic values")
        )
    return Tables(
        schema=inferred,
        numeric=[c.name for c in inferred if c.kind in NUMERIC],
        categorical=[
            *(c.name for c in inferred if c.kind in ("category", "boolean")),
            *(indicator_name(inferred[name]) for name in placeholders),
        ],
        real=scored["real"],
        synthetic=scored["synthetic"],
        test=scored.get("test"),
        source=frames["real"],
        placeholders=placeholders,
        left_out=left_out,
        notes=notes,
        incomplete_synthetic=incomplete,
    )
