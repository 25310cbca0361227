"""The folders follow the data, and imports point one way along it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import augmask

ROOT = Path(augmask.__file__).parent

# A part may import those to its left. Parts that share a line do not know each other.
ORDER = [
    ["errors", "rng"],
    ["progress", "files", "notebook", "packages", "validation"],
    ["container", "engine", "job_folder"],
    ["table"],
    ["missing"],
    ["augmentation"],
    ["config"],
    ["presets"],
    ["device"],
    ["diffusion"],
    ["train"],
    ["sample"],
    ["inspection"],
    ["evaluation"],
    ["report"],
    ["fitted_state"],
    ["prepare", "partitioned_rows"],
    ["prepare_parts"],
    ["model"],
    ["imputer"],
    ["demo"],
    ["cli"],
]
RANK = {part: i for i, parts in enumerate(ORDER) for part in parts}
FORBIDDEN = {
    "table": {"torch", "lightgbm"},
    "missing": {"torch", "lightgbm"},
    "augmentation": {"torch"},
    "evaluation": {"torch"},
    "report": {"torch"},
    "diffusion": {"pandas", "lightgbm"},
    "train": {"pandas", "lightgbm"},
}


def files() -> list[Path]:
    return [p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py"]


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    own = part_of(path)
    for name in imported(path):
        first, *rest = name.split(".")
        if first == "augmask" and rest and rest[0] != own:
            assert RANK[rest[0]] < RANK[own], f"{own} must not import {rest[0]}"
        assert first not in FORBIDDEN.get(own, set())


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("augmask", {"torch", "pandas", "lightgbm", "sklearn", "numpy"}),
        ("augmask.cli", {"torch", "pandas", "lightgbm", "sklearn"}),
        ("augmask.diffusion.cdtd", {"pandas", "lightgbm"}),
        ("augmask.train.loop", {"pandas", "lightgbm"}),
        ("augmask.augmentation.boosted", {"torch", "lightgbm"}),
        ("augmask.evaluation.fidelity", {"torch"}),
        ("augmask.report.page", {"torch"}),
    ],
)
def test_loading_a_part_loads_no_more_than_it_needs(module, absent):
    code = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not absent & set(run.stdout.split())


def test_the_library_never_imports_the_laboratory():
    for path in files():
        assert "augmask_bench" not in {name.split(".")[0] for name in imported(path)}


def test_the_network_is_used_where_the_readme_says_so():
    network = {"urllib.request", "http.client", "socket", "requests", "ftplib"}
    assert not [path for path in files() if imported(path) & network]
    readme = (ROOT.parents[1] / "README.md").read_text()
    sentences = " ".join(readme.split()).split(". ")
    (said,) = [sentence for sentence in sentences if "no network" in sentence]
    assert "augmask bench" in said
    assert "UCI" in said
