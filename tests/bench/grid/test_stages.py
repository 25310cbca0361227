"""Stages, groups that train together, and grids that move between two machines."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer

from augmask.errors import DataError, UsageError
from augmask.prepare import prepare_fit
from augmask.train.accelerated.batched_models import can_batch
from augmask_bench import cli, exchange
from augmask_bench.exchange import export_grid, import_grid
from augmask_bench.fills import StoredFill
from augmask_bench.generators import _model
from augmask_bench.lock import folder_lock
from augmask_bench.plan import fill_name, read_plan
from augmask_bench.ranks import METRICS
from augmask_bench.results import (
    collect,
    failed_result,
    pending,
    read_rows,
    sample_file,
    store_rows,
    trained_elsewhere,
    untrained,
    write,
)
from augmask_bench.run import Block, Group, execute, request_of
from augmask_bench.speed import expected_seconds, use_of_devices
from augmask_bench.stages import fill_jobs, train_groups

TINY = """
preset = "fast"
options = { steps = 4, batch_size = 32, width = 16, depth = 1, sampling_steps = 4 }
"""
BACKBONES = (
    """
mechanisms = ["mcar", "mar"]
ratios = [0.4]
seeds = [0, 1]
datasets = [{ name = "clinic-stay", rows = 100 }]
[[methods]]
generator = "cdtd"
strategy = ["NoAug", "AugFull", "AugMask"]
"""
    + TINY
)
# Writes a line for every row that it makes, to count trainings.
LOGGED = """
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from augmask_bench.generators import Generator, Generated
from augmask_bench.methods import register

LOG = Path(__file__).with_name("log")


def make(request):
    time.sleep(0.02)
    rng = np.random.default_rng(request.seed)
    table = request.table
    rows = {c: rng.choice(table[c].dropna().to_numpy(), request.rows) for c in table}
    with LOG.open("a") as file:
        file.write(f"{request.seed} {int(table.isna().to_numpy().sum())}\\n")
    return Generated(pd.DataFrame(rows), 0.5, 0.25, {"steps": 3})


