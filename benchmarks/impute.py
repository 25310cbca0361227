"""Imputation accuracy: remove cells of a complete table and impute them.

There are two stages, because a machine with a GPU may not have LightGBM:

    python benchmarks/impute.py prepare magic WORK --mechanism mcar --ratio 0.3
    python benchmarks/impute.py run WORK --backbone cdtd --preset paper --device cuda

`prepare` removes cells of a table (its roles are read from AUGMASK_DATA). It draws the
completions to train on, with the `ties` setting of the preset (`--ties midpoint` for
`paper`), and the imputations to compare with (--rivals): `lgbm-d` and `mice`, and
`hyperimpute` if its package is installed (--seconds limits its time).

`run` trains a model, or loads one (--model), and imputes all rows or some (--evaluate).
For each method it prints the RMSE of removed numbers in standard deviations of their
column, the accuracy on removed categories, the variance of imputed numbers relative to
the removed ones, the variance of completed columns relative to the true ones, and the
time relative to sampling as many rows. From further draws (--interval-draws) it prints
how often the 90 % interval of `summary` covers the removed number, over all columns and
without those in which one value makes up more than 90 %, which any interval covers.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from real_tables import load

import augmask as am
from augmask.errors import AugMaskWarning
from augmask.table.codec import Codec

RIVALS = ("lgbm-d", "mice")
DRAWS = 4


class Prepared:
    """Augmenter that returns stored completions."""

    stochastic = True

    def __init__(self, path: Path) -> None:
        stored = np.load(path)
        self.num, self.cat = stored["num"], stored["cat"]

    def fit(self, table, _rng, _progress=None):
        """Store the table; nothing is fitted."""
        self.table, self.next = table, 0
        return self

    def draw(self, _rng):
        """Return the next stored completion."""
        i, self.next = self.next, self.next + 1
        num, cat = self.table.num.copy(), self.table.cat.copy()
        num[~self.table.num_observed] = self.num[i]
        cat[~self.table.cat_observed] = self.cat[i]
        return self.table.filled(num, cat)


def prepare(options: argparse.Namespace) -> None:
    """Remove cells; store the true and the incomplete table and all imputations."""
    from augmask.augmentation import resolve_augmenter
    from augmask.augmentation.completions import CompletionPlan, complete
    from augmask.rng import stream

    frame, role = load(options.table)
    if options.rows:
        frame = frame.sample(options.rows, random_state=options.seed)
        frame = frame.reset_index(drop=True)
    incomplete = am.ampute(
        frame, mechanism=options.mechanism, ratio=options.ratio, seed=options.seed
    )
    folder = options.work
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "true.parquet")
    incomplete.to_parquet(folder / "incomplete.parquet")
    schema = am.infer_schema(incomplete, role["kinds"])
    schema.to_toml(folder / "schema.toml")
    (folder / "ties.txt").write_text(options.ties)
    tie_seed = options.seed if options.ties == "dequantize" else None
    table = Codec.fit(incomplete, schema).encode(incomplete)
    to_train_on = Codec.fit(incomplete, schema, tie_seed).encode(incomplete, tie_seed)
    methods = [("lgbm-s", f"stack:{DRAWS}"), *((r, "one") for r in options.rivals)]
    for name, plan in methods:
        began = time.monotonic()
        augmenter = resolve_augmenter(name)
        if name == "hyperimpute":
            augmenter.seconds = options.seconds
        filled = complete(
            augmenter,
            to_train_on if name == "lgbm-s" else table,
            CompletionPlan.parse(plan),
            stream(options.seed, "fill"),
        )
        np.savez_compressed(
            folder / f"{name}.npz", num=filled.num_fill, cat=filled.cat_fill
        )
        print(f"{folder}: {name} in {time.monotonic() - began:.0f} s")


def scores(
    incomplete: pd.DataFrame,
    true: pd.DataFrame,
    frames: list[pd.DataFrame],
    best: pd.DataFrame,
    numeric: Sequence[str],
) -> dict[str, float]:
    """Score completions on removed cells; every column has the same weight.

    Levels are those of `best`.
    """
    names = ("rmse", "accuracy", "variance", "completed variance")
    values: dict[str, list[float]] = {k: [] for k in names}
    for name in incomplete:
        removed = (incomplete[name].isna() & true[name].notna()).to_numpy()
        if not removed.any():
            continue
        if name not in numeric:
            right = best[name][removed] == true[name][removed]
            values["accuracy"].append(float(right.mean()))
            continue
        draws = np.stack([f[name].to_numpy(float)[removed] for f in frames])
        real, mean = true[name].to_numpy(float)[removed], draws.mean(0)
        error = np.sqrt(np.mean((mean - real) ** 2))
        values["rmse"].append(float(error / true[name].std()))
        values["variance"].append(float(draws.var() / real.var()))
        spread = np.mean([f[name].astype(float).var() for f in frames])
        values["completed variance"].append(float(spread / true[name].var()))
    return {k: float(np.mean(v)) if v else float("nan") for k, v in values.items()}


def coverage(
    true: pd.DataFrame, summary: pd.DataFrame, numeric: Sequence[str]
) -> dict[str, float]:
    """Return how often the intervals of a summary cover the removed number."""
    every, varied = [], []
    for name in numeric:
        part = summary[summary["column"] == name]
        real = true[name].iloc[part["row"]].to_numpy(float)
        inside = (part["lower"] <= real) & (real <= part["upper"])
        every.append(inside[~np.isnan(real)])
        if true[name].value_counts(normalize=True).iloc[0] <= 0.9:
            varied.append(every[-1])
    rates = {"covered": every, "covered where varied": varied}
    return {k: float(np.concatenate(v).mean()) for k, v in rates.items() if v}


def rival(codec: Codec, incomplete: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the stored imputation of a rival."""
    filled = Prepared(path).fit(codec.encode(incomplete), None).draw(None)
    return codec.decode(filled.num, filled.cat, np.random.default_rng(0))


