"""Where the time of a training step goes, kernel by kernel.

    python benchmarks/kernels.py [--backbones tabdiff] [--together 16] [--seconds 3]

Trains models of the paper's sizes on the table of `speed.py` together, as the benchmark
does, lets torch's profiler watch for a few seconds of it, and prints the kernels that
take most of the time: microseconds and launches for each step of one model. Kernels of
different streams overlap, so their sum may exceed the time that a step takes. On a CPU
it shows operators of small networks instead.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch
from contenders import adult_like, prepared_fit
from speed import PAPER, SMALL
from torch.profiler import ProfilerActivity, profile

from augmask.diffusion import BACKBONES
from augmask.train.loop import train_many

ROWS = 29_305
WIDTH = 88


class Watch:
    """A progress callback that profiles a few seconds in the middle of a training.

    Parameters
    ----------
    activity : ProfilerActivity
    seconds : float
        How long to watch.
    after : int
        Steps of all models before that, which compile and capture.
    """

    def __init__(self, activity: ProfilerActivity, seconds: float, after: int) -> None:
        self.profile = profile(activities=[activity])
        self.seconds, self.after = seconds, after
        self.began: float | None = None
        self.steps = 0
        self.took = 0.0

    def __call__(self, _phase: str, done: int, total: int, _numbers: object) -> None:
        """Start or stop, as `progress` of `train_many`."""
        if self.took or done < self.after:
            return
        if self.began is None:
            self.profile.start()
            self.began, self.steps = time.monotonic(), done
        elif time.monotonic() - self.began >= self.seconds or done == total:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.took = time.monotonic() - self.began
            self.steps = done - self.steps
            self.profile.stop()


def report(watch: Watch, device: str, most: int) -> str:
    """Return the kernels that took most of the time, each in a line."""
    micros: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for event in watch.profile.key_averages():
        micros[event.key] += (
            event.self_device_time_total
            if device == "cuda"
            else event.self_cpu_time_total
        )
        launches[event.key] += event.count
    steps = max(watch.steps, 1)
    lines = [
        f"{steps / watch.took:,.0f} steps of models per second, "
        f"{1e6 * watch.took / steps:,.0f} us each; kernels "
        f"{sum(micros.values()) / steps:,.0f} us"
    ]
    for name, total in micros.most_common(most):
        each = f"{total / steps:8.1f} us {launches[name] / steps:6.1f} x  {name}"
        lines.append(each[:WIDTH])
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES))
    parser.add_argument("--together", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to watch")
    parser.add_argument("--most", type=int, default=25, help="kernels to print")
    a = parser.parse_args()
    on_gpu = device == "cuda"
    frame = adult_like(ROWS if on_gpu else 2_000)
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    for backbone in a.backbones:
        options = {
            **(PAPER[backbone] if on_gpu else SMALL),
            "batch_size": 4096 if on_gpu else 256,
            "steps": 4_000 if on_gpu else 200,
            "compile": "auto" if not on_gpu else "always",
        }
        trainers = [
            prepared_fit(backbone, frame, options, device).trainer
            for _ in range(a.together)
        ]
        watch = Watch(activity, a.seconds, (400 if on_gpu else 5) * a.together)
        train_many(trainers, watch)
        print(f"{backbone}, {a.together} together: {report(watch, device, a.most)}\n")


if __name__ == "__main__":
    main()