register(Generator("logged", "Logged", make))
"""
GRID = """
modules = ["logged.py"]
device = "cpu"
ratios = [0.2, 0.3]
seeds = [0, 1]
datasets = [{ name = "clinic-stay", rows = 120 }]
[[methods]]
generator = "logged"
[[methods]]
generator = "fill"
augmenter = ["mean", "lgbm-s"]
[[methods]]
generator = "cdtd"
strategy = ["AugFull", "AugMask"]
preset = "fast"
options = { steps = 4, batch_size = 32, width = 16, depth = 1, sampling_steps = 4 }
"""
COMMAND = "from augmask_bench.cli import app; app()"


@pytest.fixture
def bench(capsys):
    """Run a command in this process, without workers, and return its document."""

    def run(command: str, *arguments: object) -> dict:
        texts = [command, *map(str, arguments), "--json"]
        if command in ("run", "fill", "train", "score"):
            texts += ["--jobs", "0"]
        capsys.readouterr()
        typer.main.get_command(cli.app).main(texts, standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def grid(tmp_path) -> Path:
    """Return a plan whose trainings are counted in the file `log`."""
    (tmp_path / "logged.py").write_text(LOGGED)
    plan = tmp_path / "grid.toml"
    plan.write_text(GRID)
    return plan


def table_of(plan: Path, out: Path) -> pd.DataFrame:
    """Return the results without times, the commit and what trained together."""
    frame = collect(out, read_plan(plan).runs)
    left = [c for c in frame if c.endswith("seconds")] + ["date", "together", "commit"]
    return frame.drop(columns=left)


def trainings(plan: Path) -> list[str]:
    return sorted(plan.with_name("log").read_text().splitlines())


# -- trained together ---------------------------------------------------------------


@pytest.mark.parametrize("generator", ["cdtd", "tabdiff", "tabddpm"])
def test_trained_together_is_trained_alone_bit_for_bit(
    generator, bench, write_plan, tmp_path
):
    plan = write_plan("keep = true\n" + BACKBONES.replace("cdtd", generator))
    alone, together = tmp_path / "alone", tmp_path / "together"
    bench("run", plan, "--out", alone)
    counts = bench("run", plan, "--out", together, "--together", 5)
    assert counts["done"] == 12
    runs = read_plan(plan).runs
    sizes = {facts["together"] for facts in collect(together, runs).to_dict("records")}
    assert sizes == {4}
    pd.testing.assert_frame_equal(table_of(plan, together), table_of(plan, alone))
    for run in runs:
        one, other = (read_rows(sample_file(o, run))[0] for o in (alone, together))
        pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_all_blocks_of_a_data_set_are_one_batch(write_plan, own_table, tmp_path):
    frame = pd.read_csv(own_table)
    # in a training table or not, observed or not
    frame.loc[:8, "colour"] = [f"rare {i}" for i in range(9)]
    frame.to_csv(own_table, index=False)
    head = BACKBONES.replace("[0, 1]", "[0, 1, 2]").split("datasets")
    methods = head[1].split("\n", 1)[1]
    plan = write_plan(
        head[0] + '[[datasets]]\npath = "mine.csv"\ntarget = "grade"\n' + methods
    )
    runs = read_plan(plan).runs
    assert_one_batch(runs, tmp_path)
    seen = {
        frozenset(Block(run).incomplete["colour"].dropna().unique()) for run in runs
    }
    assert len(seen) > 3


def assert_one_batch(runs, out: Path) -> None:
    (group,) = train_groups(runs, len(runs))
    first, shapes = None, set()
    for run in group.runs:
        block = Block(run)
        request = request_of(run, out, block.data, block.incomplete)
        model = _model(request).set_params(augmenter="mean", device="cpu")
        setup = prepare_fit(model, request.table, schema=request.schema)
        shapes.add((setup.state.layout.num_names, setup.state.layout.cards))
        first = first or setup.trainer
        assert can_batch(first, setup.trainer), str(run)
    assert len(shapes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adult", "default", "shoppers", "magic"])
@pytest.mark.parametrize("generator", ["cdtd", "tabddpm"])
@pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")
def test_thirty_blocks_of_a_real_table_are_one_batch(
    name, generator, write_plan, data_folder, tmp_path
):
    text = (
        'mechanisms = ["mcar", "mar"]\nratios = [0.1, 0.3, 0.5, 0.7, 0.9]\n'
        f'seeds = [0, 1, 2]\ndatasets = ["{name}"]\n[[methods]]\n'
        f'generator = "{generator}"\nstrategy = "AugMask"\n' + TINY
    )
    runs = read_plan(write_plan(text)).runs
    assert_one_batch(runs, tmp_path)


def test_groups_are_of_one_generator_and_equal_size(write_plan):
    text = BACKBONES + '[[methods]]\ngenerator = "cheap"\n'
    runs = read_plan(write_plan(text)).runs
    groups = train_groups(runs, 8)
    sizes = [len(group.runs) for group in groups]
    assert sizes == [6, 6, 1, 1, 1, 1]
    assert str(groups[0]) == "6 runs of CDTD on clinic-stay"
    assert sorted(run.name for g in groups for run in g.runs) == sorted(
        run.name for run in runs
    )
    # a limit of time is for one run
    timed = read_plan(write_plan("max_minutes = 5\n" + text)).runs
    assert {len(group.runs) for group in train_groups(timed, 8)} == {1}


def test_a_failure_leaves_the_others_of_its_group(write_plan, tmp_path, monkeypatch):
    runs = read_plan(write_plan(BACKBONES)).runs[:3]
    from augmask import AugMask
    from augmask_bench.run import train

    sample = AugMask.sample

    def broken(self, n, **options):
        if self.supervise == "observed":
            raise RuntimeError("it broke")
        return sample(self, n, **options)

    monkeypatch.setattr(AugMask, "sample", broken)
    results = train(Group(tuple(runs)), tmp_path)
    assert [r["status"] for r in results] == ["trained", "trained", "failed"]
    assert results[2]["reason"] == "RuntimeError: it broke"
    assert not sample_file(tmp_path, runs[2]).exists()


def test_a_group_too_large_for_the_memory_trains_in_halves(
    write_plan, tmp_path, monkeypatch
):
    import augmask as am
    from augmask_bench.run import train

    fit_many, sizes = am.fit_many, []

    def little_memory(models, tables, **options):
        sizes.append(len(models))
        if len(models) > 2:
            raise RuntimeError("out of memory")
        return fit_many(models, tables, **options)

    monkeypatch.setattr(am, "fit_many", little_memory)
    runs = read_plan(write_plan(BACKBONES)).runs[:4]
    results = train(Group(tuple(runs)), tmp_path)
    assert [result["status"] for result in results] == ["trained"] * 4
    assert sizes == [4, 2, 2]


# -- stages -------------------------------------------------------------------------


def test_stages_one_by_one_are_a_run(bench, grid, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert bench("run", grid, "--out", whole)["done"] == 20
    once = trainings(grid)
    # mean and lgbm-s of four blocks, and lgbm-s as `fast` draws it
    assert bench("fill", grid, "--out", parts)["filled"] == 12
    assert bench("train", grid, "--out", parts)["trained"] == 20
    assert trainings(grid) == sorted(once * 2)
    runs = read_plan(grid).runs
    assert not untrained(parts, runs)
    assert len(pending(parts, runs)) == 20
    assert bench("status", grid, "--out", parts)["trained"] == 20
    assert bench("score", grid, "--out", parts)["done"] == 20
    pd.testing.assert_frame_equal(table_of(grid, parts), table_of(grid, whole))
    # rows that the plan does not keep are gone, and nothing is left to do
    assert not list((parts / "samples").iterdir())
    for stage in ("fill", "train", "score", "run"):
        assert bench(stage, grid, "--out", parts) == {"out": str(parts), "skipped": 20}
    assert trainings(grid) == sorted(once * 2)


def test_a_part_of_the_plan_can_be_chosen(bench, grid, tmp_path):
    out = tmp_path / "out"
    counts = bench(
        *("run", grid, "--out", out, "--ratios", "0.3", "--seeds", "0,1"),
        *("--methods", "logged", "--device", "cpu"),
    )
    assert counts == {"out": str(out), "skipped": 0, "done": 2}
    counts = bench("run", grid, "--out", out, "--methods", "logged")
    assert (counts["done"], counts["skipped"]) == (2, 2)
    for option, value, message in [
        ("--datasets", "clinic", "no dataset 'clinic'; did you mean 'clinic-stay'"),
        ("--ratios", "0.5", r"no ratio 0.5; known: 0.2, 0.3"),
        ("--seeds", "x", "--seeds must be numbers, got 'x'"),
        ("--mechanisms", "mar", "no mechanism 'mar'"),
        ("--device", "gpu", "--device"),
        ("--minutes", "0", "--minutes must be above 0"),
    ]:
        with pytest.raises(UsageError, match=message):
            bench("run", grid, "--out", out, option, value)
    # ranks of the blocks that the chosen methods share
    bench("run", grid, "--out", out, "--methods", "CDTD + AugFull")
    bench("run", grid, "--out", out, "--methods", "CDTD + AugMask", "--seeds", "0")
    with_cdtd = bench("table", grid, "--out", out)
    assert set(with_cdtd["ranks"]["mcar"]) == {
        "CDTD + AugFull",
        "CDTD + AugMask",
        "Logged",
    }
    csv = pd.read_csv(out / "ranks-mcar.csv")
    assert set(csv["blocks"]) == {2}
    bench("table", grid, "--out", out, "--methods", "logged,CDTD + AugFull")
    assert set(pd.read_csv(out / "ranks-mcar.csv")["blocks"]) == {4}


def test_a_stage_ends_when_its_time_is_over(bench, grid, tmp_path):
    out = tmp_path / "out"
    counts = bench(
        "train", grid, "--out", out, "--methods", "logged", "--minutes", 1e-9
    )
    assert counts == {"out": str(out), "skipped": 0, "postponed": 4}
    assert not grid.with_name("log").exists()
    # what is known about earlier groups decides whether another one fits
    bench("train", grid, "--out", out, "--methods", "logged", "--seeds", 0)
    (one, *_) = (out / "groups").iterdir()
    facts = json.loads(one.read_text())
    one.write_text(json.dumps(facts | {"seconds": 90.0}))
    counts = bench("train", grid, "--out", out, "--methods", "logged", "--minutes", 1)
    assert counts["postponed"] == 2
    counts = bench("train", grid, "--out", out, "--methods", "logged", "--minutes", 2)
    assert counts["trained"] == 2


def test_expected_seconds_follow_the_slowest_group_of_the_kind(write_plan):
    runs = read_plan(write_plan(BACKBONES)).runs[:2]

    def group(generator: str, dataset: str, names: str, seconds: float, device="cpu"):
        facts = {"generator": generator, "dataset": dataset, "runs": list(names)}
        return facts | {"seconds": seconds, "device": device}

    known = [
        group("cdtd", "other", "a", 50.0),
        group("tabdiff", "clinic-stay", "b", 9.0),
    ]
    assert expected_seconds([], runs) == 0
    assert expected_seconds(known, runs) == 100.0
    known.append(group("cdtd", "clinic-stay", "cd", 6.0))
    assert expected_seconds(known, runs) == 6.0
    # a GPU elsewhere says nothing about this CPU, a group without rows may
    elsewhere = group("cdtd", "clinic-stay", "e", 900.0, "cuda")
    assert expected_seconds([*known, elsewhere], runs) == 6.0
    assert expected_seconds([elsewhere], runs) == 0
    assert expected_seconds([elsewhere | {"device": ""}], runs) == 1800.0


def test_status_says_what_a_device_was_used_for(bench, write_plan, tmp_path):
    plan, out = write_plan(BACKBONES), tmp_path / "out"
    bench("train", plan, "--out", out, "--seeds", 0, "--together", 6)
    used = bench("status", plan, "--out", out)["devices"]["cpu"]
    assert (used["runs"], used["steps"]) == (6, 24)
    assert used["seconds"] > 0
    assert used["steps_per_second"] > 0
    assert use_of_devices(out, {"another"}) == {}
    part = bench("status", plan, "--out", out, "--methods", "CDTD + NoAug")
    half = part["devices"]["cpu"]
    assert (half["runs"], half["steps"]) == (2, 8)
    assert half["seconds"] == pytest.approx(used["seconds"] / 3)


def test_two_commands_on_one_folder_do_the_work_once(grid, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", COMMAND, "run", grid, "--out", out]
    command += ["--jobs=0", "--methods=logged"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    said = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(trainings(grid)) == 4
    assert len(set(trainings(grid))) == 4
    assert sum("done" in text for text in said) in (1, 2)


def test_a_command_waits_for_the_lock(tmp_path):
    code = (
        "import sys, time; from pathlib import Path;"
        "from augmask_bench.lock import folder_lock\n"
        "with folder_lock(Path(sys.argv[1])):\n"
        "    print('mine', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"mine\n"
    told = []

    def waiting():
        told.append(True)
        # the system releases the lock of a killed process
        holder.kill()

    with folder_lock(tmp_path, waiting):
        assert told == [True]
    holder.communicate()


# -- fills --------------------------------------------------------------------------


def test_fills_are_shared_by_generators_that_encode_alike(write_plan):
    text = """
