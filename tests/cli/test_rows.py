"""`sample --where --missing` and `impute` through the command line."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from .conftest import TINY, make_frame


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sample_where(desk, run_cli, good_model):
    result = run_cli(
        *("sample", good_model, "-n", 20, "--out", "rows.csv"),
        *("--where", 'job == "cook" and 30 <= age <= 80', "--json"),
    )
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["rows"] == 20
    assert 0 < facts["rate"] <= 1
    rows = pd.read_csv("rows.csv")
    assert (rows["job"] == "cook").all()
    assert rows["age"].between(30, 80).all()
    assert not rows.isna().any().any()


def test_sample_with_learned_missingness(desk, run_cli, good_model):
    result = run_cli(
        *("sample", good_model, "-n", 2000, "--out", "rows.csv", "--missing", "learned")
    )
    assert result.code == 0, result.err
    assert "complete" not in result.out
    rates = pd.read_csv("rows.csv").isna().mean()
    assert (rates - make_frame().isna().mean()).abs().max() < 0.05


def test_a_rule_given_to_fit_is_kept_by_samples(desk, run_cli):
    frame = make_frame().assign(height=lambda f: f["weight"] + 100)
    frame.to_csv("t.csv", index=False)
    result = run_cli(
        *("fit", "t.csv", "--out", "m.augmask", *TINY),
        *("--constraint", "weight < height", "--constraint", "job, smokes"),
    )
    assert result.code == 0, result.err
    result = run_cli("sample", "m.augmask", "-n", 50, "--out", "rows.parquet")
    assert result.code == 0, result.err
    rows = pd.read_parquet("rows.parquet")
    assert (rows["weight"] < rows["height"]).all()
    assert "satisfy" in result.out


def test_fit_says_what_it_held_out(desk, run_cli):
    make_frame().to_csv("t.csv", index=False)
    result = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY)
    assert "held out no rows" in result.out
    assert "--holdout 0.1" in result.out
    result = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY, "--holdout", 0.1)
    assert "held out 6 of 60 rows" in result.out
    result = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY, "--holdout", 0)
    assert "held out" not in result.out.replace("held-out", "")


@pytest.mark.parametrize("draws", [1, 3])
def test_impute(desk, run_cli, good_model, draws):
    frame = make_frame()
    frame.to_csv("incomplete.csv", index=False)
    result = run_cli(
        *("impute", good_model, "incomplete.csv", "--out", "full.csv"),
        *("--n-draws", draws, "--json"),
    )
    assert result.code == 0, result.err
    facts = json.loads(result.out)
    assert facts["rows"] == draws * len(frame)
    assert facts["imputed"] == int(frame.isna().sum().sum())
    full = pd.read_csv("full.csv")
    assert not full.isna().any().any()
    again = pd.read_csv("incomplete.csv")
    for k in range(draws):
        part = full.iloc[k * len(frame) : (k + 1) * len(frame)].reset_index(drop=True)
        for name in frame:
            seen = again[name].notna()
            assert (part[name][seen] == again[name][seen]).all()


@pytest.mark.parametrize("draws", [1, 2])
def test_impute_counts_what_it_has_filled(desk, run_cli, draws):
    # not what is NaN: codes are imputed too, and missing values that are levels stay
    frame = make_frame().assign(packs=[1.0, 2.0, None, 4.0, 5.0, 6.0] * 10)
    frame["weight"] = frame["weight"].fillna(-999)
    frame.to_csv("t.csv", index=False)
    schema = (
        '[columns.weight]\nna_values = [-999]\n[columns.packs]\nmissing_as = "level"\n'
    )
    (desk / "s.toml").write_text(schema)
    fitted = run_cli(
        *("fit", "t.csv", "--out", "m.augmask", *TINY, "--schema", "s.toml")
    )
    assert fitted.code == 0, fitted.err
    command = ("impute", "m.augmask", "t.csv", "--out", "full.csv", "--n-draws", draws)
    result = run_cli(*command, "--json")
    assert result.code == 0, result.err
    before = pd.read_csv("t.csv")
    full = pd.read_csv("full.csv").loc[:59, list(before)]
    changed = (full != before) & ~(full.isna() & before.isna())
    filled = int(changed.to_numpy().sum())
    assert filled != before.isna().to_numpy().sum()
    assert (changed["weight"] == (before["weight"] == -999)).all()
    assert json.loads(result.out)["imputed"] == filled
    assert f" {filled:,} missing values imputed" in run_cli(*command).out


@pytest.mark.parametrize("command", ["sample", "impute"])
def test_rows_for_a_spreadsheet(desk, run_cli, command):
    frame = make_frame()
    frame["job"] = frame["job"].map(lambda job: f"={job}", na_action="ignore")
    frame.to_csv("t.csv", index=False)
    made = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY)
    assert made.code == 0, made.err
    asked = {
        "sample": ["sample", "m.augmask", "-n", 9],
        "impute": ["impute", "m.augmask", "t.csv"],
    }[command]
    result = run_cli(*asked, "--out", "rows.csv", "--csv-safe")
    assert result.code == 0, result.err
    assert pd.read_csv("rows.csv")["job"].str.startswith("'=").all()


@pytest.fixture
def as_written(desk):
    """A file whose cells pandas would write in another way, and its rows."""
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2021-03-01")
    rows = [
        {
            "paid": "TRUE" if rng.random() < 0.5 else "FALSE",
            "price": f"{rng.uniform(0, 90):.2f}",
            "share": f"{rng.random():.20f}",
            "dose": f"{rng.uniform(0, 1e-5):.3e}",
            "change": f"{rng.integers(-40, 40):+d}",
            "count": f"  {rng.integers(0, 900)}",
            "seen": (day + pd.Timedelta(minutes=i * 997)).isoformat()[:-3],
            "sent": f"{(day + pd.Timedelta(hours=i * 7)).isoformat()}+02:00",
            "left": f"{(day + pd.Timedelta(seconds=i * 7919)).isoformat()}Z",
            "key": f"K-{i:03d}",
        }
        for i in range(80)
    ]
    frame = pd.DataFrame(rows)
    frame = frame.mask(rng.random(frame.shape) < 0.2, "?")
    frame["note"] = ["NA", "", " x ", "1.0"] * 20
    frame.to_csv("t.csv", index=False, sep=";")
    return frame


@pytest.mark.parametrize("draws", [1, 2])
def test_impute_keeps_the_cells_of_a_file_letter_by_letter(as_written, run_cli, draws):
    reading = ("--sep", ";", "--na", "?")
    learned = as_written.drop(columns="note")
    learned.to_csv("learned.csv", index=False, sep=";")
    fit = run_cli("fit", "learned.csv", "--out", "m.augmask", *TINY, *reading)
    assert fit.code == 0, fit.err
    command = ("impute", "m.augmask", "t.csv", "--out", "full.csv", *reading)
    result = run_cli(*command, "--n-draws", draws)
    assert result.code == 0, result.err
    written = pd.read_csv("full.csv", dtype=str, keep_default_na=False)
    for draw in range(draws):
        part = written.iloc[draw * 80 : (draw + 1) * 80].reset_index(drop=True)
        known = as_written != "?"
        pd.testing.assert_frame_equal(part[list(as_written)][known], as_written[known])
    missing = pd.concat([as_written == "?"] * draws, ignore_index=True)
    forms = {
        "paid": "TRUE|FALSE",
        "price": r"\d+\.\d\d",
        "change": r"-?\d+",
        "count": r"\d+",
        "seen": r"\d{4}-\d\d-\d\dT\d\d:\d\d",
        "sent": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+02:00",
        "left": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        # an identifier is not imputed
        "key": r"\?",
    }
    for name, form in forms.items():
        filled = written[name][missing[name]]
        assert len(filled)
        assert filled.str.fullmatch(form).all(), filled.tolist()


def test_impute_writes_values_where_texts_are_escaped(as_written, run_cli):
    reading = ("--sep", ";", "--na", "?")
    fit = run_cli("fit", "t.csv", "--out", "m.augmask", *TINY, *reading)
    assert fit.code == 0, fit.err
    command = ("impute", "m.augmask", "t.csv", "--out", "full.csv", *reading)
    assert run_cli(*command, "--csv-safe").code == 0
    change = pd.read_csv("full.csv", dtype=str)["change"]
    assert change.str.fullmatch(r"-?\d+").all()


@pytest.mark.parametrize("draws", [1, 2])
def test_impute_fills_levels_that_were_not_learned(desk, run_cli, good_model, draws):
    frame = make_frame()
    known = set(frame["job"].dropna())
    frame.loc[:4, "job"] = "astronaut"
    frame.to_csv("t.csv", index=False)
    command = ("impute", good_model, "t.csv", "--out", "full.csv", "--n-draws", draws)
    result = run_cli(*command)
    assert result.code == 0, result.err
    full = pd.read_csv("full.csv")
    assert len(full) == draws * len(frame)
    assert set(full["job"]) <= known
