"""The spread of `lgbm-s` draws: its σ̂ against the real error on hidden cells.

    AUGMASK_DATA=../shared/data python benchmarks/drawn_spread.py adult magic \
        --json benchmarks/results/drawn_spread.json

Hides 70 % of the cells of the training part of a complete table completely at random,
as in the main table of the paper. The augmenter predicts μ̂ and σ̂ of every hidden
number, in scaled units; here the number x itself is known. If draws have the right
spread, σ̂ has the same mean square as x - μ̂. Columns in which one value makes up more
than half of the rows are marked as heaped: there, the spread is not the main error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from real_tables import load, split

from augmask.augmentation.boosted import LgbmS
from augmask.missing.simulate import ampute
from augmask.packages import library_versions
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema

HEAPED = 0.5


def root_mean_square(values: np.ndarray) -> float:
    """Return the root mean square in double precision."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def measure(name: str, ratio: float, seed: int) -> dict[str, Any]:
    """Return predicted spread and real error, per column and overall."""
    frame, role = load(name)
    by = role["target"] if role["task"] == "classification" else None
    frame, _ = split(frame, by, seed)
    incomplete = ampute(frame, mechanism="mcar", ratio=ratio, seed=seed)
    codec = Codec.fit(incomplete, infer_schema(incomplete, role["kinds"]))
    table, truth = codec.encode(incomplete), codec.encode(frame)
    augmenter = LgbmS().fit(table, np.random.default_rng(seed))
    lines, predicted, real = [], [], []
    for j, column in enumerate(codec.layout.num_names):
        hidden = ~table.observed[:, j] & truth.observed[:, j]
        moments = augmenter.moments_.num[j]
        known = hidden[~table.observed[:, j]]
        sigma, mu = moments.sigma[known], moments.mu[known]
        error = truth.num[hidden, j] - mu
        predicted.append(sigma)
        real.append(error)
        counts = frame[column].value_counts(normalize=True)
        lines.append(
            {
                "column": column,
                "hidden": int(hidden.sum()),
                "drawn": round(root_mean_square(sigma), 4),
                "real": round(root_mean_square(error), 4),
                "ratio": round(root_mean_square(sigma) / root_mean_square(error), 3),
                "heaped": bool(counts.iloc[0] > HEAPED),
            }
        )
    smooth = [line["ratio"] for line in lines if not line["heaped"]]
    sigma, error = np.concatenate(predicted), np.concatenate(real)
    return {
        "table": name,
        "mechanism": "mcar",
        "missing": ratio,
        "seed": seed,
        "rows": len(frame),
        "ratio": round(root_mean_square(sigma) / root_mean_square(error), 3),
        "mean_of_columns": round(float(np.mean([e["ratio"] for e in lines])), 3),
        "mean_of_smooth_columns": round(float(np.mean(smooth)), 3),
        "columns": lines,
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="names in roles.toml")
    parser.add_argument(
        "--missing", type=float, default=0.7, help="share of cells to hide"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--json", type=Path, help="write all results to this file")
    options = parser.parse_args()
    runs = []
    for table in options.tables:
        for seed in options.seeds:
            run = measure(table, options.missing, seed)
            runs.append(run)
            print(
                f"{table}, seed {seed}: σ̂ is {run['ratio']:.3f} of the real error "
                f"(mean over columns {run['mean_of_columns']:.3f})"
            )
            for line in run["columns"]:
                heaped = " heaped" if line["heaped"] else ""
                print(
                    f"  {line['column']:20}{line['drawn']:8.3f}{line['real']:8.3f}"
                    f"{line['ratio']:8.3f}{heaped}"
                )
    if options.json is not None:
        libraries = library_versions("augmask", "lightgbm", "numpy", "pandas")
        document = {"rule": "lgbm-s", "libraries": libraries, "runs": runs}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