datasets = [{ name = "clinic-stay", rows = 80 }]
[[methods]]
generator = ["cdtd", "tabddpm", "tabsyn"]
strategy = "AugFull"
preset = "paper"
[[methods]]
generator = "fill"
augmenter = "lgbm-s"
[[methods]]
generator = "cdtd"
strategy = "AugMask"
completions = "stack:2"
[[methods]]
generator = "cdtd"
strategy = "AugFull"
preset = "fast"
label = "fast"
[[methods]]
generator = "cheap"
"""
    names = [fill_name(run) for run in read_plan(write_plan(text)).runs]
    assert len(set(names[:4])) == 1
    # more draws, and another encoding of ties
    assert len(set(names[3:])) == 4
    assert names[-1] == ""


def test_a_fill_of_another_table_is_refused(make_table, tmp_path):
    class Constant:
        def fit(self, table, _rng, _progress=None):
            self.table = table
            return self

        def draw(self, _rng):
            table = self.table
            return table.filled(
                np.where(table.num_observed, table.num, 1.5),
                np.where(table.cat_observed, table.cat, 0),
            )

    path, rng = tmp_path / "fill.npz", np.random.default_rng(0)
    one, other = make_table(seed=0), make_table(seed=1)
    drawn = StoredFill(Constant(), path).fit(one, rng).draw(rng)
    assert (drawn.num[~one.num_observed] == 1.5).all()
    again = StoredFill(None, path).fit(one, rng)
    assert np.array_equal(again.draw(rng).num, drawn.num)
    with pytest.raises(DataError, match="has 1 draws and more are needed"):
        again.draw(rng)
    with pytest.raises(DataError, match="is of another incomplete table"):
        StoredFill(None, path).fit(other, rng)


def test_the_truth_is_an_oracle(write_plan, tmp_path):
    text = """
