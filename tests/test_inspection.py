from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

import augmask as am
from augmask.cli import main


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    start = rng.integers(0, 90, 300)
    frame = pd.DataFrame(
        {
            "key": [f"K{i:04d}" for i in range(300)],
            "start": start,
            "end": start + rng.integers(0, 9, 300),
            "<town>": rng.choice(["Pau", "Metz"], 300),
        }
    )
    frame["<town>"] = frame["<town>"].mask(rng.random(300) < 0.25)
    return frame


def test_an_inspection_shows_what_the_command_shows(tmp_path, capsys, monkeypatch):
    make_frame().to_csv(tmp_path / "t.csv", index=False)
    monkeypatch.setattr("sys.argv", ["augmask", "inspect", str(tmp_path / "t.csv")])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    screen = capsys.readouterr()
    found = am.inspect(tmp_path / "t.csv")
    assert screen.out == f"{tmp_path / 't.csv'}: {found}\n"
    notes = [line.removeprefix("note: ") for line in screen.err.splitlines()]
    assert notes[:-1] == found.notes
    assert "--constraint 'start <= end'" in notes[-1]
    assert "constraints=['start <= end']" in found.suggestions[-1]
    assert repr(found).endswith(found.suggestions[-1])


def test_its_parts():
    found = am.inspect(make_frame(), schema={"start": "float"})
    assert found.schema["start"].kind == "float"
    assert found.constraints == ["start <= end"]
    table = found.to_frame()
    assert table["column"].tolist() == list(make_frame())
    assert table["kind"].tolist() == ["identifier", "float", "integer", "category"]
    assert 0.2 < table["missing"].iloc[3] < 0.3
    assert json.loads(json.dumps(found.to_dict()))["constraints"] == ["start <= end"]
    assert str(am.inspect(pl.from_pandas(make_frame()))).startswith("300 rows, 4 col")


def test_in_a_notebook_it_is_a_table_without_markup_of_its_own():
    html = am.inspect(make_frame())._repr_html_()
    assert "&lt;town&gt;" in html
    assert "<town>" not in html
    assert "<li>" in html
    assert "Most frequent patterns" in html
    plain = pd.DataFrame({"a": [1.5, 2.5, 3.25] * 9})
    assert "Most frequent" not in am.inspect(plain)._repr_html_()
