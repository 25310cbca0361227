from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import augmask as am
from augmask.errors import DataError, UsageError
from augmask.evaluation.references import independent
from augmask.table.frames import read_frame

HERE = Path(__file__).parents[2]
DATA = Path(os.environ.get("AUGMASK_DATA", HERE.parent / "shared" / "data"))

FIDELITY = {"shape", "trend", "trend_worst", "trend_sdmetrics"}
COVERAGE = {"alpha_precision", "beta_recall"}
COPYING = {"dcr_share", "copies", "mia_auc", "mia_tpr"}
PRIVACY = COPYING | {"nndr", "nndr_ratio", "beta_excess"}
UTILITY = {"mle", "tstr", "trtr"}
REMASKED = {
    *("shape_remasked", "trend_remasked", "shape_complete", "trend_complete"),
    *("trend_worst_remasked", "rate_gap", "c2st_auc"),
    *("held_out_coverage_80", "held_out_skill"),
}


def people(n=600, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, n).round(1)
    pay = (age / 10 + rng.normal(size=n)).round(2)
    high = rng.random(n) < 1 / (1 + np.exp(4.5 - pay))
    job = np.where(rng.random(n) < 0.2, "none", np.where(high, "boss", "clerk"))
    return pd.DataFrame({"age": age, "pay": pay, "job": job, "member": high})


