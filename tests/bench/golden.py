"""Golden rows: the output of every generator and augmenter at its declared version.

Runs are named by settings and versions, not by code. A change of the code that changes
rows must therefore raise `version`, or results of the old code pass as those of the
new. `goldens/` holds the rows of toy fits with the version that made them.

Processors round differently, so rows are compared and not hashed: numbers within a
thousandth of a standard deviation, and one row of twenty may differ (a number rounded
the other way, a draw at the boundary of two levels). Fits are a few steps at high
learning rates: short enough that rounding errors do not grow, and sensitive to every
step. With `ATEN_CPU_CAPABILITY=default` (no AVX in torch), all were within about 1e-4.

After an intended change, raise the version and remake the files in both environments:
`make goldens`, `make goldens-baselines`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from augmask.augmentation import available_augmenters, resolve_augmenter
from augmask.errors import AugMaskWarning
from augmask.table.table import Layout, Table
from augmask_bench.augmentation_cache import (
    augmenter_version,
    why_augmenter_unavailable,
)
from augmask_bench.data import Dataset, Source
from augmask_bench.methods import (
    GENERATORS,
    Method,
    complete_method,
    find_generator,
)
from augmask_bench.plan import Metrics, Run
from augmask_bench.run import generate

FOLDER = Path(__file__).with_name("goldens")
COMMAND = "make goldens"
# for packages of other authors, which have their own environment
PEERS_COMMAND = "make goldens-baselines"
N_ROWS = 40
TOLERANCE = 1e-3
ODD_ROWS = 0.05

Rows = list[list[Any]]

KINDS = {
    "size": "float",
    "dose": "float",
    "count": "integer",
    "group": "category",
    "flag": "category",
}
_TRAINED = {
    "steps": 40,
    "batch_size": 40,
    "width": 16,
    "depth": 2,
    "time_width": 8,
    "lr": 0.02,
    "warmup": 2,
    "ema": 0.5,
    "sampling_steps": 12,
}
# settings that are not listed are guarded by the golden
TOYS: dict[str, dict[str, Any]] = {
    "cdtd": _TRAINED,
    # gradients of attention are nearly 0 and Adam follows their sign: smaller steps
    "tabdiff": {**_TRAINED, "steps": 8, "lr": 0.002},
    # without clipping, 12 steps of a toy end at the extremes of every column
    "tabddpm": {**_TRAINED, "clip": 1.0},
    "miwae": {"epochs": 12, "latent": 4, "hidden": 8, "k": 3},
    "missdiff": {
        "epochs": 10,
        "timesteps": 30,
        "channels": 8,
        "blocks": 1,
        "drops": (0.5,),
    },
    "diffputer": {
        "iterations": 2,
        "trials": 2,
        "sampling_steps": 6,
        "repeats": 2,
        "units": 16,
        "max_steps": 30,
    },
    "forestdiff": {"n_t": 4, "duplicate_K": 2, "n_estimators": 3},
    "tvae": {"steps": 12, "batch_size": 40, "embedding_dim": 8, "widths": (16,)},
    "ctgan": {"steps": 12, "batch_size": 40, "embedding_dim": 8, "widths": (16,)},
    "arf": {"num_trees": 3, "max_iters": 1},
    "tabsyn": {
        "vae_steps": 2,
        "steps": 12,
        "units": 16,
        "embedding": 8,
        "sampling_steps": 6,
    },
}


def toy() -> tuple[Dataset, pd.DataFrame]:
    """Return a small table with ties and a long tail, complete and incomplete."""
    rng = np.random.default_rng(0)
    n = 80
    size = rng.normal(size=n).round(4)
    frame = pd.DataFrame(
        {
            "size": size,
            "dose": np.exp(size + rng.normal(size=n)).round(4),
            "count": rng.poisson(2, n),
            "group": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
            "flag": np.where(size + rng.normal(size=n) > 0, "yes", "no"),
        }
    )
    hidden = rng.random(frame.shape) < 0.3
    return Dataset(frame, KINDS, "flag", "classification"), frame.mask(hidden)


def toy_table() -> Table:
    """Return a small encoded table with missing cells, for augmenters."""
    rng = np.random.default_rng(1)
    n = 100
    num = rng.normal(size=(n, 1)) + rng.normal(size=(n, 2))
    cat = np.stack([num[:, 0] > 0, rng.integers(0, 3, n)], axis=1).astype(np.int32)
    observed = rng.random((n, 4)) >= 0.3
    num[~observed[:, :2]], cat[~observed[:, 2:]] = 0, 0
    return Table(num, cat, observed, Layout(("x", "y"), ("a", "b"), (2, 3)))


def methods(name: str) -> dict[str, Method]:
    """Return the methods of a generator to test, by case."""
    generator = find_generator(name)
    options = tuple(TOYS.get(name, {}).items())
    if "AugMask" in generator.strategies:
        # an augmenter without a model, so that only changes of the generator show
        mask = {"strategy": "AugMask", "augmenter": "noise", "options": options}
        cases = {
            "paper, AugMask": Method(name, **mask),
            "paper, NoAug": Method(name, "NoAug", options=options),
            "fast, AugMask, stack:2": Method(
                name, **mask, completions="stack:2", preset="fast"
            ),
        }
    elif generator.strategies:
        small = {"preset": "small", "options": options}
        cases = {
            "NoAug": Method(name, "NoAug", **small),
            "AugFull": Method(name, "AugFull", "ecdf", **small),
        }
    elif generator.complete:
        cases = {fill: Method(name, augmenter=fill) for fill in ("mean", "ecdf")}
    else:
        cases = {"small": Method(name, preset="small", options=options)}
    return {case: complete_method(method) for case, method in cases.items()}


def rows_of(method: Method) -> Rows:
    """Return rows that a method generates from the toy table."""
    data, incomplete = toy()
    run = Run(
        *("", Source("clinic"), "mcar", "", 0.3, 0, method, Metrics()), device="cpu"
    )
    with tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        generated = generate(run, Path(out), data, incomplete)
    rows = generated.rows[list(KINDS)][:N_ROWS]
    return [[_plain(cell) for cell in row] for row in rows.itertuples(index=False)]


def draws_of(name: str) -> Rows:
    """Return the toy table completed by an augmenter, numbers before codes."""
    rng = np.random.default_rng(2)
    drawn = resolve_augmenter(name).fit(toy_table(), rng).draw(rng)
    cells = zip(drawn.num[:N_ROWS].tolist(), drawn.cat[:N_ROWS].tolist(), strict=True)
    return [[*map(_plain, num), *map(str, cat)] for num, cat in cells]


def _plain(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell
    return float(f"{float(cell):.7g}")


def scales(augmenter: bool) -> list[float]:
    """Return the standard deviations of the numbers."""
    if augmenter:
        return [1.0, 1.0]
    data, _ = toy()
    return [float(data.frame[name].std()) for name in data.numeric]


def odd_rows(rows: Rows, golden: Rows, sds: list[float]) -> int:
    """Return the number of rows that differ by more than rounding."""
    if len(rows) != len(golden):
        return max(len(rows), len(golden))

    def same(row: list[Any], other: list[Any]) -> bool:
        numbers = zip(row, other, sds, strict=False)
        return row[len(sds) :] == other[len(sds) :] and all(
            abs(a - b) <= TOLERANCE * sd for a, b, sd in numbers
        )

    return sum(not same(*pair) for pair in zip(rows, golden, strict=True))


def differs(rows: Rows, golden: Rows, sds: list[float]) -> bool:
    """Return whether rows differ by more than processors do."""
    return odd_rows(rows, golden, sds) > ODD_ROWS * len(golden)


class Golden:
    """The golden rows of a generator or an augmenter.

    Parameters
    ----------
    kind : {"generator", "augmenter"}
    name : str
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self.path = FOLDER / f"{kind}-{name}.json"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def why_unavailable(self) -> str:
        """Why it cannot be made here; an empty text if it can."""
        if self.kind == "augmenter":
            return why_augmenter_unavailable(self.name)
        return find_generator(self.name).why_unavailable("cpu")

    @property
    def command(self) -> str:
        """The command that remakes it."""
        if self.kind == "augmenter":
            package = getattr(resolve_augmenter(self.name), "package", "")
        else:
            package = find_generator(self.name).package
        return PEERS_COMMAND if package else COMMAND

    @property
    def version(self) -> str:
        """The declared version."""
        if self.kind == "augmenter":
            return augmenter_version(resolve_augmenter(self.name))
        return find_generator(self.name).version

    def make(self) -> dict[str, Rows]:
        """Return the rows of every case, generated now."""
        if self.kind == "augmenter":
            return {"draw": draws_of(self.name)}
        return {case: rows_of(m) for case, m in methods(self.name).items()}

    def stored(self) -> dict[str, Any]:
        """Return the content of the file; empty if there is none."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def problem(self, rows_now: dict[str, Rows], stored: dict[str, Any]) -> str:
        """Return what is wrong with rows generated now; an empty text if nothing is."""
        if not stored:
            return f"{self} has no golden; make it with `{self.command}`"
        if stored["version"] != self.version:
            return (
                f"the golden of {self} has version {stored['version']}, but "
                f"{self.version} is declared; remake it with `{self.command}`"
            )
        golden, sds = stored["cases"], scales(self.kind == "augmenter")
        wrong = [
            case
            for case in rows_now.keys() | golden.keys()
            if differs(rows_now.get(case, []), golden.get(case, [[]]), sds)
        ]
        if not wrong:
            return ""
        return (
            f"the rows of {self} changed ({'; '.join(sorted(wrong))}); raise its "
            f"version and remake the golden with `{self.command}`"
        )

    def write(self, rows_now: dict[str, Rows]) -> None:
        """Write the file, one row per line."""
        cases = ",\n".join(
            f"{json.dumps(case)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
            for case, rows in rows_now.items()
        )
        text = f'{{"version": {json.dumps(self.version)}, "cases": {{\n{cases}\n}}}}\n'
        FOLDER.mkdir(exist_ok=True)
        self.path.write_text(text)


def goldens() -> list[Golden]:
    """Return one golden for every generator and augmenter."""
    return [Golden("generator", name) for name in GENERATORS] + [
        Golden("augmenter", name) for name in available_augmenters()
    ]


def main() -> int:
    """Remake the goldens whose version was raised; refuse if it was not."""
    forgotten = 0
    for golden in goldens():
        if golden.why_unavailable:
            sys.stderr.write(f"skipped {golden}: {golden.why_unavailable}\n")
            continue
        rows, stored = golden.make(), golden.stored()
        problem = golden.problem(rows, stored)
        if stored and problem and stored["version"] == golden.version:
            sys.stderr.write(f"{problem}\n")
            forgotten += 1
        elif problem:
            golden.write(rows)
            sys.stderr.write(f"written: {golden.path}\n")
    for path in set(FOLDER.glob("*.json")) - {golden.path for golden in goldens()}:
        path.unlink()
        sys.stderr.write(f"removed: {path}\n")
    return 1 if forgotten else 0


if __name__ == "__main__":
    sys.exit(main())
