"""Write the tables of README and docs from the committed results files.

    python benchmarks/doc_tables.py          # rewrite what is out of date
    python benchmarks/doc_tables.py --check  # say what is, and exit with 1

A page marks the place of a table by two comments, and what stands between them is made
here, so that no number is typed by hand:

    <!-- table: NAME -->
    <!-- end of table -->
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ("README.md", "docs")
MARK = re.compile(
    r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL
)

FIVE = ("shape", "trend", "alpha_precision", "beta_recall", "mle")
TABLES = {
    "adult": "Adult",
    "magic": "Magic",
    "beijing": "Beijing",
    "shoppers": "Shoppers",
}
BACKBONES = {"cdtd": "CDTD", "tabdiff": "TabDiff", "tabddpm": "TabDDPM"}
STRATEGIES = ("NoAug", "AugFull", "AugMask")


def short(value: float) -> str:
    """Write a score with three decimals and no leading zero; a dash for none."""
    if pd.isna(value):
        return "–"
    text = f"{value:.3f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def signed(value: float) -> str:
    """Write a difference of scores with its sign."""
    return f"{value:+.3f}".replace("0.", ".")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """Lay cells out as a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _paper_setting() -> pd.DataFrame:
    """Return the runs of the plan `paper-setting`, their labels cut in two."""
    runs = pd.read_csv(RESULTS / "paper-setting.csv")
    names = runs["method"].str.split(" + ", n=1, regex=False, expand=True)
    runs = runs.assign(backbone=names[0].str.lower(), strategy=names[1])
    return runs[runs["status"] == "done"]


def _means(runs: pd.DataFrame, metrics: tuple[str, ...] = FIVE) -> str:
    """Return mean scores, with a mark if one seed is all there is."""
    if runs.empty:
        return "not run"
    scores = " / ".join(short(value) for value in runs[list(metrics)].mean())
    return scores if runs["seed"].nunique() > 1 else f"{scores} (one seed)"


def _by_table(runs: pd.DataFrame, metrics: tuple[str, ...] = FIVE) -> list[str]:
    return [_means(runs[runs["dataset"] == table], metrics) for table in TABLES]


def strategies() -> str:
    """Backbones and strategies at the paper's size, means over seeds."""
    runs = _paper_setting()
    rows = []
    for backbone, title in BACKBONES.items():
        for strategy in STRATEGIES:
            mine = runs[(runs["backbone"] == backbone) & (runs["strategy"] == strategy)]
            rows.append([title, strategy, *_by_table(mine)])
    return markdown(["", "", *TABLES.values()], rows)


def warps() -> str:
    """AugMask of CDTD with a free and with a fixed time warp, means over seeds."""
    runs = _paper_setting()
    kinds = {"free, as printed": "AugMask", "fixed": "AugMask, fixed warp"}
    rows = [
        [
            title,
            *_by_table(runs[(runs["backbone"] == "cdtd") & (runs["strategy"] == s)]),
        ]
        for title, s in kinds.items()
    ]
    return markdown(["", *TABLES.values()], rows)


def gaps() -> str:
    """Show what masking adds: AugMask minus AugFull on the blocks that have both."""
    runs = _paper_setting()
    rows = []
    for backbone, title in BACKBONES.items():
        mine = runs[runs["backbone"] == backbone].set_index(["dataset", "seed"])
        full, mask = (
            mine.loc[mine["strategy"] == name, list(FIVE)]
            for name in ("AugFull", "AugMask")
        )
        gap = (mask - full).groupby("dataset").mean()
        cells = [
            " / ".join(signed(value) for value in gap.loc[table])
            if table in gap.index
            else "not run"
            for table in TABLES
        ]
        rows.append([title, *cells])
    return markdown(["", *TABLES.values()], rows)


def headline() -> str:
    """TabDDPM's strategies in three metrics, for the README."""
    runs = _paper_setting()
    runs = runs[runs["backbone"] == "tabddpm"]
    three = ("shape", "trend", "mle")
    by_strategy = [_by_table(runs[runs["strategy"] == s], three) for s in STRATEGIES]
    rows = [
        [title, *cells[:-1], f"**{cells[-1]}**"]
        for title, *cells in zip(TABLES.values(), *by_strategy, strict=True)
    ]
    return markdown(["Shape / Trend / MLE", *STRATEGIES], rows)