def with_mar_holes(frame, seed=0):
    """Return the table without the pay of those who are old."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(len(frame)) < 1 / (1 + np.exp(-(frame["age"] - 45) / 4))
    return frame.assign(pay=frame["pay"].mask(hidden))


REAL, FRESH, TEST = (people(seed=seed) for seed in range(3))


@pytest.fixture(scope="module")
def fresh():
    return am.evaluate(REAL, FRESH, TEST, "member")


@pytest.fixture(scope="module")
def incomplete():
    return am.evaluate(with_mar_holes(REAL), FRESH)


def test_every_number_comes_with_what_to_read_it_against(fresh):
    assert set(fresh.entries) == FIDELITY | COVERAGE | PRIVACY | UTILITY | {"c2st_auc"}
    for key, entry in fresh.entries.items():
        assert np.isfinite(entry.value), key
        assert (entry.reference is None) == (key == "trtr"), key
        assert (entry.floor is None) == (key in PRIVACY | {"trtr"}), key
        assert entry.meaning.endswith(".")
    # the rows are real: nothing tells them from the reference
    for key in COVERAGE | {"shape", "trend"}:
        assert fresh[key] == pytest.approx(fresh.entries[key].reference, abs=0.06), key
    assert abs(fresh["c2st_auc"] - 0.5) < 0.08
    assert fresh.entries["c2st_auc"].floor > 0.7
    assert fresh.facts["flagged"] == []
    assert fresh.facts["reference"].startswith("real rows against a real holdout")


def test_the_document_has_stable_keys(fresh, tmp_path):
    text = fresh.to_json(tmp_path / "scores.json")
    document = json.loads((tmp_path / "scores.json").read_text())
    assert document == json.loads(text)
    assert document["shape"]["value"] == fresh["shape"]
    assert document["beta_recall"].keys() >= {"value", "reference"}
    assert document["facts"]["rows"] == {"real": 600, "synthetic": 600, "test": 600}
    assert len(document["tables"]["columns"]) == 4
    assert len(document["tables"]["pairs"]) == 6
    frame = fresh.to_frame()
    assert frame.loc["trend", "value"] == fresh["trend"]


def test_the_screen_shows_numbers_and_the_worst(fresh):
    text = str(fresh)
    assert "β-recall" in text
    assert f"{fresh['shape']:.4f}" in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("worst columns"))
    columns = fresh.tables["columns"].sort_values("score")["column"]
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == columns.tolist()


@pytest.mark.parametrize("holes", [False, True], ids=["complete", "holes"])
@pytest.mark.parametrize("test", [None, "complete", "holes"])
@pytest.mark.parametrize("target", [None, "member"])
def test_picks_what_applies(holes, test, target):
    real = with_mar_holes(REAL) if holes else REAL
    rows = {None: None, "complete": TEST, "holes": with_mar_holes(TEST)}[test]
    found = am.evaluate(real, FRESH, rows, target, subsample=120, fill="ecdf")
    observed = {f"{key}_observed" for key in COPYING}
    if holes:
        expected = REMASKED | (observed if test else set())
        if test == "complete":
            expected |= FIDELITY | COVERAGE | ({"tstr"} if target else set())
    else:
        expected = FIDELITY | COVERAGE | {"c2st_auc"}
        if test:
            expected |= PRIVACY if test == "complete" else observed
        if test == "complete" and target:
            expected |= UTILITY
    assert set(found.entries) == expected
    notes = " ".join(found.facts["notes"])
    assert ("Privacy is not scored" in notes) == (test is None)
    if target and test != "complete":
        assert "Utility for 'member' is not scored" in notes
    assert found.facts["complete"] is not holes
    compared = "test" if test == "complete" else "observed cells of real"
    assert found.facts["compared_with"] == (compared if holes else "real")
    assert json.loads(found.to_json())["facts"]["subsample"] == 120


def test_the_seed_decides_and_tables_come_in_any_form(tmp_path):
    real, synthetic = REAL[:200], FRESH[:200]
    numbers = am.evaluate(real, synthetic, seed=3).to_frame()["value"]
    other = am.evaluate(real, synthetic, seed=4)
    # what draws nothing is the same for every seed
    assert (numbers - other.to_frame()["value"])[["shape", "beta_recall"]].eq(0).all()
    assert other["c2st_auc"] != numbers["c2st_auc"]
    polars = pytest.importorskip("polars")
    synthetic.to_csv(tmp_path / "s.csv", index=False)
    again = am.evaluate(
        pa.Table.from_pandas(real),
        str(tmp_path / "s.csv"),
        polars.DataFrame(TEST),
        seed=3,
    )
    assert (again.to_frame()["value"][numbers.index] == numbers).all()


def test_one_outlier_row_hardly_moves_the_default_trend(fresh):
    wild = FRESH.copy()
    wild.loc[0, ["age", "pay"]] = 10 * REAL[["age", "pay"]].max()
    moved = am.evaluate(REAL, wild)

    def binned(scores):
        pairs = scores.tables["pairs"]
        return pairs.loc[pairs["kind"] == "mixed", "score"].mean()

    # A correlation feels one row of 600; bins must not.
    assert abs(binned(moved) - binned(fresh)) < 0.005
    assert abs(moved["trend_sdmetrics"] - fresh["trend_sdmetrics"]) > 0.05


def test_copies_of_training_rows_are_flagged_by_every_number():
    copies = REAL.sample(600, replace=True, random_state=0)
    found = am.evaluate(REAL, copies, TEST)
    assert set(found.facts["flagged"]) == PRIVACY
    assert found["beta_recall"] > found.entries["beta_recall"].reference + 0.2
    assert "signs of copying" in str(found)


def test_a_collapsed_column_and_unseen_levels_are_scored():
    broken = FRESH.assign(pay=5.0, job="pirate")
    found = am.evaluate(REAL, broken)
    columns = found.tables["columns"].set_index("column")["score"]
    assert columns["job"] == 0
    assert 0 < columns["pay"] < 0.7
    assert len(found.tables["pairs"]) == 6
    assert found["trend"] < found.entries["trend"].floor


def test_what_is_set_aside_or_unknown_is_named_and_left_out():
    found = am.evaluate(
        REAL.assign(country="DE", id=range(600)),
        FRESH.assign(country="FR", id=7, mood="fine"),
    )
    assert set(found.facts["left_out"]) == {"country", "id"}
    assert found.facts["left_out"]["id"].startswith("identifier: ")
    assert any("'mood'" in note for note in found.facts["notes"])
    assert set(found.tables["columns"]["column"]) == set(REAL)


def test_mar_holes_are_put_back_before_columns_are_compared():
    n = 2000
    holed = with_mar_holes(people(n))
    truth = people(n, seed=1)
    filled, _ = am.augment(with_mar_holes(truth, seed=1), "ecdf")
    right, wrong = (am.evaluate(holed, rows, fill=None) for rows in (truth, filled))
    assert right["shape_remasked"] > 0.96
    assert right["trend_remasked"] > wrong["trend_remasked"] + 0.01
    # a plain comparison with observed values takes the right rows for the worse ones
    assert right["shape_complete"] < wrong["shape_complete"] - 0.03
    columns = right.tables["columns"].set_index("column")
    assert columns.loc["pay", "remasked"] > columns.loc["pay", "complete"] + 0.1


def test_real_rows_with_their_own_holes_are_the_reference(incomplete):
    entries = incomplete.entries
    assert entries["shape_remasked"].reference > 0.93
    assert entries["trend_remasked"].reference > 0.8
    assert abs(entries["c2st_auc"].reference - 0.5) < 0.1
    assert entries["rate_gap"].reference < 0.1
    # whatever would stand in their holes is made up
    assert entries["shape_complete"].reference is None
    assert entries["trend_remasked"].floor < entries["trend_remasked"].reference
    assert incomplete.parts["remasked"]["pay"].isna().any()
    assert incomplete.parts["synthetic"].notna().all().all()


def test_held_out_cells_judge_the_rule():
    holed = with_mar_holes(people(2000))
    marginal = am.evaluate(holed, FRESH, fill="ecdf")
    constant = am.evaluate(holed, FRESH, fill="mean")
    informed = am.evaluate(holed, FRESH, fill="lgbm-s-calibrated")
    # honest but ignorant, ignorant and sure, honest and informed
    assert marginal["held_out_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert marginal["held_out_skill"] == pytest.approx(0.0, abs=0.05)
    assert constant["held_out_coverage_80"] < 0.3
    assert informed["held_out_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert informed["held_out_skill"] > 0.1
    assert "not the synthetic rows" in marginal.entries["held_out_skill"].meaning
    # only a column with holes is ever filled
    assert marginal.tables["held_out"]["column"].tolist() == ["pay"]


def test_complete_test_rows_are_the_truth_that_a_table_with_holes_lacks():
    holed = with_mar_holes(people(1500))
    found = am.evaluate(holed, people(1500, seed=5), people(900, seed=6), "job")
    against = found.tables["references"].set_index("score")
    assert found["shape"] > 0.93
    assert against.loc["shape", "filled"] < found["shape"] - 0.05
    assert against.loc["tstr", ["value", "filled"]].notna().all()
    assert found.entries["tstr"].reference is None
    assert "pay" in set(found.tables["columns_test"]["column"])


def test_declared_codes_are_holes_and_kept_holes_are_values():
    schema = {
        "pay": {"na_values": -1},
        "age": {"missing_as": "level"},
        "job": {"missing_as": "level"},
    }
    real, fresh = (
        f.assign(age=f["age"].mask(f["job"] == "none")).replace({"job": {"boss": None}})
        for f in (REAL, FRESH)
    )
    coded = with_mar_holes(real).fillna({"pay": -1})
    found = am.evaluate(coded, fresh, schema=schema, fill="ecdf")
    assert found.facts["complete"] is False
    columns = found.tables["columns"].set_index("column")
    assert columns["real_rate"].gt(0).pipe(lambda s: s[s].index.tolist()) == ["pay"]
    assert columns.loc["age is missing", "complete"] > 0.9
    assert columns["complete"].drop("pay").min() > 0.9
    # the stand-in for what is no hole is not shown
    assert found.parts["real"]["age"].isna().sum() == (REAL["job"] == "none").sum()
    assert "age is missing" in found.parts["schema"].names
    # rows that never lack an age differ from rows that do
    never = am.evaluate(coded, fresh.fillna({"age": 45.0}), schema=schema, fill=None)
    assert never["shape_complete"] < found["shape_complete"] - 0.02
    with pytest.raises(DataError, match=r"'pay' of the synthetic table has \d+ holes"):
        am.evaluate(coded, fresh.assign(pay=-1.0), schema=schema)


def test_one_column_has_no_pairs():
    found = am.evaluate(REAL[["age"]], FRESH[["age"]])
    assert "trend" not in found.entries
    assert found["shape"] > 0.9
    assert "worst pairs" not in str(found)


def test_without_xgboost_the_rest_is_scored(monkeypatch):
    here = util.find_spec
    monkeypatch.setattr(
        util,
        "find_spec",
        lambda name, *a: None if name == "xgboost" else here(name, *a),
    )
    found = am.evaluate(REAL, FRESH, TEST, "member", subsample=100)
    assert not UTILITY & set(found.entries)
    assert any("pip install" in note for note in found.facts["notes"])


def test_a_target_that_cannot_be_scored_spoils_nothing_else():
    found = am.evaluate(REAL, FRESH, TEST.assign(member=True), "member", subsample=100)
    assert "mle" not in found.entries
    assert "shape" in found.entries
    assert any("needs two classes" in note for note in found.facts["notes"])


def test_a_subsample_is_drawn_and_said():
    sparse = with_mar_holes(REAL).assign(rare=np.r_[1.5, 2.5, 3.5, [np.nan] * 597])
    synthetic = FRESH.assign(rare=2.0)
    found = am.evaluate(sparse, synthetic, subsample=50, fill=None, seed=0)
    assert found.facts["rows"] == {"real": 50, "synthetic": 50}
    assert any("50 rows" in note for note in found.facts["notes"])
    assert "no value in the rows drawn" in found.facts["left_out"]["rare"]
    with pytest.raises(UsageError, match="subsample"):
        am.evaluate(REAL, FRESH, subsample=3)


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="did you mean 'lgbm-s'"):
        am.evaluate(REAL, FRESH, fill="lgbms")
    with pytest.raises(UsageError, match="seed"):
        am.evaluate(REAL, FRESH, seed=-1)
    holed = REAL.assign(job=REAL["job"].mask(REAL["age"] > 60))
    with pytest.raises(UsageError, match="'zero'"):
        am.evaluate(holed, FRESH, fill="zero")


def test_progress_is_reported():
    heard = []
    am.evaluate(REAL, FRESH, TEST, progress=lambda *report: heard.append(report[:3]))
    assert heard[0] == ("evaluate", 0, 4)
    assert heard[-1] == ("evaluate", 4, 4)


def test_a_page_is_written_by_the_report(fresh, monkeypatch, tmp_path):
    asked = []
    page = SimpleNamespace(write_report=lambda *given: asked.append(given))
    monkeypatch.setitem(sys.modules, "augmask.report.page", page)
    fresh.to_html(tmp_path / "page.html")
    assert asked == [(tmp_path / "page.html", fresh)]


@pytest.mark.parametrize("name", ["nafld1", "smoking", "storms", "loans"])
def test_really_incomplete_tables(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set AUGMASK_DATA to its folder")
    rows = read_frame(path).sample(1000, random_state=0)
    real, others = rows[:500], rows[500:]
    # what is not applicable would stay missing; here all of it is taken for unknown
    unknown = {c: {"missing_as": "unknown"} for c in rows}
    synthetic, _ = am.augment(others, schema=unknown)
    # columns without any value in one of the parts cannot be filled
    kept = [c for c in rows if synthetic[c].notna().all() and real[c].notna().any()]
    unknown = {c: unknown[c] for c in kept}
    found = am.evaluate(real[kept], synthetic[kept], schema=unknown)
    assert set(found.entries) >= REMASKED
    floor = independent(real[kept], np.random.default_rng(0))
    broken = am.evaluate(real[kept], floor, schema=unknown, fill=None)
    assert found["c2st_auc"] < broken["c2st_auc"] - 0.1
    assert found["shape_remasked"] > 0.85


ADULT = """
import resource, sys
import pandas as pd
import augmask as am

