"""The commands, and a grid that is killed again and again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import typer

from augmask.errors import AugMaskError, DataError, UsageError
from augmask_bench import cli
from augmask_bench.plan import read_plan
from augmask_bench.ranks import METRICS
from augmask_bench.results import collect, facts_of, write
from augmask_bench.stages import Work

GRID = """
ratios = [0.2, 0.5]
seeds = [0, 1]
keep = true
datasets = [{ name = "clinic-stay", rows = 80 }]
[[methods]]
generator = "cheap"
[[methods]]
generator = "fill"
augmenter = ["mean", "lgbm-s"]
"""
OWN = """
[[datasets]]
path = "mine.csv"
target = "grade"
[[methods]]
generator = "cheap"
[[methods]]
generator = "cheap"
label = "Broken"
options = { break = 1 }
[[methods]]
generator = "absent"
"""
COMMAND = "from augmask_bench.cli import app; app()"


@pytest.fixture
def bench(capsys):
    """Run a command in this process and return its output."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        texts = [str(argument) for argument in arguments]
        typer.main.get_command(cli.app).main(texts, standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_your_own_table_from_plan_to_table(bench, write_plan, own_table, tmp_path):
    plan, out = write_plan(OWN), tmp_path / "out"
    assert "1 datasets x 1 mechanisms" in bench("plan", plan, "--out", out)
    with pytest.raises(DataError, match="no results"):
        bench("table", plan, "--out", out)
    summary = json.loads(bench("run", plan, "--out", out, "--jobs", 1, "--json"))
    assert summary == {
        "out": str(out), "skipped": 0, "done": 1, "failed": 1, "unable": 1
    }  # fmt: skip
    frame = pd.read_parquet(out / "results.parquet")
    assert frame["status"].tolist() == ["done", "failed", "unable"]
    assert frame.loc[0, list(METRICS)].between(0, 1.5).all()
    status = bench("status", plan, "--out", out)
    assert "1 done, 1 failed, 1 unable, 0 pending" in status
    assert "RuntimeError: it broke" in status
    ranks = json.loads(bench("table", plan, "--out", out, "--json"))["ranks"]
    assert ranks["mcar"].keys() == {"Cheap", "Broken"}
    assert ranks["mcar"]["Cheap"]["summary"] == 1.0
    scores = tmp_path / "scores.csv"
    assert "Cheap" in bench("table", plan, "--out", out, "--scores", scores)
    table = pd.read_csv(scores)
    assert table["status"].tolist() == ["done", "failed", "unable"]
    assert table["shape"].iloc[0] == pytest.approx(frame["shape"].iloc[0], abs=1e-4)
    with pytest.raises(UsageError, match="--scores must be a"):
        bench("table", plan, "--out", out, "--scores", tmp_path / "scores.txt")
    files = {path.suffix for path in out.glob("ranks-mcar.*")}
    assert files == {".md", ".csv", ".tex"}
    drawn = json.loads(bench("figures", plan, "--out", out, "--json"))
    assert {path.name for path in (out / "figures").iterdir()} == {
        path.split("/")[-1] for path in drawn["files"]
    }
    # completed runs are skipped, failed ones by default, unavailable ones never
    run = ["run", plan, "--out", out, "--jobs", 1, "--json"]
    assert json.loads(bench(*run)) == {"out": str(out), "skipped": 2, "unable": 1}
    retried = json.loads(bench(*run, "--retry-failed"))
    assert retried == {"out": str(out), "skipped": 1, "failed": 1, "unable": 1}


def test_results_of_an_older_version_are_not_shown(
    bench, write_plan, own_table, tmp_path
):
    plan, out = write_plan(OWN), tmp_path / "out"
    bench("run", plan, "--out", out, "--jobs", 1)
    bench("table", plan, "--out", out)
    (out / "figures").mkdir()
    for suffix in ("svg", "png"):
        (out / "figures" / f"ranks.{suffix}").touch()
    assert "belong to no run of this plan" not in bench("status", plan, "--out", out)
    module = tmp_path / "cheap.py"
    module.write_text(module.read_text().replace("make)", 'make, version="2")'))
    status = bench("status", plan, "--out", out)
    assert "1 unable, 2 pending" in status
    assert "2 results belong to no run of this plan" in status
    summary = json.loads(bench("status", plan, "--out", out, "--json"))
    assert (summary["stale"], summary["pending"]) == (2, 2)
    assert "0 completed, 3 pending" in bench("plan", plan, "--out", out)
    # only unavailable runs remain: no ranks, and no older ones
    bench("table", plan, "--out", out)
    assert pd.read_parquet(out / "results.parquet")["status"].tolist() == ["unable"]
    assert not list(out.glob("ranks-*"))
    bench("figures", plan, "--out", out)
    # the theory's toy example needs no results
    assert {path.stem for path in (out / "figures").iterdir()} == {"toy"}
    text = module.read_text().replace("aware=True", 'aware=True, version="2"')
    module.write_text(text)
    for path in (out / "ranks-mcar.md", out / "figures" / "ranks.svg"):
        path.touch()
    with pytest.raises(DataError, match="no results"):
        bench("table", plan, "--out", out)
    left = {path.parent.name for path in out.rglob("*") if path.is_file()}
    assert left == {"runs", "real-side", "groups", "out"}


def test_a_grid_may_be_run_in_parts(bench, write_plan, tmp_path):
    plan, out = write_plan(GRID), tmp_path / "out"
    run = ["run", plan, "--out", out, "--jobs", 1, "--json"]
    part = json.loads(bench(*run, "--methods", "fill: Mean,Cheap"))
    assert part == {"out": str(out), "skipped": 0, "done": 8}
    with pytest.raises(UsageError, match="did you mean 'cheap'"):
        bench(*run, "--methods", "chepa")
    assert json.loads(bench(*run))["done"] == 4
    assert json.loads(bench(*run, "--methods", "fill")) == {
        "out": str(out),
        "skipped": 8,
    }


COMMAS = """
ratios = [0.2, 0.5]
datasets = ["clinic", { name = "clinic-stay", rows = 80 }]
[[methods]]
generator = "cheap"
[[methods]]
generator = "fill"
augmenter = "mean"
label = "Cheap, or dear"
[[methods]]
generator = "fill"
augmenter = "zero"
label = "Zero"
"""


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        (["Cheap, or dear"], {"Cheap, or dear"}),
        (["Zero", "Cheap, or dear"], {"Zero", "Cheap, or dear"}),
        (["Zero,Cheap, or dear , cheap"], {"Zero", "Cheap, or dear", "Cheap"}),
        (["Cheap, Zero"], {"Cheap", "Zero"}),
        (["fill"], {"Zero", "Cheap, or dear"}),
    ],
)
def test_a_label_with_a_comma_can_be_chosen(bench, write_plan, options, labels):
    texts = [text for option in options for text in ("--methods", option)]
    chosen = json.loads(bench("plan", write_plan(COMMAS), "--json", *texts))
    assert {run["method"] for run in chosen["runs"]} == labels
    assert chosen["methods"] == len(labels)


