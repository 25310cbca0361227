"""Mutated model files: an `AugMaskError` or rows, fast, in little memory."""

from __future__ import annotations

import resource
import signal
import time
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest

from augmask import load
from augmask.errors import AugMaskError

from ..sealed import read_parts, write_parts
from .budget import FULL, SHORT, budget, report
from .mutators import SEALED, every_number, mutate_file, with_value
from .victims import write_models

pytestmark = pytest.mark.slow

SECONDS = 5
LARGE = 50_000
MEMORY = 2**30
# what stands in the place of each number of a manifest
EXTREMES = (-1, 0, 10**6, 2**31, 2**63, -(2**63), 10**400, -0.5, 1e308, float("nan"))
# of so many numbers, one is tried, by the budget
SWEEP = {FULL["model files"]: 1, SHORT["model files"]: 17}


class Hang(BaseException):
    """Processor time is up."""


def _give_up(_number, _frame):
    raise Hang


def mutate(sources, contents, rng, path) -> str:
    """Write a mutated copy of one of the files; return the name of the mutation."""
    # the large files take ten times as long
    often = [s for s in sources if len(contents[s]) < LARGE] * 4
    source = [*often, *sources][rng.integers(len(often) + len(sources))]
    if rng.random() < 0.3:
        path.write_bytes(mutate_file(contents[source], rng))
        return "bytes"
    mutation = SEALED[rng.integers(len(SEALED))]
    write_parts(path, mutation(read_parts(source), rng))
    return mutation.__name__


def outcome(path) -> tuple[str, str]:
    """Load a file and sample; return the outcome, and the trace of a foreign error."""
    loaded = False
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        model = load(path, device="cpu")
        loaded = True
        model.sample(3)
    except AugMaskError:
        return ("refused in sample" if loaded else "refused"), ""
    except Hang:
        return "hangs", traceback.format_exc()
    except Exception:
        return "foreign", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "loaded", ""


def test_mutated_model_files(tmp_path, monkeypatch):
    sources = write_models(tmp_path)
    contents = {source: source.read_bytes() for source in sources}
    parts = {source: read_parts(source) for source in sources}
    monkeypatch.setitem(globals(), "read_parts", parts.__getitem__)
    before = signal.signal(signal.SIGPROF, _give_up)
    outcomes: Counter[str] = Counter()
    bad, slowest, began = [], 0.0, time.process_time()
    path = tmp_path / "mutated"

    def tell() -> int:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        report(
            "mutated model files",
            files=sum(outcomes.values()),
            foreign=outcomes["foreign"],
            hangs=outcomes["hangs"],
            refused=outcomes["refused"],
            loaded=outcomes["loaded"],
            refused_in_sample=outcomes["refused in sample"],
            slowest_seconds=round(slowest, 2),
            peak_mib=round(peak / 2**20),
            cpu_seconds=round(time.process_time() - began),
        )
        return peak

    try:
        for seed in range(budget("model files")):
            rng = np.random.default_rng([26, seed])
            how = mutate(sources, contents, rng, path)
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                end, trace = outcome(path)
            slowest = max(slowest, time.process_time() - start)
            outcomes[end] += 1
            if trace:
                bad.append(f"seed {seed} ({how}): {trace}")
            # a full run takes long, and may be cut short
            if seed % 5_000 == 4_999:
                tell()
    finally:
        signal.signal(signal.SIGPROF, before)
    peak = tell()
    assert not bad, "\n".join([f"{len(bad)} in all", *bad[:5]])
    assert slowest < SECONDS
    assert peak < MEMORY


def test_every_number_of_a_manifest(tmp_path):
    """None is believed: whatever it says, the file is refused or gives rows."""
    path = tmp_path / "extreme"
    before = signal.signal(signal.SIGPROF, _give_up)
    outcomes: Counter[str] = Counter()
    bad, slowest, tried = [], 0.0, 0
    try:
        for source in write_models(tmp_path):
            parts = read_parts(source)
            for at in every_number(parts.metadata):
                for value in EXTREMES:
                    tried += 1
                    # a short run tries some of them
                    if tried % SWEEP[budget("model files")]:
                        continue
                    write_parts(path, with_value(parts, at, value))
                    start = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        end, trace = outcome(path)
                    slowest = max(slowest, time.process_time() - start)
                    outcomes[end] += 1
                    if trace:
                        bad.append(f"{source.stem} {at} = {value}: {trace}")
    finally:
        signal.signal(signal.SIGPROF, before)
    report(
        "extreme numbers in manifests",
        files=sum(outcomes.values()),
        foreign=outcomes["foreign"],
        hangs=outcomes["hangs"],
        refused=outcomes["refused"],
        loaded=outcomes["loaded"],
        refused_in_sample=outcomes["refused in sample"],
        slowest_seconds=round(slowest, 2),
    )
    assert not bad, "\n".join([f"{len(bad)} in all", *bad[:5]])
    assert slowest < SECONDS
