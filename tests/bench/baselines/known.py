"""A table whose law is known: two clusters, two numbers and a class tied to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from augmask.table.table import Layout, Table

LAYOUT = Layout(("x", "y"), ("c",), (3,))
SHARES = np.array([[0.8, 0.1, 0.1], [0.2, 0.65, 0.15]])


def made(n=1500, missing=0.3, seed=0):
    """Return a table: correlation .79, shares .66 / .23 / .11 or so, 30 % MCAR."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.24
    centre = np.where(right, 1.78, -0.56)[:, None]
    num = centre * [1.0, 0.9] + 0.5 * rng.normal(size=(n, 2))
    num = num / [1.12, 1.03]  # so that both have variance one
    cat = (rng.random((n, 1)) > SHARES[right.astype(int)].cumsum(1)).sum(1)
    observed = rng.random((n, 3)) >= missing
    return Table(
        num.astype(np.float32), cat[:, None].astype(np.int32), observed, LAYOUT
    )


def with_other_rubbish(table):
    """Return the table with other contents beneath its missing values."""
    num = np.where(table.num_observed, table.num, 1e4).astype(np.float32)
    last = np.array(table.layout.cards, dtype=np.int32) - 1
    cat = np.where(table.cat_observed, table.cat, last).astype(np.int32)
    return replace(table, num=num, cat=cat)


def only(table, num=(), cat=()):
    """Return a table of these columns."""
    layout = table.layout
    kept = Layout(
        tuple(layout.num_names[j] for j in num),
        tuple(layout.cat_names[j] for j in cat),
        tuple(layout.cards[j] for j in cat),
    )
    cells = list(num) + [layout.n_num + j for j in cat]
    return Table(
        table.num[:, list(num)], table.cat[:, list(cat)], table.observed[:, cells], kept
    )


def correlation(num):
    return np.corrcoef(num.T)[0, 1]


def shares(cat):
    return np.bincount(cat[:, 0], minlength=3) / len(cat)
