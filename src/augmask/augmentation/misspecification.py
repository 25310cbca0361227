"""Misspecified augmentation: context bias η and stochasticity λ.

The paper's sensitivity section perturbs one fitted LGBM-S: η pulls the conditional mean
or probabilities towards the marginal ones, λ scales the spread. (0, 1) is LGBM-S,
(0, 0) a point prediction, (1, 0) mean or mode.
"""

from __future__ import annotations

import numpy as np

from augmask.augmentation.moments import (
    CatMoments,
    Float32Array,
    Moments,
    NumMoments,
    class_frequencies,
)
from augmask.errors import UsageError
from augmask.table.table import Table


def temper(q: Float32Array, lam: float) -> Float32Array:
    """Return q^(1/λ), normalised per row; at λ = 0 a point mass at the first maximum.

    Examples
    --------
    >>> q = np.array([[0.2, 0.8]], dtype=np.float32)
    >>> temper(q, 0.5).round(3)
    array([[0.059, 0.941]], dtype=float32)
    >>> temper(q, 0.0).tolist()
    [[0.0, 1.0]]
    """
    if lam == 1.0:
        return q
    if lam == 0.0:
        points = np.eye(q.shape[1], dtype=np.float32)
        return np.asarray(points[q.argmax(axis=1)])
    # In logarithms, because q^(1/λ) underflows for small λ; log 0 = -inf is intended.
    with np.errstate(divide="ignore"):
        log_q = np.log(q.astype(np.float64))
    power = np.exp((log_q - log_q.max(axis=1, keepdims=True)) / lam)
    return np.asarray(power / power.sum(axis=1, keepdims=True), dtype=np.float32)


def perturb(table: Table, moments: Moments, eta: float, lam: float) -> Moments:
    """Return `moments` perturbed by context bias `eta` and stochasticity `lam`.

    Parameters
    ----------
    table : Table
        The incomplete table; its observed cells give the marginal means and class
        frequencies.
    moments : Moments
        μ̂, σ̂ and p̂ (after label smoothing) of the fitted LGBM-S.
    eta : float in [0, 1]
        0 keeps the conditional context, 1 reverts to the marginal one.
    lam : float, at least 0
        1 keeps the estimated spread, 0 makes draws deterministic.

    Examples
    --------
    >>> from augmask.table.table import Layout
    >>> observed = np.array([[True], [True], [False]])
    >>> layout = Layout(("a",), (), ())
    >>> num = np.array([[1.0], [3.0], [0.0]])
    >>> table = Table(num, np.zeros((3, 0), int), observed, layout)
    >>> fitted = Moments((NumMoments(np.float32([4]), np.float32([1])),), ())
    >>> perturbed = perturb(table, fitted, eta=0.5, lam=2.0).num[0]
    >>> perturbed.mu.item(), perturbed.sigma.item()
    (3.0, 2.0)
    """
    if not 0.0 <= eta <= 1.0:
        raise UsageError(f"context bias eta must lie in [0, 1], got {eta}")
    if not (lam >= 0.0 and np.isfinite(lam)):
        raise UsageError(f"stochasticity lam must be finite and at least 0, got {lam}")
    if (eta, lam) == (0.0, 1.0):
        return moments
    num = []
    for j, factor in enumerate(moments.num):
        observed = table.num[table.num_observed[:, j], j]
        mean = np.float32(observed.mean(dtype=np.float64) if len(observed) else 0.0)
        mu = np.float32(1.0 - eta) * factor.mu + np.float32(eta) * mean
        num.append(NumMoments(mu, np.float32(lam) * factor.sigma))
    cat = []
    for j, classes in enumerate(moments.cat):
        codes = table.cat[table.cat_observed[:, j], j]
        pi = class_frequencies(codes, table.layout.cards[j])
        q = np.float32(1.0 - eta) * classes.p + np.float32(eta) * pi
        cat.append(CatMoments(temper(q, lam)))
    return Moments(tuple(num), tuple(cat))
