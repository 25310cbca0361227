"""A recorded step does what the step does, and a recording that fails is no harm.

The logic is checked with a pretended CUDA that any machine has; what real recordings
compute is compared with the plain steps where there is a GPU, see `tests/train`.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from augmask.diffusion.cuda_graph import WARM_UP, CudaGraph


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
    return cuda, CudaGraph(step, [generator], "training"), drawn


def expected_draws(count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(2, generator=generator).sum().item() for _ in range(count)]


PLAIN = ["side waits for main", "step on side", "main waits for side"]


def test_some_plain_steps_one_recording_then_replays(monkeypatch, caplog):
    cuda, graph, drawn = pretended(monkeypatch)
    for _ in range(WARM_UP + 4):
        graph()
    # what recording does to the generator is done before the first replay
    recording = ["record", "main waits for side"]
    assert cuda.diary == WARM_UP * PLAIN + recording + 4 * ["replay"]
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
