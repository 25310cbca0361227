"""The paper's setting on real tables: three strategies with CDTD at full size.

Three stages, because the machine with the GPU has no LightGBM and the one with LightGBM
has no GPU:

    python benchmarks/paper_setting.py prepare WORK    # split, mask, fill (CPU)
    python benchmarks/paper_setting.py run WORK OUT    # train and sample, all at once
    python benchmarks/paper_setting.py score WORK OUT  # five metrics -> a CSV file

Split 60/20/20, MCAR 0.7 on the training part, 30,000 steps of 4096 rows (`paper`).
Tables and their roles are read from AUGMASK_DATA.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

import augmask as am

RATIO = 0.7
DRAWS = 4
STRATEGIES = {
    "NoAug": ("mean", "all", "one"),
    "AugFull": ("lgbm-s", "all", "one"),
    "AugMask": ("lgbm-s", "observed", "one"),
    "AugMask-stack": ("lgbm-s", "observed", f"stack:{DRAWS}"),
}


class Prepared:
    """Completions that were drawn elsewhere, as an augmenter."""

    stochastic = True

    def __init__(self, path: Path) -> None:
        stored = np.load(path)
        self.num, self.cat = stored["num"], stored["cat"]

    def fit(self, table, _rng, _progress=None):
        """Remember the table; nothing is learned here."""
        self.table, self.next = table, 0
        return self

    def draw(self, _rng):
        """Return the next stored completion."""
        i, self.next = self.next, self.next + 1
        num, cat = self.table.num.copy(), self.table.cat.copy()
        num[~self.table.num_observed] = self.num[i]
        cat[~self.table.cat_observed] = self.cat[i]
        return self.table.filled(num, cat)


def split(
    frame: pd.DataFrame, target: str | None, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return 60 % train and 20 % test rows, stratified by `target` if given."""
    from sklearn.model_selection import train_test_split

    by = frame[target] if target else None
    train, rest = train_test_split(
        frame, train_size=0.6, random_state=seed, stratify=by
    )
    by = rest[target] if target else None
    _, test = train_test_split(rest, train_size=0.5, random_state=seed, stratify=by)
    return train.reset_index(drop=True), test.reset_index(drop=True)


def load(name: str) -> tuple[pd.DataFrame, dict]:
    """Return a complete table and its roles."""
    folder = Path(os.environ["AUGMASK_DATA"])
    role = tomllib.loads((folder / "roles.toml").read_text())[name]
    frame = pd.read_csv(folder / role.get("file", f"{name}.csv.gz"))
    frame = frame.drop(columns=role.get("drop", [])).dropna().reset_index(drop=True)
    numeric = role["numeric"]
    whole = [c for c in numeric if (frame[c] == frame[c].round()).all()]
    role["kinds"] = {
        c: "category" if c not in numeric else "integer" if c in whole else "float"
        for c in frame
    }
    return frame, role


def prepare(work: Path, names: list[str], seed: int, ratio: float) -> None:
    """Split, mask and fill each table, once for all strategies."""
    from augmask.augmentation import resolve_augmenter
    from augmask.augmentation.draws import Draws, complete
    from augmask.rng import stream
    from augmask.table.encode import Codec

    for name in names:
        frame, role = load(name)
        by = role["target"] if role["task"] == "classification" else None
        train, test = split(frame, by, seed)
        holed = am.ampute(train, mechanism="mcar", ratio=ratio, seed=seed)
        folder = work / name
        folder.mkdir(parents=True, exist_ok=True)
        train.to_parquet(folder / "train.parquet")
        test.to_parquet(folder / "test.parquet")
        holed.to_parquet(folder / "holed.parquet")
        schema = am.infer_schema(holed, role["kinds"])
        schema.to_toml(folder / "schema.toml")
        table = Codec.fit(holed, schema).encode(holed)
        began = time.monotonic()
        filled = complete(
            resolve_augmenter("lgbm-s"),
            table,
            Draws.parse(f"stack:{DRAWS}"),
            stream(seed, "fill"),
        )
        print(f"{name}: {len(train)} rows, {time.monotonic() - began:.0f} s to fill")
        np.savez_compressed(
            folder / "draws.npz",
            num=filled.num_fill,
            cat=filled.cat_fill.astype(np.int16),
        )


