from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import util
from pathlib import Path

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


def with_mar(frame, seed=0):
    """Return the table without the pay of old people."""
    rng = np.random.default_rng(seed)
    hidden = rng.random(len(frame)) < 1 / (1 + np.exp(-(frame["age"] - 45) / 4))
    return frame.assign(pay=frame["pay"].mask(hidden))


REAL, FRESH, TEST = (people(seed=seed) for seed in range(3))


@pytest.fixture(scope="module")
def fresh():
    return am.evaluate(REAL, FRESH, test=TEST, target="member")


@pytest.fixture(scope="module")
def incomplete():
    return am.evaluate(with_mar(REAL), FRESH)


def test_every_number_comes_with_its_references(fresh):
    more = {"c2st_auc", "dependence"}
    assert set(fresh.entries) == FIDELITY | COVERAGE | PRIVACY | UTILITY | more
    for key, entry in fresh.entries.items():
        assert np.isfinite(entry.value), key
        assert (entry.reference is None) == (key == "trtr"), key
        assert (entry.floor is None) == (key in PRIVACY | {"trtr", "shape"}), key
        assert entry.meaning.endswith(".")
    # the rows are real: nothing tells them from the reference
    for key in COVERAGE | {"shape", "trend"}:
        assert fresh[key] == pytest.approx(fresh.entries[key].reference, abs=0.06), key
    assert abs(fresh["c2st_auc"] - 0.5) < 0.08
    assert fresh.entries["c2st_auc"].floor > 0.7
    assert fresh.facts["flagged"] == []
    assert fresh.facts["reference"].startswith("real rows against a real holdout")


def test_json_has_stable_keys(fresh, tmp_path):
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


def test_the_text_shows_numbers_and_the_worst_columns(fresh):
    text = str(fresh)
    assert "β-recall" in text
    assert f"{fresh['shape']:.4f}" in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("worst columns"))
    columns = fresh.tables["columns"].sort_values("score")["column"]
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == columns.tolist()


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "incomplete"])
@pytest.mark.parametrize("test", [None, "complete", "incomplete"])
@pytest.mark.parametrize("target", [None, "member"])
def test_picks_what_applies(missing, test, target):
    real = with_mar(REAL) if missing else REAL
    rows = {None: None, "complete": TEST, "incomplete": with_mar(TEST)}[test]
    scores = am.evaluate(
        real, FRESH, test=rows, target=target, subsample=120, augmenter="ecdf"
    )
    observed = {f"{key}_observed" for key in COPYING}
    if missing:
        expected = REMASKED | {"dependence"} | (observed if test else set())
        if test == "incomplete" and target:
            # LightGBM takes missing values.
            expected |= UTILITY
        if test == "complete":
            expected |= FIDELITY | COVERAGE | ({"tstr"} if target else set())
    else:
        expected = FIDELITY | COVERAGE | {"c2st_auc", "dependence"}
        if test:
            expected |= PRIVACY if test == "complete" else observed
        if test == "complete" and target:
            expected |= UTILITY
    assert set(scores.entries) == expected
    notes = " ".join(scores.facts["notes"])
    assert ("Privacy is not scored" in notes) == (test is None)
    if target and (test is None or (test == "incomplete" and not missing)):
        assert "Utility for 'member' is not scored" in notes
    assert scores.facts["complete"] is not missing
    compared = "test" if test == "complete" else "observed cells of real"
    assert scores.facts["compared_with"] == (compared if missing else "real")
    assert json.loads(scores.to_json())["facts"]["subsample"] == 120


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
        test=polars.DataFrame(TEST),
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
    scores = am.evaluate(REAL, copies, test=TEST)
    assert set(scores.facts["flagged"]) == PRIVACY
    assert scores["beta_recall"] > scores.entries["beta_recall"].reference + 0.2
    assert "signs of copying" in str(scores)


def test_a_collapsed_column_and_unseen_levels_are_scored():
    broken = FRESH.assign(pay=5.0, job="pirate")
    scores = am.evaluate(REAL, broken)
    columns = scores.tables["columns"].set_index("column")["score"]
    assert columns["job"] == 0
    assert 0 < columns["pay"] < 0.7
    assert len(scores.tables["pairs"]) == 6
    assert scores["trend"] < scores.entries["trend"].floor


def test_columns_set_aside_or_unknown_are_named_and_left_out():
    scores = am.evaluate(
        REAL.assign(country="DE", id=range(600)),
        FRESH.assign(country="FR", id=7, mood="fine"),
    )
    assert set(scores.facts["left_out"]) == {"country", "id"}
    assert scores.facts["left_out"]["id"].startswith("identifier: ")
    assert any("'mood'" in note for note in scores.facts["notes"])
    assert set(scores.tables["columns"]["column"]) == set(REAL)


