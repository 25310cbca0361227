"""A captured step does what the plain one does, and a failed capture does no harm.

The logic is checked with a fake of `torch.cuda`; what real graphs compute is compared
with plain steps where there is a GPU, see `tests/train`.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager

import pytest
import torch

from augmask.diffusion.cuda_graph import WARM_UP, CudaGraph


class Cuda:
    """A fake of `torch.cuda` that logs its calls.

    Parameters
    ----------
    error : str
        The error of the capture; empty if it succeeds.
    """

    def __init__(self, patch: pytest.MonkeyPatch, error: str = "") -> None:
        self.error, self.calls = error, []
        self.now = self.main = self.stream_of("main")
        patch.setattr(torch.cuda, "Stream", lambda _device: self.stream_of("side"))
        patch.setattr(torch.cuda, "current_stream", lambda _device: self.now)
        patch.setattr(torch.cuda, "stream", self.on)
        patch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self))
        patch.setattr(torch.cuda, "graph", self.capture)
        patch.setattr(
            torch.cuda, "synchronize", lambda _device: self.calls.append("wait")
        )

    def stream_of(self, name: str) -> Stream:
        return Stream(self, name)

    @contextmanager
    def on(self, stream: Stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    @contextmanager
    def capture(self, graph: Graph, stream: Stream):
        """Run the body on the stream, as if nothing were drawn."""
        self.calls.append("capture")
        state = graph.generator.get_state()
        with self.on(stream):
            graph.captures = True
            yield
            graph.captures = False
        if self.error:
            raise RuntimeError(self.error)
        graph.generator.set_state(state)


class Stream:
    def __init__(self, cuda: Cuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: Stream) -> None:
        self.cuda.calls.append(f"{self.name} waits for {other.name}")


class Generator(torch.Generator):
    """A CPU generator that can share its state, as CUDA's can."""

    def graphsafe_set_state(self, other: torch.Generator) -> None:
        self.set_state(other.get_state())


class Graph:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.captures = cuda, False
        self.generator: torch.Generator | None = None

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generator = generator

    def replay(self) -> None:
        self.cuda.calls.append("replay")
        self.cuda.step()


def fake_graph(monkeypatch, error: str = ""):
    """Return a fake CUDA, a step graph on it, and the sums that its steps drew."""
    cuda, sums = Cuda(monkeypatch, error), []
    generator = Generator().manual_seed(3)

    def step() -> None:
        value = torch.rand(2, generator=generator).sum().item()
        if cuda.calls[-1:] == ["capture"]:
            return
        if cuda.calls[-1:] != ["replay"]:
            cuda.calls.append(f"step on {cuda.now.name}")
        sums.append(value)

    cuda.step = step
    return cuda, CudaGraph(step, [generator], "training"), sums


def expected_draws(count: int) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(2, generator=generator).sum().item() for _ in range(count)]


PLAIN = ["side waits for main", "step on side", "main waits for side"]


def test_plain_steps_then_one_capture_then_replays(monkeypatch, caplog):
    cuda, graph, sums = fake_graph(monkeypatch)
    for _ in range(WARM_UP + 4):
        graph()
    # what the capture does to the generator is done before the first replay
    capture = ["capture", "main waits for side"]
    assert cuda.calls == WARM_UP * PLAIN + capture + 4 * ["replay"]
    # the capture itself draws nothing
    assert sums == expected_draws(WARM_UP + 4)
    assert not graph.failed
    assert not caplog.records


def test_a_failed_capture_warns_once_and_leaves_no_trace(monkeypatch, caplog):
    cuda, graph, sums = fake_graph(monkeypatch, "operation not permitted\nlong story")
    for _ in range(WARM_UP + 4):
        graph()
    assert cuda.calls == WARM_UP * PLAIN + ["capture", "wait"] + 4 * PLAIN
    assert sums == expected_draws(WARM_UP + 4)
    assert graph.failed
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "CUDA graph capture failed (operation not permitted); "
        "training continues without a graph"
    )


def test_no_graph_is_destroyed_during_a_capture(monkeypatch):
    """A model that is no longer used may be part of a cycle with its graph."""
    cuda, graph, _ = fake_graph(monkeypatch)
    collecting = []
    plain = graph._step

    def step() -> None:
        if cuda.calls[-1:] == ["capture"]:
            collecting.append(gc.isenabled())
        plain()

    graph._step = step
    for _ in range(WARM_UP + 1):
        graph()
    assert collecting == [False]
    assert gc.isenabled()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")
def test_after_a_failed_capture_on_a_gpu_steps_draw_what_plain_steps_draw(caplog):
    generator = torch.Generator("cuda").manual_seed(3)
    drawn = torch.zeros(8, device="cuda")
    sums = []

    def step() -> None:
        drawn.copy_(torch.rand(8, generator=generator, device="cuda"))
        if torch.cuda.is_current_stream_capturing():
            drawn.sum().item()  # CUDA does not allow a host to wait inside a capture

    graph = CudaGraph(step, [generator], "training")
    for _ in range(WARM_UP + 3):
        graph()
        sums.append(drawn.sum().item())
    again = torch.Generator("cuda").manual_seed(3)
    expected = [
        torch.rand(8, generator=again, device="cuda").sum().item() for _ in sums
    ]
    assert sums == expected
    assert graph.failed
    assert len(caplog.records) == 1


def test_an_error_of_the_step_itself_is_raised(monkeypatch):
    _, graph, _ = fake_graph(monkeypatch)

    def broken() -> None:
        raise RuntimeError("shapes do not fit")

    graph._step = broken
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        graph()