def test_half_a_label_is_refused(bench, write_plan):
    with pytest.raises(UsageError, match="no method 'or cheap'; did you mean"):
        bench("plan", write_plan(COMMAS), "--methods", "Cheap, or cheap")


def test_plan_and_status_tell_of_the_chosen_runs(bench, write_plan, tmp_path):
    plan, out = write_plan(GRID), tmp_path / "out"
    part = ("--out", out, "--methods", "Cheap", "--ratios", "0.5", "--seeds", "1")
    text = bench("plan", plan, *part)
    assert "1 ratios x 1 seeds x 1 methods = 1 runs" in text
    assert "0 completed, 1 pending" in text
    assert "fill: Mean" not in text
    bench("run", plan, "--out", out, "--jobs", 0, "--methods", "Cheap")
    assert "1 completed, 0 pending" in bench("plan", plan, *part)
    assert bench("status", plan, *part).startswith(f"{out}: 1 done, 0 pending\n")
    other = ("--out", out, "--datasets", "clinic-stay", "--mechanisms", "mcar")
    summary = json.loads(bench("status", plan, *other, "--methods", "fill", "--json"))
    assert (summary["runs"], summary["pending"], summary["stale"]) == (8, 8, 0)
    whole = json.loads(bench("status", plan, "--out", out, "--json"))
    assert (whole["runs"], whole["done"], whole["pending"]) == (12, 4, 8)
    for command in ("plan", "status", "figures"):
        with pytest.raises(UsageError, match="the plan has no seed 7"):
            bench(command, plan, "--out", out, "--seeds", 7)


