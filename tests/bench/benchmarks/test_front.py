"""The small parts of the front; its runs take minutes."""

from __future__ import annotations

import json

import front
import pandas as pd

SCORES = dict.fromkeys(front.METRICS, 0.9)


def test_settings_are_json_where_they_can_be():
    pairs = ["steps=8000", "completions=stack:4", "value_protection=false", "lr=2e-3"]
    assert front.settings(pairs) == {
        "steps": 8000,
        "completions": "stack:4",
        "value_protection": False,
        "lr": 0.002,
    }


def test_a_run_is_scored_once_and_kept_with_its_facts(tmp_path, monkeypatch):
    asked = []

    def scores_of(work, name, rows):
        asked.append((name, len(rows)))
        return SCORES

    monkeypatch.setattr(front, "scores_of", scores_of)
    folder = tmp_path / "adult-0.3"
    folder.mkdir()
    facts = {"who": "ours", "wall": 90.0, "cpu": 120.0}
    (folder / "run-cdtd-fast-s0.json").write_text(json.dumps(facts))
    pd.DataFrame({"x": [1, 2, 3]}).to_parquet(folder / "run-cdtd-fast-s0.parquet")
    result = tmp_path / "front.csv"
    for _ in range(2):
        front.score(tmp_path, result)
    assert asked == [("adult-0.3", 3)]
    (line,) = pd.read_csv(result).to_dict("records")
    assert line == {"table": "adult-0.3", "run": "cdtd-fast-s0", **facts, **SCORES}


def test_the_plot_shows_both_sides(tmp_path):
    rows = [
        {"table": "magic-0.7", "run": f"{who}-s0", "who": who, "cpu": 60.0, **SCORES}
        for who in ("ours", "rival")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "front.csv", index=False)
    front.plot(tmp_path / "front.csv", tmp_path / "front.svg")
    drawn = (tmp_path / "front.svg").read_text()
    assert "augmask" in drawn
    assert "mostlyai-engine" in drawn
    assert "magic" in drawn


def test_the_table_has_means_over_seeds_and_nothing_explored(tmp_path, capsys):
    rows = [
        {"table": "magic-0.7", "run": run, "who": who, "wall": 1.0, "cpu": cpu}
        | SCORES
        | {"shape": shape}
        for run, who, cpu, shape in (
            ("cdtd-fast-s0", "ours", 60.0, 0.96),
            ("cdtd-fast-s1", "ours", 180.0, 0.98),
            ("explored-cdtd-s0", "explored", None, 0.5),
        )
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "front.csv", index=False)
    front.table(tmp_path / "front.csv")
    last = capsys.readouterr().out.splitlines()[-1].split()
    # shape, four others, seconds on the clock, minutes of two cores, runs
    assert last == ["magic-0.7", "cdtd-fast", "0.97", *["0.9"] * 4, "1.0", "1.0", "2"]
