"""The factorization gap: what filling cells independently can lose in a given table.

Per-column augmenters draw the missing cells S of a row independently of each other
given the observed ones, O. In the paper's local expansion (the equation that splits
tr(ΓΣ) into P_diag + Δ, section "Extension to multiple missing coordinates") they keep
the diagonal part P_diag and lose the cross part Δ. The paper bounds the loss by

    |Δ| / P_diag  ≤  max_{j∈S} Σ_{k∈S, k≠j} A_jk |ρ_jk|O|

with ρ_jk|O the correlation of two missing cells given the observed ones and A_jk ≤ 1
how strongly the denoiser couples them. Averaged over the rows in which j is missing,
the indicator k ∈ S turns into the co-missingness q_jk = P(k missing | j missing).

The paper gives no estimator. This one takes A_jk = 1, the worst case, which needs no
trained denoiser, and estimates ρ_jk|O row by row:

* numbers become normal scores, categories indicators of their levels;
* their covariance is taken over the rows in which both cells are observed;
* Σ_S|O follows from it as for a Gaussian, for the S and O of the row;
* ρ_jk|O is the largest canonical correlation between the two columns' blocks of it.
  For two numbers that is |ρ|; for levels the paper's inequality holds with it as well,
  because |tr(Γ_jk Σ_kj)| ≤ ρ_jk √(tr Γ_jj Σ_jj · tr Γ_kk Σ_kk).

The result bounds the paper's second-order term as far as dependence is linear in these
scores and values are missing at random; it is a bound, not the loss itself. The
correlation of two columns that are never observed together is unknown and counts as 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri
from scipy.stats import rankdata

from augmask.errors import DataError
from augmask.missing.describe import missing_cells
from augmask.missing.simulate import as_numbers, is_ordered
from augmask.table.table import BoolArray

Floats = npt.NDArray[np.float64]

# Bounds from which some, and much, of the dependence between cells may be lost.
MODERATE_GAP, LARGE_GAP = 0.1, 0.5

# Rows that represent the table; each costs one small inverse and its pairs.
MAX_ROWS = 300
MAX_LEVELS = 12
# Keeps the covariance invertible where columns repeat each other.
RIDGE = 1e-3


@dataclass(frozen=True, eq=False)
class Gap:
    """How strongly the missing cells of a row depend on each other given the observed.

    Parameters
    ----------
    bound : float
        Mean over incomplete rows of max_j Σ_k |ρ_jk|O|: an upper bound for the mean of
        |Δ| / P_diag. 0 if no row lacks two dependent cells; it may exceed 1.
    columns : pandas.DataFrame
        One line per incomplete column, largest first: `column`; `bound`, the paper's
        co-missingness-weighted Σ_k q_jk |ρ_jk|O|; `partner`, the column that adds most
        to it, and `partner_share`, what it adds.
    joint : pandas.DataFrame
        P(m_j = 0, m_k = 0); the diagonal holds the missing rates.
    conditional : pandas.DataFrame
        q_jk = P(m_k = 0 | m_j = 0), line j, column k; NaN where j is complete.
    n_rows : int
        Number of rows with two missing cells or more that were averaged over.
    """

    bound: float
    columns: pd.DataFrame
    joint: pd.DataFrame
    conditional: pd.DataFrame
    n_rows: int


def _normal_scores(values: Floats) -> Floats:
    known = ~np.isnan(values)
    scores = np.full(len(values), np.nan)
    scores[known] = ndtri((rankdata(values[known]) - 0.5) / max(known.sum(), 1))
    return scores


def _indicators(values: Floats) -> Floats:
    """Return 0/1 columns for the frequent levels, less one if they are all."""
    known = ~np.isnan(values)
    levels, counts = np.unique(values[known], return_counts=True)
    frequent = levels[np.argsort(-counts, kind="stable")][:MAX_LEVELS]
    # The others imply the last level, and the block must not be singular.
    frequent = frequent[:-1] if len(frequent) == len(levels) else frequent
    coded: Floats = (values[:, None] == frequent).astype(np.float64)
    coded[~known] = np.nan
    return coded


def _blocks(frame: pd.DataFrame, observed: BoolArray) -> list[Floats]:
    """Return each column as one or several columns of scores, NaN where missing."""
    numbers = np.where(observed, as_numbers(frame), np.nan)
    blocks = []
    for j, kind in enumerate(frame.dtypes):
        if is_ordered(kind):
            blocks.append(_normal_scores(numbers[:, j])[:, None])
        else:
            blocks.append(_indicators(numbers[:, j]))
    return blocks


def precision_matrix(x: Floats) -> tuple[Floats, BoolArray]:
    """Return the inverse correlation matrix, and the pairs never observed together."""
    known = ~np.isnan(x)
    n = known.sum(axis=0)
    z = np.where(known, x, 0.0)
    z = np.where(known, z - z.sum(axis=0) / np.maximum(n, 1), 0.0)
    sd = np.sqrt((z**2).sum(axis=0) / np.maximum(n, 1))
    z /= np.where(sd > 0, sd, 1.0)
    n_both = known.T.astype(np.float64) @ known
    correlation = z.T @ z / np.maximum(n_both, 1)
    np.fill_diagonal(correlation, 1.0)
    # Pairwise correlations need not be positive definite; take the nearest that are.
    values, vectors = np.linalg.eigh(correlation)
    values = np.maximum(values, 0.0) + RIDGE
    return (vectors / values) @ vectors.T, n_both < 2


def _row_correlations(
    precision: Floats, blocks: list[npt.NDArray[np.int64]]
) -> npt.NDArray[np.float64]:
    """Return |ρ_jk|O| between the missing blocks of a row."""
    inside = np.concatenate(blocks)
    covariance = np.linalg.inv(precision[np.ix_(inside, inside)])
    ends = np.cumsum([len(block) for block in blocks])
    spans = [slice(e - len(b), e) for e, b in zip(ends, blocks, strict=True)]
    white = np.zeros_like(covariance)
    for span in spans:
        block = covariance[span, span]
        white[span, span] = np.linalg.inv(np.linalg.cholesky(block))
    c = white @ covariance @ white.T
    rho = np.zeros((len(blocks), len(blocks)))
    for a, first in enumerate(spans):
        for b in range(a):
            # the largest singular value
            rho[a, b] = np.linalg.norm(c[first, spans[b]], 2)
    return np.minimum(rho + rho.T, 1.0)


def _block_varies(block: Floats) -> bool:
    known = block[~np.isnan(block).any(axis=1)]
    return bool(known.size and np.ptp(known, axis=0).max() > 0)


def _typical_rows(hidden: BoolArray) -> npt.NDArray[np.int64]:
    """Return rows that lack two cells or more; of many, evenly spaced by pattern."""
    rows = np.flatnonzero(hidden.sum(axis=1) > 1)
    if len(rows) <= MAX_ROWS:
        return rows
    ordered = rows[np.lexsort(hidden[rows].T)]
    return ordered[np.linspace(0, len(ordered) - 1, MAX_ROWS).astype(np.int64)]


def _correlations(
    blocks: list[Floats], hidden: BoolArray, rows: npt.NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the mean |ρ_jk|O| of each co-missing pair, and each row's bound."""
    precision, never_together = precision_matrix(np.hstack(blocks))
    ends = np.cumsum([block.shape[1] for block in blocks])
    spans = [np.arange(e - b.shape[1], e) for e, b in zip(ends, blocks, strict=True)]

    def among(missing: npt.NDArray[np.int64]) -> Floats:
        rho = _row_correlations(precision, [spans[j] for j in missing])
        first = [spans[j][0] for j in missing]
        rho[never_together[np.ix_(first, first)]] = 1.0
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
    # Co-missing pairs in none of these rows: as if nothing else were missing.
    co_missing = hidden.T.astype(np.float64) @ hidden > 0
    for j, k in np.argwhere(np.triu(co_missing & (count == 0), 1)):
        total[j, k] = total[k, j] = among(np.array([j, k]))[0, 1]
    return total / np.maximum(count, 1), worst