def printed() -> str:
    """AugMask of CDTD as printed beside the upstream code with a masked loss."""
    runs = _paper_setting()
    runs = runs[(runs["backbone"] == "cdtd") & (runs["strategy"] == "AugMask")]
    reference = pd.read_csv(RESULTS / "reference.csv").set_index("table")
    # the reference run measured MLE otherwise
    four = FIVE[:4]
    rows = []
    for table, title in TABLES.items():
        mine = runs[runs["dataset"] == table]
        theirs = reference.loc[table, list(four)].astype(float)
        gap = " / ".join(map(signed, mine[list(four)].mean() - theirs))
        rows.append([title, _means(mine, four), " / ".join(map(short, theirs)), gap])
    return markdown(["", "as printed", "reference run", "difference"], rows)


def clinic() -> str:
    """Backbones and strategies on the demo's table, preset `fast`."""
    runs = pd.read_csv(RESULTS / "clinic_backbones.csv")
    rows = []
    for backbone, title in BACKBONES.items():
        for strategy in STRATEGIES:
            mine = runs[(runs["backbone"] == backbone) & (runs["strategy"] == strategy)]
            scores = [short(v) for v in mine[list(FIVE)].mean()]
            rows.append([title, strategy, *scores, f"{mine['seconds'].mean():.0f}"])
    real = runs[runs["strategy"] == "real"]
    if len(real):
        rows.append(["", "real rows", *(short(v) for v in real[list(FIVE)].mean()), ""])
    head = ["", "strategy", "Shape", "Trend", "α", "β", "MLE", "seconds"]
    return markdown(head, rows)


def _front() -> pd.DataFrame:
    """Return the runs on two CPU cores, seeds cut from their names."""
    runs = pd.read_csv(RESULTS / "front.csv")
    runs = runs[runs["who"] != "explored"]
    kind = runs["run"].str.replace(r"-s\d+$", "", regex=True)
    return runs.assign(kind=kind, minutes=runs["cpu"] / 120)


FRONT = {"adult-0.3": "Adult 0.3", "adult-0.7": "Adult 0.7", "magic-0.7": "Magic 0.7"}
FRONT_METRICS = ["shape", "trend", "alpha", "beta", "mle"]


def cost() -> str:
    """Return what the CPU presets cost and give, means over splits."""
    runs = _front()
    rows = []
    for table, title in FRONT.items():
        for preset in ("fast", "balanced"):
            mine = runs[(runs["table"] == table) & (runs["kind"] == f"cdtd-{preset}")]
            if mine.empty:
                continue
            seconds = mine[["fill", "train", "sample"]].mean()
            cells = [f"{value:.0f}" for value in seconds]
            cells += [short(value) for value in mine[FRONT_METRICS].mean()]
            rows.append([f"{title}, `{preset}`", str(len(mine)), *cells])
    head = ["", "splits", "fill", "train", "sample", "Shape", "Trend", "α", "β", "MLE"]
    return markdown(head, rows)


def rival() -> str:
    """Ours beside mostlyai-engine, means over splits; the best of a table is bold."""
    runs = _front()
    kinds = {
        "rival": "rival",
        "rival-value_protection=false": "rival without protection",
        "cdtd-fast": "`fast`",
    }
    rows = []
    for table, title in FRONT.items():
        found = {
            name: runs[(runs["table"] == table) & (runs["kind"] == kind)].mean(
                numeric_only=True
            )
            for kind, name in kinds.items()
        }
        best = pd.DataFrame(found).T[FRONT_METRICS].max()
        for name, means in found.items():
            cells = [
                f"**{short(means[m])}**" if means[m] == best[m] else short(means[m])
                for m in FRONT_METRICS
            ]
            rows.append([f"{title}, {name}", *cells, f"{means['minutes']:.1f}"])
    head = ["", "Shape", "Trend", "α", "β", "MLE", "minutes"]
    return markdown(head, rows)


SMALL_METHODS = ("cdtd", "iterative", "miceforest", "mean")


