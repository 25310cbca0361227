"""The factorisation gap: what filling holes one by one can lose in a given table.

The per-column rules of augmentation draw the holes S of a row independently of each
other given what is observed, O. In the paper's local expansion (the equation that
splits tr(ΓΣ) into P_diag + Δ, section "Extension to multiple missing coordinates") they
keep the diagonal part P_diag and lose the cross part Δ. The paper bounds the loss by

    |Δ| / P_diag  ≤  max_{j∈S} Σ_{k∈S, k≠j} A_jk |ρ_jk|O|

with ρ_jk|O the correlation of two missing cells given the observed ones and A_jk ≤ 1
how strongly the denoiser couples them. Averaged over the rows in which j is missing,
the indicator k ∈ S turns into the co-missingness q_jk = P(k missing | j missing).

The paper gives no estimator. This one takes A_jk = 1, the worst case, which needs no
trained denoiser, and estimates ρ_jk|O row by row:

* numbers become normal scores, categories indicators of their levels;
* their covariance is taken over the rows in which both cells are observed;
* Σ_S|O follows from it as for a Gaussian, for the very S and O of the row;
* ρ_jk|O is the largest canonical correlation between the two columns' blocks of it.
  For two numbers that is |ρ|; for levels the paper's inequality holds with it as well,
  because |tr(Γ_jk Σ_kj)| ≤ ρ_jk √(tr Γ_jj Σ_jj · tr Γ_kk Σ_kk).

So the result bounds the paper's second-order term as far as dependence is linear in
these scores and the holes are MAR; it says nothing about what lies beyond either, and
it is a bound, not the loss itself. Two columns that are never observed together leave
their correlation open and count as 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy.special import ndtri
from scipy.stats import rankdata

from augmask.errors import DataError
from augmask.missing.simulate import as_numbers
from augmask.table.table import BoolArray

Floats = npt.NDArray[np.float64]

# Bounds from which some, and much, of the dependence between holes may be lost.
SOME, MUCH = 0.1, 0.5

# Rows stand for the table; each costs one small inverse and its pairs.
MAX_ROWS = 300
MAX_LEVELS = 12
# Keeps the covariance invertible where columns repeat each other.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Gap:
    """How far the holes of a row depend on each other, given what the row shows.

    Parameters
    ----------
    bound : float
        Mean over rows with holes of max_j Σ_k |ρ_jk|O|: an upper bound for the mean of
        |Δ| / P_diag. 0 if no row misses two dependent cells; it may exceed 1.
    columns : pandas.DataFrame
        One line per column with holes, largest first: `column`; `bound`, the paper's
        co-missingness-weighted Σ_k q_jk |ρ_jk|O|; `partner`, the column that adds most
        to it, and `partner_share`, what it adds.
    both : pandas.DataFrame
        P(m_j = 0, m_k = 0); the diagonal holds the rates.
    given : pandas.DataFrame
        q_jk = P(m_k = 0 | m_j = 0), line j, column k; NaN where j has no holes.
    n_rows : int
        How many rows with two holes or more the correlations were averaged over.
    """

    bound: float
    columns: pd.DataFrame
    both: pd.DataFrame
    given: pd.DataFrame
    n_rows: int


def _normal_scores(values: Floats) -> Floats:
    known = ~np.isnan(values)
    scores = np.full(len(values), np.nan)
    scores[known] = ndtri((rankdata(values[known]) - 0.5) / max(known.sum(), 1))
    return scores


def _indicators(values: Floats) -> Floats:
    """Return 0/1 columns for all but the last of the frequent levels, and the rest."""
    known = ~np.isnan(values)
    levels, counts = np.unique(values[known], return_counts=True)
    kept = levels[np.argsort(-counts, kind="stable")][:MAX_LEVELS]
    # One level is implied by the others, so that the block is not singular.
    kept = kept[:-1] if len(kept) == len(levels) else kept
    coded: Floats = (values[:, None] == kept).astype(np.float64)
    coded[~known] = np.nan
    return coded


def _blocks(frame: pd.DataFrame, observed: BoolArray) -> list[Floats]:
    """Return each column as one or several columns of numbers, NaN in holes."""
    numbers = np.where(observed, as_numbers(frame), np.nan)
    blocks = []
    for j, kind in enumerate(frame.dtypes):
        ordered = is_numeric_dtype(kind) and not is_bool_dtype(kind)
        if ordered or kind.kind in "mM":
            blocks.append(_normal_scores(numbers[:, j])[:, None])
        else:
            blocks.append(_indicators(numbers[:, j]))
    return blocks


def precision_of(x: Floats) -> tuple[Floats, BoolArray]:
    """Return the inverse correlation matrix, and which pairs were never seen."""
    known = ~np.isnan(x)
    n = known.sum(axis=0)
    z = np.where(known, x, 0.0)
    z = np.where(known, z - z.sum(axis=0) / np.maximum(n, 1), 0.0)
    sd = np.sqrt((z**2).sum(axis=0) / np.maximum(n, 1))
    z /= np.where(sd > 0, sd, 1.0)
    seen = known.T.astype(np.float64) @ known
    correlation = z.T @ z / np.maximum(seen, 1)
    np.fill_diagonal(correlation, 1.0)
    # Correlations over different rows need not fit together; the nearest that do.
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 0.0) + RIDGE
    return (vectors / values) @ vectors.T, seen < 2


def _row_correlations(
    precision: Floats, where: list[npt.NDArray[np.int64]]
) -> npt.NDArray[np.float64]:
    """Return |ρ_jk|O| between the blocks `where` that a row misses."""
    inside = np.concatenate(where)
    covariance = np.linalg.inv(precision[np.ix_(inside, inside)])
    ends = np.cumsum([len(block) for block in where])
    spans = [slice(e - len(b), e) for e, b in zip(ends, where, strict=True)]
    white = np.zeros_like(covariance)
    for span in spans:
        block = covariance[span, span]
        white[span, span] = np.linalg.inv(np.linalg.cholesky(block))
    c = white @ covariance @ white.T
    found = np.zeros((len(where), len(where)))
    for a, first in enumerate(spans):
        for b in range(a):
            part = c[first, spans[b]]
            found[a, b] = np.abs(part).max() if part.size == 1 else _norm(part)
    return np.minimum(found + found.T, 1.0)


def _norm(part: Floats) -> float:
    """Return the largest singular value."""
    small = part @ part.T if part.shape[0] <= part.shape[1] else part.T @ part
    return float(np.sqrt(np.linalg.eigvalsh(small)[-1].clip(0.0)))


def _varies(block: Floats) -> bool:
    known = block[~np.isnan(block).any(axis=1)]
    return bool(known.size and np.ptp(known, axis=0).max() > 0)


def _typical_rows(hidden: BoolArray) -> npt.NDArray[np.int64]:
    """Return rows with two holes or more; of many, evenly spaced among the patterns."""
    rows = np.flatnonzero(hidden.sum(axis=1) > 1)
    if len(rows) <= MAX_ROWS:
        return rows
    ordered = rows[np.lexsort(hidden[rows].T)]
    return ordered[np.linspace(0, len(ordered) - 1, MAX_ROWS).astype(np.int64)]


def _correlations(
    blocks: list[Floats], hidden: BoolArray, rows: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the mean |ρ_jk|O| of each pair where both miss, and each row's bound."""
    precision, unseen = precision_of(np.hstack(blocks))
    ends = np.cumsum([block.shape[1] for block in blocks])
    spans = [np.arange(e - b.shape[1], e) for e, b in zip(ends, blocks, strict=True)]

    def among(missing: npt.NDArray[np.int64]) -> Floats:
        rho = _row_correlations(precision, [spans[j] for j in missing])
        first = [spans[j][0] for j in missing]
        rho[unseen[np.ix_(first, first)]] = 1.0
        np.fill_diagonal(rho, 0.0)
        return rho

    d = len(blocks)
    total, count, worst = np.zeros((d, d)), np.zeros((d, d)), np.zeros(len(rows))
    for i, row in enumerate(rows):
        missing = np.flatnonzero(hidden[row])
        rho = among(missing)
        worst[i] = rho.sum(axis=1).max()
        total[np.ix_(missing, missing)] += rho
        count[np.ix_(missing, missing)] += 1
    # Pairs that miss together, but in none of these rows: as if nothing else missed.
    together = hidden.T.astype(np.float64) @ hidden > 0
    for j, k in np.argwhere(np.triu(together & (count == 0), 1)):
        total[j, k] = total[k, j] = among(np.array([j, k]))[0, 1]
    return total / np.maximum(count, 1), worst