rows = pd.read_csv(sys.argv[1]).sample(frac=1, random_state=0, ignore_index=True)
n = len(rows) // 5
fresh = am.evaluate(rows[: 2 * n], rows[2 * n : 4 * n], rows[4 * n :], "income")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(fresh.to_json()[:-1] + f', "peak": {peak}}}')
"""


@pytest.mark.slow
def test_adult_against_its_own_holdout():
    path = DATA / "adult.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set AUGMASK_DATA to its folder")
    run = subprocess.run(
        [sys.executable, "-c", ADULT, path], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    assert 0.47 < found["beta_recall"]["value"] < 0.53
    assert found["alpha_precision"]["value"] > 0.99
    assert 0.48 < found["c2st_auc"]["value"] < 0.52
    assert 0.48 < found["dcr_share"]["value"] < 0.52
    assert found["c2st_auc"]["floor"] > 0.95
    assert found["alpha_precision"]["floor"] > 0.95
    assert found["facts"]["flagged"] == []
    # kilobytes
    assert found["peak"] < 2 * 2**20


def test_holes_that_depend_on_values_do_not_look_like_copying():
    def skewed(seed, n=1500):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        y = rng.exponential(size=n) ** 2 * np.where(x > 0, 3, 0.2)
        return pd.DataFrame({"x": x, "y": y, "z": rng.normal(size=n)})

    real, fresh, test = (skewed(seed) for seed in range(3))
    often = np.random.default_rng(3).random(len(real))
    holed = real.assign(y=real["y"].mask(often < np.where(real["x"] > 0, 0.95, 0.05)))
    for rows in ((holed, fresh, test), (test, fresh, holed)):
        found = am.evaluate(*rows, fill=None, n_jobs=1)
        assert found.facts["flagged"] == []
        assert any("got holes like" in note for note in found.facts["notes"])
    copies = real.sample(len(real), replace=True, random_state=0)
    assert "dcr_share_observed" in am.evaluate(holed, copies, test).facts["flagged"]


def test_the_reference_is_met_on_as_many_rows_as_it_has():
    real, fresh = people(400), people(400, 1)
    for table, key in ((real, "trend"), (with_mar_holes(real), "trend_remasked")):
        good = am.evaluate(table, fresh, fill=None).entries[key]
        floor = independent(people(400, 1), np.random.default_rng(0))
        broken = am.evaluate(table, floor, fill=None).entries[key]
        # Half the rows, more chance: what counts is the number beside the reference.
        assert good.alike < good.value
        assert abs(good.alike - good.reference) < 2 * good.noise
        assert broken.alike < broken.reference - good.noise
    same = am.evaluate(REAL, FRESH, TEST).entries["trend"]
    assert same.alike is None
