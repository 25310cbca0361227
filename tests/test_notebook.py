from __future__ import annotations

import sys
from types import ModuleType

import pandas as pd

from augmask.evaluation.results import Entry, Scores
from augmask.model import AugMask
from augmask.progress import NotebookBar
from augmask.table.infer import infer_schema


def test_a_schema_shows_kinds_and_reasons():
    text = infer_schema(pd.DataFrame({"<i>a": [1.5, 2.5, None]}))._repr_html_()
    assert "&lt;i&gt;a" in text
    assert "33.3%" in text
    assert "float64" in text


def test_scores_show_values_beside_references():
    entry = Entry(0.5, 0.75, None, "fidelity", "higher", "Shape", "Alike.")
    text = Scores({"shape": entry}, {}, {})._repr_html_()
    assert "<td>Shape</td><td>0.5000</td><td>0.7500</td><td></td>" in text


def test_a_model_shows_its_settings_and_then_its_training():
    sizes = {"width": 16, "depth": 1, "time_width": 8, "steps": 3, "batch_size": 16}
    model = AugMask(augmenter="ecdf", options=sizes, device="cpu")
    assert "not fitted" in model._repr_mimebundle_()["text/html"]
    model.fit(pd.DataFrame({"x": [1.0, 2.5, None, 3.0] * 5, "y": list("abbb") * 5}))
    html = model._repr_mimebundle_()["text/html"]
    assert "2 columns, preset fast, missing values completed by ecdf" in html
    assert "not fitted" not in html
    assert "kept step" in html


def test_a_bar_is_displayed_once_and_then_updated(monkeypatch):
    pictures = []

    class Place:
        def update(self, picture):
            pictures.append(picture)

    def display(picture, display_id):
        pictures.append(picture)
        return Place()

    fake = ModuleType("IPython.display")
    fake.HTML, fake.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    bar = NotebookBar(per_second=1e-3)
    bar("train", 1, 10, {"loss": 0.5})
    bar("train", 2, 10, {})
    bar("train", 10, 10, {"loss": 0.25})
    bar("sample", 5, 5, {})
    assert len(pictures) == 3
    assert 'value="1" max="10"' in pictures[0]
    assert "loss 0.25" in pictures[1]
    assert "train" in pictures[2]
    assert "sample" in pictures[2]
