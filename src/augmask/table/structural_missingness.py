"""Structural missingness: values that are missing because of what another column says.

Survivors have no cause of death, non-smokers smoke no cigarettes a day. Such a cell is
not unknown but not applicable, and filling it makes an impossible row. The search
compares the missing values of each column with the observed values of all others: is
there a condition on one or two columns under which the column is (nearly) always
missing, while otherwise it mostly is not?

It counts on a sample of rows, for all pairs of columns at once as a matrix product, and
checks only what it finds on every row. Columns that are missing in the same rows are
searched once.

A finding is plain data, `Column.missing_where`: `where`, one or two conditions [column,
operator, levels or bound], `join`ed by "and" or "or"; the number of `rows` that satisfy
them; the share of missing values `inside` and `outside` of these rows; whether it is
`structural`: exact, simple and well supported, so that generated rows follow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from augmask.table.codec import encoded_column, indicator_name, origin
from augmask.table.dtype_recovery import NUMPY_UNITS
from augmask.table.schema import CATEGORICAL, NUMERIC, Column, Schema, column_cells

Bools = npt.NDArray[np.bool_]
Condition = list[Any]
Finding = dict[str, Any]

# Rows of the search, fewer in wide tables, and distinct patterns of missing values.
MOST_ROWS, MOST_ROWS_WIDE, WIDE = 20_000, 2_000, 300
MOST_PATTERNS, MOST_PATTERNS_TWO = 200, 30
MOST_COLUMNS_TWO = 300
# Share of missing values required inside of a condition and allowed outside.
INSIDE, OUTSIDE = 0.98, 0.5
# Stricter for two columns, because there are many more pairs.
OUTSIDE_TWO = 0.02
# Share of a column's missing values that a condition must explain.
EXPLAINED = 0.5
# Rows required inside and outside, and evidence in nats that it is not chance.
FEWEST, EVIDENCE = 20, 25.0
# A structural finding explains nearly all missing values and names few levels.
STRUCTURAL_SHARE, STRUCTURAL_LEVELS = 0.95, 3
# Codes per column, and columns per block of the matrix product.
MOST_LEVELS, BINS = 30, 16
BLOCK = 256
# A split of numeric bins may be less pure: the bound is refined on all rows.
LOOSE = 0.7


# -- columns as a few codes -------------------------------------------------------


class _Coded:
    """A column as a few codes: bins of a number or frequent levels, -1 if missing."""

    def __init__(self, frame: pd.DataFrame, column: Column, rows: Any) -> None:
        self.column = column
        self.numeric = column.kind in NUMERIC
        values, observed = encoded_column(frame, column, rows)
        self.codes = np.full(len(observed), -1, np.int32)
        known = values[observed]
        if self.numeric:
            edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1]))
            self.codes[observed] = np.searchsorted(edges, known, side="left")
            self.size = len(edges) + 1
            return
        # The rarest levels share one code.
        counts = np.bincount(known, minlength=column.n_codes)
        self.order = np.argsort(-counts, kind="stable")[:MOST_LEVELS]
        code = np.full(len(counts), len(self.order), np.int32)
        code[self.order] = np.arange(len(self.order))
        self.codes[observed] = code[known]
        self.size = len(self.order) + (len(counts) > len(self.order))


def _sums_per_code(
    columns: Sequence[_Coded], weights: npt.NDArray[np.float32]
) -> list[Any]:
    """Return for each column the sums of weights [n, w] per code."""
    sums = []
    for start in range(0, len(columns), BLOCK):
        block = columns[start : start + BLOCK]
        ends = np.cumsum([0, *(column.size for column in block)])
        one_hot = np.zeros((len(weights), ends[-1]), np.float32)
        for column, at in zip(block, ends, strict=False):
            rows = np.flatnonzero(column.codes >= 0)
            one_hot[rows, at + column.codes[rows]] = 1
        total = one_hot.T @ weights
        sums += [total[a:b] for a, b in pairwise(ends)]
    return sums


# -- conditions -------------------------------------------------------------------


def _level_condition(column: Column, codes: Any) -> Condition:
    """Return that a column has one of some levels, or none of the others if fewer."""
    levels = column.all_levels
    chosen = [levels[code] for code in sorted(codes) if code < len(levels)]
    others = [level for level in levels if level not in chosen]
    if 0 < len(others) < len(chosen):
        return [column.name, "not in", others]
    return [column.name, "in", chosen]


def _bound_condition(
    column: Column, values: Any, observed: Bools, missing: Bools
) -> tuple[Condition, Bools, Bools]:
    """Return the best bound of a numeric column, and where it is satisfied."""
    order = np.flatnonzero(observed)[np.argsort(values[observed], kind="stable")]
    ordered, hit = values[order].astype(np.float64), missing[order]
    ends = np.flatnonzero(np.diff(ordered) > 0)
    inside = np.zeros(len(observed), np.bool_)
    if not len(ends):
        return [column.name, "<=", 0], inside, observed
    below = np.cumsum(hit)[ends]
    # Rows classified correctly if those up to the bound are missing, or those above.
    correct_below = below + (len(hit) - ends - 1) - (hit.sum() - below)
    correct_above = len(hit) - correct_below
    downwards = correct_below.max() >= correct_above.max()
    best = np.argmax(correct_below if downwards else correct_above)
    bound = ordered[int(ends[best])]
    inside[observed] = (values[observed] <= bound) == downwards
    bound += origin(column)
    stored: Any = int(bound) if bound == int(bound) else float(bound)
    if column.kind == "datetime" and column.unit:
        dtype = f"datetime64[{NUMPY_UNITS[column.unit]}]"
        stored = str(np.array(int(bound)).astype(dtype))
    return [column.name, "<=" if downwards else ">", stored], inside, observed


def _negated_condition(condition: Condition) -> Condition:
    name, operator, levels = condition
    return [name, {"in": "not in", "not in": "in"}[operator], levels]


# -- the search -------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """Codes of column `at` where nearly all is missing, and the rows it gets wrong."""

    at: int
    chosen: Bools
    wrong: float


def _splits(
    n: Any, m: Any, at: int, purity: float, outside: float
) -> dict[int, _Split]:
    """Return for each pattern the codes whose rows are missing, if they explain it.

    Of `n` [codes] rows of column `at`, `m` [codes, patterns] are missing. A code needs
    a share `purity` of missing values, and a share `outside` is allowed elsewhere.
    """
    chosen = (m >= purity * n[:, None]) & (n >= 3)[:, None]
    total, all_missing = n.sum(), m.sum(axis=0)
    inside, missing = n @ chosen, (m * chosen).sum(axis=0)
    rest, other = total - inside, all_missing - missing
    # By chance, a row inside would be missing at the overall rate.
    nats = missing * -np.log(np.maximum(all_missing / max(total, 1), 1e-9))
    good = (np.minimum(inside, rest) >= FEWEST) & (missing >= EXPLAINED * all_missing)
    good &= (other <= outside * rest) & (missing >= purity * inside)
    good &= nats >= EVIDENCE
    return {
        int(k): _Split(at, chosen[:, k], float(inside[k] - missing[k] + other[k]))
        for k in np.flatnonzero(good)
    }


class _Search:
    """The columns as codes of a sample of rows, and the masks of all rows."""

    def __init__(self, frame: pd.DataFrame, schema: Schema, missing: Bools) -> None:
        self.frame, self.schema, self.missing = frame, schema, missing
        learned = [column for column in schema if column.learned]
        most = MOST_ROWS if len(learned) <= WIDE else MOST_ROWS_WIDE
        self.rows = None
        if len(frame) > most:
            order = np.random.default_rng(0).permutation(len(frame))
            self.rows = np.sort(order[:most])
        coded = (_Coded(frame, column, self.rows) for column in learned)
        self.coded = [column for column in coded if column.size > 1]

    def _missing_in_sample(self, columns: Sequence[int]) -> npt.NDArray[np.float32]:
        part = self.missing[:, columns]
        part = part if self.rows is None else part[self.rows]
        return part.astype(np.float32)

    def _rank(self, split: _Split) -> tuple[float, float, bool, int]:
        """Prefer fewer errors, then columns that are simpler and less often missing."""
        coded = self.coded[split.at]
        return split.wrong, coded.column.missing_rate, coded.numeric, coded.size

    def single(self, columns: Sequence[int]) -> list[Finding | None]:
        """Return for each column the best condition on one other column."""
        m = self._missing_in_sample(columns)
        ones = np.ones((len(m), 1), np.float32)
        counts = _sums_per_code(self.coded, np.concatenate([ones, m], axis=1))
        splits: list[list[_Split]] = [[] for _ in columns]
        for at, count in enumerate(counts):
            purity = LOOSE if self.coded[at].numeric else INSIDE
            good = _splits(count[:, 0], count[:, 1:], at, purity, OUTSIDE)
            for k, split in good.items():
                splits[k].append(split)
        results: list[Finding | None] = []
        for column, candidates in zip(columns, splits, strict=True):
            findings = []
            missing = self.missing[:, column]
            for split in sorted(candidates, key=self._rank)[:5]:
                condition, inside, known = self._condition(split, missing)
                finding = self._finding(
                    [condition], "and", inside, known, missing, OUTSIDE
                )
                findings += [finding] if finding else []
            # Structural ones first; ties stay in order.
            findings.sort(key=lambda f: (not f["structural"], _errors(f)))
            results.append(findings[0] if findings else None)
        return results

    def _condition(
        self, split: _Split, missing: Bools
    ) -> tuple[Condition, Bools, Bools]:
        """Return on all rows the condition, where it holds and where that is known."""
        coded = self.coded[split.at]
        values, observed = encoded_column(self.frame, coded.column)
        if coded.numeric:
            return _bound_condition(coded.column, values, observed, missing)
        order = coded.order
        codes = order[split.chosen[: len(order)]]
        if split.chosen[len(order) :].any():
            every = np.arange(coded.column.n_codes)
            codes = np.setdiff1d(every, order[~split.chosen[:-1]])
        inside = observed & np.isin(values, codes)
        return _level_condition(coded.column, codes), inside, observed

    def _finding(
        self,
        where: list[Condition],
        join: str,
        inside: Bools,
        known: Bools,
        missing: Bools,
        most_outside: float,
    ) -> Finding | None:
        """Return the finding if it also holds on all rows."""
        n_inside, n_outside = int(inside.sum()), int((known & ~inside).sum())
        if min(n_inside, n_outside) < FEWEST:
            return None
        share_in = float(missing[inside].mean())
        share_out = float(missing[known & ~inside].mean())
        explained = missing[inside].sum() / missing.sum()
        if share_in < INSIDE or share_out > most_outside or explained < EXPLAINED:
            return None
        name, _, levels = where[0]
        parent = self.schema[name]
        structural = (
            len(where) == 1
            and parent.kind in CATEGORICAL
            and not parent.rare_levels
            and share_in == 1
            and share_out == 0
            and explained >= STRUCTURAL_SHARE
            and len(levels) <= STRUCTURAL_LEVELS
        )
        return {
            "where": where,
            "join": join,
            "rows": n_inside,
            "inside": share_in,
            "outside": share_out,
            "structural": bool(structural),
        }

    def double(self, column: int) -> Finding | None:
        """Return a condition on two columns that explains nearly every missing value.

        Missing where one *or* the other holds: the first column explains some rows, the
        second the rest. Missing where one *and* the other hold is the same for the
        observed cells.
        """
        missing = self._missing_in_sample([column])[:, 0] > 0
        best: Finding | None = None
        pool = self.coded[:MOST_COLUMNS_TWO]
        for target, join in ((missing, "or"), (~missing, "and")):
            weights = np.stack([np.ones(len(target)), target], 1).astype(np.float32)
            firsts = []
            for at, count in enumerate(_sums_per_code(pool, weights)):
                n, m = count.T
                pure = (m == n) & (n >= FEWEST)
                gain = n[pure].sum()
                enough = gain >= max(FEWEST, 0.05 * len(target))
                sure = gain * -math.log(max(target.mean(), 1e-9)) > EVIDENCE
                if enough and sure and (~pure & (n > 0)).any():
                    firsts.append((-gain, at, pure))
            firsts.sort(key=lambda first: first[:2])
            for _, at, pure in firsts[:4]:
                if pool[at].numeric:
                    continue
                rest = (pool[at].codes >= 0) & ~np.append(pure, False)[pool[at].codes]
                finding = self._with_second_condition(
                    column, target, join, at, pure, rest
                )
                if finding and (best is None or _errors(finding) < _errors(best)):
                    best = finding
        return best

    def _with_second_condition(
        self, column: int, target: Bools, join: str, at: int, pure: Bools, rest: Bools
    ) -> Finding | None:
        """Return the condition on a first column with the best one on a second."""
        weights = np.stack([rest, rest & target], 1).astype(np.float32)
        pool = self.coded[:MOST_COLUMNS_TWO]
        splits: list[_Split] = []
        for other, count in enumerate(_sums_per_code(pool, weights)):
            if other != at and not pool[other].numeric:
                n, m = count.T
                if (n[n > 0] < 3).any():
                    continue
                splits += _splits(n, m[:, None], other, INSIDE, OUTSIDE_TWO).values()
        missing = self.missing[:, column]
        for split in sorted(splits, key=self._rank)[:2]:
            one, in_one, known_one = self._condition(_Split(at, pure, 0.0), missing)
            two, in_two, known_two = self._condition(split, missing)
            inside, known = in_one | in_two, known_one & known_two
            if join == "and":
                one, two, inside = (
                    _negated_condition(one),
                    _negated_condition(two),
                    ~inside,
                )
            finding = self._finding(
                [one, two], join, inside & known, known, missing, OUTSIDE_TWO
            )
            if finding:
                return finding
        return None


def _errors(finding: Finding) -> float:
    errors: float = finding["outside"] + 1 - finding["inside"]
    return errors


def find_structural_missingness(
    frame: pd.DataFrame, schema: Schema
) -> dict[str, Finding]:
    """Return the columns whose missing values other columns determine.

    Parameters
    ----------
    frame : pandas.DataFrame
    schema : Schema
        Of the frame.

    Returns
    -------
    dict of str to dict
        Column name -> finding, as `Column.missing_where` stores it.

    Examples
    --------
    >>> from augmask.table.infer import infer_schema
    >>> smokes, a_day = ["no", "yes"] * 40, [None, 5, None, 9] * 20
    >>> frame = pd.DataFrame({"smokes": smokes, "a_day": a_day})
    >>> a_day = find_structural_missingness(frame, infer_schema(frame))["a_day"]
    >>> a_day["where"], a_day["rows"], a_day["structural"]
    ([['smokes', 'in', ['no']]], 40, True)
    """
    columns = [
        column
        for column in schema
        if 0 < column.missing_rate < 1 and (column.learned or column.kind == "constant")
    ]
    if not columns or len(frame) < 2 * FEWEST:
        return {}
    masks = np.zeros((len(frame), len(columns)), np.bool_)
    for k, column in enumerate(columns):
        cells = column_cells(frame[column.label], column)
        masks[:, k] = ~cells.observed
    # Columns that are missing in the same rows share a pattern.
    packed = np.packbits(masks, axis=0).T
    _, first, pattern = np.unique(
        packed, axis=0, return_index=True, return_inverse=True
    )
    counts = masks[:, first].sum(axis=0)
    enough = np.minimum(counts, len(frame) - counts) >= FEWEST
    order = np.argsort(-np.where(enough, counts, 0), kind="stable")
    patterns = [int(p) for p in order[:MOST_PATTERNS] if enough[p]]
    if not patterns:
        return {}
    search = _Search(frame, schema, masks)
    singles = search.single([int(first[p]) for p in patterns])
    findings: dict[int, Finding] = {}
    attempts = MOST_PATTERNS_TWO
    for p, finding in zip(patterns, singles, strict=True):
        if (finding is None or finding["outside"] > OUTSIDE_TWO) and attempts:
            attempts -= 1
            finding = search.double(int(first[p])) or finding
        if finding is not None:
            findings[p] = finding
    return {
        column.name: findings[int(p)]
        for column, p in zip(columns, pattern.ravel(), strict=True)
        if int(p) in findings
    }


def with_structural_missingness(
    frame: pd.DataFrame,
    schema: Schema,
    declared: Collection[str],
    as_level: Callable[[Column], Column],
) -> Schema:
    """Return the schema with the findings, applied where they are structural.

    Columns whose `missing_as` is `declared` stay as they are; `as_level` returns a
    column with its missing values as a level.
    """
    findings = find_structural_missingness(frame, schema)
    columns = []
    for column in schema:
        if column.name in findings:
            finding = dict(findings[column.name])
            is_declared = column.name in declared
            # The name of the indicator may be that of another column.
            free = indicator_name(column) not in schema.names
            if finding["structural"] and free and not is_declared:
                column = as_level(column)
            if is_declared:
                finding["declared"] = True
            if finding["structural"] and column.kind == "category":
                codes, observed = encoded_column(frame, column)
                counts = np.bincount(codes[observed], minlength=1)
                finding["counts"] = [int(count) for count in counts]
            column = replace(column, missing_where=finding)
        columns.append(column)
    return Schema(tuple(columns))