def test_rows_are_remasked_before_columns_are_compared():
    n = 2000
    masked = with_mar(people(n))
    truth = people(n, seed=1)
    filled, _ = am.augment(with_mar(truth, seed=1), augmenter="ecdf")
    right, wrong = (
        am.evaluate(masked, rows, augmenter=None) for rows in (truth, filled)
    )
    assert right["shape_remasked"] > 0.96
    assert right["trend_remasked"] > wrong["trend_remasked"] + 0.01
    # a plain comparison with observed values takes the right rows for the worse ones
    assert right["shape_complete"] < wrong["shape_complete"] - 0.03
    columns = right.tables["columns"].set_index("column")
    assert columns.loc["pay", "remasked"] > columns.loc["pay", "complete"] + 0.1


def test_incomplete_real_rows_are_the_reference(incomplete):
    entries = incomplete.entries
    assert entries["shape_remasked"].reference > 0.93
    assert entries["trend_remasked"].reference > 0.8
    assert abs(entries["c2st_auc"].reference - 0.5) < 0.1
    assert entries["rate_gap"].reference < 0.1
    # their missing values are imputed
    assert entries["shape_complete"].reference is None
    assert entries["trend_remasked"].floor < entries["trend_remasked"].reference
    assert incomplete.parts["remasked"]["pay"].isna().any()
    assert incomplete.parts["synthetic"].notna().all().all()


