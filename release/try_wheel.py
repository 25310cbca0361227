"""Use an installed wheel as a newcomer does: import, the README's steps, the command.

    python release/try_wheel.py

It runs in an empty folder, in the environment of the Python that runs it, and prints
one line per step. The steps are those of the README's quick start, at a few training
steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pandas as pd


def check_import() -> None:
    """Import the package from where pip installed it, in little time."""
    code = "import augmask; print(augmask.__file__)"
    started = time.perf_counter()
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    if "site-packages" not in found:
        raise RuntimeError(f"augmask comes from {found.strip()}, not from the wheel")
    if time.perf_counter() - started > 20:
        raise RuntimeError("the import takes more than 20 s")


def quick_start() -> None:
    """Fit, sample, impute, sample under a condition, save and load."""
    import augmask as am
    from augmask.demo.clinic import clinic_with_missing
    from augmask.table.fakes import faker_installed

    _, table = clinic_with_missing(400, seed=0)
    table["email"] = [f"visitor{i}@clinic.org" for i in range(len(table))]
    table.to_csv("patients.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", am.AugMaskWarning)
        model = am.AugMask(seed=0, preset="fast", options={"steps": 20})
        model.fit("patients.csv")
        synthetic = model.sample(500, seed=1)
        imputed = model.impute("patients.csv", n_draws=2)
        older = model.sample(50, where="age >= 60")
    model.save("patients.augmask")
    again = am.load("patients.augmask").sample(500, seed=1)
    pd.testing.assert_frame_equal(again, synthetic)
    # identifiers are not imputed
    assert imputed is not None
    assert not synthetic["age"].isna().any()
    assert (older["age"] >= 60).all()
    assert not set(synthetic["email"]) & set(table["email"])
    assert synthetic["email"].str.contains("@example.").all() == faker_installed()


def command() -> None:
    """`augmask --version`, and inspect, sample and report with files."""
    tool = Path(sys.executable).with_name("augmask")

    def run(*words: str) -> str:
        done = subprocess.run([tool, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"augmask {words[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout

    if metadata.version("augmask") not in run("--version"):
        raise RuntimeError("augmask --version does not say the version of the wheel")
    run("inspect", "patients.csv")
    run("sample", "patients.augmask", "-n", "100", "--out", "rows.csv")
    run("sample", "patients.augmask", "-n", "100", "--out", "rows.parquet")
    run("report", "patients.csv", "rows.csv", "--out", "page.html")


def main() -> int:
    """Run the steps in a folder of their own; return how many failed."""
    steps: dict[str, Callable[[], None]] = {
        "import": check_import,
        "quick start": quick_start,
        "command": command,
    }
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, step in steps.items():
            try:
                step()
                print(f"{name}: passed")
            except Exception as error:
                failed += 1
                print(f"{name}: failed: {type(error).__name__}: {error}")
        os.chdir("/")
    return failed


if __name__ == "__main__":
    sys.exit(main())
