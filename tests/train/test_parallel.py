"""Two processes train the model that one would train, report once and end together.

This file is also the program that the processes run: called with a folder it runs
everything below as one of two processes and writes its results there.
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
from augmask.augmentation.shards import choose_held_out_cells
from augmask.config import Settings
from augmask.diffusion import build_backbone
from augmask.diffusion.base import CellLoss
from augmask.diffusion.reduce import reduce_cells
from augmask.errors import AugMaskError, DataError, UsageError
from augmask.model import AugMask, load
from augmask.table.table import Layout, Table
from augmask.train import loop, parallel
from augmask.train.checkpoint import Checkpoint
from augmask.train.data import TrainingData
from augmask.train.trainer import Trainer

CPU = torch.device("cpu")
REDUCTIONS = ("batch", "batch-by-type", "row-by-type")
NETWORK = {"width": 16, "depth": 1, "time_width": 8}
SMALL = {**NETWORK, "batch_size": 33, "sampling_steps": 4, "steps": 60}
TIMEOUT = 120  # seconds for two processes on a busy machine


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
    """A network that gets its rows without noise, so nothing is random."""

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
    options = {
        **SMALL,
        "validation_fraction": 0.1,
        "batch_size": 17,
        "lr": 0.01,
        **changes,
    }
    settings = Settings().replace(options, None)
    rng = np.random.default_rng(0)
    filled = complete(Ecdf(), small_table(), CompletionPlan("stack", 2), rng)
    keywords = settings.network if backbone == "cdtd" else {}
    built = build_backbone(backbone, filled.table.layout, 0, **keywords)
    held_out = choose_held_out_cells(
        filled.table.observed, settings.validation_fraction, rng
    )
    data = TrainingData(filled, "observed", held_out, 0, CPU)
    return Trainer(built, data, settings, 0, CPU)


def weights_of(model) -> np.ndarray:
    return np.concatenate([w.detach().numpy().ravel() for w in model.parameters()])


def loss_and_gradient(reduction: str, dtype: torch.dtype) -> np.ndarray:
    """Return the loss of a batch of seven rows, and its gradient."""
    rng = np.random.default_rng(1)
    factors = torch.from_numpy(rng.random((7, 5))).to(dtype)
    # the last rows have hardly any observed cell, and belong to one process
    observed = torch.from_numpy(rng.random((7, 5)) < np.linspace(1, 0.2, 7)[:, None])
    weight = torch.linspace(-1, 2, 5, dtype=dtype).requires_grad_()
    rows = parallel.local_rows(7)
    cells = (weight * factors[rows]).square()
    cell = CellLoss(cells, {"aux": (weight + factors[rows]).exp()})
    loss = reduce_cells(cell, observed[rows], reduction, n_num=2, weights=(0.3, 1.0))
    loss.backward()
    parallel.average_gradients(weight.grad)
    return np.array([loss.item(), *weight.grad.tolist()])


def train_without_noise(reduction: str) -> np.ndarray:
    """Return the weights and the loss after forty steps without noise."""
    trainer = make_trainer(lambda _layout: NoNoise(reduction), steps=40)
    run = loop.train(trainer)
    return np.append(weights_of(trainer.backbone), run.history[-1]["loss"])


# -- the program of each of the two processes ------------------------------------


def init_own_group(folder: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=int(os.environ["RANK"]),
        world_size=2,
    )


class CountingEcdf(Ecdf):
    """An augmenter that counts its calls and can fail."""

    calls = 0
    fails = False

    def fit(self, table, rng, progress=None):
        CountingEcdf.calls += 1
        if CountingEcdf.fails:
            raise DataError("this augmenter fails")
        return super().fit(table, rng, progress)


def fit_twice(folder: Path) -> dict:
    """Fit in a process group that `fit` creates, then in an existing one."""
    result, phases = {}, set()
    model = AugMask(augmenter=CountingEcdf(), options=SMALL, device="cpu")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(make_frame(), progress=lambda phase, *_: phases.add(phase))
    result["destroyed"] = not dist.is_initialized()
    result["first"] = weights_of(model.backbone_).tolist()
    result["rows"] = model.sample(3).notna().all().all().item()
    result["calls"], result["phases"] = CountingEcdf.calls, sorted(phases)
    result["notes"] = [str(w.message) for w in caught]
    init_own_group(folder)
    # `zero` adds a level to every category, which only the main process knows
    options = {**SMALL, "completions": "stack:3"}
    model = AugMask(
        "tabddpm", "zero", options={**options, "batch_size": 20}, device="cpu"
    )
    for name in ("time_width", "depth", "width"):
        model.options.pop(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(make_frame())
    result["untouched"] = dist.is_initialized()
    result["second"] = weights_of(model.backbone_).tolist()
    result["reserved"] = model.layout_.reserved
    dist.destroy_process_group()
    return result


def stop_by_time_limit() -> dict:
    """Train with a time limit while the second clock runs three times as fast."""
    monotonic = time.monotonic
    if not parallel.is_main_process():
        loop.time = type("fast", (), {"monotonic": lambda: 3 * monotonic()})
    try:
        trainer = make_trainer(steps=10**9)
        run = loop.train(trainer, seconds=0.5)
    finally:
        loop.time = time
    return {"stopped": run.stopped, "steps": trainer.steps_done}


class Killed(Exception):
    pass


def resume(folder: Path) -> dict:
    """Compare an uninterrupted run with one that was killed and resumed."""
    uninterrupted = make_trainer(steps=100)
    loop.train(uninterrupted)
    path, killed = folder / "run.checkpoint", make_trainer(steps=100)
    inner = killed.backbone.cell_loss

    def cell_loss(batch, generator):
        if killed.steps_done == 70:
            raise Killed
        return inner(batch, generator)

    killed.backbone.cell_loss = cell_loss
    with suppress(Killed):
        loop.train(killed, checkpoint=Checkpoint(path, "x", every=0))
    resumed = make_trainer(steps=100)
    loop.train(resumed, checkpoint=Checkpoint(path, "x", every=0))
    weights = [weights_of(t.backbone) for t in (uninterrupted, resumed)]
    return {"stopped_at": killed.steps_done, "same": np.array_equal(*weights)}


def fail_on_the_second() -> dict:
    """Make the loss infinite in the second process only."""
    trainer = make_trainer(steps=100)
    inner, left = trainer.backbone.cell_loss, [2 * parallel.rank()]

    def cell_loss(batch, generator):
        cell = inner(batch, generator)
        if trainer.steps_done == 70 and left[0]:
            left[0] -= 1
            cell.main[:, 1] = torch.inf
        return cell

    trainer.backbone.cell_loss = cell_loss
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("augmask").addHandler(handler)
    run = loop.train(trainer)
    weights = weights_of(trainer.backbone).tolist()
    return {"restarts": run.restarts, "messages": messages, "weights": weights}


def provoke_errors() -> dict:
    """Ask for what several processes cannot do."""
    errors = {}
    cases = {
        "other table": (make_frame(50 + 5 * int(os.environ["RANK"])), {}),
        "small batch": (make_frame(), {"batch_size": 1}),
    }
    for name, (frame, options) in cases.items():
        model = AugMask(augmenter="ecdf", options={**SMALL, **options}, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(frame)
            except UsageError as error:
                errors[name] = str(error)
    # last, because it breaks the process group
    CountingEcdf.fails = True
    try:
        AugMask(augmenter=CountingEcdf(), options=SMALL, device="cpu").fit(make_frame())
    except AugMaskError as error:
        errors["failing augmenter"] = type(error).__name__
    return errors


def one_of_two(folder: Path) -> None:
    rank = os.environ["RANK"]
    arrays = {}
    with parallel.process_group():
        for reduction in REDUCTIONS:
            arrays[f"double {reduction}"] = loss_and_gradient(reduction, torch.float64)
            arrays[f"single {reduction}"] = loss_and_gradient(reduction, torch.float32)
            arrays[f"run {reduction}"] = train_without_noise(reduction)
        result = {
            "time": stop_by_time_limit(),
            "resume": resume(folder),
            "failure": fail_on_the_second(),
        }
    result["fit"] = fit_twice(folder)
    result["errors"] = provoke_errors()
    np.savez(folder / f"{rank}.npz", **arrays)
    (folder / f"{rank}.json").write_text(json.dumps(result))


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
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    completed = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=TIMEOUT)
            code = process.returncode
            completed.append(subprocess.CompletedProcess(process.args, code, out, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return completed


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Return the results of the two processes, each a dict."""
    folder = tmp_path_factory.mktemp("two")
    for process in start_two(__file__, folder):
        assert process.returncode == 0, process.stderr
    return [
        json.loads((folder / f"{i}.json").read_text())
        | {"arrays": dict(np.load(folder / f"{i}.npz"))}
        for i in (0, 1)
    ]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("width", "rtol"), [("double", 1e-12), ("single", 1e-6)])