def test_held_out_cells_score_the_augmenter():
    masked = with_mar(people(2000))
    marginal = am.evaluate(masked, FRESH, augmenter="ecdf")
    constant = am.evaluate(masked, FRESH, augmenter="mean")
    informed = am.evaluate(masked, FRESH, augmenter="lgbm-s-calibrated")
    # calibrated without skill, overconfident without skill, calibrated with skill
    assert marginal["held_out_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert marginal["held_out_skill"] == pytest.approx(0.0, abs=0.05)
    assert constant["held_out_coverage_80"] < 0.3
    assert informed["held_out_coverage_80"] == pytest.approx(0.8, abs=0.1)
    assert informed["held_out_skill"] > 0.1
    assert "not the synthetic rows" in marginal.entries["held_out_skill"].meaning
    # only incomplete columns are augmented
    assert marginal.tables["held_out"]["column"].tolist() == ["pay"]


def test_complete_test_rows_are_the_truth_for_an_incomplete_table():
    masked = with_mar(people(1500))
    scores = am.evaluate(
        masked, people(1500, seed=5), test=people(900, seed=6), target="job"
    )
    against = scores.tables["references"].set_index("score")
    assert scores["shape"] > 0.93
    assert against.loc["shape", "filled"] < scores["shape"] - 0.05
    assert against.loc["tstr", ["value", "filled"]].notna().all()
    assert scores.entries["tstr"].reference is None
    assert "pay" in set(scores.tables["columns_test"]["column"])


def test_declared_codes_are_missing_and_missing_levels_are_values():
    schema = {
        "pay": {"na_values": -1},
        "age": {"missing_as": "level"},
        "job": {"missing_as": "level"},
    }
    real, fresh = (
        f.assign(age=f["age"].mask(f["job"] == "none")).replace({"job": {"boss": None}})
        for f in (REAL, FRESH)
    )
    coded = with_mar(real).fillna({"pay": -1})
    scores = am.evaluate(coded, fresh, schema=schema, augmenter="ecdf")
    assert scores.facts["complete"] is False
    columns = scores.tables["columns"].set_index("column")
    assert columns["real_rate"].gt(0).pipe(lambda s: s[s].index.tolist()) == ["pay"]
    assert columns.loc["age is missing", "complete"] > 0.9
    assert columns["complete"].drop("pay").min() > 0.9
    # placeholders are not displayed
    assert scores.parts["real"]["age"].isna().sum() == (REAL["job"] == "none").sum()
    assert "age is missing" in scores.parts["schema"].names
    # rows that never lack an age differ from rows that do
    never = am.evaluate(
        coded, fresh.fillna({"age": 45.0}), schema=schema, augmenter=None
    )
    assert never["shape_complete"] < scores["shape_complete"] - 0.02
    with pytest.raises(
        DataError, match=r"'pay' of the synthetic table has \d+ missing values"
    ):
        am.evaluate(coded, fresh.assign(pay=-1.0), schema=schema)


def hidden(frame: pd.DataFrame, share: float = 0.2) -> pd.DataFrame:
    """Return a copy with values missing completely at random in every column."""
    return frame.mask(np.random.default_rng(3).random(frame.shape) < share)


def test_synthetic_rows_with_missing_values_are_compared_as_they_are():
    real = hidden(REAL)
    model_rows = hidden(FRESH)
    scores = am.evaluate(real, model_rows, augmenter="ecdf")
    assert scores["shape_remasked"] > 0.9
    assert not {"shape_complete", "alpha_precision", "dcr_share"} & set(scores.entries)
    assert "held_out_skill" in scores.entries
    assert "observed cells are compared" in " ".join(scores.facts["notes"])
    # its own missing values count, not those of a model of them
    other = hidden(FRESH, share=0.6)
    assert am.evaluate(real, other, augmenter=None)["rate_gap"] > 0.3
    # columns without dependence
    rng = np.random.default_rng(5)
    apart = model_rows.apply(lambda c: c.sample(frac=1, random_state=rng).to_numpy())
    assert am.evaluate(real, apart, augmenter=None)["trend_remasked"] < (
        scores["trend_remasked"] - 0.02
    )
    with pytest.raises(DataError, match="missing values; the real one has none"):
        am.evaluate(REAL, model_rows)


def test_one_column_has_no_pairs():
    scores = am.evaluate(REAL[["age"]], FRESH[["age"]])
    assert "trend" not in scores.entries
    assert scores["shape"] > 0.9
    assert "worst pairs" not in str(scores)


def test_xgboost_is_needed_only_if_it_is_asked_for(monkeypatch):
    here = util.find_spec
    monkeypatch.setattr(
        util,
        "find_spec",
        lambda name, *a: None if name == "xgboost" else here(name, *a),
    )
    tables = {"test": TEST, "target": "member", "subsample": 100}
    scores = am.evaluate(REAL, FRESH, **tables)
    assert set(scores.entries) >= UTILITY
    assert "LightGBM" in scores.entries["tstr"].meaning
    with pytest.raises(UsageError, match=r"pip install 'augmask\[utility\]'"):
        am.evaluate(REAL, FRESH, **tables, learner="xgboost")
    with pytest.raises(UsageError, match="learner must be"):
        am.evaluate(REAL, FRESH, **tables, learner="forest")


def test_a_target_that_cannot_be_scored_leaves_the_other_scores():
    scores = am.evaluate(
        REAL, FRESH, test=TEST.assign(member=True), target="member", subsample=100
    )
    assert "mle" not in scores.entries
    assert "shape" in scores.entries
    assert any("needs two classes" in note for note in scores.facts["notes"])


def test_a_subsample_is_noted():
    sparse = with_mar(REAL).assign(rare=np.r_[1.5, 2.5, 3.5, [np.nan] * 597])
    synthetic = FRESH.assign(rare=2.0)
    scores = am.evaluate(sparse, synthetic, subsample=50, augmenter=None, seed=0)
    assert scores.facts["rows"] == {"real": 50, "synthetic": 50}
    assert any("at most 50 rows" in note for note in scores.facts["notes"])
    assert "no value in the rows sampled" in scores.facts["left_out"]["rare"]
    with pytest.raises(UsageError, match="subsample"):
        am.evaluate(REAL, FRESH, subsample=3)


def test_bad_arguments_are_refused():
    with pytest.raises(UsageError, match="did you mean 'lgbm-s'"):
        am.evaluate(REAL, FRESH, augmenter="lgbms")
    with pytest.raises(UsageError, match="seed"):
        am.evaluate(REAL, FRESH, seed=-1)
    masked = REAL.assign(job=REAL["job"].mask(REAL["age"] > 60))
    with pytest.raises(UsageError, match="'zero'"):
        am.evaluate(masked, FRESH, augmenter="zero")


def test_progress_is_reported():
    reports = []
    am.evaluate(
        REAL, FRESH, test=TEST, progress=lambda *report: reports.append(report[:3])
    )
    assert reports[0] == ("evaluate", 0, 4)
    assert reports[-1] == ("evaluate", 4, 4)


def test_progress_is_what_fit_takes(capsys):
    am.evaluate(REAL[:60], FRESH[:60], progress=True)
    assert "evaluate" in capsys.readouterr().err
    with pytest.raises(UsageError, match="progress must be"):
        am.evaluate(REAL[:60], FRESH[:60], progress="loud")


def test_to_html_writes_a_page(fresh, tmp_path):
    fresh.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert f"{fresh['beta_recall']:.3f}" in page


@pytest.mark.parametrize("name", ["nafld1", "smoking", "storms", "loans"])
def test_public_incomplete_tables(name):
    path = DATA / f"incomplete-{name}.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set AUGMASK_DATA to its folder")
    rows = read_frame(path).sample(1000, random_state=0)
    real, others = rows[:500], rows[500:]
    # treat what is not applicable as unknown, or it would stay missing
    unknown = {c: {"missing_as": "unknown"} for c in rows}
    synthetic, _ = am.augment(others, schema=unknown)
    # columns without any value in one of the parts cannot be filled
    columns = [c for c in rows if synthetic[c].notna().all() and real[c].notna().any()]
    unknown = {c: unknown[c] for c in columns}
    scores = am.evaluate(real[columns], synthetic[columns], schema=unknown)
    assert set(scores.entries) >= REMASKED
    floor = independent(real[columns], np.random.default_rng(0))
    broken = am.evaluate(real[columns], floor, schema=unknown, augmenter=None)
    assert scores["c2st_auc"] < broken["c2st_auc"] - 0.1
    assert scores["shape_remasked"] > 0.85


