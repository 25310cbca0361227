"""Each notebook of the gallery runs on data in the repository, and is as committed."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import augmask
from augmask.demo.clinic import load_clinic
from augmask.errors import AugMaskWarning

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*.py"))


def load_renderer():
    path = GALLERY.parent / "_ext" / "render_gallery.py"
    spec = importlib.util.spec_from_file_location("render_gallery", path)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "render_gallery", module)
        spec.loader.exec_module(module)
    return module


render = load_renderer()


def few_visits(n=5000, **keywords):
    return load_clinic(min(n, 600), **keywords)


def run(name, monkeypatch):
    monkeypatch.setenv("AUGMASK_QUICK", "1")
    monkeypatch.setattr(augmask, "load_clinic", few_visits, raising=False)
    _, names = render.run_cells(GALLERY / f"{name}.py")
    return names


# What augmask remarks about the tables is part of what the notebooks show.
@pytest.mark.filterwarnings(f"ignore::{AugMaskWarning.__module__}.AugMaskWarning")
class TestRuns:
    def test_clinic(self, monkeypatch):
        names = run("clinic", monkeypatch)
        assert not names["rows"].isna().any(axis=None)
        assert (names["smokers"]["smoker"] & (names["smokers"]["age"] >= 60)).all()

    def test_survey(self, monkeypatch):
        names = run("survey", monkeypatch)
        assert set(names["checks"].values()) == {0}
        gaps = names["gaps"]
        assert (gaps["survey"] - gaps['missing="learned"']).abs().max() < 0.05

    def test_loans(self, monkeypatch):
        names = run("loans", monkeypatch)
        assert set(names["broken"].values()) == {0}
        assert (names["rare"]["grade"] == "E").all()

    def test_regression(self, monkeypatch):
        names = run("regression", monkeypatch)
        pooled = names["pooled"]
        assert (pooled["lower"] < pooled["estimate"]).all()
        assert (pooled["estimate"] < pooled["upper"]).all()

    def test_own_backbone(self, monkeypatch):
        for rows in run("own_backbone", monkeypatch)["made"].values():
            assert not rows.isna().any(axis=None)

    def test_compare(self, monkeypatch):
        names = run("compare", monkeypatch)
        assert names["gaps"]["augmask"] == 0
        assert names["table"]["Shape"].between(0.5, 1).all()


def test_every_notebook_is_run_here():
    assert {f"test_{path.stem}" for path in SCRIPTS} <= set(dir(TestRuns))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_committed_page_is_that_of_the_script(script):
    page = script.with_suffix(".md").read_text()
    cells = render.read_cells(script.read_text())
    at = 0
    for cell in cells:
        assert cell.source in page[at:], "run `make gallery`"
        at = page.index(cell.source, at) + len(cell.source)
    pictures = re.findall(r"\]\(([\w-]+\.png)\)", page)
    assert pictures
    assert sorted(pictures) == sorted(p.name for p in GALLERY.glob(f"{script.stem}-*"))
    for picture in pictures:
        assert (GALLERY / picture).stat().st_size < 150_000
    assert script.with_suffix(".ipynb").read_text() == render.notebook(cells)


def test_rows_of_other_packages_have_their_versions():
    rows = sorted((GALLERY / "rows").glob("*.csv.gz"))
    assert rows
    for path in rows:
        facts = json.loads(
            (path.parent / f"{path.name.split('.')[0]}.json").read_text()
        )
        assert facts["version"]
        assert facts["command"].startswith("python benchmarks/rivals_clinic.py")


def test_a_cell_shows_what_it_printed_its_value_and_its_figures(tmp_path):
    script = tmp_path / "small.py"
    script.write_text(
        "# %% [markdown]\n# # Title\n#\n# A text.\n\n# %%\n"
        "import pandas as pd\nprint('hello')\npd.DataFrame({'a|b': [1.0, 2.5]})\n\n"
        "# %%\nfrom matplotlib import pyplot as plt\n_ = plt.plot([1, 2])\n"
    )
    cells, _ = render.run_cells(script, tmp_path)
    page = render.page("small", cells, 3)
    assert "# Title\n\nA text." in page
    assert "```text\nhello\n```" in page
    assert "| a|b |\n| --- |\n| 1 |\n| 2.5 |" in page
    assert "(small-1.png)" in page
    assert (tmp_path / "small-1.png").stat().st_size > 1000
    book = json.loads(render.notebook(cells))
    assert [cell["cell_type"] for cell in book["cells"]] == ["markdown", "code", "code"]
