"""Small tables and models that many tests share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from augmask.table.table import Layout, Table

MakeTable = Callable[..., Table]


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> Iterator[None]:
    """Let tests be interrupted, even where `make test` runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def make_table() -> MakeTable:
    """Return a maker of random tables with dependence and MCAR missing values."""

    def make(
        n: int = 60,
        n_num: int = 2,
        cards: tuple[int, ...] = (2, 4),
        missing: float = 0.3,
        seed: int = 0,
    ) -> Table:
        rng = np.random.default_rng(seed)
        shared = rng.normal(size=(n, 1))
        num = shared + rng.normal(size=(n, n_num))
        cat = np.empty((n, len(cards)), dtype=np.int32)
        for j, card in enumerate(cards):
            noisy = shared[:, 0] + rng.normal(size=n)
            cat[:, j] = np.clip((noisy + 2) / 4 * card, 0, card - 1)
        layout = Layout(
            tuple(f"n{j}" for j in range(n_num)),
            tuple(f"c{j}" for j in range(len(cards))),
            cards,
        )
        observed = rng.random((n, layout.n_features)) >= missing
        return Table(
            np.where(observed[:, :n_num], num, 0.0),
            np.where(observed[:, n_num:], cat, 0).astype(np.int32),
            observed,
            layout,
        )

    return make