def test_figures_show_the_chosen_runs(bench, write_plan, own_table, tmp_path):
    plan, out = write_plan(OWN), tmp_path / "out"
    bench("run", plan, "--out", out, "--jobs", 0)
    only = ("figures", plan, "--out", out, "--only", "ranks", "--json")
    assert len(json.loads(bench(*only))["files"]) == 2
    drawn = json.loads(bench(*only, "--methods", "Broken"))
    assert drawn["files"] == []
    assert "at least two methods" in drawn["skipped"]["ranks"]


def test_methods_are_listed_with_their_requirements(bench):
    listed = json.loads(bench("methods", "--json"))["methods"]
    by_name = {line["generator"]: line for line in listed}
    assert by_name["fill"]["needs"] == "an augmenter"
    assert by_name["cdtd"]["reason"] == ""
    # the paper's baselines are registered
    aware = [line["label"] for line in listed if line["missing_aware"]]
    assert aware[:4] == ["MIWAE", "MissDiff", "DiffPuter", "ForestDiff"]
    assert by_name["tabsyn"]["strategies"] == ["NoAug", "AugFull"]
    assert by_name["arf"]["needs"] == "the package arfpy"


def test_mistakes_are_reported_before_any_run(bench, write_plan, tmp_path):
    for text, message in [
        (GRID + '[[methods]]\ngenerator = "cdtd"\noptions = { stepz = 1 }', "steps"),
        (GRID.replace('"clinic-stay"', '"clinic-stay", target = "agee"'), "'age'"),
    ]:
        with pytest.raises(AugMaskError, match=message):
            bench("run", write_plan(text), "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_run_whose_process_dies_is_a_failed_run(
    bench, write_plan, tmp_path, monkeypatch
):
    (tmp_path / "deadly.py").write_text(
        "import os\nfrom augmask_bench.generators import Generator\n"
        "from augmask_bench.methods import register\n"
        "register(Generator('deadly', 'Deadly', lambda request: os._exit(9)))\n"
    )
    plan = write_plan(GRID.replace("[0.2, 0.5]", "[0.2]"))
    text = plan.read_text().replace('"cheap.py"', '"cheap.py", "deadly.py"')
    plan.write_text(text + '[[methods]]\ngenerator = "deadly"\n')
    out = tmp_path / "out"
    summary = json.loads(bench("run", plan, "--out", out, "--jobs", 1, "--json"))
    assert (summary["done"], summary["failed"]) == (6, 2)
    frame = collect(out, read_plan(plan).runs)
    assert frame[frame["status"] == "failed"]["method"].tolist() == ["Deadly"] * 2
    assert frame["reason"].max() == "its worker process died, also when it ran alone"


def without_times(plan, out) -> pd.DataFrame:
    """Return the results without times."""
    frame = collect(out, read_plan(plan).runs)
    return frame.drop(columns=[c for c in frame if c.endswith("seconds")] + ["date"])


