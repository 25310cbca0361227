"""The map and the glossary of CONTRIBUTING name files and names that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
GLOSSARY = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in TEXT.split("## Glossary")[1].split("\n\nOne meaning")[0].splitlines()
    if line.startswith("|") and not line.startswith(("| paper", "|---"))
]


def source(path: str) -> str:
    for base in ("src/augmask", "src/augmask/diffusion", "."):
        found = ROOT / base / path
        if found.is_file():
            return found.read_text()
        if found.is_dir():
            return " ".join(str(each) for each in found.iterdir())
    raise AssertionError(f"there is no {path}")


@pytest.mark.parametrize("row", GLOSSARY, ids=lambda row: row[0])
def test_every_entry_of_the_glossary_is_found_where_it_says(row):
    _, names, places = row
    text = " ".join(source(path) for path in re.findall(r"`([^`]+)`", places))
    for name in re.findall(r"`([^`]+)`", names):
        assert name.split(".")[-1] in text, name


def test_the_glossary_has_about_twenty_lines():
    assert 18 <= len(GLOSSARY) <= 25


def test_every_file_of_the_map_exists():
    map_, *_ = TEXT.split("## Map of the code")[1].split("Folders are nouns")
    names = set(re.findall(r"[\w/]+\.py|\b\w+/(?=\s)", map_))
    assert len(names) > 15
    for name in names:
        bases = ("src/augmask", "src/augmask/diffusion", "src/augmask/train", "")
        bases += ("bench/src/augmask_bench",)
        assert any((ROOT / base / name).exists() for base in bases), name
