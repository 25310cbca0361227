"""The library never imports the benchmark, and its wheel does not contain it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import augmask
import augmask_bench

LIBRARY, BENCH = (Path(package.__file__).parent for package in (augmask, augmask_bench))
ROOT = LIBRARY.parents[1]
# In this order: a module imports only modules of earlier groups, or of its own.
LAYERS = (
    ("arrays", "cluster", "jobs", "lock", "peers", "public", "validation"),
    ("augmentation_cache", "data", "fills", "hyperimpute", "baselines", "theory"),
    ("generators",),
    ("methods",),
    ("plan", "ranks"),
    ("results", "score", "significance"),
    ("layout", "speed"),
    ("dataset_tables", "run"),
    ("stages",),
    ("exchange",),
    ("figures",),
    ("cli",),
)


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports at run time."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    names = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module}
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


@pytest.mark.parametrize("path", files(LIBRARY), ids=lambda p: p.stem)
def test_the_library_never_imports_the_benchmark(path):
    assert not {name for name in imports(path) if name.startswith("augmask_bench")}


@pytest.mark.parametrize("path", files(BENCH), ids=lambda p: p.stem)
def test_imports_of_the_benchmark_point_one_way(path):
    layer_of = {name: i for i, names in enumerate(LAYERS) for name in names}
    own = path.relative_to(BENCH).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "augmask_bench" and len(parts) > 1:
            assert layer_of[parts[1]] <= layer_of[own], f"{own} imports {name}"


@pytest.mark.parametrize("path", files(BENCH), ids=lambda p: p.stem)
def test_no_private_name_of_the_library_is_imported(path):
    names = [name for name in imports(path) if name.startswith("augmask.")]
    assert not [n for n in names if any(part[0] == "_" for part in n.split("."))]


def test_the_library_works_without_the_benchmark():
    code = (
        "import sys; sys.modules['augmask_bench'] = None;"
        "import augmask, augmask.model, augmask.imputer;"
        "print(sorted(n for n in sys.modules if n.startswith('augmask_bench')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "['augmask_bench']"


def test_the_library_s_wheel_does_not_contain_the_benchmark():
    for folder, package in ((ROOT, "augmask"), (ROOT / "bench", "augmask_bench")):
        tool = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]
        assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == [
            f"src/{package}"
        ]
    assert LIBRARY not in BENCH.parents
    assert not list(LIBRARY.rglob("*bench*.py"))