@pytest.mark.parametrize(
    ("kills", "seeds"), [(3, 2), pytest.param(10, 10, marks=pytest.mark.slow)]
)
def test_a_grid_killed_at_random_moments_loses_and_doubles_nothing(
    write_plan, tmp_path, kills, seeds
):
    plan = write_plan(GRID.replace("[0, 1]", str(list(range(seeds)))))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(out):
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "run", plan, "--out", out, "--jobs=2"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    intact, killed = tmp_path / "intact", tmp_path / "killed"
    began = time.monotonic()
    assert start(intact).wait() == 0
    intact_seconds = time.monotonic() - began
    chance = random.Random(0)
    for _ in range(kills):
        process = start(killed)
        with pytest.raises(subprocess.TimeoutExpired):
            # together the waits last about as long as the uninterrupted grid
            process.wait(chance.uniform(0.05, 1.2 / kills) * intact_seconds)
        process.kill()
        process.wait()
    assert start(killed).wait() == 0
    pd.testing.assert_frame_equal(
        without_times(plan, killed), without_times(plan, intact)
    )
    runs = 2 * 3 * seeds
    assert len(without_times(plan, killed)) == runs
    # a second start has nothing to do
    stamps = {p: p.stat().st_mtime_ns for p in (killed / "runs").glob("[0-9a-f]*")}
    assert start(killed).wait() == 0
    assert stamps == {p: p.stat().st_mtime_ns for p in stamps}
    assert len(stamps) == runs


@pytest.mark.slow
def test_the_smoke_plan_completes(bench, tmp_path, monkeypatch):
    monkeypatch.delenv("AUGMASK_DATA", raising=False)
    plan = Path(__file__).parents[3] / "benchmarks" / "smoke.toml"
    out = tmp_path / "out"
    summary = json.loads(bench("run", plan, "--out", out, "--json"))
    assert summary == {"out": str(out), "skipped": 0, "done": 32}
    ranks = json.loads(bench("table", plan, "--out", out, "--json"))["ranks"]
    assert len(ranks["mcar"]) == 6
    drawn = json.loads(bench("figures", plan, "--out", out, "--json"))
    names = {Path(file).stem for file in drawn["files"]}
    assert {"ranks", "robustness", "fidelity", "umap", "augmentation-cost"} <= names
    again = json.loads(bench("run", plan, "--out", out, "--json"))
    assert again == {"out": str(out), "skipped": 32}


def test_rows_kept_on_another_disk_stop_the_grid(write_plan, tmp_path):
    def elsewhere(call, jobs, done):
        for group in jobs:
            done(group, [{**facts_of(run), "status": "trained"} for run in group.runs])

    work = Work(tmp_path, read_plan(write_plan(GRID)).runs, elsewhere)
    with pytest.raises(UsageError, match="all workers share"):
        work.train()
    assert not (tmp_path / "runs").exists()


def test_a_mechanism_that_cannot_be_ranked_leaves_the_others(bench, write_plan):
    plan = write_plan(
        'mechanisms = ["mcar", "mar"]\ndatasets = [{ name = "clinic", rows = 60 }]\n'
        '[[methods]]\ngenerator = ["cheap", "absent"]\n'
    )
    for i, run in enumerate(read_plan(plan).runs):
        line = {**facts_of(run), "status": "done" if i < 2 else "unable"}
        write(plan.parent / "out", {**line, **dict.fromkeys(METRICS, 0.5 + i / 10)})
    text = bench("table", plan, "--out", plan.parent / "out")
    assert "MCAR" in text
    assert "MAR, " not in text.replace("MCAR", "")


def test_out_must_be_a_folder(bench, write_plan, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--out must be a folder"):
        bench("status", write_plan(GRID), "--out", tmp_path / "file")


def test_methods_of_a_plan_are_listed_too(bench, write_plan):
    listed = json.loads(bench("methods", write_plan(GRID), "--json"))["methods"]
    assert {"cheap", "absent", "cdtd"} <= {line["generator"] for line in listed}
