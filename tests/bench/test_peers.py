"""Peers' packages are used where they work, and nobody notices them."""

import json
import os
import random
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import augmask
from augmask.errors import UsageError
from augmask_bench import peers

PACKAGES = ["ctgan", "rdt", "arfpy", "forestdiffusion", "hyperimpute", "catboost"]
ROOT = Path(augmask.__file__).parents[2]
WORKING = {"numpy": "2.3.5", "pandas": "2.3.3", "scikit-learn": "1.7.2"}


@pytest.fixture
def versions(monkeypatch):
    """Pretend that all packages are there, among libraries of these versions."""
    found = dict(WORKING)
    monkeypatch.setattr(peers, "find_spec", lambda package: package)
    monkeypatch.setattr(peers, "_version", lambda library: found[library])
    return found


@pytest.mark.parametrize(
    "package", ["ctgan", "ForestDiffusion", "arfpy", "hyperimpute"]
)
def test_versions_that_were_tried_pass(versions, package):
    assert peers.why_not(package) == ""
    peers.require(package)


@pytest.mark.parametrize(
    ("package", "library", "version", "why"),
    [
        ("hyperimpute", "pandas", "3.0.0", "below 3.0, got 3.0.0: it fills in means"),
        ("hyperimpute", "scikit-learn", "1.8.0", "below 1.8, got 1.8.0"),
        ("arfpy", "numpy", "2.4.0rc1", "below 2.4, got 2.4.0rc1"),
        ("arfpy", "pandas", "3.1.1", "below 3.0, got 3.1.1"),
    ],
)
def test_versions_that_break_are_refused(versions, package, library, version, why):
    versions[library] = version
    with pytest.raises(UsageError, match=f"{package} needs {library} {re.escape(why)}"):
        peers.require(package)


@pytest.mark.parametrize("package", ["ctgan", "ForestDiffusion"])
def test_two_packages_work_on_the_newest_libraries(versions, package):
    versions |= {"numpy": "2.4.6", "pandas": "3.1.1", "scikit-learn": "1.9.1"}
    assert peers.why_not(package) == ""


def test_an_absent_package_is_named():
    with pytest.raises(UsageError, match=r"no_such, which is not installed; docs/"):
        peers.require("no_such")


def states():
    numpy_state = np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state().tolist()
    return random.getstate(), str(numpy_state), torch_state, dict(os.environ)


@pytest.mark.parametrize("breaks", [False, True])
def test_what_happens_in_the_room_stays_there(capsys, breaks):
    before, filters = states(), list(warnings.filters)
    drawn = []
    for _ in range(2):
        try:
            with peers.contained(3):
                drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002
                os.environ["OMP_NUM_THREADS"] = "77"
                os.environ["A_NEW_ONE"] = "1"
                print("a peer's progress")  # noqa: T201
                warnings.warn("a peer's worry", stacklevel=1)
                if breaks:
                    raise RuntimeError
        except RuntimeError:
            pass
    assert drawn[0] == drawn[1]
    assert states() == before
    assert list(warnings.filters) == filters
    assert capsys.readouterr().out == ""


def names(requirements):
    return {re.split(r"[^\w-]", wanted.lower())[0] for wanted in requirements}


def test_augmask_alone_asks_for_no_peer():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    alone, extras = project["dependencies"], project["optional-dependencies"]
    assert "torch" in names(alone)
    assert not names(alone) & set(PACKAGES)
    assert {"ctgan", "arfpy", "catboost"} <= names(extras["baselines"])
    # what stands in the constraints is what the guards let pass
    pinned = dict(
        line.split("==")
        for line in (ROOT / "baselines-constraints.txt").read_text().split()
        if "==" in line
    )
    assert WORKING.items() <= pinned.items()
    assert names(extras["baselines"]) - {"augmask"} <= pinned.keys()


def test_the_core_loads_no_peer():
    code = (
        "import sys, json, augmask, augmask.model, augmask_bench.methods;"
        "from augmask.augmentation import resolve_augmenter as find;"
        "find('hyperimpute'), find('mice');"
        "import augmask_bench.baselines.ctgan, augmask_bench.baselines.tvae;"
        "import augmask_bench.baselines.arf, augmask_bench.baselines.forest;"
        "print(json.dumps(list(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.lower() for name in json.loads(run.stdout)}
    assert not loaded & set(PACKAGES)
