"""Run column fits in worker processes, or in this one if the table is tiny.

One process per column with one LightGBM thread each. LightGBM's own threads win
slightly on an idle machine and collapse on a shared one, where every split waits for
the slowest thread. On macOS LightGBM and torch crash in one process, so there fits
always run in worker processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import joblib

Result = TypeVar("Result")

# Starting workers and importing LightGBM takes about three seconds; a table of this
# many cells is fitted in less.
TINY_CELLS = 20_000

# Arrays larger than this are shared with the workers as one memory-mapped file.
MAP_BYTES = "64K"


def _numbered(
    i: int, function: Callable[..., Result], arguments: tuple[Any, ...]
) -> tuple[int, Result]:
    return i, function(*arguments)


def run_each(
    function: Callable[..., Result],
    calls: Sequence[tuple[Any, ...]],
    *,
    cells: int,
    n_jobs: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Yield `(i, function(*calls[i]))` for every call, as each one finishes.

    Parameters
    ----------
    function : callable
        A module-level function.
    calls : sequence of tuples
        Arguments, longest call first: a long call at the end leaves other workers idle.
    cells : int
        Size of the table; below `TINY_CELLS` no worker is started.
    n_jobs : int, optional
        Worker processes, reused between calls; all usable cores by default.

    Examples
    --------
    >>> sorted(run_each(divmod, [(7, 2), (9, 4)], cells=2, n_jobs=1))
    [(0, (3, 1)), (1, (2, 1))]
    """
    if not calls:
        return
    jobs = joblib.cpu_count() if n_jobs is None else n_jobs
    crashes_here = sys.platform == "darwin"
    if not crashes_here and (cells < TINY_CELLS or jobs == 1 or len(calls) == 1):
        for i, arguments in enumerate(calls):
            yield i, function(*arguments)
        return
    parallel = joblib.Parallel(
        # joblib runs a single job in the calling process, which would crash here.
        n_jobs=max(jobs, 2) if crashes_here else jobs,
        prefer="processes",
        return_as="generator_unordered",
        batch_size=1,
        max_nbytes=MAP_BYTES,
    )
    yield from parallel(
        joblib.delayed(_numbered)(i, function, arguments)
        for i, arguments in enumerate(calls)
    )