def run(options: argparse.Namespace) -> None:
    """Train or load a model, impute, and print one line of JSON per method."""
    warnings.simplefilter("ignore", AugMaskWarning)
    folder = options.work
    incomplete = pd.read_parquet(folder / "incomplete.parquet")
    true = pd.read_parquet(folder / "true.parquet")
    if options.model and options.model.exists():
        model = am.load(options.model, device=options.device)
    else:
        model = am.AugMask(
            options.backbone,
            augmenter=Prepared(folder / "lgbm-s.npz"),
            preset=options.preset,
            options={
                "completions": f"stack:{DRAWS}",
                "ties": (folder / "ties.txt").read_text(),
                **json.loads(options.options),
            },
            seed=options.seed,
            device=options.device,
        )
        began = time.monotonic()
        model.fit(incomplete, schema=folder / "schema.toml", holdout=0)
        print(f"fit: {time.monotonic() - began:.0f} s")
    codec = Codec.fit(incomplete, model.schema_)
    fills = [p for p in sorted(folder.glob("*.npz")) if p.stem != "lgbm-s"]
    rivals = {path.stem: rival(codec, incomplete, path) for path in fills}
    # random rows, because a table may be sorted
    order = np.random.default_rng(options.seed).permutation(len(incomplete))
    few = order[: options.evaluate or None]
    part, truth = (f.iloc[few].reset_index(drop=True) for f in (incomplete, true))
    # sample as many rows as `impute` draws, after a first call that warms up
    n = options.draws * int(part.isna().any(axis=1).sum())
    model.sample(64)
    began = time.monotonic()
    model.sample(n)
    sampled = time.monotonic() - began
    began = time.monotonic()
    imputations = model.impute(part, n_draws=options.draws, seed=options.seed)
    imputed = time.monotonic() - began
    numeric = codec.layout.num_names
    best = imputations.best()
    ours = scores(part, truth, list(imputations), best, numeric)
    ours["times sampling"] = imputed / sampled
    more = model.impute(part, n_draws=options.interval_draws, seed=options.seed + 1)
    ours |= coverage(truth, more.summary(0.9), numeric)
    lines = {options.backbone: ours}
    for name, frame in rivals.items():
        rows = frame.iloc[few].reset_index(drop=True)
        lines[name] = scores(part, truth, [rows], rows, numeric)
    for name, line in lines.items():
        print(name, json.dumps({k: round(v, 4) for k, v in line.items()}), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    stages = parser.add_subparsers(required=True)
    first = stages.add_parser("prepare")
    first.set_defaults(stage=prepare)
    first.add_argument("table", help="a name in roles.toml")
    first.add_argument("work", type=Path)
    first.add_argument("--mechanism", default="mcar")
    first.add_argument("--ratio", type=float, default=0.3)
    first.add_argument(
        "--ties",
        default="dequantize",
        choices=("midpoint", "dequantize"),
        help="as in the preset that `run` will train",
    )
    first.add_argument("--rivals", nargs="*", default=RIVALS)
    first.add_argument("--seconds", type=float, help="time limit of hyperimpute")
    first.add_argument("--rows", type=int, default=0, help="rows to use; 0 for all")
    second = stages.add_parser("run")
    second.set_defaults(stage=run)
    second.add_argument("work", type=Path)
    second.add_argument("--backbone", default="cdtd")
    second.add_argument("--preset", default="auto")
    second.add_argument("--options", default="{}", help="settings as JSON")
    second.add_argument(
        "--draws", type=int, default=10, help="draws to average, at least 2"
    )
    second.add_argument("--interval-draws", type=int, default=20)
    second.add_argument("--device", default="auto")
    second.add_argument(
        "--model", type=Path, help="load this model instead of training one"
    )
    second.add_argument(
        "--evaluate", type=int, default=0, help="rows to impute; 0 for all"
    )
    for stage in (first, second):
        stage.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.stage(options)


if __name__ == "__main__":
    main()
