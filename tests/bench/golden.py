"""Golden rows: what every generator and augmenter made when its version was declared.

A run is named by settings and versions. Code is in no name, so a change of what a
generator does must raise its `version`, or results of the old code pass as those of the
new. `goldens/` holds the rows of toy fits with the version that made them.

Processors round differently, so rows are compared and not hashed: numbers within a
thousandth of a standard deviation, and one row of twenty may differ (a number that is
rounded the other way, a draw at the edge between two levels). Fits are a few steps at
high rates: short enough that rounding does not grow, and every step still counts. With
`ATEN_CPU_CAPABILITY=default` (no AVX in torch), all were within about 1e-4.

After a change that is meant, raise the version and remake the files, in both
environments: `make goldens`, `make goldens-baselines`.
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

from augmask.augmentation import every_augmenter, resolve_augmenter
from augmask.errors import AugMaskWarning
from augmask.table.table import Layout, Table
from augmask_bench.augmentation_cache import augmenter_version, rule_lacks
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
# of peers' packages, which have an environment of their own
PEERS_COMMAND = "make goldens-baselines"
KEPT = 40
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
# what is left out of the presets is what a golden is to guard
TOYS: dict[str, dict[str, Any]] = {
    "cdtd": _TRAINED,
    # attention has gradients of nearly 0, and Adam steps by their sign: smaller steps
    "tabdiff": {**_TRAINED, "steps": 8, "lr": 0.002},
    # without a bound, 12 steps of a toy end at the extremes of every column
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
        "levels": 6,
        "repeats": 2,
        "units": 16,
        "max_steps": 30,
    },
    "forestdiff": {"n_t": 4, "duplicate_K": 2, "n_estimators": 3},
    "tvae": {"steps": 12, "batch": 40, "embedding_dim": 8, "widths": (16,)},
    "ctgan": {"steps": 12, "batch": 40, "embedding_dim": 8, "widths": (16,)},
    "arf": {"num_trees": 3, "max_iters": 1},
    "tabsyn": {
        "vae_steps": 2,
        "steps": 12,
        "units": 16,
        "embedding": 8,
        "levels": 6,
    },
}


def toy() -> tuple[Dataset, pd.DataFrame]:
    """Return a small complete table with ties and a long tail, and it with holes."""
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
    """Return what a generator is asked for, by the names of the cases."""
    generator = find_generator(name)
    options = tuple(TOYS.get(name, {}).items())
    if "AugMask" in generator.strategies:
        # a draw without a model, so that only a change of the generator itself shows
        mask = {"strategy": "AugMask", "augmenter": "noise", "options": options}
        found = {
            "paper, AugMask": Method(name, **mask),
            "paper, NoAug": Method(name, "NoAug", options=options),
            "fast, AugMask, stack:2": Method(
                name, **mask, completions="stack:2", preset="fast"
            ),
        }
    elif generator.strategies:
        small = {"preset": "small", "options": options}
        found = {
            "NoAug": Method(name, "NoAug", **small),
            "AugFull": Method(name, "AugFull", "ecdf", **small),
        }
    elif generator.complete:
        found = {rule: Method(name, augmenter=rule) for rule in ("mean", "ecdf")}
    else:
        found = {"small": Method(name, preset="small", options=options)}
    return {case: complete_method(method) for case, method in found.items()}


def rows_of(method: Method) -> Rows:
    """Return rows that a method generates from the toy table."""
    data, holed = toy()
    run = Run(
        *("", Source("clinic"), "mcar", "", 0.3, 0, method, Metrics()), device="cpu"
    )
    with tempfile.TemporaryDirectory() as out, warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        made, _ = generate(run, Path(out), data, holed)
    rows = made.rows[list(KINDS)][:KEPT]
    return [[_plain(cell) for cell in row] for row in rows.itertuples(index=False)]


def draws_of(name: str) -> Rows:
    """Return the toy table as an augmenter fills it, numbers before codes."""
    rng = np.random.default_rng(2)
    drawn = resolve_augmenter(name).fit(toy_table(), rng).draw(rng)
    cells = zip(drawn.num[:KEPT].tolist(), drawn.cat[:KEPT].tolist(), strict=True)
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


def odd_rows(found: Rows, golden: Rows, sds: list[float]) -> int:
    """Return how many rows differ by more than rounding."""
    if len(found) != len(golden):
        return max(len(found), len(golden))

    def same(row: list[Any], other: list[Any]) -> bool:
        numbers = zip(row, other, sds, strict=False)
        return row[len(sds) :] == other[len(sds) :] and all(
            abs(a - b) <= TOLERANCE * sd for a, b, sd in numbers
        )

    return sum(not same(*pair) for pair in zip(found, golden, strict=True))


def differs(found: Rows, golden: Rows, sds: list[float]) -> bool:
    """Whether rows differ by more than processors do."""
    return odd_rows(found, golden, sds) > ODD_ROWS * len(golden)


class Golden:
    """The golden of a generator or an augmenter: where it is, and how it is made.

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
    def lacks(self) -> str:
        """Why it cannot be made here; empty if it can."""
        if self.kind == "augmenter":
            return rule_lacks(self.name)
        return find_generator(self.name).why_unavailable("cpu")

    @property
    def command(self) -> str:
        """What remakes it."""
        if self.kind == "augmenter":
            package = getattr(resolve_augmenter(self.name), "package", "")
        else:
            package = find_generator(self.name).package
        return PEERS_COMMAND if package else COMMAND

    @property
    def version(self) -> str:
        """The version that is declared now."""
        if self.kind == "augmenter":
            return augmenter_version(resolve_augmenter(self.name))
        return find_generator(self.name).version

    def made(self) -> dict[str, Rows]:
        """Return the rows of every case, made now."""
        if self.kind == "augmenter":
            return {"draw": draws_of(self.name)}
        return {case: rows_of(m) for case, m in methods(self.name).items()}

    def stored(self) -> dict[str, Any]:
        """Return the file; empty if there is none."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def complaint(self, made: dict[str, Rows], stored: dict[str, Any]) -> str:
        """Return what is wrong with rows that were made now; empty if nothing is."""
        if not stored:
            return f"{self} has no golden; make it with `{self.command}`"
        if stored["version"] != self.version:
            return (
                f"the golden of {self} is that of version {stored['version']}, and "
                f"{self.version} is declared; remake it with `{self.command}`"
            )
        golden, sds = stored["cases"], scales(self.kind == "augmenter")
        wrong = [
            case
            for case in made.keys() | golden.keys()
            if differs(made.get(case, []), golden.get(case, [[]]), sds)
        ]
        if not wrong:
            return ""
        return (
            f"behaviour of {self} changed ({'; '.join(sorted(wrong))}); raise its "
            f"version and remake the golden with `{self.command}`"
        )

    def write(self, made: dict[str, Rows]) -> None:
        """Write the file, a row a line."""
        cases = ",\n".join(
            f"{json.dumps(case)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
            for case, rows in made.items()
        )
        text = f'{{"version": {json.dumps(self.version)}, "cases": {{\n{cases}\n}}}}\n'
        FOLDER.mkdir(exist_ok=True)
        self.path.write_text(text)


def goldens() -> list[Golden]:
    """Return one for every generator and augmenter that the package has."""
    return [Golden("generator", name) for name in GENERATORS] + [
        Golden("augmenter", name) for name in every_augmenter()
    ]


def main() -> int:
    """Remake the goldens whose version was raised; refuse where it was forgotten."""
    forgotten = 0
    for golden in goldens():
        if golden.lacks:
            sys.stderr.write(f"left out: {golden}: {golden.lacks}\n")
            continue
        made, stored = golden.made(), golden.stored()
        complaint = golden.complaint(made, stored)
        if stored and complaint and stored["version"] == golden.version:
            sys.stderr.write(f"{complaint}\n")
            forgotten += 1
        elif complaint:
            golden.write(made)
            sys.stderr.write(f"written: {golden.path}\n")
    for path in set(FOLDER.glob("*.json")) - {golden.path for golden in goldens()}:
        path.unlink()
        sys.stderr.write(f"removed: {path}\n")
    return 1 if forgotten else 0


if __name__ == "__main__":
    sys.exit(main())
