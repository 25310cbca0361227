"""The panel's tool on a table of its own, with contenders that take a second."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks" / "panel"
sys.path.insert(0, str(FOLDER))

import data  # noqa: E402
import page  # noqa: E402
import running  # noqa: E402
import scoring  # noqa: E402

CONTENDERS = {
    "independent": {"adapter": "independent.py", "tasks": ["synthesize"]},
    "mean-mode": {"adapter": "mean_mode.py", "tasks": ["impute"]},
    "iterative": {"adapter": "iterative.py", "tasks": ["impute"]},
    "elsewhere": {
        **{"adapter": "independent.py", "tasks": ["synthesize"]},
        "environment": ".venv-nowhere",
    },
    "slow": {"adapter": "independent.py", "tasks": ["synthesize"], "work": 10},
    "broken": {"adapter": "absent.py", "tasks": ["synthesize"]},
}
SETTINGS = {
    **{"test": 0.2, "hidden": 0.1, "impute_rows": 300, "score_rows": 400},
    **{"limit": 60, "draws": 2},
}


def people(n=500, seed=0):
    """Return a table in which the cause is missing exactly for those who live."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n).round()
    dead = rng.random(n) < 1 / (1 + np.exp((60 - age) / 4))
    return pd.DataFrame(
        {
            "key": np.arange(n) + 10_000,
            "age": np.where(rng.random(n) < 0.2, np.nan, age),
            "weight": (age / 2 + rng.normal(40, 4, n)).round(1),
            "dead": np.where(dead, "yes", "no"),
            "cause": np.where(dead, rng.choice(["a", "b"], n), None),
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(age.astype(int), "D"),
        }
    )


@pytest.fixture
def work(tmp_path, monkeypatch):
    people().to_csv(tmp_path / "people.csv", index=False)
    entry = {
        **{"file": "people.csv", "source": "here", "licence": "none"},
        **{"traits": ["tiny"], "target": "weight"},
    }
    whole = {
        "settings": SETTINGS,
        "sources": {"here": {"get": "write it"}},
        "tables": {"people": entry, "gone": {**entry, "file": "gone.csv"}},
        "methods": CONTENDERS,
    }
    monkeypatch.setattr(data, "panel", lambda: whole)
    monkeypatch.setenv("AUGMASK_PANEL", str(tmp_path))
    folder = tmp_path / "work"
    assert "key (identifier)" in data.prepare("people", folder, 0)
    return folder


def test_the_panel_file_is_whole():
    whole = data.panel()
    assert len(whole["tables"]) >= 12
    for entry in whole["tables"].values():
        assert entry["source"] in whole["sources"]
        assert entry["licence"]
        assert entry["target"]
    for entry in whole["methods"].values():
        assert (FOLDER / "adapters" / entry["adapter"]).is_file()
        assert set(entry["tasks"]) <= {"synthesize", "impute"}
    traits = {t for entry in whole["tables"].values() for t in entry["traits"]}
    assert traits >= {
        *("wide", "tiny", "small", "medium", "large", "text", "dates"),
        *("structural missingness", "many levels", "near-deterministic pairs"),
    }


def test_absent_tables_say_how_to_get_them(work):
    assert data.prepare("gone", work, 0) == "gone.csv is absent; get it: write it"
    assert data.prepare("people", work, 0) == "is prepared"


def test_nobody_sees_test_rows_or_hidden_cells(work):
    folder = work / "tables" / "people"
    train, test, true, holed = (
        pd.read_parquet(folder / f"{part}.parquet")
        for part in ("train", "test", "impute-true", "impute-holed")
    )
    assert len(train) == 400
    assert len(test) == 100
    assert pd.read_csv(folder / "train.csv").shape == train.shape
    hidden = holed.isna() & true.notna()
    assert hidden.to_numpy().sum() == pytest.approx(
        0.1 * true.notna().sum().sum(), rel=0.1
    )
    assert not (holed.notna() & true.isna()).any(axis=None)


