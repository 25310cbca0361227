"""Two processes train what one trains, say what one says, and end together.

This file is also the program that the processes run: started with a folder as its
argument it does everything below as one of two and writes what it found there.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist

from augmask.augmentation.completions import CompletionPlan, complete
from augmask.augmentation.marginal import Ecdf
from augmask.config import Settings
from augmask.diffusion import build_backbone
from augmask.diffusion.base import CellLoss
from augmask.diffusion.reduce import reduce_cells
from augmask.errors import AugMaskError, DataError, UsageError
from augmask.model import AugMask, load
from augmask.table.table import Layout, Table
from augmask.train import loop, parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.data import TrainingData, hidden_cells
from augmask.train.trainer import Trainer

CPU = torch.device("cpu")
REDUCTIONS = ("batch", "batch-by-type", "row-by-type")
NETWORK = {"width": 16, "depth": 1, "time_width": 8}
SMALL = {**NETWORK, "batch": 33, "sampling_steps": 4, "steps": 60}
LIMIT = 120  # seconds for two processes on a busy machine


def make_frame(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.2).assign(id=range(n))


def small_table() -> Table:
    rng = np.random.default_rng(3)
    observed = rng.random((40, 3)) >= 0.4
    num = np.where(observed[:, :2], rng.normal(size=(40, 2)), 0.0)
    cat = np.where(observed[:, 2:], rng.integers(0, 3, (40, 1)), 0)
    return Table(num, cat, observed, Layout(("a", "b"), ("c",), (3,)))


class NoNoise(torch.nn.Module):
    """A network that is given its rows as they are, so nothing is drawn."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = reduction
        self.net = torch.nn.Linear(3, 3, dtype=torch.float64)

    def cell_loss(self, batch, _generator):
        rows = torch.cat([batch.num, batch.cat], 1).double()
        main = (self.net(rows) - rows).square()
        return CellLoss(main, {"calm": 0.1 * self.net(rows).square()})

    sample = None


def make_trainer(backbone="cdtd", **changes) -> Trainer:
    options = {**SMALL, "holdout": 0.1, "batch": 17, "lr": 0.01, **changes}
    settings = Settings().replace(options, None)
    rng = np.random.default_rng(0)
    done = complete(Ecdf(), small_table(), CompletionPlan("stack", 2), rng)
    keywords = settings.network if backbone == "cdtd" else {}
    built = build_backbone(backbone, done.table.layout, 0, **keywords)
    hidden = hidden_cells(done.table.observed, settings.holdout, rng)
    data = TrainingData(done, "observed", hidden, 0, CPU)
    return Trainer(built, data, settings, 0, CPU)


def weights_of(model) -> np.ndarray:
    return np.concatenate([w.detach().numpy().ravel() for w in model.parameters()])


def slope(reduction: str, dtype: torch.dtype) -> np.ndarray:
    """Return the loss of a batch of seven rows, and its gradient."""
    rng = np.random.default_rng(1)
    factors = torch.from_numpy(rng.random((7, 5))).to(dtype)
    # the last rows have hardly an observed cell, and they are one process's
    observed = torch.from_numpy(rng.random((7, 5)) < np.linspace(1, 0.2, 7)[:, None])
    weight = torch.linspace(-1, 2, 5, dtype=dtype).requires_grad_()
    mine = parallel.share(7)
    cells = (weight * factors[mine]).square()
    cell = CellLoss(cells, {"aux": (weight + factors[mine]).exp()})
    loss = reduce_cells(cell, observed[mine], reduction, n_num=2, weights=(0.3, 1.0))
    loss.backward()
    parallel.average([weight])
    return np.array([loss.item(), *weight.grad.tolist()])


def train_quietly(reduction: str) -> np.ndarray:
    """Return the weights of forty steps without noise."""
    trainer = make_trainer(lambda _layout: NoNoise(reduction), steps=40)
    run = loop.train(trainer)
    return np.append(weights_of(trainer.backbone), run.history[-1]["loss"])


# -- what each of the two processes does ----------------------------------------


def group_of_ones_own(folder: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=int(os.environ["RANK"]),
        world_size=2,
    )


class Watched(Ecdf):
    """A rule that remembers that it was asked, and that may fail."""

    asked = 0
    fails = False

    def fit(self, table, rng, progress=None):
        Watched.asked += 1
        if Watched.fails:
            raise DataError("this rule fails")
        return super().fit(table, rng, progress)


