"""Adversarial random forests, through the package arfpy (Watson et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from augmask.packages import library_versions
from augmask.rng import stream_seed
from augmask_bench.baselines.plain import Rows, code_names, complete_frame, plain_rows
from augmask_bench.peers import isolated, require

if TYPE_CHECKING:
    from augmask.table.table import Layout, Table


@dataclass(frozen=True)
class ArfSettings:
    """Settings of ARF.

    Parameters
    ----------
    num_trees : int
    max_iters : int
        Maximum number of adversarial rounds; it stops early without improvement.
    min_node_size : int
        Minimum number of real rows in a leaf.
    """

    num_trees: int = 20
    max_iters: int = 10
    min_node_size: int = 5


PAPER = ArfSettings()
SMALL = ArfSettings(num_trees=10, max_iters=5)


class Arf:
    """A fitted forest with the densities of its leaves.

    Attributes
    ----------
    facts : dict
        Rounds, out-of-bag accuracy of the first and the last, and the version.
    """

    def __init__(self, model: Any, layout: Layout) -> None:
        self._model = model
        self._layout = layout
        self.facts: dict[str, object] = {
            "rounds": len(model.acc) - 1,
            "first_accuracy": float(model.acc[0]),
            "last_accuracy": float(model.acc[-1]),
            **library_versions("arfpy"),
        }

    def sample(self, n: int, seed: int) -> Rows:
        """Return the numbers and codes of `n` rows."""
        with isolated(stream_seed(seed, "ARF", "sample")):
            frame = self._model.forge(n)
        return plain_rows(frame, self._layout, "ARF")


def fit(table: Table, settings: ArfSettings, seed: int, threads: int = 1) -> Arf:
    """Fit ARF to a complete table with unscaled numbers.

    Parameters
    ----------
    table : Table
        See `plain_codec`.
    settings : ArfSettings
    seed : int
    threads : int
        Number of trees grown in parallel.
    """
    require("arfpy")
    frame = complete_frame(table, "ARF")
    frame = frame.astype(dict.fromkeys(code_names(table.layout), "category"))
    own = stream_seed(seed, "ARF", "fit")
    with isolated(own):
        from arfpy.arf import arf

        model = arf(
            x=frame,
            num_trees=settings.num_trees,
            delta=0,
            max_iters=settings.max_iters,
            early_stop=True,
            min_node_size=settings.min_node_size,
            verbose=False,
            random_state=own % 2**32,
            n_jobs=threads,
        )
        model.forde(dist="truncnorm", oob=False, alpha=0)
    return Arf(model, table.layout)
