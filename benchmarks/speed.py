"""Speed of training, sampling and augmentation, compared with the published code.

    python benchmarks/speed.py [--device cuda] [--backbones cdtd] [--seconds 2]

Every backbone is compared with a plain-PyTorch stand-in for its published code
(`standins/`: same network and formulas, rows on the host, loops over columns, host
reads every step). The contenders alternate for a few rounds and their medians are
compared, so other load on the machine affects both. Printed and written to
`benchmarks/results/speed-DEVICE.json`:

    training    steps per second: stand-in; ours as plain eager code (on a GPU); ours as
                `fit` runs it; ours with several models at once (the sum over all; on a
                GPU). Compilation and graph capture are not timed, and are reported
                separately.
    sampling    rows per second, each with its own batch size.
    filling     seconds of LGBM-S, ours against a loop over columns with as many
                threads (`augment_speed.py`); skipped without LightGBM.

The table has Adult's shape and is simulated from a seed. On a GPU the networks have the
paper's sizes, on a CPU smaller ones. On a busy machine, `--clock cpu` with
OMP_NUM_THREADS=1 measures CPU seconds of this process and its workers instead of
wall-clock time. Neither side is slowed down: upstream's single CPU thread (TabDiff,
TabDDPM) and its second pass over the data per epoch (TabDiff) are left out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from contenders import (
    CARDS,
    N_NUM,
    Fitted,
    Stepping,
    adult_like,
    eager_steps,
    exact_matmul,
    now,
    prepared_fit,
    rows_a_second,
    together,
    untrained,
)
from standins.cdtd import CDTDStandIn
from standins.tabddpm import TabDDPMStandIn
from standins.tabdiff import TabDiffStandIn

from augmask.diffusion import BACKBONES
from augmask.packages import library_versions
from augmask.sample.row_generator import generate_batches
from augmask.train.loop import LOG_EVERY_CUDA

RESULTS = Path(__file__).parent / "results"
STAND_INS = {"cdtd": CDTDStandIn, "tabdiff": TabDiffStandIn, "tabddpm": TabDDPMStandIn}
GPU_ROWS, FAIR_ROWS = 65_536, 16_384
PAPER = {"cdtd": {"width": 796}, "tabdiff": {"width": 801}, "tabddpm": {"width": 256}}
SMALL = {"width": 256, "depth": 3}
# The paper's on a GPU. On a CPU TabDiff's own default, and the T of TabDDPM's own runs
# on Adult: its published sampler visits every time.
GPU_STEPS = {"cdtd": 200, "tabdiff": 200, "tabddpm": 1000}
CPU_STEPS = {"cdtd": 200, "tabdiff": 50, "tabddpm": 100}
CPU_ROWS = 1024


def take_turns(
    contenders: dict[str, Callable[[float], float]], seconds: float, rounds: int
) -> dict[str, list[float]]:
    """Run the contenders alternately; return the measurements of each."""
    results: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            results[name].append(run(seconds))
    return results


def compared(kind: str, backbone: str, results: dict[str, list[float]]) -> dict:
    """Return medians, and the median ratio of each to the stand-in."""
    base = results["stand-in"]
    return {
        "what": kind,
        "backbone": backbone,
        "rounds": {
            name: [round(v, 1) for v in values] for name, values in results.items()
        },
        "median": {name: statistics.median(v) for name, v in results.items()},
        "ratio": {
            name: statistics.median(a / b for a, b in zip(values, base, strict=True))
            for name, values in results.items()
        },
    }


def measure(backbone: str, a: argparse.Namespace) -> Iterator[dict]:
    """Measure training, then sampling, of one backbone."""
    device = torch.device(a.device)
    on_gpu = device.type == "cuda"
    frame = adult_like(a.rows)
    steps = a.sampling_steps or (GPU_STEPS if on_gpu else CPU_STEPS)[backbone]
    published = {**(PAPER[backbone] if on_gpu else SMALL), **a.network}
    options = {"batch_size": a.batch, "sampling_steps": steps, **published}
    if backbone == "tabddpm":
        options["timesteps"] = steps
    fitted = prepared_fit(backbone, frame, options, a.device)
    plain = untrained(backbone, fitted)
    table = fitted.state.codec.encode(frame)
    num = torch.from_numpy(table.num.astype(np.float32))
    cat = torch.from_numpy(table.cat.astype(np.int64))

    stand_in = STAND_INS[backbone](plain, fitted.state.layout.cards)
    # TabDiff's loader restarts its workers in every epoch
    passes = math.ceil(a.rows / a.batch) if backbone == "tabdiff" else 1
    ours = Fitted(fitted)
    began = ours.warm_up()
    with exact_matmul():
        slow = Stepping(stand_in.steps(num, cat, a.batch), device, passes)

    def as_published(seconds: float) -> float:
        with exact_matmul():
            return slow(seconds)

    contenders = {"stand-in": as_published}
    if on_gpu:
        contenders["eager"] = Stepping(eager_steps(plain, num, cat, a.batch), device)
    contenders["ours"] = ours
    training = compared(
        "training", backbone, take_turns(contenders, a.seconds, a.rounds)
    )
    training["seconds_before"] = round(began, 1)
    training["options"] = options
    if on_gpu and a.together:
        rate = training["median"]["ours"]
        steps_each = 2 * a.seconds * rate / a.together
        each = LOG_EVERY_CUDA * max(6, round(steps_each / LOG_EVERY_CUDA))
        training["together"] = a.together
        training["median"]["together"], before = together(
            backbone, frame, options, a.device, a.together, each
        )
        training["seconds_before_together"] = round(before, 1)
        training["ratio"]["together"] = (
            training["median"]["together"] / training["median"]["stand-in"]
        )
    yield training

    many = a.sample_rows or (GPU_ROWS if on_gpu else CPU_ROWS)
    settings = fitted.state.settings.replace({"sampling_batch": many})
    theirs = stand_in.sampling_batch if on_gpu else CPU_ROWS
    # as for a very large sample, for which the step is compiled on a GPU
    batches = generate_batches(fitted.state.backbone, 10**9, 0, settings, device)

    def sample_ours() -> int:
        return len(next(batches).num)

    def sample_stand_in(rows: int) -> int:
        with exact_matmul():
            return len(stand_in.sample(rows, steps)[0])

    start = now()
    for _ in range(2 if on_gpu else 1):
        sample_ours()
    warm = now() - start
    samplers = {
        "stand-in": lambda s: rows_a_second(
            lambda: sample_stand_in(theirs), s, a.device
        ),
        "ours": lambda s: rows_a_second(sample_ours, s, a.device),
    }
    if on_gpu:
        # not as published, but fair: many rows share a kernel launch
        samplers["stand-in, many rows"] = lambda s: rows_a_second(
            lambda: sample_stand_in(FAIR_ROWS), s, a.device
        )
    results = take_turns(samplers, a.seconds / 2, a.rounds)
    sampling = compared("sampling", backbone, results)
    yield sampling | {"steps": steps, "seconds_before": round(warm, 1)}


def filling(rounds: int) -> dict | None:
    """Measure LGBM-S on the incomplete table; None without LightGBM."""
    try:
        import augment_speed
    except ImportError:
        print("filling: skipped, LightGBM is not installed", flush=True)
        return None
    table = augment_speed.load(None, 0.3)
    augment_speed.by_processes(table)  # workers start once
    results: dict[str, list[float]] = {"stand-in": [], "ours": []}
    for _ in range(rounds):
        results["stand-in"].append(
            1 / augment_speed.seconds(augment_speed.by_threads, table)
        )
        results["ours"].append(
            1 / augment_speed.seconds(augment_speed.by_processes, table)
        )
    line = compared("filling", "lgbm-s", results)
    line["rounds"] = {k: [round(1 / v, 2) for v in vs] for k, vs in results.items()}
    line["median"] = {k: statistics.median(v) for k, v in line["rounds"].items()}
    return line


def show(line: dict) -> str:
    """Return a line of the printed table."""
    unit = {"training": "steps/s", "sampling": "rows/s", "filling": "s"}[line["what"]]
    parts = [f"{line['what']:9}{line['backbone']:8}"]
    for name, value in line["median"].items():
        number = f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
        times = "" if name == "stand-in" else f" ({line['ratio'][name]:.1f}x)"
        many = f" of {line['together']}" if name == "together" else ""
        parts.append(f"{name}{many} {number} {unit}{times}")
    before = line.get("seconds_before")
    if before is not None:
        parts.append(f"[{before:.0f} s before]")
    return "  ".join(parts)


def facts(a: argparse.Namespace) -> dict:
    """Return machine, versions and options of the measurement."""
    on_gpu = a.device == "cuda"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "versions": library_versions(
            "augmask", "torch", "numpy", "pandas", "lightgbm", "triton"
        ),
        "table": {"rows": a.rows, "numeric": N_NUM, "cards": CARDS},
        "batch_size": a.batch,
        "seconds": a.seconds,
        "clock": a.clock,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for text in info.read_text().splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    return platform.processor()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default=default, choices=["cpu", "cuda"])
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES))
    parser.add_argument("--rows", type=int, default=29_305)
    parser.add_argument("--batch", type=int, help="4096 on a GPU, 512 on a CPU")
    parser.add_argument("--width", type=int)
    parser.add_argument("--depth", type=int)
    parser.add_argument(
        "--seconds", type=float, help="per contender and round; 2, on a CPU 5"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--together", type=int, default=16, help="models to batch; 0 for none"
    )
    parser.add_argument("--sampling-steps", type=int)
    parser.add_argument("--sample-rows", type=int, help="our sampling batch")
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"])
    parser.add_argument("--no-filling", action="store_true")
    parser.add_argument("--out", type=Path, help="instead of results/speed-DEVICE.json")
    a = parser.parse_args()
    on_gpu = a.device == "cuda"
    a.batch = a.batch or (4096 if on_gpu else 512)
    a.seconds = a.seconds or (2.0 if on_gpu else 5.0)
    sizes = {"width": a.width, "depth": a.depth}
    a.network = {name: value for name, value in sizes.items() if value}
    a.out = a.out or RESULTS / f"speed-{a.device}.json"
    return a


def main() -> None:
    """Measure, print, write."""
    # only the timing matters here
    warnings.simplefilter("ignore")
    a = arguments()
    now.on_wall = a.clock == "wall"
    start = time.perf_counter()
    lines: list[dict] = []
    a.out.parent.mkdir(parents=True, exist_ok=True)

    def keep(line: dict) -> None:
        print(show(line), flush=True)
        lines.append(line)
        took = round(time.perf_counter() - start, 1)
        record = {**facts(a), "took": took, "lines": lines}
        a.out.write_text(json.dumps(record, indent=1) + "\n")

    for backbone in a.backbones:
        for line in measure(backbone, a):
            keep(line)
    if not a.no_filling:
        line = filling(a.rounds)
        if line:
            keep(line)
    print(f"{time.perf_counter() - start:.0f} s in total, written to {a.out}")


if __name__ == "__main__":
    main()