def job(work: Path, out: Path, name: str, strategy: str, seed: int, minutes: float):
    """Train one strategy on one table and sample as many rows as it was given."""
    augmenter, supervise, draws = STRATEGIES[strategy]
    folder = work / name
    holed = pd.read_parquet(folder / "holed.parquet")
    rule = augmenter if augmenter == "mean" else Prepared(folder / "draws.npz")
    model = am.AugMask(
        augmenter=rule,
        supervise=supervise,
        preset="paper",
        options={"draws": draws},
        seed=seed,
    )
    began = time.monotonic()
    model.fit(holed, schema=folder / "schema.toml", max_minutes=minutes)
    fitted = time.monotonic()
    model.sample_to(out / f"{name}-{strategy}.parquet", len(holed), seed=seed)
    sampled = time.monotonic()
    steps = int(model.history_["step"].iloc[-1])
    print(
        f"{name} {strategy}: {steps} steps in {fitted - began:.0f} s, "
        f"{len(holed) / (sampled - fitted):,.0f} rows/s sampled",
        flush=True,
    )


def run(
    work: Path,
    out: Path,
    names: list[str],
    strategies: list[str],
    seed: int,
    minutes: float,
) -> None:
    """Run every pair of table and strategy in a process of its own, all at once."""
    out.mkdir(parents=True, exist_ok=True)
    jobs = [(name, strategy) for name in names for strategy in strategies]
    arguments = [sys.executable, __file__, "job", str(work), str(out)]
    shared = ["--seed", str(seed), "--minutes", str(minutes)]
    running = [
        subprocess.Popen([*arguments, "--tables", n, "--strategies", s, *shared])
        for n, s in jobs
    ]
    for process in running:
        process.wait()


def score(work: Path, out: Path, names: list[str], result: Path) -> None:
    """Score whatever was generated against the complete training rows."""
    from augmask.evaluation.coverage import alpha_beta
    from augmask.evaluation.fidelity import shape, trend
    from augmask.evaluation.utility import utility

    rows = []
    for name in names:
        _, role = load(name)
        numeric = list(role["numeric"])
        categorical = [c for c, kind in role["kinds"].items() if kind == "category"]
        real = pd.read_parquet(work / name / "train.parquet")
        test = pd.read_parquet(work / name / "test.parquet")
        cache: dict = {}
        for strategy in STRATEGIES:
            path = out / f"{name}-{strategy}.parquet"
            if not path.exists():
                continue
            synthetic = pd.read_parquet(path)
            columns = (numeric, categorical)
            alpha, beta = alpha_beta(real, synthetic, *columns, cache=cache)
            found = utility(real, synthetic, test, *columns, role["target"])
            row = {
                "table": name,
                "strategy": strategy,
                "shape": shape(real, synthetic, *columns).value,
                "trend": trend(real, synthetic, *columns).value,
                "alpha_precision": alpha.value,
                "beta_recall": beta.value,
                "mle": found.value,
            }
            rows.append(row)
            print(
                "  ".join(
                    f"{v:.3f}" if isinstance(v, float) else v for v in row.values()
                ),
                flush=True,
            )
    result.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).round(4).to_csv(result, index=False)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["prepare", "run", "job", "score"])
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tables", nargs="+", default=["adult", "magic"])
    parser.add_argument(
        "--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES)
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ratio", type=float, default=RATIO)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--result", type=Path, default=Path("benchmarks/results/paper_setting.csv")
    )
    a = parser.parse_args()
    if a.stage == "prepare":
        prepare(a.work, a.tables, a.seed, a.ratio)
    elif a.stage == "run":
        run(a.work, a.out, a.tables, a.strategies, a.seed, a.minutes)
    elif a.stage == "job":
        job(a.work, a.out, a.tables[0], a.strategies[0], a.seed, a.minutes)
    else:
        score(a.work, a.out, a.tables, a.result)


if __name__ == "__main__":
    main()
