"""The paper's setting on real tables: backbones × strategies at full size.

There are three stages, because the machine with the GPU has no LightGBM and the one
with LightGBM has no GPU:

    python benchmarks/paper_setting.py prepare WORK    # split, mask, augment (CPU)
    python benchmarks/paper_setting.py run WORK OUT    # train and sample
    python benchmarks/paper_setting.py score WORK OUT  # metrics to a CSV file

Use `augmask bench` for a grid on one machine. This script is still needed because its
stages run on two machines, and because it splits with scikit-learn, on which the
committed scores depend.

Tables are split 60/20/20, with MCAR 0.7 on the training part and 30,000 steps of 4096
rows (`paper`). The strategy `Complete` trains on the complete training part. All runs
of one table and backbone are trained together. `run` works on two such groups at a
time: one trains while the other reads, compiles or decodes. Tables and their roles are
read from AUGMASK_DATA.

Scores are stored unrounded, with the settings and the commit of every run. The file
`results/paper_setting.csv` is older than the preset `paper` as printed;
docs/research/paper.md explains how its rows differ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
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
    "Complete": ("mean", "all", "one"),
}
# backbones with additional keywords
VARIANTS = {
    "cdtd-anchored": ("cdtd", {"anchor": None}),
    "cdtd-fixed-warp": ("cdtd", {"anchor": 1.0}),
}


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
    """Return a complete table and the roles of its columns."""
    folder = Path(os.environ["AUGMASK_DATA"])
    role = tomllib.loads((folder / "roles.toml").read_text())[name]
    frame = pd.read_csv(folder / role.get("file", f"{name}.csv.gz"))
    frame = frame.drop(columns=role.get("drop", [])).dropna().reset_index(drop=True)
    numeric = role["numeric"]
    integers = [c for c in numeric if (frame[c] == frame[c].round()).all()]
    role["kinds"] = {
        c: "category" if c not in numeric else "integer" if c in integers else "float"
        for c in frame
    }
    return frame, role


def prepare(work: Path, names: list[str], seeds: list[int], ratio: float) -> None:
    """Split, mask and augment each table, once for all strategies and backbones."""
    from augmask.augmentation import resolve_augmenter
    from augmask.augmentation.completions import CompletionPlan, complete
    from augmask.rng import stream
    from augmask.table.codec import Codec
    from augmask_bench.run import commit

    work.mkdir(parents=True, exist_ok=True)
    # the machine that trains has no git history
    (work / "commit").write_text(commit())
    for name, seed in itertools.product(names, seeds):
        frame, role = load(name)
        by = role["target"] if role["task"] == "classification" else None
        train, test = split(frame, by, seed)
        incomplete = am.ampute(train, mechanism="mcar", ratio=ratio, seed=seed)
        folder = work / f"{name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        train.to_parquet(folder / "train.parquet")
        test.to_parquet(folder / "test.parquet")
        incomplete.to_parquet(folder / "incomplete.parquet")
        schema = am.infer_schema(incomplete, role["kinds"])
        schema.to_toml(folder / "schema.toml")
        table = Codec.fit(incomplete, schema).encode(incomplete)
        began = time.monotonic()
        filled = complete(
            resolve_augmenter("lgbm-s"),
            table,
            CompletionPlan.parse(f"stack:{DRAWS}"),
            stream(seed, "fill"),
        )
        print(
            f"{folder}: {len(train)} rows, {time.monotonic() - began:.0f} s to augment"
        )
        np.savez_compressed(
            folder / "draws.npz",
            num=filled.num_fill,
            cat=filled.cat_fill.astype(np.int16),
        )


Member = tuple[int, str]  # seed and strategy


def model_of(
    folder: Path, backbone: str, seed: int, strategy: str, preset: str, options: dict
) -> am.AugMask:
    """Return an unfitted model that trains on the stored completions."""
    name, supervise, completions = STRATEGIES[strategy]
    augmenter = name if name == "mean" else Prepared(folder / "draws.npz")
    kind, keywords = VARIANTS.get(backbone, (backbone, {}))
    return am.AugMask(
        backbone=kind,
        augmenter=augmenter,
        supervise=supervise,
        preset=preset,
        options={"completions": completions, **keywords, **options},
        seed=seed,
    )


def job(
    work: Path,
    out: Path,
    name: str,
    backbone: str,
    members: list[Member],
    preset: str,
    options: dict,
) -> None:
    """Train strategies and seeds of one table together; sample from each model."""
    import torch

    models, tables = [], []
    for seed, strategy in members:
        folder = work / f"{name}-{seed}"
        source = "train" if strategy == "Complete" else "incomplete"
        tables.append(pd.read_parquet(folder / f"{source}.parquet"))
        models.append(model_of(folder, backbone, seed, strategy, preset, options))
    began = time.monotonic()
    # the kinds of columns are the same for all seeds
    am.fit_many(models, tables, schema=work / f"{name}-{members[0][0]}/schema.toml")
    fitted = time.monotonic()
    for (seed, strategy), model, data in zip(members, models, tables, strict=True):
        stem = f"{name}-{seed}-{backbone}-{strategy}"
        start = time.monotonic()
        model.sample_to(out / f"{stem}.parquet", len(data), seed=seed)
        facts = {
            "steps": int(model.history_["step"].iloc[-1]),
            "fit_seconds_of_all": round(fitted - began, 1),
            "trained_together": len(members),
            "sample_seconds": round(time.monotonic() - start, 1),
            "restarts": model.training_["restarts"],
            "device": torch.cuda.get_device_name()
            if torch.cuda.is_available()
            else "cpu",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "commit": (work / "commit").read_text(),
            "settings": vars(model.settings_)
            | {"network": dict(model.settings_.network)},
        }
        (out / f"{stem}.json").write_text(json.dumps(facts))
        print(
            f"{stem}: {facts['steps']} steps, "
            f"loss {model.history_['loss'].iloc[-1]:.4f}, "
            f"{facts['restarts']} restarts",
            flush=True,
        )
    print(f"{name} {backbone}: {len(members)} in {fitted - began:.0f} s", flush=True)


def run(
    work: Path,
    out: Path,
    runs: list[tuple[str, int, str, str]],
    at_once: int,
    trial: list[str],
) -> None:
    """Train missing runs, all of one table and backbone together."""
    out.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, str], list[Member]] = {}
    for name, seed, backbone, strategy in runs:
        if not (out / f"{name}-{seed}-{backbone}-{strategy}.json").exists():
            groups.setdefault((name, backbone), []).append((seed, strategy))

    def one(group: tuple[str, str]) -> None:
        command = [sys.executable, "-W", "ignore", __file__, "job", str(work), str(out)]
        command += ["--tables", group[0], "--backbones", group[1], "--members"]
        command += [f"{seed}:{strategy}" for seed, strategy in groups[group]]
        command += trial
        subprocess.run(command, check=False)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, groups))


def write_facts(out: Path, runs: list[tuple[str, int, str, str]], path: Path) -> None:
    """Write device, versions and settings of the runs, each combination once."""
    known = json.loads(path.read_text()) if path.exists() else []
    facts = {run: group["facts"] for group in known for run in group["runs"]}
    for run in runs:
        stem = "-".join(map(str, run))
        source = out / f"{stem}.json"
        if source.exists():
            stored = json.loads(source.read_text())
            names = ("device", "torch", "python", "commit", "settings")
            facts[stem] = {name: stored.get(name) for name in names}
    groups: dict[str, list[str]] = {}
    for stem, fact in sorted(facts.items()):
        groups.setdefault(json.dumps(fact), []).append(stem)
    listed = [{"runs": stems, "facts": json.loads(f)} for f, stems in groups.items()]
    path.write_text(json.dumps(listed, indent=1) + "\n")


def score(
    work: Path, out: Path, runs: list[tuple[str, int, str, str]], result: Path
) -> None:
    """Score all generated rows against the complete training rows.

    `Holdout` scores the test part, real rows that no model was trained on. It has a
    third as many rows, so sampling noise makes it a low reference.
    """
    from augmask.evaluation.coverage import alpha_beta
    from augmask.evaluation.fidelity import shape, trend
    from augmask.evaluation.utility import utility

    rows: dict[tuple[str, ...], dict] = {}
    if result.exists():
        known = pd.read_csv(result)
        keys = ["table", "seed", "backbone", "strategy"]
        rows = {tuple(map(str, r[keys])): dict(r) for _, r in known.iterrows()}
    cache: dict = {}
    for name, seed, backbone, strategy in runs:
        path = out / f"{name}-{seed}-{backbone}-{strategy}.parquet"
        if not path.exists():
            continue
        _, role = load(name)
        columns = (
            list(role["numeric"]),
            [c for c, kind in role["kinds"].items() if kind == "category"],
        )
        real = pd.read_parquet(work / f"{name}-{seed}" / "train.parquet")
        test = pd.read_parquet(work / f"{name}-{seed}" / "test.parquet")
        todo = {(backbone, strategy): pd.read_parquet(path)}
        if (name, str(seed), "real", "Holdout") not in rows:
            todo[("real", "Holdout")] = test
        for (source, how), synthetic in todo.items():
            alpha, beta = alpha_beta(real, synthetic, *columns, cache=cache)
            row = {
                "table": name,
                "seed": seed,
                "backbone": source,
                "strategy": how,
                "shape": shape(real, synthetic, *columns).value,
                "trend": trend(real, synthetic, *columns).value,
                "trend_sdmetrics": trend(
                    real, synthetic, *columns, edges="sdmetrics"
                ).value,
                "alpha_precision": alpha.value,
                "beta_recall": beta.value,
                "mle": utility(real, synthetic, test, *columns, role["target"]).value
                if how != "Holdout"
                else float("nan"),
            }
            rows[(name, str(seed), source, how)] = row
            print(
                "  ".join(
                    f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()
                ),
                flush=True,
            )
        frame = pd.DataFrame(rows.values())
        order = {s: i for i, s in enumerate(STRATEGIES)}
        frame["_"] = frame["strategy"].map(order)
        frame = frame.sort_values(["table", "seed", "backbone", "_"])
        result.parent.mkdir(parents=True, exist_ok=True)
        frame.drop(columns="_").to_csv(result, index=False)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["prepare", "run", "job", "score"])
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument(
        "--tables", nargs="+", default=["adult", "magic", "beijing", "shoppers"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument(
        "--backbones",
        nargs="+",
        default=["cdtd", "tabdiff", "tabddpm", "cdtd-anchored"],
    )
    parser.add_argument(
        "--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES)
    )
    parser.add_argument("--ratio", type=float, default=RATIO)
    parser.add_argument(
        "--members", nargs="+", default=[], help="runs of a job, as SEED:STRATEGY"
    )
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--preset", default="paper", help="preset of a trial")
    parser.add_argument(
        "--options",
        default="{}",
        help="settings of a trial as JSON; use a separate OUT and --result",
    )
    parser.add_argument(
        "--result", type=Path, default=Path("benchmarks/results/paper.csv")
    )
    a = parser.parse_args()
    runs = list(itertools.product(a.tables, a.seeds, a.backbones, a.strategies))
    if a.stage == "prepare":
        prepare(a.work, a.tables, a.seeds, a.ratio)
    elif a.stage == "run":
        trial = ["--preset", a.preset, "--options", a.options]
        run(a.work, a.out, runs, a.at_once, trial)
    elif a.stage == "job":
        members = [m.split(":") for m in a.members]
        members = [(int(seed), strategy) for seed, strategy in members]
        options = json.loads(a.options)
        job(a.work, a.out, a.tables[0], a.backbones[0], members, a.preset, options)
    else:
        score(a.work, a.out, runs, a.result)
        write_facts(a.out, runs, a.result.with_suffix(".json"))


if __name__ == "__main__":
    main()