def fit_twice(folder: Path) -> dict:
    """Fit in a group that fit makes itself, then in one that is there already."""
    found, phases = {}, set()
    model = AugMask(augmenter=Watched(), options=SMALL, device="cpu")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(make_frame(), progress=lambda phase, *_: phases.add(phase))
    found["left"] = not dist.is_initialized()
    found["first"] = weights_of(model.backbone_).tolist()
    found["rows"] = model.sample(3).notna().all().all().item()
    found["asked"], found["phases"] = Watched.asked, sorted(phases)
    found["notes"] = [str(w.message) for w in said]
    group_of_ones_own(folder)
    # the rule `zero` adds a level to every category, which only the first can know
    options = {**SMALL, "completions": "stack:3"}
    model = AugMask("tabddpm", "zero", options={**options, "batch": 20}, device="cpu")
    for name in ("time_width", "depth", "width"):
        model.options.pop(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(make_frame())
    found["kept"] = dist.is_initialized()
    found["second"] = weights_of(model.backbone_).tolist()
    found["reserved"] = model.layout_.reserved
    dist.destroy_process_group()
    return found


def stop_by_the_clock() -> dict:
    """Train against time where the second process's clock runs three times as fast."""
    honest = time.monotonic
    if not parallel.leads():
        loop.time = type("fast", (), {"monotonic": lambda: 3 * honest()})
    try:
        trainer = make_trainer(steps=10**9)
        run = loop.train(trainer, seconds=0.5)
    finally:
        loop.time = time
    return {"stopped": run.stopped, "steps": trainer.steps_done}


class Killed(Exception):
    pass


def resume(folder: Path) -> dict:
    """Compare an unbroken run with one that was killed and goes on."""
    whole = make_trainer(steps=100)
    loop.train(whole)
    path, killed = folder / "run.checkpoint", make_trainer(steps=100)
    inner = killed.backbone.cell_loss

    def cell_loss(batch, generator):
        if killed.steps_done == 70:
            raise Killed
        return inner(batch, generator)

    killed.backbone.cell_loss = cell_loss
    with suppress(Killed):
        loop.train(killed, checkpoint=Checkpoint(path, "x", every=0))
    again = make_trainer(steps=100)
    loop.train(again, checkpoint=Checkpoint(path, "x", every=0))
    same = np.array_equal(weights_of(whole.backbone), weights_of(again.backbone))
    return {"stopped_at": killed.steps_done, "same": same}


def break_on_the_second() -> dict:
    """Let a loss become infinite in the second process only."""
    trainer = make_trainer(steps=100)
    inner, left = trainer.backbone.cell_loss, [2 * parallel.rank()]

    def cell_loss(batch, generator):
        cell = inner(batch, generator)
        if trainer.steps_done == 70 and left[0]:
            left[0] -= 1
            cell.main[:, 1] = torch.inf
        return cell

    trainer.backbone.cell_loss = cell_loss
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("augmask").addHandler(handler)
    run = loop.train(trainer)
    weights = weights_of(trainer.backbone).tolist()
    return {"restarts": run.restarts, "said": said, "weights": weights}


def refuse() -> dict:
    """Ask for what several processes cannot do."""
    found = {}
    asked = {
        "other table": (make_frame(50 + 5 * int(os.environ["RANK"])), {}),
        "small batch": (make_frame(), {"batch": 1}),
    }
    for name, (frame, options) in asked.items():
        model = AugMask(augmenter="ecdf", options={**SMALL, **options}, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(frame)
            except UsageError as error:
                found[name] = str(error)
    # last, because it breaks the group
    Watched.fails = True
    try:
        AugMask(augmenter=Watched(), options=SMALL, device="cpu").fit(make_frame())
    except AugMaskError as error:
        found["failing rule"] = type(error).__name__
    return found


def one_of_two(folder: Path) -> None:
    number = os.environ["RANK"]
    arrays = {}
    with parallel.joined():
        for reduction in REDUCTIONS:
            arrays[f"double {reduction}"] = slope(reduction, torch.float64)
            arrays[f"single {reduction}"] = slope(reduction, torch.float32)
            arrays[f"run {reduction}"] = train_quietly(reduction)
        found = {
            "clock": stop_by_the_clock(),
            "resume": resume(folder),
            "broken": break_on_the_second(),
        }
    found["fit"] = fit_twice(folder)
    found["refused"] = refuse()
    np.savez(folder / f"{number}.npz", **arrays)
    (folder / f"{number}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    one_of_two(Path(sys.argv[1]))
    sys.exit()


# -- the tests --------------------------------------------------------------------


def start_two(*command: object) -> list[subprocess.CompletedProcess]:
    """Run a Python program twice, as torchrun would start it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        **{"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    done = []
    try:
        for process in started:
            out, err = process.communicate(timeout=LIMIT)
            code = process.returncode
            done.append(subprocess.CompletedProcess(process.args, code, out, err))
    finally:
        for process in started:
            process.kill()
            process.wait()
    return done


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return what the two processes found, each a dict."""
    folder = tmp_path_factory.mktemp("two")
    for done in start_two(__file__, folder):
        assert done.returncode == 0, done.stderr
    return [
        json.loads((folder / f"{i}.json").read_text())
        | {"arrays": dict(np.load(folder / f"{i}.npz"))}
        for i in (0, 1)
    ]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("width", "rtol"), [("double", 1e-12), ("single", 1e-6)])
def test_loss_and_gradient_are_those_of_one_process(both, reduction, width, rtol):
    dtype = torch.float64 if width == "double" else torch.float32
    expected = slope(reduction, dtype)
    for found in both:
        np.testing.assert_allclose(
            found["arrays"][f"{width} {reduction}"], expected, rtol=rtol
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_without_noise_a_run_ends_with_the_weights_of_one_process(both, reduction):
    """Shares of an odd batch, Adam, the average, held-out cells: all of a run."""
    expected = train_quietly(reduction)
    for found in both:
        np.testing.assert_allclose(
            found["arrays"][f"run {reduction}"], expected, rtol=1e-6
        )


def test_both_processes_end_with_the_same_model(both):
    first, second = (found["fit"] for found in both)
    assert first["first"] == second["first"]
    assert first["second"] == second["second"]
    assert first["reserved"]
    assert second["reserved"]
    assert first["rows"]
    assert second["rows"]


def test_the_first_process_fills_reports_and_warns_alone(both):
    first, second = (found["fit"] for found in both)
    assert (first["asked"], second["asked"]) == (1, 0)
    assert "train" in first["phases"]
    assert second["phases"] == []
    assert len(first["notes"]) == 1
    assert "'id'" in first["notes"][0]
    assert second["notes"] == []


def test_a_group_is_left_by_who_made_it(both):
    for found in both:
        assert found["fit"]["left"]
        assert found["fit"]["kept"]


def test_the_first_clock_ends_the_run_of_both(both):
    first, second = (found["clock"] for found in both)
    assert first == second
    assert first["stopped"] == "time"
    assert first["steps"] > 0


def test_a_killed_run_goes_on_with_the_noise_of_each(both):
    for found in both:
        assert found["resume"] == {"stopped_at": 70, "same": True}


def test_a_loss_that_breaks_in_one_process_is_undone_in_both(both):
    first, second = (found["broken"] for found in both)
    assert first["restarts"] == second["restarts"] == 1
    assert first["weights"] == second["weights"]
    assert np.isfinite(first["weights"]).all()
    assert [text.split(" is not")[0] for text in first["said"]] == [
        "the loss of column 'b' at step 71"
    ]
    assert second["said"] == []


def test_what_cannot_be_done_together_is_refused_by_both(both):
    for found in both:
        assert "same table" in found["refused"]["other table"]
        assert "number of processes, 2; got 1" in found["refused"]["small batch"]


def test_when_the_first_cannot_fill_the_other_does_not_wait(both):
    names = [found["refused"]["failing rule"] for found in both]
    assert names == ["DataError", "PeerEnded"]


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_shares_are_fair_and_leave_no_row_out(monkeypatch, count):
    monkeypatch.setattr(parallel, "size", lambda: count)
    for n in (count, 16, 17, 4096):
        rows = []
        for number in range(count):
            monkeypatch.setattr(parallel, "rank", lambda number=number: number)
            rows.append(list(range(n)[parallel.share(n)]))
        assert list(chain(*rows)) == list(range(n))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_only_the_whole_environment_of_torchrun_counts(monkeypatch):
    for name in parallel.LAUNCHED_BY:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert parallel.follows()
    monkeypatch.delenv("LOCAL_RANK")
    assert not parallel.launched()
    with parallel.joined():
        assert not dist.is_initialized()


def command_line(*words: object) -> list[object]:
    sizes = [f"--set={name}={value}" for name, value in NETWORK.items()]
    rest = ["--device", "cpu", "--augmenter", "ecdf", "--steps", "30", *sizes]
    return ["-m", "augmask", "fit", *words, *rest]


def test_torchrun_writes_one_model_and_says_one_line(tmp_path):
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *torchrun, *command_line("t.csv", "--out", "m.augmask")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("m.augmask: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr.count("note: ") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.augmask", "t.csv"]
    assert not load(tmp_path / "m.augmask", "cpu").sample(5).isna().any().any()


def test_an_error_of_both_is_told_once(tmp_path):
    make_frame(5).to_csv(tmp_path / "t.csv", index=False)
    model = tmp_path / "m.augmask"
    done = start_two(*command_line(tmp_path / "t.csv", "--out", model))
    said = "".join(d.stderr for d in done)
    assert said.count("augmask: a table needs at least 10 rows") == 1
    assert said.count("augmask: ") == 1
    assert sorted(d.returncode for d in done) == [0, 3]
    assert not model.exists()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["fit", "t.csv"], 2, "Missing option '--out'"),
        (["demo"], 2, "augmask: the demo runs in one process"),
    ],
)
def test_a_wrong_command_line_is_told_by_the_first(words, code, sentence):
    first, second = start_two("-m", "augmask", *words)
    assert first.returncode == code
    assert first.stderr.count(sentence) == 1
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
