"""Run the scripts of the gallery; write their pages, pictures and notebooks.

    python docs/_ext/render_gallery.py                 # all, into docs/gallery
    python docs/_ext/render_gallery.py clinic survey   # some

A script is plain Python with `# %%` between its cells; `# %% [markdown]` begins a cell
of comments, which is text. The page shows each cell and below it what it printed, the
value of its last expression, and its figures. Pages and pictures are committed, so the
site is built without running anything.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).parents[1] / "gallery"
DPI, COLOURS = 130, 64


@dataclass
class Cell:
    """A cell of a script, and what came out when it ran."""

    kind: str
    source: str
    text: str = ""
    table: str = ""
    pictures: list[str] = field(default_factory=list)


def read_cells(script: str) -> list[Cell]:
    """Split a script into its cells."""
    cells = []
    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        mark, _, source = part.partition("\n")
        if mark.strip() == "[markdown]":
            lines = [re.sub(r"^# ?", "", line) for line in source.strip().splitlines()]
            cells.append(Cell("markdown", "\n".join(lines)))
        else:
            cells.append(Cell("code", source.strip()))
    return cells


def _as_markdown(frame: Any) -> str:
    """Lay a pandas frame out as a Markdown table."""

    def word(value: Any) -> str:
        if value != value or value is None:
            return ""
        text = f"{value:.3f}" if isinstance(value, float) else str(value)
        text = text.removesuffix(" 00:00:00").replace("|", r"\|")
        return (
            text.rstrip("0").rstrip(".") if re.fullmatch(r"-?\d+\.\d+", text) else text
        )

    named = frame.index.name or not frame.index.equals(frame.reset_index().index)
    head = [*([str(frame.index.name or "")] if named else []), *map(str, frame.columns)]
    lines = [head, ["---"] * len(head)]
    for label, row in zip(frame.index, frame.astype(object).to_numpy(), strict=True):
        lines.append([*([word(label)] if named else []), *map(word, row)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _show(cell: Cell, value: Any) -> None:
    import pandas as pd

    if value is None:
        return
    if isinstance(value, pd.Series):
        value = value.to_frame(value.name if value.name is not None else "value")
    if isinstance(value, pd.DataFrame):
        cell.table = _as_markdown(value)
    else:
        cell.text += f"{value!s}\n"


def _save_figures(cell: Cell, name: str, folder: Path, number: int) -> int:
    from matplotlib import pyplot as plt
    from PIL import Image

    for figure in map(plt.figure, plt.get_fignums()):
        number += 1
        file = folder / f"{name}-{number}.png"
        bytes_ = io.BytesIO()
        figure.savefig(bytes_, dpi=DPI, bbox_inches="tight", facecolor="white")
        image = Image.open(bytes_).convert("RGB").quantize(COLOURS)
        image.save(file, optimize=True)
        cell.pictures.append(file.name)
    plt.close("all")
    return number


def run_cells(
    script: Path, folder: Path | None = None
) -> tuple[list[Cell], dict[str, Any]]:
    """Run a script cell by cell; return its cells and its names.

    Figures are written to `folder`, or dropped if there is none.
    """
    import matplotlib as mpl

    mpl.use("Agg", force=True)
    from matplotlib import pyplot as plt

    cells, number = read_cells(script.read_text(encoding="utf-8")), 0
    names: dict[str, Any] = {"__name__": "__gallery__", "__file__": str(script)}
    for cell in cells:
        if cell.kind != "code":
            continue
        tree = ast.parse(cell.source)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(tree, script.name, "exec"), names)
            value = eval(compile(last, script.name, "eval"), names) if last else None
        cell.text = out.getvalue()
        # an expression such as axis.set(...) returns matplotlib's objects, not results
        if type(value).__module__.split(".")[0] not in ("matplotlib", "builtins") or (
            isinstance(value, str | int | float)
        ):
            _show(cell, value)
        if folder is None:
            plt.close("all")
        else:
            number = _save_figures(cell, script.stem, folder, number)
    return cells, names


def page(name: str, cells: list[Cell], seconds: float) -> str:
    """Return the page of a script that has run."""
    lines = [f"<!-- Written by `make gallery` from {name}.py; change that. -->", ""]
    for cell in cells:
        if cell.kind == "markdown":
            lines += [cell.source, ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        if cell.text.strip():
            lines += ["```text", cell.text.rstrip(), "```", ""]
        if cell.table:
            lines += [cell.table, ""]
        for picture in cell.pictures:
            lines += [f"![Figure of the cell above]({picture})", ""]
    took = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    lines += [
        "---",
        "",
        f"Two shared CPU cores took {took} for this page. Download it as a "
        f"{{download}}`script <{name}.py>` or a {{download}}`notebook <{name}.ipynb>`.",
    ]
    return "\n".join(lines) + "\n"


def notebook(cells: list[Cell]) -> str:
    """Return the cells as a Jupyter notebook without outputs."""
    plain = []
    for i, cell in enumerate(cells):
        entry: dict[str, Any] = {
            "cell_type": cell.kind,
            "id": f"cell-{i}",
            "metadata": {},
            "source": cell.source.splitlines(keepends=True),
        }
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        plain.append(entry)
    book = {"cells": plain, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Run the scripts that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    wanted = parser.parse_args().names
    wanted = wanted or sorted(path.stem for path in GALLERY.glob("*.py"))
    for name in wanted:
        began = time.monotonic()
        for old in GALLERY.glob(f"{name}-[0-9]*.png"):
            old.unlink()
        os.chdir(GALLERY)
        cells, _ = run_cells(GALLERY / f"{name}.py", GALLERY)
        seconds = time.monotonic() - began
        (GALLERY / f"{name}.md").write_text(page(name, cells, seconds), "utf-8")
        (GALLERY / f"{name}.ipynb").write_text(notebook(cells), "utf-8")
        sys.stderr.write(f"{name}: {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