ratios = [0.5]
keep = true
datasets = [{ name = "clinic-stay", rows = 100 }]
[[methods]]
generator = "fill"
augmenter = "truth"
[[methods]]
generator = "cdtd"
strategy = "Complete"
augmenter = "truth"
supervise = "all"
"""
    text += TINY.replace(" }", ', links = "ignore" }')
    runs = read_plan(write_plan(text)).runs
    results = [execute(run, tmp_path) for run in runs]
    assert [result["status"] for result in results] == ["done"] * 2, results
    rows, _ = read_rows(sample_file(tmp_path, runs[0]))
    block = Block(runs[0])
    for name, observed in block.incomplete.items():
        true, filled = block.train[name], rows[name]
        if name in block.data.numeric:
            # numbers are scaled by what was observed, which has the range of observed
            true = true.clip(observed.min(), observed.max())
            np.testing.assert_allclose(filled, true, rtol=1e-5)
        else:
            assert filled.astype(str).tolist() == true.astype(str).tolist()
    assert results[0]["shape"] > 0.98


# -- two machines -------------------------------------------------------------------

# what the machine with a GPU lacks
BARE = """
import sys
for name in ("lightgbm", "xgboost", "dask", "distributed"):
    sys.modules[name] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if sys.modules.get(name, sys) is None else find(name, *rest))
