"""The effect of scaling on heavy tails: decode perfect scores, compare their moments.

    AUGMASK_DATA=../shared/data python benchmarks/tails.py default shoppers

With dequantized ties the scores of a column are normal, so a perfect model would
generate normal scores. This script decodes evenly spaced normal quantiles by the
scaling of every numeric column, once with evenly spaced tails and once with refined
tails. Any difference from the column is an effect of the scaling. Prints the columns
whose standard deviation changes by more than a tenth with evenly spaced tails.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from real_tables import load
from scipy.special import ndtri

from augmask.table.scale import QuantileNormal

SCORES = ndtri((np.arange(1_000_000) + 0.5) / 1_000_000)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="names in roles.toml")
    parser.add_argument("--rows", type=int, default=0, help="rows to use; 0 for all")
    options = parser.parse_args()
    print("mean and sd relative to the column: even tails, then refined tails")
    for table in options.tables:
        frame, role = load(table)
        if options.rows and options.rows < len(frame):
            frame = frame.sample(options.rows, random_state=0)
        for name in role["numeric"]:
            real = frame[name].to_numpy(float)
            refined = QuantileNormal.fit(real, np.random.default_rng(0))
            ratios = []
            for scaler in (replace(refined, tails=np.empty((2, 0))), refined):
                decoded = scaler.inverse(SCORES)
                ratios += [decoded.mean() / real.mean(), decoded.std() / real.std()]
            if abs(ratios[1] - 1) > 0.1:
                print(f"{table} {name}: " + "  ".join(f"{v:.2f}" for v in ratios))


if __name__ == "__main__":
    main()
