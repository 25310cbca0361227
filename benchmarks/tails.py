"""What scaling alone does to heavy tails: mean and spread of perfect scores, decoded.

    AUGMASK_DATA=../shared/data python benchmarks/tails.py default shoppers

Where ties are spread the scores of a column are normal. Here normal scores, laid out
evenly, are decoded by the scaling of every numeric column, with even tails and with
tails that are followed. A perfect model would give such scores, so what differs from
the column is the scaling's own doing. Prints the columns whose spread even tails change
by more than a tenth.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from paper_setting import load
from scipy.special import ndtri

from augmask.table.scale import QuantileNormal

SCORES = ndtri((np.arange(1_000_000) + 0.5) / 1_000_000)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+", help="names in roles.toml")
    parser.add_argument("--rows", type=int, default=0, help="take so many; 0 for all")
    options = parser.parse_args()
    print("mean and standard deviation over those of the column: even, followed")
    for table in options.tables:
        frame, role = load(table)
        if options.rows and options.rows < len(frame):
            frame = frame.sample(options.rows, random_state=0)
        for name in role["numeric"]:
            real = frame[name].to_numpy(float)
            followed = QuantileNormal.fit(real, np.random.default_rng(0))
            told = []
            for scaler in (replace(followed, tails=np.empty((2, 0))), followed):
                made = scaler.inverse(SCORES)
                told += [made.mean() / real.mean(), made.std() / real.std()]
            if abs(told[1] - 1) > 0.1:
                print(f"{table} {name}: " + "  ".join(f"{v:.2f}" for v in told))


if __name__ == "__main__":
    main()