def factorization_gap(frame: pd.DataFrame, missing: pd.DataFrame | None = None) -> Gap:
    """Bound what filling the missing cells of a row independently can lose.

    Parameters
    ----------
    frame : pandas.DataFrame
        Numbers and dates count as numeric, everything else as categorical.
    missing : pandas.DataFrame of bool, optional
        True where a cell is missing, as in `describe`; NaN, None and NaT by default.

    Examples
    --------
    Two near copies that are always missing together, then two independent columns:

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 2000))
    >>> missing = np.repeat(rng.random((2000, 1)) < 0.3, 2, axis=1)
    >>> same = pd.DataFrame({"a": x, "b": x + 0.1 * y}).mask(missing)
    >>> factorization_gap(same).bound > 0.95
    True
    >>> factorization_gap(pd.DataFrame({"a": x, "b": y}).mask(missing)).bound < 0.1
    True
    """
    if not len(frame):
        raise DataError(
            "the factorization gap is estimated from rows but the table has none; "
            "pass at least one row"
        )
    hidden = missing_cells(frame, missing)
    joint = hidden.T.astype(np.float64) @ hidden / len(frame)
    rates = np.diagonal(joint)
    conditional = np.divide(
        joint, rates[:, None], out=np.full_like(joint, np.nan), where=rates[:, None] > 0
    )

    # A column that never varies, or is never observed, has no correlation to lose.
    blocks = _blocks(frame, ~hidden)
    used = np.array(
        [j for j, block in enumerate(blocks) if _block_varies(block)], dtype=int
    )
    rows = _typical_rows(hidden[:, used])
    rho, worst = np.zeros_like(joint), np.zeros(0)
    if len(rows):
        rho[np.ix_(used, used)], worst = _correlations(
            [blocks[j] for j in used], hidden[:, used], rows
        )
    several = (hidden[:, used].sum(axis=1) > 1).sum()
    bound = worst.mean() * several / hidden.any(axis=1).sum() if len(rows) else 0.0

    names = frame.columns
    parts = np.nan_to_num(conditional) * rho
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
        joint=pd.DataFrame(joint, names, names),
        conditional=pd.DataFrame(conditional, names, names),
        n_rows=len(rows),
    )
