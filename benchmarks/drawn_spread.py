"""How far `lgbm-s` spreads its draws: its σ̂ against the real error on hidden cells.

    AUGMASK_DATA=../shared/data python benchmarks/drawn_spread.py adult magic \
        --json benchmarks/results/drawn_spread.json

The training part of a complete table loses 70 % of its cells completely at random, as
in the main table of the paper. The rule says of every hidden number μ̂ and σ̂, in scaled
units; the number itself is known here. A rule that draws as far as it should has a σ̂
whose mean square is that of x - μ̂. Columns of which more than half are one number are
marked: there a draw is more often wrong by the heap than by its spread.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from paper_setting import load, split

from augmask.augmentation.boosted import LgbmS
from augmask.missing.simulate import ampute
from augmask.packages import library_versions
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema

HEAPED = 0.5


def root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean of squares, in double precision."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def measure(table: str, ratio: float, seed: int) -> dict[str, Any]:
    """Return what was drawn with and what was needed, column by column and in all."""
    frame, role = load(table)
    by = role["target"] if role["task"] == "classification" else None
    frame, _ = split(frame, by, seed)
    holed = ampute(frame, mechanism="mcar", ratio=ratio, seed=seed)
    codec = Codec.fit(holed, infer_schema(holed, role["kinds"]))
    given, truth = codec.encode(holed), codec.encode(frame)
    rule = LgbmS().fit(given, np.random.default_rng(seed))
    lines, drawn, needed = [], [], []
    for j, name in enumerate(codec.layout.num_names):
        hidden = ~given.observed[:, j] & truth.observed[:, j]
        found = rule.moments_.num[j]
        of_holes = hidden[~given.observed[:, j]]
        sigma, mu = found.sigma[of_holes], found.mu[of_holes]
        error = truth.num[hidden, j] - mu
        drawn.append(sigma)
        needed.append(error)
        counts = frame[name].value_counts(normalize=True)
        lines.append(
            {
                "column": name,
                "hidden": int(hidden.sum()),
                "drawn": round(root_mean_square(sigma), 4),
                "real": round(root_mean_square(error), 4),
                "ratio": round(root_mean_square(sigma) / root_mean_square(error), 3),
                "heaped": bool(counts.iloc[0] > HEAPED),
            }
        )
    smooth = [line["ratio"] for line in lines if not line["heaped"]]
    every, real = np.concatenate(drawn), np.concatenate(needed)
    return {
        "table": table,
        "mechanism": "mcar",
        "missing": ratio,
        "seed": seed,
        "rows": len(frame),
        "ratio": round(root_mean_square(every) / root_mean_square(real), 3),
        "mean_of_columns": round(float(np.mean([e["ratio"] for e in lines])), 3),
        "mean_of_smooth_columns": round(float(np.mean(smooth)), 3),
        "columns": lines,
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="names in roles.toml")
    parser.add_argument("--missing", type=float, default=0.7, help="share of cells")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--json", type=Path, help="write all to this file")
    options = parser.parse_args()
    runs = []
    for table in options.tables:
        for seed in options.seeds:
            run = measure(table, options.missing, seed)
            runs.append(run)
            print(
                f"{table}, seed {seed}: σ̂ is {run['ratio']:.3f} of the real error "
                f"({run['mean_of_columns']:.3f} by columns)"
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
