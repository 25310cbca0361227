"""Memory of streaming rows to Parquet: a million rows against ten thousand.

    python benchmarks/sample_memory.py MODEL.augmask

Each size runs in a separate process, whose peak resident size is printed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import augmask as am

SIZES = (10_000, 1_000_000)


def main() -> None:
    """Sample both sizes and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rows", type=int, help="sample this many, print the peak MiB")
    a = parser.parse_args()
    if a.rows:
        with tempfile.TemporaryDirectory() as folder:
            am.load(a.model, device="cpu").sample_to(Path(folder) / "x.parquet", a.rows)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
        return
    used = []
    for rows in SIZES:
        command = [sys.executable, __file__, str(a.model), "--rows", str(rows)]
        output = subprocess.run(command, check=True, capture_output=True, text=True)
        used.append(float(output.stdout))
        print(f"{rows:>9,} rows: {used[-1]:6.0f} MiB", flush=True)
    print(f"difference: {used[1] - used[0]:.0f} MiB")


if __name__ == "__main__":
    main()