import json
from augmask_bench.cli import app
for command in json.loads(sys.argv[1]):
    app(command, standalone_mode=False)
"""


def test_a_machine_without_lightgbm_and_xgboost_can_train(bench, grid, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    whole, archives = tmp_path / "whole", tmp_path / "archives"
    bench("run", grid, "--out", whole)
    grid.with_name("log").unlink()

    def on_gpu(*commands: tuple[object, ...]) -> str:
        texts = [[*map(str, command), "--out", str(there)] for command in commands]
        command = [sys.executable, "-c", BARE, json.dumps(texts)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # without fills, what needs them waits
    assert json.loads(on_gpu(("train", grid, "--json"))) == {
        "out": str(there), "skipped": 0, "trained": 8, "unable": 12
    }  # fmt: skip
    for reason in collect(there, read_plan(grid).runs)["reason"]:
        assert "run `augmask bench fill` where that is installed" in reason
    bench("fill", grid, "--out", here)
    files = bench("export", grid, archives, "--out", here, "--what", "work")["files"]
    assert [Path(file).name for file in files] == ["grid-work-001.zip"]
    on_gpu(
        ("import", grid, archives),
        ("train", grid, "--minutes", 9),
        ("export", grid, archives, "--what", "results"),
    )
    counts = bench("import", grid, archives, "--out", here)
    assert counts["samples"] == 20
    assert bench("score", grid, "--out", here)["done"] == 20
    left = ["versions"]
    pd.testing.assert_frame_equal(
        table_of(grid, here).drop(columns=left),
        table_of(grid, whole).drop(columns=left),
    )
    assert len(trainings(grid)) == 4
    # the next slice knows what is done, on a fresh machine too
    bench("export", grid, archives, "--out", here, "--what", "work")
    there = tmp_path / "fresh"
    work = archives / "grid-work-001.zip"
    assert "nothing new" in on_gpu(("import", grid, work), ("train", grid))
    assert len(trainings(grid)) == 4
    assert len(trained_elsewhere(there)) == 20


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Return a folder with a plan, and in `out` its rows, fills and one record."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "logged.py").write_text(LOGGED)
    plan, out = folder / "grid.toml", folder / "out"
    plan.write_text(GRID)
    for command in (["train"], ["score", "--methods", "logged", "--seeds", "0"]):
        texts = [command[0], str(plan), "--out", str(out), "--jobs", "0", *command[1:]]
        typer.main.get_command(cli.app).main(texts, standalone_mode=False)
    return folder


@pytest.fixture
def plan(made) -> Path:
    """Return the plan of `trained`."""
    return made / "grid.toml"


@pytest.fixture
def trained(made, tmp_path) -> Path:
    """Return a copy of the folder of a grid with rows, fills and records."""
    return Path(shutil.copytree(made / "out", tmp_path / "trained"))


def contents(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for folder in ("fills", "samples", "runs", "groups")
        for path in (out / folder).iterdir()
    }


@pytest.mark.parametrize("mib", [0.02, 0.1, 15])
def test_exported_is_imported(plan, trained, tmp_path, mib):
    runs, archives = read_plan(plan).runs, tmp_path / "archives"
    files = export_grid(trained, runs, archives, stem="a plan", mib=mib)
    assert max(file.stat().st_size for file in files) <= mib * 2**20
    assert {file.name[:10] for file in files} == {"a_plan-all"}
    total = sum(file.stat().st_size for file in files)
    # few: at least half full but for the last one
    assert len(files) <= total / (0.5 * mib * 2**20) + 1
    moved = tmp_path / "moved"
    counts = import_grid(moved, runs, [archives])
    assert (counts["samples"], counts["runs"], counts["incomplete"]) == (18, 2, 0)
    assert contents(moved) == contents(trained)
    again = import_grid(moved, runs, files)
    assert not +again
    # exporting again replaces the archives, with the same bytes
    before = {file.name: file.read_bytes() for file in files}
    export_grid(trained, runs, archives, stem="a plan", mib=mib)
    assert {file.name: file.read_bytes() for file in archives.iterdir()} == before


def test_rows_of_a_scored_run_do_not_come_back(bench, plan, trained, tmp_path):
    # a slice exports what it made until it learns that it was scored
    runs = read_plan(plan).runs
    files = export_grid(trained, runs, tmp_path / "archives", stem="x")
    bench("score", plan, "--out", trained)
    assert not list((trained / "samples").iterdir())
    assert import_grid(trained, runs, files)["samples"] == 0
    assert not list((trained / "samples").iterdir())
    # nor those of a failed one, which would be scored again
    failed = failed_result(runs[0], "it broke")
    (trained / "runs" / f"{runs[0].name}.json").unlink()
    write(trained, failed)
    assert import_grid(trained, runs, files)["samples"] == 0


def test_another_machine_knows_how_long_groups_took(bench, grid, tmp_path):
    here, there, third = (tmp_path / name for name in ("here", "there", "third"))
    archives = tmp_path / "archives"

    def carry(what: str, start: Path, end: Path) -> dict:
        shutil.rmtree(archives, ignore_errors=True)
        bench("export", grid, archives, "--out", start, "--what", what)
        return bench("import", grid, archives, "--out", end)

    part = ("--methods", "logged", "--seeds", 0)
    bench("train", grid, "--out", here, *part)
    for path in (here / "groups").iterdir():
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 90.0}))
    used = bench("status", grid, "--out", here)["devices"]["cpu"]
    assert (used["runs"], used["seconds"]) == (2, 180.0)
    assert carry("work", here, there)["groups"] == 2
    left = ("train", grid, "--out", there, "--methods", "logged", "--minutes")
    assert bench(*left, 1)["postponed"] == 2
    assert bench(*left, 2)["trained"] == 2
    # each group is counted once, wherever it went
    new = use_of_devices(there, {run.name for run in read_plan(grid).runs})["cpu"]
    assert carry("results", there, here)["groups"] == 2
    again = bench("status", grid, "--out", here)["devices"]["cpu"]
    assert (again["runs"], again["seconds"]) == (4, new["seconds"])
    assert "groups" not in carry("all", there, here)
    # nothing is left of this generator: no other one needs its times
    assert "groups" not in carry("work", here, third)


def test_what_belongs_to_no_run_is_ignored(plan, trained, tmp_path):
    runs = read_plan(plan).runs
    files = export_grid(trained, runs, tmp_path / "archives", stem="x")
    some = [run for run in runs if run.seed == 0]
    counts = import_grid(tmp_path / "part", some, files)
    assert counts["ignored"] > 0
    names = {run.name for run in some}
    assert {path.stem for path in (tmp_path / "part/samples").iterdir()} < names


def test_archives_may_be_imported_apart(plan, trained, tmp_path):
    runs = read_plan(plan).runs
    files = export_grid(trained, runs, tmp_path / "archives", stem="x", mib=0.02)
    moved = tmp_path / "moved"
    counts = [import_grid(moved, runs, [file]) for file in files]
    # only a file in pieces needs all of its archives
    assert sum(count["samples"] for count in counts) <= 18
    assert import_grid(moved, runs, files)["incomplete"] == 0
    assert len(list((moved / "samples").iterdir())) == 18


def test_rows_of_the_size_of_news_fit_into_archives(plan, tmp_path):
    runs, out, archives = read_plan(plan).runs, tmp_path / "out", tmp_path / "archives"
    rng = np.random.default_rng(0)
    # the training rows and columns of News, and numbers that cannot be compressed
    rows = pd.DataFrame(rng.normal(size=(23_786, 59)))
    rows.columns = [f"c{i}" for i in rows]
    rows["class"] = rng.choice(["a", "b"], len(rows))
    for run in runs[:4]:
        store_rows(sample_file(out, run), rows, {"run": run.name})
    files = export_grid(out, runs, archives, stem="x", what="results", mib=8)
    assert max(file.stat().st_size for file in files) <= 8 * 2**20
    total = sum(path.stat().st_size for path in (out / "samples").iterdir())
    assert total > 4 * 8 * 2**20
    counts = import_grid(tmp_path / "moved", runs, files)
    assert (counts["samples"], counts["incomplete"]) == (4, 0)
    for run in runs[:4]:
        moved = sample_file(tmp_path / "moved", run)
        assert moved.read_bytes() == sample_file(out, run).read_bytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("../outside.json", b"{}"),
        ("/etc/passwd", b"{}"),
        ("fills/../../x.npz", b""),
        ("runs/not-a-name.json", b"{}"),
        ("code/0123456789abcdef0123.py", b""),
    ],
)
def test_foreign_archives_are_refused(plan, tmp_path, name, content):
    archive = tmp_path / "foreign.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, content)
    with pytest.raises(DataError, match="is not an archive of `augmask bench export`"):
        import_grid(tmp_path / "out", read_plan(plan).runs, [archive])
    assert {path.name for path in tmp_path.iterdir()} <= {*("foreign.zip", "out")}


def test_damaged_archives_are_refused(plan, trained, tmp_path):
    runs = read_plan(plan).runs
    (file,) = export_grid(trained, runs, tmp_path / "archives", stem="x")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    for damaged in (content[:100], bytes(content)):
        (tmp_path / "x.zip").write_bytes(damaged)
        with pytest.raises(DataError, match=r"cannot read the archive|is damaged"):
            import_grid(tmp_path / "moved", runs, [tmp_path / "x.zip"])
    with pytest.raises(DataError, match="no such file"):
        import_grid(tmp_path / "moved", runs, [tmp_path / "nothing"])
    with pytest.raises(DataError, match="there is no archive"):
        import_grid(tmp_path / "moved", runs, [tmp_path / "trained" / "fills"])


def test_damaged_notes_in_an_archive_are_no_trouble(bench, plan, tmp_path):
    run, out = read_plan(plan).runs[0], tmp_path / "out"
    archive = tmp_path / "x.zip"
    part = json.dumps({"runs": [run.name], "seconds": 1})
    with zipfile.ZipFile(archive, "w") as file:
        for i, text in enumerate(["", "[]", part, part.replace("1}", '"long"}')]):
            file.writestr(f"groups/{i:020}.json", text)
    assert bench("import", plan, archive, "--out", out)["ignored"] == 4
    (out / "groups").mkdir()
    (out / "groups" / "damaged.json").write_text(part)
    assert bench("status", plan, "--out", out)["devices"] == {}
    for text in ("", "1", '{"a'):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("trained.json", text)
        with pytest.raises(DataError, match=r"the list trained\.json .* is damaged"):
            import_grid(out, [run], [archive])


def test_rows_may_be_scored_and_removed_during_an_export(
    plan, trained, tmp_path, monkeypatch
):
    runs, to = read_plan(plan).runs, tmp_path / "to"
    packed = exchange._packed

    def meanwhile(members, most):
        archives = packed(members, most)
        sample_file(trained, runs[-1]).unlink()
        return archives

    monkeypatch.setattr(exchange, "_packed", meanwhile)
    files = export_grid(trained, runs, to, stem="x")
    assert import_grid(tmp_path / "moved", runs, files)["samples"] == 17


def test_imports_do_not_undo_a_completed_run(bench, plan, trained, tmp_path):
    runs = read_plan(plan).runs
    files = export_grid(trained, runs, tmp_path / "archives", stem="x")
    bench("score", plan, "--out", trained)
    before = table_of(plan, trained)
    import_grid(trained, runs, files)
    pd.testing.assert_frame_equal(table_of(plan, trained), before)
    assert bench("run", plan, "--out", trained)["skipped"] == 20


def test_an_export_of_an_unknown_kind_or_size_is_refused(plan, tmp_path):
    with pytest.raises(UsageError, match="what must be one of"):
        export_grid(tmp_path, [], tmp_path / "to", stem="x", what="everything")
    with pytest.raises(UsageError, match="the size must be at least"):
        export_grid(tmp_path, [], tmp_path / "to", stem="x", mib=0.001)
    assert fill_jobs(tmp_path, []) == []


def stamps(out: Path) -> dict[Path, int]:
    """Return when the rows and records of a grid were written."""
    files = [path for kind in ("samples", "runs") for path in (out / kind).glob("*.*")]
    return {
        path: path.stat().st_mtime_ns
        for path in files
        if re.fullmatch("[0-9a-f]{20}", path.stem)
    }


@pytest.mark.parametrize(
    ("kills", "seeds"), [(1, 2), pytest.param(20, 5, marks=pytest.mark.slow)]
)
def test_slices_that_are_killed_give_the_table_of_an_unbroken_run(
    bench, grid, tmp_path, kills, seeds, record_property
):
    grid.write_text(grid.read_text().replace("[0, 1]", str(list(range(seeds)))))
    n = len(read_plan(grid).runs)
    whole, here, there = (tmp_path / name for name in ("whole", "here", "there"))
    archives = tmp_path / "archives"
    began = time.monotonic()
    bench("run", grid, "--out", whole)
    seconds = time.monotonic() - began
    once = trainings(grid)
    grid.with_name("log").unlink()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(stage: str, out: Path) -> subprocess.Popen:
        command = [sys.executable, "-c", COMMAND, stage, grid, "--out", out, "--jobs=0"]
        command += ["--together", "5"] if stage == "train" else []
        return subprocess.Popen(
            command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
        )

    # moments from the start of a command, which takes seconds, to somewhat more than
    # its share of the work, of which training and scoring are about a half each
    began = time.monotonic()
    start("score", whole).communicate()
    idle = time.monotonic() - began
    share = seconds / 2 / (kills + 1)
    chance = random.Random(0)
    met = Counter()

    def kill(stage: str, out: Path) -> None:
        """Kill a stage at a random moment."""
        before = stamps(out)
        latest = idle + 1.2 * share
        while True:
            process = start(stage, out)
            try:
                process.communicate(timeout=chance.uniform(idle / 2, latest))
            except subprocess.TimeoutExpired:
                break
            # it ended before
            latest = 0.8 * idle
        process.kill()
        process.communicate()
        after = stamps(out)
        met[stage, "at work" if after != before else "before the first result"] += 1
        # what was there stays, or is removed once it is scored
        assert before | after == after | before

    bench("fill", grid, "--out", here)
    bench("export", grid, archives, "--out", here, "--what", "work")
    bench("import", grid, archives, "--out", there)

    def carry() -> None:
        # what a slice made comes back, whenever it was killed
        bench("export", grid, archives, "--out", there, "--what", "results")
        bench("import", grid, archives, "--out", here)

    for _ in range(kills):
        kill("train", there)
        carry()
        kill("score", here)
    start("train", there).communicate()
    carry()
    bench("score", grid, "--out", here)
    for (stage, when), times in met.items():
        record_property(f"{stage} killed {when}", times)
    record_property("trainings", f"{len(trainings(grid))} for {len(once)}")
    assert bench("status", grid, "--out", here)["done"] == n
    pd.testing.assert_frame_equal(
        table_of(grid, here), table_of(grid, whole), check_exact=True
    )
    assert table_of(grid, here)[list(METRICS)].notna().all(axis=None)
    # a training that left its rows is not repeated; a kill may lose one group
    assert len(once) <= len(trainings(grid)) <= len(once) + kills
    assert set(trainings(grid)) == set(once)
    assert not list((here / "samples").glob("[0-9a-f]*"))