def _small() -> pd.DataFrame:
    """Return means of imputing small tables, over the seeds that all methods have."""
    runs = pd.read_csv(RESULTS / "small_tables.csv")
    pairs = runs.pivot(index=["table", "seed"], columns="method", values="rows")
    complete = pairs[list(SMALL_METHODS)].dropna().index
    runs = runs[runs.set_index(["table", "seed"]).index.isin(complete)]
    found = runs.groupby(["table", "method"], sort=False)[["rmse", "accuracy"]].mean()
    sizes = runs.groupby("table", sort=False).agg(
        rows=("rows", "first"), seeds=("seed", "nunique"), chosen=("chosen_on", "first")
    )
    wide = found.unstack("method")
    wide.columns = wide.columns.to_flat_index()
    return wide.join(sizes).loc[sizes.index]


def small_tables() -> str:
    """Ours beside two imputers on small tables; the better rival decides."""
    rows, ahead, total = [], 0, 0
    means = _small()
    for table, line in means.iterrows():
        cells = []
        for method in SMALL_METHODS:
            pair = (line[("rmse", method)], line[("accuracy", method)])
            cells.append(" / ".join(map(short, pair)))
            if all(map(pd.isna, pair)):
                cells[-1] = "fails"
        for measure, sign in (("rmse", -1), ("accuracy", 1)):
            own = sign * line[(measure, "cdtd")]
            if pd.isna(own):
                continue
            rivals = pd.Series([line[(measure, m)] for m in SMALL_METHODS[1:3]])
            ahead += int(own >= (sign * rivals).max() - 5e-4)
            total += 1
        rows.append([str(table), str(line["rows"]), str(line["seeds"]), *cells])
    rows.append(["pairs not behind", "", "", f"{ahead} of {total}", "", "", ""])
    head = ["", "rows", "seeds", "`auto`", "IterativeImputer", "miceforest"]
    return markdown([*head, "mean, mode"], rows)


def small_rows() -> str:
    """Rows generated from 300 rows with each start, means over seeds."""
    runs = pd.read_csv(RESULTS / "small_rows.csv")
    metrics = ["shape", "trend", "c2st", "alpha", "beta"]
    rows = []
    for (table, start), mine in runs.groupby(["table", "start"], sort=False):
        title = "`auto`" if start == "auto" else "start from `table`, as before"
        scores = [short(v) for v in mine[metrics].mean()]
        seconds = f"{mine['seconds'].mean():.0f}"
        rows.append([f"{table}, {title}", str(len(mine)), *scores, seconds])
    return markdown(["", "seeds", "Shape", "Trend", "C2ST", "α", "β", "s"], rows)


def attack() -> str:
    """Write what the attacks of a full run came to."""
    found = json.loads((RESULTS / "attack.json").read_text())
    rows = []
    for part, figures in found.items():
        told = []
        for name, value in figures.items():
            if isinstance(value, dict):
                value = ", ".join(f"{k}: {v}" for k, v in value.items())
            elif isinstance(value, int):
                value = f"{value:,}"
            told.append(f"{name.replace('_', ' ')} {value}")
        rows.append([part, "; ".join(told)])
    return markdown(["attack", "what came of it"], rows)


def scale() -> str:
    """Seconds and memory of each phase for ten million rows."""
    file = json.loads((RESULTS / "scale.json").read_text())
    phases = file["rows"]["10000000"]
    titles = {
        "read": "read",
        "infer": "infer the schema",
        "encode": "encode",
        "fill": "fill missing values",
        "train": "train",
        "sample": "generate a million rows",
    }
    rows = [
        [title, f"{phases[key]['seconds']:.0f}", f"{phases[key]['GiB']:.1f}"]
        for key, title in titles.items()
    ]
    return markdown(["", "seconds", "peak GiB"], rows)


PHASES = {
    "read": "summarize all parts",
    "augment": "fit the augmenter to the sample",
    "fill": "encode, fill, write shards",
    "train": "train, 1,000 steps",
    "sample": "write a tenth as many rows",
}


def _lakes(augmenter: str = "ecdf") -> dict[int, dict[str, dict[str, float]]]:
    """Return the phases of the runs of `benchmarks/lake.py` by number of rows."""
    file = json.loads((RESULTS / "lake.json").read_text())
    runs = ((key.split(), run["phases"]) for key, run in file.items())
    return {int(rows): phases for (own, rows), phases in runs if own == augmenter}


