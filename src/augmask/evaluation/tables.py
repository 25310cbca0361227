"""The tables of an evaluation, read as the schema of the real one says.

Whatever file or dtype a table came in, a column holds afterwards one of two things:
floats or dates (numeric) or levels (categorical). NaN, NaT and declared codes are
holes. Levels that the real table lacks are kept; they are the generator's mistake, and
scores count them as such.

A hole that the schema declares a `level` is a value, not a hole: it becomes one more
level of a category. A number or date gets a second column, "x is missing", and the
median where there is none; both tables have the same stand-in, so that it costs nothing
and tells nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from augmask.errors import DataError, UsageError, did_you_mean
from augmask.evaluation.columns import Frames
from augmask.evaluation.kinds import as_kind, clash
from augmask.rng import stream
from augmask.table.cells import read_cells
from augmask.table.encode import gate_name
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema, missing_mask
from augmask.table.schema import NUMERIC, Column, Schema

MISSING_LEVEL = "(missing)"
GATE = ("no", "yes")
# Three folds of two halves need six rows; fewer than this say nothing anyway.
MIN_ROWS = 10


@dataclass(frozen=True, eq=False)
class Tables:
    """What is compared.

    Parameters
    ----------
    schema : Schema
        That of the real table.
    numeric, categorical : list of str
        The columns that are scored.
    real, synthetic : pandas.DataFrame
        Those columns; only `real` and `test` may have holes.
    test : pandas.DataFrame or None
        Real rows that the generator has not seen.
    source : pandas.DataFrame
        The rows of `real` as they came, for rules that fill holes by the schema.
    stand_ins : mapping of str to value
        What stands in numbers and dates whose holes are values.
    left_out : mapping of str to str
        Columns of the real table that are not scored, and why.
    notes : list of str
        What else the reader of the scores should know.
    """

    schema: Schema
    numeric: list[str]
    categorical: list[str]
    real: pd.DataFrame
    synthetic: pd.DataFrame
    test: pd.DataFrame | None
    source: pd.DataFrame
    stand_ins: Mapping[str, Any]
    left_out: Mapping[str, str]
    notes: list[str]

    @property
    def complete(self) -> bool:
        """Whether the real table has no holes."""
        return bool(self.real.notna().to_numpy().all())

    @property
    def complete_test(self) -> pd.DataFrame | None:
        """The test rows if they have no holes."""
        whole = self.test is not None and bool(self.test.notna().to_numpy().all())
        return self.test if whole else None

    def as_read(
        self, frame: pd.DataFrame, label: str, names: Sequence[str]
    ) -> pd.DataFrame:
        """Return some scored columns of another table of this schema."""
        part = Schema(tuple(c for c in self.schema if c.name in names))
        return _scored(_columns(frame, part, label), part, self.stand_ins)

    @property
    def shown_schema(self) -> Schema:
        """The schema of the tables as they are shown: labels as text, more columns."""
        return Schema(
            (
                *(replace(column, label=column.name) for column in self.schema),
                *(
                    Column(
                        gate_name(self.schema[name]),
                        "category",
                        f"whether {name!r} has a value",
                        "category",
                        levels=GATE,
                        categories=GATE,
                    )
                    for name in self.stand_ins
                ),
            )
        )

    def shown(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a scored table without stand-ins, for pictures."""
        hidden = {
            name: frame[name].mask(frame[gate_name(self.schema[name])] == GATE[1])
            for name in self.stand_ins
        }
        return frame.assign(**hidden)


def _read(source: Any, label: str) -> pd.DataFrame:
    try:
        frame = read_frame(source)
    except DataError as error:
        raise DataError(f"the {label} table: {error}") from error
    if len(frame) < MIN_ROWS:
        raise DataError(
            f"Scores take at least {MIN_ROWS} rows of each table, but the {label} "
            f"table has {len(frame)}; pass more rows."
        )
    return frame


def _check_names(schema: Schema, frame: pd.DataFrame, label: str) -> list[str]:
    """Return the columns that only this table has; raise if one is absent."""
    names = [str(name) for name in frame.columns]
    scored = [column.name for column in schema if column.learned]
    if not set(scored) & set(names):
        raise DataError(
            f"The real and the {label} table have no scored column in common: "
            f"{_listed(scored)} against {_listed(names)}; rename the columns of one "
            "of them."
        )
    for name in scored:
        if name not in names:
            raise DataError(
                f"Every scored column stands in all tables, but {name!r} is absent "
                f"from the {label} table{did_you_mean(name, names)}"
            )
    return [name for name in names if name not in schema.names]


