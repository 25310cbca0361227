"""What a bad input is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

USAGE, BAD_DATA, FAILED = 2, 3, 4


@dataclass(frozen=True)
class Bad:
    """One bad input: what to prepare, what to run there, what must come of it.

    `says` must appear in the sentence, in this order; typer checks its own options
    and says so in its own form (`typed`).
    """

    name: str
    code: int
    run: str
    says: tuple[str, ...]
    prepare: Callable[[], object] = lambda: None
    typed: bool = False


def write(name: str, contents: str | bytes) -> Callable[[], object]:
    data = contents.encode() if isinstance(contents, str) else contents
    return lambda: Path(name).write_bytes(data)


FIT_BAD = "fit bad.csv --out m.augmask"
FIT_GOOD = "fit good.csv --out m.augmask"
FIT_SCHEMA = "fit good.csv --out m.augmask --schema s.toml"
SAMPLE_BAD = "sample bad.augmask -n 5 --out rows.csv"