def factorisation_gap(frame: pd.DataFrame, holes: pd.DataFrame | None = None) -> Gap:
    """Bound what drawing the holes of a row independently can lose.

    Parameters
    ----------
    frame : pandas.DataFrame
        Numbers and dates count as numeric, everything else as categorical.
    holes : pandas.DataFrame of bool, optional
        True where a cell is a hole, as in `describe`; NaN, None and NaT by default.

    Returns
    -------
    Gap

    Examples
    --------
    Two columns that say the same and always miss together, then two that are unrelated:

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 2000))
    >>> hole = np.repeat(rng.random((2000, 1)) < 0.3, 2, axis=1)
    >>> same = pd.DataFrame({"a": x, "b": x + 0.1 * y}).mask(hole)
    >>> factorisation_gap(same).bound > 0.95
    True
    >>> factorisation_gap(pd.DataFrame({"a": x, "b": y}).mask(hole)).bound < 0.1
    True
    """
    if not len(frame):
        raise DataError(
            "The factorisation gap is estimated from rows, but the table has none; "
            "pass at least one row."
        )
    hidden = (frame.isna() if holes is None else holes).to_numpy(dtype=bool)
    joint = hidden.T.astype(np.float64) @ hidden / len(frame)
    rates = np.diagonal(joint)
    given = np.divide(
        joint, rates[:, None], out=np.full_like(joint, np.nan), where=rates[:, None] > 0
    )

    # A column that never varies, or is never observed, has no correlation to lose.
    blocks = _blocks(frame, ~hidden)
    used = np.array([j for j, block in enumerate(blocks) if _varies(block)], dtype=int)
    rows = _typical_rows(hidden[:, used])
    rho, worst = np.zeros_like(joint), np.zeros(0)
    if len(rows):
        rho[np.ix_(used, used)], worst = _correlations(
            [blocks[j] for j in used], hidden[:, used], rows
        )
    several = (hidden[:, used].sum(axis=1) > 1).sum()
    bound = worst.mean() * several / hidden.any(axis=1).sum() if len(rows) else 0.0

    names = frame.columns
    parts = np.nan_to_num(given) * rho
    partner = parts.argmax(axis=1)
    lines = pd.DataFrame(
        {
            "column": names,
            "bound": parts.sum(axis=1),
            "partner": [
                names[k] if parts[j, k] else None for j, k in enumerate(partner)
            ],
            "partner_share": parts.max(axis=1),
        }
    )[rates > 0]
    return Gap(
        bound=float(bound),
        columns=lines.sort_values("bound", ascending=False, ignore_index=True),
        both=pd.DataFrame(joint, names, names),
        given=pd.DataFrame(given, names, names),
        n_rows=len(rows),
    )