def _listed(names: list[str], most: int = 8) -> str:
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def _columns(frame: pd.DataFrame, schema: Schema, label: str) -> pd.DataFrame:
    """Return the columns that are scored, holes as they are."""
    labels = {str(name): name for name in frame.columns}
    parts: dict[str, pd.Series] = {}
    for column in schema:
        if not column.learned:
            continue
        try:
            cells = read_cells(
                frame[labels[column.name]], column.name, column.na_values
            )
        except DataError as error:
            raise DataError(f"the {label} table: {error}") from error
        if cells.form == "empty":
            # Nothing to convert; the cells of the real table say what a hole is like.
            hole = pd.NaT if column.kind == "datetime" else np.nan
            series = pd.Series([hole] * len(frame))
            parts[column.name] = (
                series if column.kind in NUMERIC else series.astype("category")
            )
            continue
        found = as_kind(cells, column)
        if found is None:
            raise clash(cells, column, label)
        parts[column.name] = found
    return pd.DataFrame(parts)


def _stand_ins(real: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    return {
        column.name: real[column.name].median()
        for column in schema
        if column.gated and column.kind in NUMERIC
    }


def _scored(
    frame: pd.DataFrame, schema: Schema, stand_ins: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the frame with those holes as values that the schema says are."""
    parts: dict[str, pd.Series] = {}
    gates: dict[str, pd.Series] = {}
    for column in schema:
        if not column.learned:
            continue
        series = frame[column.name]
        if column.gated:
            hole = series.isna()
            if column.kind in NUMERIC:
                series = series.fillna(stand_ins[column.name])
                gates[gate_name(column)] = pd.Series(
                    pd.Categorical.from_codes(hole.astype(np.int8), GATE)
                )
            else:
                series = series.cat.add_categories([MISSING_LEVEL]).fillna(
                    MISSING_LEVEL
                )
        parts[column.name] = series
    return pd.DataFrame(parts | gates)


def _drawn(frame: pd.DataFrame, n: int, rng: np.random.Generator) -> pd.DataFrame:
    rows = np.sort(rng.permutation(len(frame))[:n])
    return frame.iloc[rows].reset_index(drop=True)


def _still_seen(schema: Schema, real: pd.DataFrame) -> Schema:
    """Return the schema without columns that have no value in the rows drawn."""
    holes = missing_mask(real, schema).all()
    return Schema(
        tuple(
            replace(column, kind="all-missing", reason="no value in the rows drawn")
            if column.learned and holes[column.label]
            else column
            for column in schema
        )
    )


def _refuse_holes(synthetic: pd.DataFrame) -> None:
    for name in synthetic.columns:
        count = int(synthetic[name].isna().sum())
        if count:
            raise DataError(
                f"Synthetic rows are complete, but column {name!r} of the synthetic "
                f"table has {count} holes; drop those rows or fill the holes "
                "(`augmask sample` gives complete rows)."
            )


def _check_target(target: str, schema: Schema) -> None:
    if target not in schema.names:
        hint = did_you_mean(target, schema.names)
        raise DataError(
            f"The target is a column of the real table, and {target!r} is not{hint}"
        )
    if not schema[target].learned:
        raise DataError(
            f"A target takes different values, but {target!r} is set aside as "
            f"{schema[target].kind}: {schema[target].reason}; choose another target or "
            "declare its kind in the schema."
        )


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
    if subsample is not None and subsample < MIN_ROWS:
        raise UsageError(
            f"`subsample` is a number of rows, at least {MIN_ROWS}, got {subsample!r}"
        )
    given: dict[str, Any] = {"real": real, "synthetic": synthetic}
    if test is not None:
        given["test"] = test
    frames: Frames = {label: _read(source, label) for label, source in given.items()}
    found = infer_schema(frames["real"], schema)
    if subsample is not None:
        frames = {
            label: _drawn(frame, subsample, stream(seed, "subsample", label))
            for label, frame in frames.items()
        }
        found = _still_seen(found, frames["real"])
    left_out = {c.name: f"{c.kind}: {c.reason}" for c in found if not c.learned}
    if len(left_out) == len(found):
        name, reason = next(iter(left_out.items()))
        raise DataError(
            f"Scores need a column with different values, but all {len(found)} are set "
            f"aside, {name!r} because it is {reason}; declare a kind in the schema."
        )
    if target is not None:
        _check_target(target, found)
    notes = []
    for label in [label for label in frames if label != "real"]:
        extra = _check_names(found, frames[label], label)
        if extra:
            notes.append(
                "Not scored, because the real table lacks it: "
                f"{_listed(extra)} of the {label} table."
            )
    if subsample is not None:
        notes.append(
            f"At most {subsample:,} rows of each table were scored, drawn at random."
        )
    plain = {label: _columns(frame, found, label) for label, frame in frames.items()}
    stand_ins = _stand_ins(plain["real"], found)
    scored = {label: _scored(frame, found, stand_ins) for label, frame in plain.items()}
    _refuse_holes(scored["synthetic"])
    gates = [gate_name(found[name]) for name in stand_ins]
    return Tables(
        schema=found,
        numeric=[c.name for c in found if c.kind in NUMERIC],
        categorical=[
            *(c.name for c in found if c.kind in ("category", "boolean")),
            *gates,
        ],
        real=scored["real"],
        synthetic=scored["synthetic"],
        test=scored.get("test"),
        source=frames["real"],
        stand_ins=stand_ins,
        left_out=left_out,
        notes=notes,
    )