def lake() -> str:
    """Time and memory of each phase of a table in parts, by its rows."""
    runs = _lakes()
    rows = []
    for key, title in PHASES.items():
        own = (phases[key] for phases in runs.values())
        cells = [f"{p['seconds']:,.0f} / {p['cpu']:,.0f} / {p['GiB']:.1f}" for p in own]
        rows.append([title, *cells])
    totals = [
        f"{sum(p['seconds'] for p in phases.values()):,.0f} / "
        f"{sum(p['cpu'] for p in phases.values()):,.0f} / "
        f"{max(p['GiB'] for p in phases.values()):.1f}"
        for phases in runs.values()
    ]
    rows.append(["all, with start", *totals])
    head = [f"{n // 10**6} million" for n in runs]
    return markdown(["seconds / processor seconds / GiB", *head], rows)


def _slope(phase: str, low: int, high: int) -> float:
    """Return the processor seconds of a phase that another million rows take."""
    runs = _lakes()
    added = runs[high][phase]["cpu"] - runs[low][phase]["cpu"]
    return added / (high - low) * 10**6


def lake_slope() -> str:
    """Processor seconds per further million rows, from one size to the next."""
    sizes = sorted(_lakes())
    rows = []
    steps = list(pairwise(sizes))
    for key in ("read", "fill", "sample"):
        slopes = [_slope(key, *step) for step in steps]
        rows.append([PHASES[key], *(f"{slope:.2f}" for slope in slopes)])
    every = [sum(_slope(key, *step) for key in PHASES) for step in steps]
    rows.append(["all", *(f"{slope:.2f}" for slope in every)])
    head = [f"{a // 10**6} to {b // 10**6} million" for a, b in steps]
    return markdown(["processor seconds per million rows", *head], rows)


def billion() -> str:
    """Hours of 10^9 rows and 100 columns, by the rates of 10 to 100 million."""
    low, high = sorted(_lakes())[-2:]
    # five times the columns, a thousand times a million rows
    hours = {
        key: _slope(key, low, high) * 5 * 1000 / 3600
        for key in ("read", "fill", "sample")
    }
    boosted = _lakes("lgbm-s")[10**6]["fill"]["cpu"] * 5 * 1000 / 3600
    lines = {
        PHASES["read"]: hours["read"],
        "encode, fill by `ecdf`, write shards": hours["fill"],
        "the same with `lgbm-s`": boosted,
        "write 100 million rows": hours["sample"],
    }
    rows = [
        [title, f"{each:,.1f}", *(f"{each / cores:,.2f}" for cores in (16, 128, 1024))]
        for title, each in lines.items()
    ]
    head = ["", "hours of one core", "16 cores", "128 cores", "1,024 cores"]
    return markdown(head, rows)


MADE: dict[str, Callable[[], str]] = {
    "attack": attack,
    "clinic": clinic,
    "billion": billion,
    "cost": cost,
    "lake": lake,
    "lake-slope": lake_slope,
    "gaps": gaps,
    "headline": headline,
    "printed": printed,
    "rival": rival,
    "scale": scale,
    "small-rows": small_rows,
    "small-tables": small_tables,
    "strategies": strategies,
    "warps": warps,
}


def pages(root: Path) -> list[Path]:
    """Return the pages that may hold tables."""
    found = []
    for name in PAGES:
        path = root / name
        found += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return found


def renewed(text: str) -> str:
    """Return a page with its tables made anew."""
    return MARK.sub(lambda m: m[1] + MADE[m[2]]() + m[4], text)


def main() -> None:
    """Rewrite or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    asked = parser.parse_args()
    stale = []
    for page in pages(asked.root):
        text = page.read_text()
        new = renewed(text)
        if new != text:
            stale.append(str(page.relative_to(asked.root)))
            if not asked.check:
                page.write_text(new)
    print("out of date: " + ", ".join(stale) if stale else "all tables are up to date")
    sys.exit(1 if asked.check and stale else 0)


if __name__ == "__main__":
    main()
