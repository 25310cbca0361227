"""Run the wheel in a fresh environment per cell: Pythons by ages of the libraries.

    python release/matrix.py dist [CELL ...]

The oldest libraries are the lower bounds in pyproject.toml, word for word, except
where there is no build for that Python: `FIRST_BUILDS` lists those. Pinned ones are
those of constraints.txt, and the newest are what pip takes. Each cell installs the
wheel with `EXTRAS`, runs `try_wheel.py` and a quick part of the tests, and writes one
row of benchmarks/results/matrix.csv; rows of other cells are kept. Cells run one after
the other, because torch takes gigabytes in each. An interpreter is looked for in the
folders of PYTHONS (separated by colons), then on the path. With uv on the path, cells
share the files of what they install, which takes less time and space.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "matrix.csv"
AGES = ("oldest", "pinned", "newest")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What the quick tests use beyond the dependencies.
EXTRAS = ("excel", "fakes")
LIBRARIES = ("torch", "numpy", "pandas", "scikit-learn", "scipy", "pyarrow", "lightgbm")
FIELDS = (
    "cell",
    "python",
    *LIBRARIES,
    "import",
    "quick start",
    "command",
    "tests",
    "passed",
    "seconds",
)
# The first version with a build for a Python that is newer than the lower bound.
FIRST_BUILDS = {
    "3.13": {
        "numpy": "2.1.0",
        "pandas": "2.2.3",
        "scipy": "1.14.1",
        "matplotlib": "3.9.2",
    },
    "3.14": {
        "numpy": "2.3.3",
        "pandas": "2.3.3",
        "scipy": "1.16.2",
        "scikit-learn": "1.7.2",
        "pyarrow": "22.0.0",
        "matplotlib": "3.10.6",
        "safetensors": "0.6.2",
    },
}
QUICK_TESTS = (
    "tests/augmentation/test_moments.py",
    "tests/table/test_cells.py",
    "tests/table/test_codec.py",
    "tests/table/test_dtype_recovery.py",
    "tests/table/test_fakes.py",
    "tests/table/test_frames.py",
    "tests/table/test_infer.py",
    "tests/test_container.py",
)
LONGEST = 3600


def lower_bounds(python: str) -> dict[str, str]:
    """Return the oldest version of every dependency, for one Python."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = project["dependencies"] + [each for e in EXTRAS for each in extras[e]]
    found = (re.fullmatch(r"([\w-]+)>=([\w.]+)", each) for each in declared)
    bounds = {match[1]: match[2] for match in found if match}
    return bounds | FIRST_BUILDS.get(python, {})


def interpreter(python: str) -> str | None:
    """Return the interpreter of a version, None if there is none."""
    for folder in os.environ.get("PYTHONS", "").split(":"):
        for place in sorted(Path(folder).glob(f"{python}*/bin/python{python}")):
            return str(place)
    return shutil.which(f"python{python}")


def installer(python: Path) -> list[str | Path]:
    """Return the command that installs packages for an interpreter."""
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", python]
    pip = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    return [python, *pip, "--no-compile"]


def versions(python: Path) -> dict[str, str]:
    """Return the versions that are installed."""
    code = (
        "import json, platform; from importlib.metadata import version;"
        f"names = {LIBRARIES!r};"
        "print(json.dumps({'python': platform.python_version()}"
        " | {name: version(name) for name in names}))"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def run_cell(python: str, age: str, dist: Path, folder: Path) -> dict[str, str]:
    """Return the row of one cell."""
    row = {"cell": f"{python}-{age}", "python": python, "passed": "no"}
    started = time.perf_counter()
    found = interpreter(python)
    if found is None:
        return row | {"import": f"no interpreter of Python {python}"}
    subprocess.run([found, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    (wheel,) = dist.glob("augmask-[0-9]*.whl")
    constraints = folder / "constraints.txt"
    pins = lower_bounds(python) if age == "oldest" else {}
    constraints.write_text("".join(f"{k}=={v}\n" for k, v in pins.items()))
    if age == "pinned":
        constraints = ROOT / "constraints.txt"
    done = subprocess.run(
        [
            *installer(own),
            *("--only-binary", ":all:", "--constraint", constraints),
            *(f"{wheel}[{','.join(EXTRAS)}]", "hypothesis", "polars", "pytest"),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        return row | {"import": f"pip: {done.stderr.strip().splitlines()[-1]}"}
    row |= versions(own)
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environ |= {"OMP_NUM_THREADS": "1"}
    script = ROOT / "release" / "try_wheel.py"
    tried = subprocess.run(
        [own, script], capture_output=True, text=True, env=environ, timeout=LONGEST
    )
    print(tried.stdout, tried.stderr[-2000:], sep="", flush=True)
    for line in tried.stdout.splitlines():
        step, _, outcome = line.partition(": ")
        row[step] = outcome
    quiet = ["-q", "-p", "no:cacheprovider"]
    if age == "oldest":
        # Old libraries call what newer ones beneath them deprecate.
        quiet += ["-W", "default::DeprecationWarning"]
    tests = subprocess.run(
        [own, "-m", "pytest", *quiet, *QUICK_TESTS],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environ,
        timeout=LONGEST,
    )
    row["tests"] = re.sub(r" in .*", "", tests.stdout.strip().splitlines()[-1])
    if tests.returncode:
        print(tests.stdout[-6000:], flush=True)
    passed = tried.returncode == tests.returncode == 0
    row["passed"] = "yes" if passed else "no"
    row["seconds"] = f"{time.perf_counter() - started:.0f}"
    return row


def write_rows(rows: dict[str, dict[str, str]]) -> None:
    """Write the rows in the order of Pythons and ages."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[cell] for cell in sorted(rows))


def main(dist: Path, chosen: list[str]) -> int:
    """Run the cells; return 1 if one fails."""
    rows: dict[str, dict[str, str]] = {}
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            rows = {row["cell"]: row for row in csv.DictReader(file)}
    failed = False
    for python in PYTHONS:
        for age in AGES:
            cell = f"{python}-{age}"
            if chosen and cell not in chosen:
                continue
            if not chosen and interpreter(python) is None:
                print(f"{cell}: no interpreter of Python {python}")
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = run_cell(python, age, dist, Path(folder))
            rows[cell] = row
            failed |= row["passed"] != "yes"
            print(", ".join(f"{k}: {v}" for k, v in row.items()), flush=True)
            write_rows(rows)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
