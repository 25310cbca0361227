"""A cheap generator, and plans that use it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

# Registered by a plan's `modules`, like your own method. It draws every column
# independently from its observed values.
CHEAP = '''
"""Independent columns."""
import numpy as np
import pandas as pd
from augmask_bench.generators import Generator, Generated
from augmask_bench.methods import register


def make(request):
    rng = np.random.default_rng(request.seed)
    options = dict(request.method.options)
    if options.get("break"):
        raise RuntimeError("it broke")
    columns = {
        name: rng.choice(column.dropna().to_numpy(), request.rows)
        for name, column in request.table.items()
    }
    return Generated(pd.DataFrame(columns), 0.5, 0.25, {"steps": 3})


register(Generator("cheap", "Cheap", make))
register(Generator("filled", "Filled", make, strategies=("NoAug", "AugFull"),
                   complete=True))
register(Generator("absent", "Absent", make, package="no_such_package", aware=True))
'''


@pytest.fixture
def own_table(tmp_path: Path) -> Path:
    """Return the CSV file of a user's table."""
    rng = np.random.default_rng(0)
    size = rng.normal(size=200)
    frame = pd.DataFrame(
        {
            "id": [f"K{i:04d}" for i in range(200)],
            "size": size.round(3),
            "count": rng.integers(0, 90, 200),
            "colour": rng.choice(["red", "green", "blue"], 200),
            "grade": np.where(size + rng.normal(size=200) > 0, "good", "bad"),
        }
    )
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def write_plan(tmp_path: Path):
    """Return a function that writes plans with the cheap generator."""
    (tmp_path / "cheap.py").write_text(CHEAP)

    def write(text: str, name: str = "plan.toml") -> Path:
        path = tmp_path / name
        path.write_text('modules = ["cheap.py"]\ndevice = "cpu"\n' + text)
        return path

    return write


@pytest.fixture
def data_folder() -> Path:
    """Return the folder of the real tables, or skip."""
    folder = os.environ.get("AUGMASK_DATA")
    if not folder:
        pytest.skip("AUGMASK_DATA names no folder with the real tables")
    return Path(folder)
