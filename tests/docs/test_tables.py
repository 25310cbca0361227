"""Tables in README and docs are made from the committed results files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "benchmarks" / "doc_tables.py"
    command = [sys.executable, str(script), "--check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_every_table_has_the_numbers_of_its_file():
    done = check()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_number_typed_by_hand_is_seen(tmp_path):
    (tmp_path / "docs" / "research").mkdir(parents=True)
    for name in ("README.md", "docs/research/backbones.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    page = tmp_path / "docs" / "research" / "backbones.md"
    before, mark, table = page.read_text().partition("<!-- table: strategies -->")
    page.write_text(before + mark + re.sub(r"\.\d{3} /", ".999 /", table, count=1))
    done = check("--root", str(tmp_path))
    assert done.returncode == 1
    assert "docs/research/backbones.md" in done.stdout
    assert "README" not in done.stdout