def test_loss_and_gradient_are_those_of_one_process(both, reduction, width, rtol):
    dtype = torch.float64 if width == "double" else torch.float32
    expected = loss_and_gradient(reduction, dtype)
    for result in both:
        np.testing.assert_allclose(
            result["arrays"][f"{width} {reduction}"], expected, rtol=rtol
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_without_noise_a_run_ends_with_the_weights_of_one_process(both, reduction):
    """Shares of an odd batch, Adam, EMA, held-out cells: all of a training."""
    expected = train_without_noise(reduction)
    for result in both:
        np.testing.assert_allclose(
            result["arrays"][f"run {reduction}"], expected, rtol=1e-6
        )


def test_both_processes_end_with_the_same_model(both):
    first, second = (result["fit"] for result in both)
    assert first["first"] == second["first"]
    assert first["second"] == second["second"]
    assert first["reserved"]
    assert second["reserved"]
    assert first["rows"]
    assert second["rows"]


def test_only_the_main_process_augments_reports_and_warns(both):
    first, second = (result["fit"] for result in both)
    assert (first["calls"], second["calls"]) == (1, 0)
    assert "train" in first["phases"]
    assert second["phases"] == []
    assert len(first["notes"]) == 1
    assert "'id'" in first["notes"][0]
    assert second["notes"] == []


def test_fit_destroys_only_a_process_group_that_it_created(both):
    for result in both:
        assert result["fit"]["destroyed"]
        assert result["fit"]["untouched"]


def test_the_clock_of_the_main_process_stops_both(both):
    first, second = (result["time"] for result in both)
    assert first == second
    assert first["stopped"] == "time"
    assert first["steps"] > 0


def test_a_resumed_run_restores_the_noise_of_every_process(both):
    for result in both:
        assert result["resume"] == {"stopped_at": 70, "same": True}


def test_a_failed_step_in_one_process_is_undone_in_both(both):
    first, second = (result["failure"] for result in both)
    assert first["restarts"] == second["restarts"] == 1
    assert first["weights"] == second["weights"]
    assert np.isfinite(first["weights"]).all()
    assert [text.split(" is not")[0] for text in first["messages"]] == [
        "the loss of column 'b' at step 71"
    ]
    assert second["messages"] == []


def test_both_processes_refuse_what_they_cannot_do_together(both):
    for result in both:
        assert "same table" in result["errors"]["other table"]
        assert "number of processes, 2; got 1" in result["errors"]["small batch"]


def test_a_failing_augmenter_does_not_leave_the_other_process_waiting(both):
    names = [result["errors"]["failing augmenter"] for result in both]
    assert names == ["DataError", "PeerEnded"]


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_shares_of_a_batch_are_balanced_and_complete(monkeypatch, count):
    monkeypatch.setattr(parallel, "world_size", lambda: count)
    for n in (count, 16, 17, 4096):
        rows = []
        for rank in range(count):
            monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
            rows.append(list(range(n)[parallel.local_rows(n)]))
        assert list(chain(*rows)) == list(range(n))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_only_the_complete_environment_of_torchrun_counts(monkeypatch):
    for name in parallel.TORCHRUN_VARIABLES:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not parallel.is_main_process()
    monkeypatch.delenv("LOCAL_RANK")
    assert not parallel.launched_by_torchrun()
    assert parallel.is_main_process()
    with parallel.process_group():
        assert not dist.is_initialized()


def command_line(*words: object) -> list[object]:
    sizes = [f"--set={name}={value}" for name, value in NETWORK.items()]
    rest = ["--device", "cpu", "--augmenter", "ecdf", "--steps", "30", *sizes]
    return ["-m", "augmask", "fit", *words, *rest]


def test_torchrun_writes_one_model_and_prints_one_line(tmp_path):
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [
            sys.executable,
            *torchrun,
            *command_line("t.csv", "--out", "m.augmask", "--holdout", "0"),
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("m.augmask: ")
    assert done.stdout.count("\n") == 1
    assert done.stderr.count("note: ") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.augmask", "t.csv"]
    assert not load(tmp_path / "m.augmask", device="cpu").sample(5).isna().any().any()


def test_an_error_of_both_processes_is_reported_once(tmp_path):
    make_frame(5).to_csv(tmp_path / "t.csv", index=False)
    model = tmp_path / "m.augmask"
    done = start_two(*command_line(tmp_path / "t.csv", "--out", model))
    output = "".join(d.stderr for d in done)
    assert output.count("augmask: a table needs at least 10 rows") == 1
    assert output.count("augmask: ") == 1
    assert sorted(d.returncode for d in done) == [0, 3]
    assert not model.exists()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["fit", "t.csv"], 2, "Missing option '--out'"),
        (["demo"], 2, "augmask: the demo runs in one process"),
    ],
)
def test_only_the_main_process_reports_a_wrong_command_line(words, code, sentence):
    first, second = start_two("-m", "augmask", *words)
    assert first.returncode == code
    assert first.stderr.count(sentence) == 1
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
