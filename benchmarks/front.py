"""Quality against minutes on two CPU cores: augmask and a rival on the same tables.

    python benchmarks/front.py prepare WORK [--seed 1]
    python benchmarks/front.py ours WORK --preset fast [--set steps=8000 ...]
    python benchmarks/front.py rival WORK --python OTHER/bin/python [--set ...]
    python benchmarks/front.py score WORK
    python benchmarks/front.py table
    python benchmarks/front.py plot [--out docs/front.svg]

`prepare` splits Adult and Magic 60/20/20 and removes values of the training part
completely at random; use a separate WORK for every seed. `ours` and `rival` train on
the incomplete rows and write as many complete ones. `score` compares them with the
complete training rows and appends new runs to a CSV file (--result; `make bench-front`
starts a new one). `table` prints its means over seeds and `plot` draws them. Both leave
out runs marked `explored`: settings that were tried on a GPU, where a fit takes
seconds, only for their scores.

The rival is mostlyai-engine's TabularARGN, set to impute every column. It needs a
separate environment, in which `rival` runs a small script.

Both wall-clock seconds and CPU seconds of all threads and workers are recorded. With
OMP_NUM_THREADS=1, half of the CPU seconds is a lower bound for two idle cores, whatever
else runs on the machine. With more threads, the time they wait counts too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
from real_tables import load, split

TABLES = {
    "adult-0.3": ("adult", 0.3),
    "adult-0.7": ("adult", 0.7),
    "magic-0.7": ("magic", 0.7),
}
CORES = 2
RESULT = Path(__file__).parent / "results" / "front.csv"
METRICS = {
    "shape": "Shape",
    "trend": "Trend",
    "alpha": "α-precision",
    "beta": "β-recall",
    "mle": "MLE",
}

# Runs in the rival's environment, which does not have augmask.
RIVAL = """
import json, sys, time
began = time.perf_counter()
import pandas as pd
from mostlyai.engine import TabularARGN
source, out, rows, seed, options = sys.argv[1:]
frame = pd.read_parquet(source)
model = TabularARGN(device="cpu", random_state=int(seed), **json.loads(options))
model.fit(frame, holdout=0)
fitted = time.perf_counter()
synthetic = model.sample(int(rows), imputation={"columns": list(frame)})
synthetic[list(frame)].to_parquet(out)
print(json.dumps({"fit": fitted - began, "sample": time.perf_counter() - fitted}))
"""


def prepare(work: Path, names: list[str], seed: int) -> None:
    """Split every table and remove values of its training part."""
    import augmask as am

    for name in names:
        table, ratio = TABLES[name]
        frame, role = load(table)
        train, test = split(frame, role["target"], seed)
        incomplete = am.ampute(train, mechanism="mcar", ratio=ratio, seed=seed)
        folder = work / name
        folder.mkdir(parents=True, exist_ok=True)
        for part, rows in (
            ("train", train),
            ("test", test),
            ("incomplete", incomplete),
        ):
            rows.to_parquet(folder / f"{part}.parquet")
        am.infer_schema(incomplete, role["kinds"]).to_toml(folder / "schema.toml")
        missing = incomplete.isna().mean().mean()
        print(f"{folder}: {len(train)} rows, {missing:.0%} missing")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its finished workers."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def ours(
    work: Path,
    name: str,
    preset: str,
    options: dict,
    seed: int,
    backbone: str,
    augmenter: str,
) -> dict:
    """Fit and sample in this process; return the rows and the times."""
    import joblib.externals.loky as loky

    import augmask as am
    from augmask_bench.run import commit

    folder = work / name
    incomplete = pd.read_parquet(folder / "incomplete.parquet")
    began, cpu = time.perf_counter(), cpu_seconds()
    model = am.AugMask(
        backbone, augmenter, preset=preset, options=options, seed=seed, device="cpu"
    )
    model.fit(incomplete, schema=folder / "schema.toml", holdout=0)
    fitted = time.perf_counter()
    # the CPU time of workers counts only after they have ended
    loky.get_reusable_executor().shutdown(wait=True)
    cpu_fit = cpu_seconds() - cpu
    stop = time.perf_counter()
    rows = model.sample(len(incomplete), seed=seed)
    ended = time.perf_counter()
    facts = {
        "fill": fitted - began - model.training_["seconds"],
        "train": model.training_["seconds"],
        "sample": ended - stop,
        "wall": fitted - began + ended - stop,
        "cpu_train": cpu_fit,
        "cpu": cpu_seconds() - cpu,
        "steps": model.settings_.steps,
        "kept": model.training_["best_step"],
        "commit": commit(),
    }
    return {"rows": rows, "facts": facts}


def rival(
    work: Path, name: str, python: Path, options: dict, out: Path, seed: int
) -> dict:
    """Run the rival in its environment; return the times."""
    folder = work / name
    n = len(pd.read_parquet(folder / "train.parquet"))
    command = [str(python), "-W", "ignore", "-c", RIVAL]
    command += [str(folder / "incomplete.parquet"), str(out), str(n), str(seed)]
    command += [json.dumps(options)]
    began, cpu = time.perf_counter(), cpu_seconds()
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.perf_counter() - began
    facts = json.loads(process.stdout.strip().splitlines()[-1])
    return {
        "train": facts["fit"],
        "sample": facts["sample"],
        "wall": wall,
        "cpu": cpu_seconds() - cpu,
    }


def scores_of(work: Path, name: str, synthetic: pd.DataFrame) -> dict[str, float]:
    """Return the five metrics of synthetic rows."""
    from augmask.evaluation.alpha_beta import alpha_beta
    from augmask.evaluation.fidelity import shape, trend
    from augmask.evaluation.utility import utility

    _, role = load(TABLES[name][0])
    kinds = role["kinds"]
    columns = list(role["numeric"]), [c for c in kinds if kinds[c] == "category"]
    real = pd.read_parquet(work / name / "train.parquet")
    test = pd.read_parquet(work / name / "test.parquet")
    alpha, beta = alpha_beta(real, synthetic, *columns)
    return {
        "shape": shape(real, synthetic, *columns).value,
        "trend": trend(real, synthetic, *columns).value,
        "alpha": alpha.value,
        "beta": beta.value,
        "mle": utility(real, synthetic, test, *columns, role["target"]).value,
    }


def score(work: Path, result: Path) -> None:
    """Score new runs and append them to the results file."""
    known = pd.read_csv(result) if result.exists() else pd.DataFrame()
    done = set(zip(known.get("table", []), known.get("run", []), strict=True))
    for path in sorted(work.glob("*/run-*.json")):
        name, run = path.parent.name, path.stem.removeprefix("run-")
        if (name, run) in done:
            continue
        facts = json.loads(path.read_text())
        scores = scores_of(work, name, pd.read_parquet(path.with_suffix(".parquet")))
        line = {"table": name, "run": run, **facts, **scores}
        known = pd.concat([known, pd.DataFrame([line])], ignore_index=True)
        known.round(4).to_csv(result, index=False)
        text = "  ".join(f"{k} {v:.4f}" for k, v in scores.items())
        print(f"{name:10} {run:40} {facts['cpu'] / CORES:6.0f} s  {text}", flush=True)


def read_runs(result: Path) -> pd.DataFrame:
    """Return the runs that are not `explored`, with names without the seed."""
    runs = pd.read_csv(result)
    runs = runs[runs["who"] != "explored"]
    kind = runs["run"].str.replace(r"-s\d+$", "", regex=True)
    return runs.assign(kind=kind, minutes=runs["cpu"] / CORES / 60)


def table(result: Path) -> None:
    """Print the mean over seeds of every kind of run, and the number of runs."""
    groups = read_runs(result).groupby(["table", "kind"])
    means = groups[[*METRICS, "wall", "minutes"]].mean().round(4)
    print(means.assign(runs=groups.size()).to_string())


def plot(result: Path, out: Path) -> None:
    """Plot quality against minutes, one row of panels per table.

    Single runs are pale; the line is the front of the means over seeds.
    """
    import matplotlib
    from matplotlib.figure import Figure

    runs = read_runs(result)
    tables = [name for name in TABLES if name in set(runs["table"])]
    fig = Figure(figsize=(12, 2.2 * len(tables)), layout="constrained")
    axes = fig.subplots(len(tables), len(METRICS), squeeze=False)
    style = {
        "ours": {"color": "#1f6f8b", "marker": "o", "label": "augmask"},
        "rival": {"color": "#c0504d", "marker": "s", "label": "mostlyai-engine"},
    }
    for i, name in enumerate(tables):
        for j, (metric, title) in enumerate(METRICS.items()):
            axis = axes[i, j]
            for who, look in style.items():
                part = runs[(runs["table"] == name) & (runs["who"] == who)]
                pale = {**look, "label": None}
                axis.scatter(part["minutes"], part[metric], s=8, alpha=0.25, **pale)
                mean = part.groupby("kind")[["minutes", metric]].mean()
                mean = mean.sort_values("minutes")
                axis.scatter(mean["minutes"], mean[metric], s=16, **look)
                peak = mean[metric].cummax()
                axis.step(
                    mean["minutes"], peak, where="post", color=look["color"], lw=1
                )
            axis.set_xlim(left=0)
            axis.grid(alpha=0.3)
            if i == 0:
                axis.set_title(title)
            if j == 0:
                axis.set_ylabel(name.replace("-", ", MCAR "))
            if i == len(tables) - 1:
                axis.set_xlabel("minutes, two cores")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, frameon=False, ncols=2, loc="outside lower center")
    out.parent.mkdir(parents=True, exist_ok=True)
    # text stays text, and the same runs give the same file
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "front"}):
        fig.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def settings(pairs: list[str]) -> dict:
    """Parse NAME=VALUE pairs; values are parsed as JSON where possible."""
    parsed = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError:
            parsed[name] = value
    return parsed


def run_name(
    who: str, preset: str, backbone: str, augmenter: str, pairs: list[str], seed: int
) -> str:
    """Return the name of a run, made of its settings."""
    parts = [who] if who == "rival" else [backbone, preset]
    if augmenter != "auto":
        parts.append(augmenter)
    return "-".join([*parts, *pairs, f"s{seed}"]).replace("/", "_")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    stages = ["prepare", "ours", "rival", "score", "table", "plot"]
    parser.add_argument("stage", choices=stages)
    parser.add_argument("work", type=Path, nargs="?", default=Path("front-results"))
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--backbone", default="cdtd")
    parser.add_argument("--augmenter", default="auto")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--python", type=Path, help="interpreter of the rival's environment"
    )
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--out", type=Path, default=Path("docs/front.svg"))
    a = parser.parse_args()
    if a.stage == "prepare":
        prepare(a.work, a.tables, a.seed)
    elif a.stage == "score":
        score(a.work, a.result)
    elif a.stage == "table":
        table(a.result)
    elif a.stage == "plot":
        plot(a.result, a.out)
    else:
        options = settings(a.set)
        for name in a.tables:
            stem = run_name(a.stage, a.preset, a.backbone, a.augmenter, a.set, a.seed)
            path = a.work / name / f"run-{stem}.parquet"
            if a.stage == "ours":
                result = ours(
                    *(a.work, name, a.preset, options, a.seed),
                    *(a.backbone, a.augmenter),
                )
                result["rows"].to_parquet(path)
                facts = result["facts"]
            else:
                if a.python is None:
                    sys.exit("front.py rival: set --python to the rival's interpreter")
                facts = rival(a.work, name, a.python, options, path, a.seed)
            threads = int(os.environ.get("OMP_NUM_THREADS", CORES))
            facts |= {"who": a.stage, "settings": json.dumps(options)}
            facts["threads"] = threads
            path.with_suffix(".json").write_text(json.dumps(facts))
            print(name, stem, json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
