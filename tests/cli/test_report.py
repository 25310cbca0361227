"""`augmask report`: a page, a document, and what goes wrong."""

from __future__ import annotations

import json
import shutil
from html import unescape
from pathlib import Path

import pandas as pd
import pytest

from augmask.model import load

from .conftest import make_frame


@pytest.fixture
def desk(tmp_path, monkeypatch, good_model) -> Path:
    monkeypatch.chdir(tmp_path)
    make_frame().to_csv("real.csv", index=False)
    make_frame(90).dropna().to_csv("synthetic.csv", index=False)
    shutil.copy(good_model, "m.augmask")
    return tmp_path


def test_a_page_with_training_curves_opens_in_a_browser(desk, run_cli, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    tables = ("real.csv", "synthetic.csv")
    shown = run_cli(
        "report", *tables, "--model", "m.augmask", "--out", "p.html", "--open"
    )
    assert shown.code == 0, shown.err
    assert shown.out.startswith("p.html: ")
    page = Path("p.html").read_text("utf-8")
    assert 'id="training"' in page
    # The augmenter that is judged is the one the model was trained with.
    assert f"The augmenter {load('m.augmask').augmenter_} fills" in page
    assert opened == [(desk / "p.html").as_uri()]


def test_the_page_names_the_files_and_what_to_try_reads_them_alike(desk, run_cli):
    frame = make_frame(400)
    frame.astype(object).fillna("?").to_csv("codes.csv", index=False, sep=";")
    independent = {
        name: frame[name].dropna().sample(300, random_state=0) for name in frame
    }
    rows = pd.DataFrame({k: v.reset_index(drop=True) for k, v in independent.items()})
    rows.assign(age=rows["age"] + 500).to_csv("rows.csv", index=False)
    options = ("--na", "?", "--sep", ";")
    shown = run_cli("report", "codes.csv", "rows.csv", "--out", "p.html", *options)
    assert shown.code == 0, shown.err
    page = unescape(Path("p.html").read_text("utf-8"))
    assert "codes.csv, 400 rows" in page
    assert "What to try next" in page
    assert "augmask inspect codes.csv --na '?' --sep ';'" in page
    scored = run_cli("evaluate", "codes.csv", "rows.csv", *options)
    assert "augmask inspect codes.csv --na '?' --sep ';'" in scored.out


def test_as_one_document(desk, run_cli):
    shown = run_cli("report", "real.csv", "synthetic.csv", "--out", "p.html", "--json")
    document = json.loads(shown.out)
    assert document["page"] == "p.html"
    assert document["shape_remasked"]["value"] <= 1
    assert 'id="training"' not in Path("p.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("real.csv", "synthetic.csv", "--out", "p.csv"), 2, ".html"),
        (("real.csv", "absent.csv", "--out", "p.html"), 3, "absent.csv"),
        (("real.csv", "synthetic.csv", "--out", "no/p.html"), 3, "no directory"),
    ],
)
def test_a_fault_is_one_sentence_and_leaves_no_page(
    arguments, code, said, desk, run_cli
):
    shown = run_cli("report", *arguments)
    assert shown.code == code
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert not list(desk.glob("p.*"))
