"""Command lines: one sentence and an exit code, and no other file is changed."""

from __future__ import annotations

import contextlib
import io
import itertools
import signal
import sys
import time
import traceback
import warnings
from collections import Counter

import numpy as np
import pytest

from augmask.cli import main

from .budget import budget, report
from .commands import command
from .desk import lay_out, listing

pytestmark = pytest.mark.slow

CODES = {0, 2, 3, 4}
SECONDS = 60


class Hang(BaseException):
    """Time is up."""


def _give_up(_number, _frame):
    raise Hang


def run(line: list[str]) -> tuple[int | str, str]:
    """Run a command line in this process; return its exit code and standard error."""
    errors = io.StringIO()
    sys.argv = ["augmask", *line]
    try:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0, errors.getvalue()
    except Hang:
        return "hang", traceback.format_exc()
    except BaseException:
        return "traceback", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return 0, errors.getvalue()


def named_by(line: list[str]) -> set[str]:
    """Return the files that a command line may write."""
    options = ("--out", "--save-schema", "--checkpoint")
    return {
        value.replace("sub/../", "")
        for option, value in itertools.pairwise(line)
        if option in options
    }


def harm(before, after, line, code) -> str:
    """Return what a command did to files beyond its output; empty if nothing."""
    mine = named_by(line)
    mine |= {"good.csv" for name in mine if name == "link.csv"}
    mine |= {"good.augmask" for name in mine if name == "link.augmask"}
    inputs = {part.replace("sub/../", "") for part in line} - mine
    for name, data in before.items():
        if after.get(name) == data:
            continue
        if code != 0 or name not in mine or name in inputs:
            return f"{name} was changed or removed"
    fresh = [name for name in after if name not in before]
    if code != 0 and fresh:
        return f"{fresh} was left"
    return f"{fresh} came up" if set(fresh) - mine else ""


def test_command_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    lay_out(tmp_path)
    clean = listing(tmp_path)
    codes: Counter[int | str] = Counter()
    bad, harmed, began = [], 0, time.process_time()
    before = signal.signal(signal.SIGPROF, _give_up)
    try:
        for seed in range(budget("commands and calls") // 2):
            line = command(np.random.default_rng([7, seed]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                code, said = run(line)
            codes[code] += 1
            label = f"seed {seed}: {' '.join(part[:60] for part in line)!a}"
            if code not in CODES or "Traceback" in said or "internal error" in said:
                bad.append(f"{label}\n{code}: {said[-1500:]}")
            after = listing(tmp_path)
            wrong = harm(clean, after, line, code)
            if wrong:
                harmed += 1
                bad.append(f"{label}\n{code}: {wrong}")
            for name in after.keys() - clean.keys():
                (tmp_path / name).unlink()
            for name, data in clean.items():
                if after.get(name) != data:
                    (tmp_path / name).write_bytes(data)
    finally:
        signal.signal(signal.SIGPROF, before)
    report(
        "command lines",
        lines=sum(codes.values()),
        ends={str(code): codes[code] for code in sorted(codes, key=str)},
        tracebacks=sum(count for code, count in codes.items() if code not in CODES),
        files_harmed=harmed,
        cpu_seconds=round(time.process_time() - began),
    )
    assert not bad, "\n\n".join([f"{len(bad)} in all", *bad])
