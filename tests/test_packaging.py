"""What the packages declare agrees: versions, Pythons, bounds, pins, citation."""

from __future__ import annotations

import csv
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BENCH = tomllib.loads((ROOT / "bench/pyproject.toml").read_text())["project"]
PINS = dict(
    re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(), re.M)
)
CITATION = (ROOT / "CITATION.cff").read_text()
MATRIX = ROOT / "benchmarks" / "results" / "matrix.csv"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def declared(project: dict) -> dict[str, str]:
    """The lower bound of every dependency and extra."""
    extras = project["optional-dependencies"]
    # the baselines run in an environment of their own
    lists = [
        project["dependencies"],
        *(v for k, v in extras.items() if k != "baselines"),
    ]
    found = (
        re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)", x) for y in lists for x in y
    )
    return {match[1].lower(): match[2] for match in found if match}


def test_both_packages_and_the_citation_have_one_version():
    assert BENCH["version"] == LIBRARY["version"]
    assert f"\nversion: {LIBRARY['version']}\n" in CITATION
    assert f"augmask[utility]>={LIBRARY['version']}" in BENCH["dependencies"]


def test_the_citation_has_what_its_format_requires():
    keys = re.findall(r"^([\w-]+):", CITATION, re.M)
    assert len(set(keys)) == len(keys)
    assert {"cff-version", "message", "title", "authors"} <= set(keys)
    preferred = CITATION.split("preferred-citation:")[1]
    for key in ("type", "title", "authors", "year"):
        assert re.search(rf"^  {key}:", preferred, re.M), key
    assert re.search(rf"^license: {LIBRARY['license']}$", CITATION, re.M)


def test_both_packages_carry_the_licence():
    assert (ROOT / "bench/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("project", [LIBRARY, BENCH], ids=["augmask", "bench"])
def test_pins_are_not_below_the_bounds(project):
    pins = {name.lower(): version for name, version in PINS.items()}
    for name, bound in declared(project).items():
        if name in pins:
            assert numbers(pins[name]) >= numbers(bound), name


def test_the_pins_are_of_released_versions():
    # A build such as 2.13.0+cpu is on one machine only.
    assert PINS["torch"] == "2.13.0"
    assert not re.search(
        r"\+|file:|https?://",
        (ROOT / "constraints.txt").read_text().replace("2.13.0+cpu", ""),
    )


def rows() -> list[dict[str, str]]:
    with MATRIX.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_python_that_is_declared_passed_in_the_matrix():
    passed = {row["cell"].split("-")[0] for row in rows() if row["passed"] == "yes"}
    for project in (LIBRARY, BENCH):
        pythons = {
            each.rsplit(" ", 1)[1]
            for each in project["classifiers"]
            if re.search(r"Python :: 3\.\d+$", each)
        }
        assert pythons == passed


def test_the_matrix_ran_the_bounds_and_nothing_failed():
    assert all(row["passed"] == "yes" for row in rows())
    oldest = next(row for row in rows() if row["cell"] == "3.11-oldest")
    bounds = declared(LIBRARY)
    for name in ("torch", "numpy", "pandas", "scikit-learn", "scipy", "pyarrow"):
        assert numbers(oldest[name])[:3] == (*numbers(bounds[name]), 0, 0)[:3], name