def test_runs_are_kept_and_scored_once(work, tmp_path):
    names = ("independent", "mean-mode", "iterative", "elsewhere", "slow", "broken")
    found = {}
    for name in names:
        for task in CONTENDERS[name]["tasks"]:
            asked = (work, "people", task, running.Contender(name), 0, False)
            found[name] = running.run(*asked)
    assert found["elsewhere"]["why"].startswith("its environment is absent")
    assert found["slow"]["why"].startswith("not started")
    assert found["broken"]["why"].startswith("failed")
    assert found["independent"]["seconds"] > 0
    again = running.run(
        work, "people", "synthesize", running.Contender("independent"), 0, False
    )
    assert not again["fresh"]
    result = tmp_path / "panel.csv"
    for _ in range(2):
        scoring.score_all(work, result, ["people", "gone"])
    lines = pd.read_csv(result)
    assert not lines.duplicated(["table", "task", "method"]).any()
    scored = lines.set_index("method")
    assert scored.loc["independent", "c2st"] > scored.loc[scoring.REAL, "c2st"] + 0.15
    assert scored.loc["iterative", "rmse"] < scored.loc["mean-mode", "rmse"] - 0.1
    assert scored.loc["iterative", "accuracy"] > scored.loc["mean-mode", "accuracy"]
    assert scored.loc["independent", "mle"] < 0.8
    text = page.page(result)
    assert "| people |" in text
    assert "not started" in text


def test_missing_values_alone_do_not_give_rows_away(work):
    table = scoring.Table(work, "people")
    fresh = people(400, seed=5)
    rows = data.plain(fresh.assign(cause=fresh["cause"].fillna("a")), table.kinds)
    rows["age"] = rows["age"].fillna(rows["weight"] * 2 - 80)
    found = scoring.synthetic(table, rows, seed=0)
    assert found["c2st"] < 0.62
    assert found["worst_tenth"] > 0.8
    # whoever leaves a cell missing where it does not apply is taken at its word
    kept = rows.assign(cause=data.plain(fresh, table.kinds)["cause"])
    assert scoring.synthetic(table, kept, seed=0)["c2st"] < 0.62


def test_draws_are_scored_by_their_mean_their_mode_and_their_spread(work):
    folder = work / "tables" / "people"
    true = pd.read_parquet(folder / "impute-true.parquet")
    table = scoring.Table(work, "people")
    perfect = scoring.imputed(table, [true, true])
    assert perfect["rmse"] == 0
    assert perfect["accuracy"] == 1
    assert perfect["coverage_80"] > 0.7
    alone = scoring.imputed(table, [true])
    assert "coverage_80" not in alone
    empty = pd.read_parquet(folder / "impute-holed.parquet")
    nothing = scoring.imputed(table, [empty])
    assert nothing["accuracy"] == 0
    assert nothing["rmse"] == pytest.approx(1, abs=0.2)


def test_levels_are_the_same_however_they_are_written():
    kinds = data.Kinds({"code": "category"})
    frames = [
        pd.DataFrame({"code": codes}) for codes in ([1, 0], [1.0, 0.0], ["1", "0"])
    ]
    plain = [data.plain(frame, kinds)["code"].tolist() for frame in frames]
    assert plain == [["1", "0"]] * 3


def test_ours_are_named_by_what_was_asked_of_them():
    import importlib.util

    spec = importlib.util.spec_from_file_location("panel_cli", FOLDER / "__main__.py")
    cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cli)
    asked = cli._settings(["preset=fast", "options.steps=400"])
    assert asked == {"preset": "fast", "options": {"steps": 400}}
    assert running.Contender("augmask", asked).name.startswith("augmask options=")


def test_ours_against_the_best_rival(tmp_path):
    lines = pd.DataFrame(
        [
            ("a", "augmask", 0.60, 0.9),
            ("a", "mostlyai", 0.65, 0.8),
            ("a", "utrees", 0.20, 0.7),  # copies: as far from a guess as 0.80
            ("b", "augmask", 0.80, 0.7),
            ("b", "mostlyai", 0.70, 0.8),
            ("b", "independent", 0.50, 0.9),  # a floor is no rival
        ],
        columns=["table", "method", "c2st", "worst_tenth"],
    )
    lines = lines.assign(task="synthesize", rows=100, why=None)
    text = "\n".join(page._behind(lines, "augmask"))
    assert "no worse than the best rival's on 1 of 2 tables" in text
    assert "more than .03 behind on b." in text
    assert "mostlyai, mean over 2 tables: .800 and .800" in text
    assert json.dumps(text).count("independent") == 0
