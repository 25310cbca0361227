"""Results do not depend on the number of processes."""

import operator
import os
import subprocess
import sys

import pytest

from augmask.engine import TINY_CELLS, ClusterLost, run_each, run_parts

# Run here with one job and in a fresh interpreter with two, which shows that LightGBM
# stays out of the calling process (on macOS it crashes beside torch).
DRAWS = """
import hashlib

import numpy as np

from augmask.augmentation.boosted import LgbmS, LgbmSCalibrated
from augmask.augmentation.chained import LgbmChain
from augmask.table.table import Layout, Table

rng = np.random.default_rng(0)
n = 8400
z = rng.normal(size=n)
num = np.stack([z, z + 0.5 * rng.normal(size=n)], axis=1)
observed = rng.random((n, 3)) > 0.2
layout = Layout(("a", "b"), ("c",), (2,))
table = Table(num, (z > 0).astype(int)[:, None], observed, layout)
digest = hashlib.sha256()
for augmenter in (
    LgbmS(n_jobs=n_jobs),
    LgbmSCalibrated(n_jobs=n_jobs),
    LgbmChain(n_sweeps=2, n_jobs=n_jobs),
):
    filled = augmenter.fit(table, np.random.default_rng(3)).draw(rng)
    digest.update(filled.num.tobytes() + filled.cat.tobytes())
"""
FRESH = """
n_jobs = 2
{draws}
import sys
assert "lightgbm" not in sys.modules, "LightGBM was loaded in the calling process"
print(digest.hexdigest())
"""


def test_draws_do_not_depend_on_the_number_of_processes():
    here = {"n_jobs": 1}
    exec(DRAWS, here)
    fresh = subprocess.run(
        [sys.executable, "-W", "error", "-c", FRESH.format(draws=DRAWS)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert fresh.returncode == 0, fresh.stderr
    assert fresh.stdout.strip() == here["digest"].hexdigest()


@pytest.mark.parametrize("cells", [1, TINY_CELLS])
def test_a_failing_call_raises_its_own_error(cells):
    with pytest.raises(ZeroDivisionError):
        list(run_each(divmod, [(1, 1), (1, 0)], cells=cells, n_jobs=2))


def test_without_calls_no_worker_is_started(monkeypatch):
    monkeypatch.setattr("joblib.Parallel", None)
    assert list(run_each(divmod, [], cells=TINY_CELLS)) == []


def test_a_process_that_dies_is_told_in_one_sentence():
    with pytest.raises(ClusterLost, match="died, perhaps for lack of memory; start"):
        list(run_parts(operator.call, [os._exit, os._exit], shared=3, n_jobs=2))
