"""Packages of other authors are used where they work, without side effects."""

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
    """Pretend that all packages are installed, with these library versions."""
    installed = dict(WORKING)
    monkeypatch.setattr(peers, "find_spec", lambda package: package)
    monkeypatch.setattr(peers, "_version", lambda library: installed[library])
    return installed


@pytest.mark.parametrize(
    "package", ["ctgan", "ForestDiffusion", "arfpy", "hyperimpute"]
)
def test_tested_versions_pass(versions, package):
    assert peers.why_unusable(package) == ""
    peers.require(package)


@pytest.mark.parametrize(
    ("package", "library", "version", "why"),
    [
        ("hyperimpute", "pandas", "3.0.0", "below 3.0, got 3.0.0: it imputes means"),
        ("hyperimpute", "scikit-learn", "1.8.0", "below 1.8, got 1.8.0"),
        ("arfpy", "numpy", "2.4.0rc1", "below 2.4, got 2.4.0rc1"),
        ("arfpy", "pandas", "3.1.1", "below 3.0, got 3.1.1"),
    ],
)
def test_broken_versions_are_refused(versions, package, library, version, why):
    versions[library] = version
    with pytest.raises(UsageError, match=f"{package} needs {library} {re.escape(why)}"):
        peers.require(package)


@pytest.mark.parametrize("package", ["ctgan", "ForestDiffusion"])
def test_two_packages_work_on_the_newest_libraries(versions, package):
    versions |= {"numpy": "2.4.6", "pandas": "3.1.1", "scikit-learn": "1.9.1"}
    assert peers.why_unusable(package) == ""


def test_an_absent_package_is_named():
    with pytest.raises(UsageError, match=r"no_such, which is not installed; see docs/"):
        peers.require("no_such")


def states():
    numpy_state = np.random.get_state()  # noqa: NPY002
    torch_state = torch.get_rng_state().tolist()
    return random.getstate(), str(numpy_state), torch_state, dict(os.environ)


@pytest.mark.parametrize("breaks", [False, True])
def test_isolation_restores_state_and_hides_output(capsys, breaks):
    before, filters = states(), list(warnings.filters)
    drawn = []
    for _ in range(2):
        try:
            with peers.isolated(3):
                drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002
                os.environ["OMP_NUM_THREADS"] = "77"
                os.environ["A_NEW_ONE"] = "1"
                print("progress of a package")  # noqa: T201
                warnings.warn("warning of a package", stacklevel=1)
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


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def test_only_an_extra_of_the_benchmark_requires_other_generators():
    library, bench = project(ROOT), project(ROOT / "bench")
    assert "torch" in names(library["dependencies"])
    for requirements in (
        library["dependencies"],
        *library["optional-dependencies"].values(),
        bench["dependencies"],
    ):
        assert not names(requirements) & set(PACKAGES)
    baselines = names(bench["optional-dependencies"]["baselines"])
    assert {"ctgan", "arfpy", "catboost"} <= baselines
    # the pinned versions are those that the limits allow
    pinned = dict(
        line.split("==")
        for line in (ROOT / "baselines-constraints.txt").read_text().split()
        if "==" in line
    )
    assert WORKING.items() <= pinned.items()
    assert baselines <= pinned.keys()


def test_no_package_is_imported_before_it_is_used():
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