ADULT = """
import resource, sys
import pandas as pd
import augmask as am

rows = pd.read_csv(sys.argv[1]).sample(frac=1, random_state=0, ignore_index=True)
n = len(rows) // 5
fresh = am.evaluate(
    rows[: 2 * n], rows[2 * n : 4 * n], test=rows[4 * n :], target="income"
)
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
    scores = json.loads(run.stdout)
    assert 0.47 < scores["beta_recall"]["value"] < 0.53
    assert scores["alpha_precision"]["value"] > 0.99
    assert 0.48 < scores["c2st_auc"]["value"] < 0.52
    assert 0.48 < scores["dcr_share"]["value"] < 0.52
    assert scores["c2st_auc"]["floor"] > 0.95
    assert scores["alpha_precision"]["floor"] > 0.95
    assert scores["facts"]["flagged"] == []
    # kilobytes
    assert scores["peak"] < 2 * 2**20


def test_mar_does_not_look_like_copying():
    def skewed(seed, n=1500):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        y = rng.exponential(size=n) ** 2 * np.where(x > 0, 3, 0.2)
        return pd.DataFrame({"x": x, "y": y, "z": rng.normal(size=n)})

    real, fresh, test = (skewed(seed) for seed in range(3))
    often = np.random.default_rng(3).random(len(real))
    masked = real.assign(y=real["y"].mask(often < np.where(real["x"] > 0, 0.95, 0.05)))
    for rows in ((masked, fresh, test), (test, fresh, masked)):
        scores = am.evaluate(*rows[:2], test=rows[2], augmenter=None, n_jobs=1)
        assert scores.facts["flagged"] == []
        assert any("were masked like" in note for note in scores.facts["notes"])
    copies = real.sample(len(real), replace=True, random_state=0)
    assert (
        "dcr_share_observed" in am.evaluate(masked, copies, test=test).facts["flagged"]
    )


def test_fresh_rows_reach_the_reference_on_as_many_rows():
    real, fresh = people(400), people(400, 1)
    for table, key in ((real, "trend"), (with_mar(real), "trend_remasked")):
        good = am.evaluate(table, fresh, augmenter=None).entries[key]
        floor = independent(people(400, 1), np.random.default_rng(0))
        broken = am.evaluate(table, floor, augmenter=None).entries[key]
        # Half the rows, more chance: what counts is the number beside the reference.
        assert good.comparable < good.value
        assert abs(good.comparable - good.reference) < 2 * good.noise
        assert broken.comparable < broken.reference - good.noise
    same = am.evaluate(REAL, FRESH, test=TEST).entries["trend"]
    assert same.comparable is None


@pytest.mark.parametrize("hide", [False, True])
def test_few_synthetic_rows_are_compared_with_as_few_real_ones(hide):
    """Shape and Trend are lower on fewer rows, of real rows as well."""
    keys = ("shape", "trend") if not hide else ("shape_remasked", "trend_remasked")
    gaps, floors = {key: [] for key in keys}, []
    for seed in range(12):
        real = people(3_000, seed=10 + seed)
        few = people(150, seed=100 + seed)
        scores = am.evaluate(with_mar(real) if hide else real, few, augmenter=None)
        for key in keys:
            entry = scores.entries[key]
            gaps[key].append(entry.mark - entry.value)
        floors.append(scores.entries[keys[1]].scale)
    for key, found in gaps.items():
        # one table of 150 rows may be off by .05
        assert abs(np.mean(found)) < 0.015, key
    assert np.mean(floors) > 0.03
