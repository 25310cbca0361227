"""How well holes are filled: cells removed from a complete table, and found again.

Two stages, because the machine with the GPU may have no LightGBM:

    python benchmarks/impute.py prepare magic WORK --mechanism mcar --ratio 0.3
    python benchmarks/impute.py run WORK --backbone cdtd --preset paper --device cuda

`prepare` removes cells of a table (its roles are read from AUGMASK_DATA), draws the
completions to train on, in the scale of the preset (`--ties middle` for `paper`), and
the fills to compare with (--rivals): `lgbm-d` and `mice`, also `hyperimpute` where its
package is installed (--seconds ends its rounds). `run` trains (or loads with --model),
imputes some rows (--evaluate) and prints, for each way of filling: the RMSE of removed
numbers in standard deviations of their column, the accuracy on removed categories, the
variance of filled numbers over that of the removed ones, that of the completed columns
over that of the true ones, and the time over that of sampling as many rows. Then, from
further draws (--interval-draws), how often the 90 % interval of `summary` covers the
removed number, also without the columns of which one value has more than 90 %: an
interval must cover that.
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
from paper_setting import DRAWS, Prepared, load

import augmask as am
from augmask.errors import AugMaskWarning
from augmask.table.codec import Codec

RIVALS = ("lgbm-d", "mice")


def prepare(options: argparse.Namespace) -> None:
    """Remove cells; store the table, its truth and all fills."""
    from augmask.augmentation import resolve_augmenter
    from augmask.augmentation.completions import CompletionPlan, complete
    from augmask.rng import stream

    frame, role = load(options.table)
    if options.rows:
        frame = frame.sample(options.rows, random_state=options.seed)
        frame = frame.reset_index(drop=True)
    holed = am.ampute(
        frame, mechanism=options.mechanism, ratio=options.ratio, seed=options.seed
    )
    folder = options.work
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "true.parquet")
    holed.to_parquet(folder / "holed.parquet")
    schema = am.infer_schema(holed, role["kinds"])
    schema.to_toml(folder / "schema.toml")
    (folder / "ties.txt").write_text(options.ties)
    spread = options.seed if options.ties == "dequantize" else None
    table = Codec.fit(holed, schema).encode(holed)
    trained_on = Codec.fit(holed, schema, spread).encode(holed, spread)
    wanted = [("lgbm-s", f"stack:{DRAWS}"), *((r, "one") for r in options.rivals)]
    for rule, draws in wanted:
        began = time.monotonic()
        augmenter = resolve_augmenter(rule)
        if rule == "hyperimpute":
            augmenter.seconds = options.seconds
        filled = complete(
            augmenter,
            trained_on if rule == "lgbm-s" else table,
            CompletionPlan.parse(draws),
            stream(options.seed, "fill"),
        )
        np.savez_compressed(
            folder / f"{rule}.npz", num=filled.num_fill, cat=filled.cat_fill
        )
        print(f"{folder}: {rule} in {time.monotonic() - began:.0f} s")


def scores(
    holed: pd.DataFrame,
    true: pd.DataFrame,
    frames: list[pd.DataFrame],
    best: pd.DataFrame,
    numeric: Sequence[str],
) -> dict[str, float]:
    """Score completions on removed cells, levels as `best` has them.

    Columns count alike.
    """
    names = ("rmse", "accuracy", "variance", "completed variance")
    found: dict[str, list[float]] = {k: [] for k in names}
    for name in holed:
        hole = (holed[name].isna() & true[name].notna()).to_numpy()
        if not hole.any():
            continue
        if name not in numeric:
            right = best[name][hole] == true[name][hole]
            found["accuracy"].append(float(right.mean()))
            continue
        draws = np.stack([f[name].to_numpy(float)[hole] for f in frames])
        real, mean = true[name].to_numpy(float)[hole], draws.mean(0)
        error = np.sqrt(np.mean((mean - real) ** 2))
        found["rmse"].append(float(error / true[name].std()))
        found["variance"].append(float(draws.var() / real.var()))
        spread = np.mean([f[name].astype(float).var() for f in frames])
        found["completed variance"].append(float(spread / true[name].var()))
    return {k: float(np.mean(v)) if v else float("nan") for k, v in found.items()}


def coverage(
    true: pd.DataFrame, told: pd.DataFrame, numeric: Sequence[str]
) -> dict[str, float]:
    """Return how often the intervals of a summary hold the removed number."""
    every, varied = [], []
    for name in numeric:
        part = told[told["column"] == name]
        real = true[name].iloc[part["row"]].to_numpy(float)
        inside = (part["lower"] <= real) & (real <= part["upper"])
        every.append(inside[~np.isnan(real)])
        if true[name].value_counts(normalize=True).iloc[0] <= 0.9:
            varied.append(every[-1])
    rates = {"covered": every, "covered where varied": varied}
    return {k: float(np.concatenate(v).mean()) for k, v in rates.items() if v}


def rival(codec: Codec, holed: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the first stored completion of a rival."""
    filled = Prepared(path).fit(codec.encode(holed), None).draw(None)
    return codec.decode(filled.num, filled.cat, np.random.default_rng(0))


def run(options: argparse.Namespace) -> None:
    """Train or load, impute, and print one line of JSON per way of filling."""
    warnings.simplefilter("ignore", AugMaskWarning)
    folder = options.work
    holed = pd.read_parquet(folder / "holed.parquet")
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
        model.fit(holed, schema=folder / "schema.toml")
        print(f"fit: {time.monotonic() - began:.0f} s")
    codec = Codec.fit(holed, model.schema_)
    fills = [p for p in sorted(folder.glob("*.npz")) if p.stem != "lgbm-s"]
    rivals = {path.stem: rival(codec, holed, path) for path in fills}
    # a table may be sorted
    order = np.random.default_rng(options.seed).permutation(len(holed))
    few = order[: options.evaluate or None]
    part, truth = (f.iloc[few].reset_index(drop=True) for f in (holed, true))
    # as many rows as `impute` runs, after a first call that pays for what is lazy
    n = options.draws * int(part.isna().any(axis=1).sum())
    model.sample(64)
    began = time.monotonic()
    model.sample(n)
    sampled = time.monotonic() - began
    began = time.monotonic()
    found = model.impute(part, n_draws=options.draws, seed=options.seed)
    imputed = time.monotonic() - began
    numeric = codec.layout.num_names
    ours = scores(part, truth, list(found), found.best(), numeric)
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
    first.add_argument("--ties", default="spread", help="of the preset to be trained")
    first.add_argument("--rivals", nargs="*", default=RIVALS)
    first.add_argument("--seconds", type=float, help="of hyperimpute")
    first.add_argument("--rows", type=int, default=0, help="take so many; 0 for all")
    second = stages.add_parser("run")
    second.set_defaults(stage=run)
    second.add_argument("work", type=Path)
    second.add_argument("--backbone", default="cdtd")
    second.add_argument("--preset", default="auto")
    second.add_argument("--options", default="{}", help="settings, as JSON")
    second.add_argument(
        "--draws", type=int, default=10, help="to take the mean of, at least 2"
    )
    second.add_argument("--interval-draws", type=int, default=20)
    second.add_argument("--device", default="auto")
    second.add_argument("--model", type=Path, help="a saved model")
    second.add_argument(
        "--evaluate", type=int, default=0, help="impute so many rows; 0 for all"
    )
    for stage in (first, second):
        stage.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.stage(options)


if __name__ == "__main__":
    main()
