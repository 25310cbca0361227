"""The small parts of the front; its runs take minutes."""

from __future__ import annotations

import json

import front
import pandas as pd

SCORES = dict.fromkeys(front.METRICS, 0.9)


def test_settings_are_json_where_they_can_be():
    pairs = ["steps=8000", "draws=stack:4", "value_protection=false", "lr=2e-3"]
    assert front.settings(pairs) == {
        "steps": 8000,
        "draws": "stack:4",
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
        {"table": "magic-0.7", "who": who, "cpu": 60.0 * (i + 1), **SCORES}
        for i, who in enumerate(("ours", "rival"))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "front.csv", index=False)
    front.plot(tmp_path / "front.csv", tmp_path / "front.svg")
    drawn = (tmp_path / "front.svg").read_text()
    assert "augmask" in drawn
    assert "mostlyai-engine" in drawn
    assert "magic" in drawn
