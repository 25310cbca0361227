"""A recorded step does what the step does, and a recording that fails is no harm.

The logic is checked with a pretended CUDA that any machine has; what a real graph
computes is compared with the plain steps where there is a GPU.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from augmask.augmentation import resolve_augmenter
from augmask.augmentation.draws import Draws, complete
from augmask.config import Settings
from augmask.diffusion import BACKBONES, build_backbone
from augmask.train.capture import WARM_UP, Compiled, StepGraph
from augmask.train.data import TrainingData
from augmask.train.trainer import Trainer


class Cuda:
    """As much of `torch.cuda` as a recording needs, and a diary of what was asked.

    Parameters
    ----------
    refuses : str
        What the recording fails with; nothing if empty.
    """

    def __init__(self, patch: pytest.MonkeyPatch, refuses: str = "") -> None:
        self.refuses, self.diary = refuses, []
        self.now = self.main = self.stream_of("main")
        patch.setattr(torch.cuda, "Stream", lambda _device: self.stream_of("side"))
        patch.setattr(torch.cuda, "current_stream", lambda _device: self.now)
        patch.setattr(torch.cuda, "stream", self.on)
        patch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self))
        patch.setattr(torch.cuda, "graph", self.record)
        patch.setattr(
            torch.cuda, "synchronize", lambda _device: self.diary.append("wait")
        )

    def stream_of(self, name: str) -> Stream:
        return Stream(self, name)

    @contextmanager
    def on(self, stream: Stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    @contextmanager
    def record(self, graph: Graph, stream: Stream):
        """Let the body run on the stream; what it draws and adds does not count."""
        self.diary.append("record")
        state = graph.generator.get_state()
        with self.on(stream):
            graph.records = True
            yield
            graph.records = False
        if self.refuses:
            raise RuntimeError(self.refuses)
        graph.generator.set_state(state)


class Stream:
    def __init__(self, cuda: Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: Stream) -> None:
        self.cuda.diary.append(f"{self.name} waits for {other.name}")


class Graph:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.records = cuda, False
        self.generator: torch.Generator | None = None

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generator = generator

    def replay(self) -> None:
        self.cuda.diary.append("replay")
        self.cuda.step()


def pretended(monkeypatch, refuses: str = ""):
    """Return a pretended CUDA, a step graph on it, and the sums the steps drew."""
    cuda, drawn = Cuda(monkeypatch, refuses), []
    generator = torch.Generator().manual_seed(3)

    def step() -> None:
        value = torch.rand(2, generator=generator).sum().item()
        if cuda.diary[-1:] == ["record"]:
            return
        if cuda.diary[-1:] != ["replay"]:
            cuda.diary.append(f"step on {cuda.now.name}")
        drawn.append(value)

    cuda.step = step
    return cuda, StepGraph(step, generator), drawn


def expected_draws(count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(2, generator=generator).sum().item() for _ in range(count)]


PLAIN = ["side waits for main", "step on side", "main waits for side"]


def test_some_plain_steps_one_recording_then_replays(monkeypatch, caplog):
    cuda, graph, drawn = pretended(monkeypatch)
    for _ in range(WARM_UP + 4):
        graph()
    assert cuda.diary == WARM_UP * PLAIN + ["record"] + 4 * ["replay"]
    # the recording itself has drawn nothing
    assert drawn == expected_draws(WARM_UP + 4)
    assert not graph.failed
    assert not caplog.records


def test_a_recording_that_fails_is_told_once_and_leaves_no_trace(monkeypatch, caplog):
    cuda, graph, drawn = pretended(monkeypatch, "operation not permitted\nlong story")
    for _ in range(WARM_UP + 4):
        graph()
    assert cuda.diary == WARM_UP * PLAIN + ["record", "wait"] + 4 * PLAIN
    assert drawn == expected_draws(WARM_UP + 4)
    assert graph.failed
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "training goes on without a CUDA graph: operation not permitted"
    )


def test_a_fault_of_the_step_itself_is_not_swallowed(monkeypatch):
    _, graph, _ = pretended(monkeypatch)

    def broken() -> None:
        raise RuntimeError("shapes do not fit")

    graph._step = broken
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        graph()


# -- fused kernels -----------------------------------------------------------------


def losses_of(compiled: Compiled, count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [compiled(None, generator) for _ in range(count)]


def drawn_sum(_batch, generator: torch.Generator) -> float:
    return torch.rand(2, generator=generator).sum().item()


def test_fused_kernels_are_used_where_torch_can_make_them(monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", lambda f, **_: lambda *a: 100 + f(*a))
    found = losses_of(Compiled(drawn_sum), 3)
    assert found == [100 + value for value in expected_draws(3)]
    assert not caplog.records


def test_where_it_cannot_the_losses_are_as_they_are_and_that_is_told(
    monkeypatch, caplog
):
    def refuses(plain, **_):
        def call(batch, generator):
            plain(batch, generator)  # some noise is drawn before it breaks
            raise RuntimeError("no compiler found\nlong story")

        return call

    monkeypatch.setattr(torch, "compile", refuses)
    assert losses_of(Compiled(drawn_sum), 3) == expected_draws(3)
    (record,) = caplog.records
    assert record.getMessage() == (
        "training goes on without fused kernels: no compiler found"
    )


def test_a_fault_of_the_loss_itself_is_raised(monkeypatch, caplog):
    def broken(_batch, _generator):
        raise ValueError("shapes do not fit")

    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    with pytest.raises(ValueError, match="shapes do not fit"):
        losses_of(Compiled(broken), 1)
    assert not caplog.records


@pytest.mark.parametrize(
    ("fuse", "device", "steps", "expected"),
    [
        ("auto", "cuda", 30_000, True),
        ("auto", "cuda", 100, False),
        ("auto", "cpu", 30_000, False),
        ("always", "cpu", 100, True),
        ("never", "cuda", 30_000, False),
    ],
)
def test_long_runs_on_a_gpu_are_compiled(fuse, device, steps, expected):
    assert Settings(fuse=fuse, steps=steps).compiled(device) is expected


# -- a real GPU --------------------------------------------------------------------


def trainer_on(device: torch.device, table, backbone: str) -> Trainer:
    network = {"width": 64, "depth": 2, "time_width": 32}
    settings = Settings().replace(network | {"batch": 128, "steps": 200}, None)
    rng = np.random.default_rng(0)
    filled = complete(resolve_augmenter("ecdf"), table, Draws("stack", 2), rng)
    model = build_backbone(backbone, filled.table.layout, 0, **network)
    model.init_from_data(filled.table)
    model.to(device)
    hidden = np.zeros_like(table.observed)
    data = TrainingData(filled, "observed", hidden, 0, device)
    return Trainer(model, data, settings, 0, device)


@torch.no_grad()
def copy_weights(source: Trainer, to: Trainer) -> None:
    """Let both start the next step from the same weights, each with its own noise.

    Rounding grows in training: 1e-7 becomes 1e-2 in 200 steps of TabDiff on a CPU.
    """
    for theirs, mine in zip(source.parameters, to.parameters, strict=True):
        mine.copy_(theirs)
        for name, value in source.optimizer.state[theirs].items():
            to.optimizer.state[mine][name].copy_(value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# torch remarks on streams and on missing libraries; the numbers are what counts here
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("backbone", list(BACKBONES))
def test_captured_and_plain_steps_have_the_same_losses(make_table, backbone):
    table = make_table(n=500, n_num=3, cards=(2, 5, 9))
    device = torch.device("cuda")
    captured, plain = (trainer_on(device, table, backbone) for _ in range(2))
    plain._advance = plain._compute
    losses = []
    for step in range(200):
        for trainer in (captured, plain):
            trainer.step(step / 200)
        losses.append([captured.window(), plain.window()])
        copy_weights(plain, captured)
    assert not captured._advance.failed
    assert captured._advance._graph is not None
    np.testing.assert_allclose(*np.array(losses).T, rtol=1e-3)
