"""LGBM-S: single-threaded processes against a loop of fits with two threads.

Both fit the same models on the same table and predict the same missing values. They run
alternately for a few rounds, first on idle cores, then while another process keeps one
core busy. Ratios above 1 mean that the processes are faster.

    python benchmarks/augment_speed.py --data adult.csv.gz --ratio 0.3
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd

from augmask.augmentation.boosted import (
    EPSILON,
    N_TREES,
    SETTINGS,
    LgbmS,
    context,
    context_categories,
    masked_matrix,
)
from augmask.missing.simulate import ampute
from augmask.table.codec import Codec
from augmask.table.frames import read_frame
from augmask.table.infer import infer_schema
from augmask.table.table import Table

THREADS = 2


def synthetic_frame(n: int = 29_305) -> pd.DataFrame:
    """Return a table shaped like Adult: six numbers, nine categories of 2 to 42."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 3))
    frame = {f"x{j}": z[:, j % 3] + rng.normal(size=n) for j in range(6)}
    for j, card in enumerate((9, 16, 7, 15, 6, 5, 2, 42, 2)):
        edges = np.quantile(z[:, j % 3], 1 - 0.88 ** np.arange(1, card))
        codes = np.searchsorted(edges, z[:, j % 3] + 0.5 * rng.normal(size=n))
        frame[f"c{j}"] = np.array([f"level {k}" for k in range(card)])[codes]
    return pd.DataFrame(frame)


def load(path: Path | None, ratio: float) -> Table:
    """Return 60 % of the rows, encoded, with values missing completely at random."""
    if path is None:
        frame = synthetic_frame()
    else:
        frame = read_frame(path).sample(frac=0.6, random_state=0, ignore_index=True)
    incomplete = ampute(frame, mechanism="mcar", ratio=ratio, seed=0)
    return Codec.fit(incomplete, infer_schema(incomplete)).encode(incomplete)


def by_processes(table: Table) -> None:
    """Fit with augmask."""
    LgbmS().fit(table, np.random.default_rng(0))


def by_threads(table: Table) -> None:
    """Fit column by column in this process, as in a notebook."""
    settings = {**SETTINGS, "num_threads": THREADS}
    # LightGBM chooses: with two threads, col-wise histograms may be faster.
    settings.pop("force_row_wise")
    x, n_num = masked_matrix(table), table.layout.n_num

    def train(
        u: np.ndarray, y: np.ndarray, objective: str, **extra: int
    ) -> Callable[[np.ndarray], np.ndarray]:
        params = {**settings, "objective": objective, **extra}
        categories = context_categories(n_num, x.shape[1], j)
        dataset = lgb.Dataset(u, label=y, categorical_feature=categories)
        booster = lgb.train(params, dataset, N_TREES)
        return lambda v: booster.predict(v, num_threads=THREADS)

    for j in range(x.shape[1]):
        known = table.observed[:, j]
        u, y = context(x[known], table.observed[known], j), x[known, j]
        v = context(x[~known], table.observed[~known], j)
        if j < n_num:
            mean = train(u, y, "regression")
            residual = y - mean(u)
            variance = train(u, np.log(residual**2 + EPSILON), "regression")
            mean(v), variance(v)
            continue
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) == 2:
            train(u, labels, "binary")(v)
        else:
            train(u, labels, "multiclass", num_class=len(classes))(v)


@contextmanager
def busy_core() -> Iterator[None]:
    """Context manager: keep one core busy with another process."""
    code = "import os\nwhile os.getppid() == {}: sum(range(100_000))"
    other = subprocess.Popen([sys.executable, "-c", code.format(os.getpid())])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def seconds(function: Callable[[Table], None], table: Table) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    function(table)
    return time.perf_counter() - start


def compare(name: str, table: Table, rounds: int) -> None:
    """Run both alternately; print each round and the ratio of medians."""
    times = []
    for _ in range(rounds):
        ours, loop = seconds(by_processes, table), seconds(by_threads, table)
        print(f"{name:>10}: processes {ours:6.1f} s, threads {loop:6.1f} s", flush=True)
        times.append((ours, loop))
    processes, threads = np.median(times, axis=0)
    print(f"{name:>10}: ratio {threads / processes:.2f}\n", flush=True)


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = os.environ.get("AUGMASK_DATA")
    parser.add_argument(
        "--data", type=Path, default=data and Path(data, "adult.csv.gz")
    )
    parser.add_argument("--ratio", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    table = load(arguments.data, arguments.ratio)
    print(
        f"{len(table)} rows, {table.layout.n_num} numeric and {table.layout.n_cat} "
        f"categorical features, {1 - table.observed.mean():.0%} missing; "
        f"{joblib.cpu_count()} processes x 1 thread against {THREADS} threads\n"
    )
    # Workers start and import LightGBM once per session; that is not measured.
    by_processes(table)
    compare("idle", table, arguments.rounds)
    with busy_core():
        compare("one busy", table, arguments.rounds)


if __name__ == "__main__":
    main()
