"""The code in the documentation runs, and does what the text around it says."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import distributed
import numpy as np
import pandas as pd
import pytest
import torch

import augmask as am
from augmask.demo.clinic import load_clinic
from augmask.errors import AugMaskWarning
from augmask_bench.methods import find_generator
from augmask_bench.plan import read_plan

DOCS = Path(__file__).parents[2] / "docs"
# absolute, because the pages run in folders of their own
DATA = Path(os.environ.get("AUGMASK_DATA", "../shared/data")).absolute()


def run_page(
    name: str, folder: Path, monkeypatch, changes: Mapping[str, str] | None = None
) -> dict:
    """Run the Python blocks of a page one after the other; return their names.

    `changes` maps what the page says to what runs here.
    """
    monkeypatch.chdir(folder)
    text = (DOCS / name).read_text()
    for said, run in (changes or {}).items():
        assert said in text
        text = text.replace(said, run)
    names: dict = {"__name__": name}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, name, "exec"), names)
    return names


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        torch.manual_seed(0)
        yield run_page("your-own-backbone.md", tmp_path_factory.mktemp("own"), patch)


def test_an_own_backbone_learns_the_complete_table(own):
    table, synthetic = own["table"], own["synthetic"]
    assert not synthetic.isna().any().any()
    assert synthetic["age"].dtype == "int64"
    real = np.corrcoef(table["age"], table["pressure"])[0, 1]
    made = np.corrcoef(synthetic["age"], synthetic["pressure"])[0, 1]
    assert made == pytest.approx(real, abs=0.1)
    older = synthetic["age"] > 65
    assert (synthetic["treated"][older] == "yes").mean() > 0.8
    assert (synthetic["treated"][synthetic["age"] < 40] == "yes").mean() < 0.2


@pytest.mark.parametrize("columns", [["age", "pressure"], ["treated"]])
def test_it_takes_any_mix_of_columns(own, columns):
    model = am.AugMask(own["FlowMatcher"], "ecdf", options={"steps": 5}, device="cpu")
    assert model.fit(own["incomplete"][columns]).sample(30).shape == (30, len(columns))


def test_its_model_file_is_loaded_with_the_class(own):
    rows = [own[name].sample(50, seed=1) for name in ("again", "model")]
    pd.testing.assert_frame_equal(*rows)


def test_the_class_has_no_more_than_thirty_lines():
    text = (DOCS / "your-own-backbone.md").read_text()
    body = text[text.index("class FlowMatcher") : text.index("\n\n\nmodel = ")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30


def test_a_foreign_loop_with_the_two_halves_learns(own):
    loss = am.observed_mean((own["denoised"] - own["x"]).square(), own["mask"])
    marginal = am.observed_mean(own["x"].square(), own["mask"])
    assert loss < 0.7 * marginal
    assert own["mask"].float().mean().item() == pytest.approx(0.6, abs=0.03)


def test_the_diagnostics_of_the_theory_look_into_a_model(tmp_path, monkeypatch):
    names = run_page("research/reproduce.md", tmp_path, monkeypatch)
    assert names["penalty"] > 0
    assert isinstance(names["advice"], str)


def test_a_plan_for_ones_own_table_is_as_short_as_it_looks(tmp_path):
    (text,) = re.findall(
        r"```toml\n(.*?)```", (DOCS / "research/reproduce.md").read_text(), re.DOTALL
    )
    (tmp_path / "own.toml").write_text(text)
    (tmp_path / "my.csv").write_text("outcome,x\n" + "yes,1\nno,2\n" * 40)
    assert len(read_plan(tmp_path / "own.toml").runs) == 2 * 3 * 6


def test_methods_of_the_page_on_baselines_can_be_named_in_a_plan(tmp_path):
    (text,) = re.findall(
        r"```toml\n(.*?)```", (DOCS / "research/baselines.md").read_text(), re.DOTALL
    )
    (tmp_path / "own.toml").write_text('datasets = ["clinic"]\n' + text)
    methods = read_plan(tmp_path / "own.toml").methods
    for method in methods:
        find_generator(method.generator).check(method)
    labels = [method.label for method in methods]
    assert labels == ["MIWAE", "TabSyn + NoAug", "TabSyn + AugFull", "CTGAN repaired"]


def copy_tables(folder: Path) -> Path:
    """Put the incomplete tables into a folder, or skip the test."""
    for name in ("incomplete-nafld1.csv.gz", "incomplete-loans.csv.gz"):
        if not (DATA / name).exists():
            pytest.skip(f"{DATA / name} is absent; set AUGMASK_DATA")
        shutil.copy(DATA / name, folder)
    return folder


@pytest.fixture(scope="module")
def wishes(tmp_path_factory):
    folder = copy_tables(tmp_path_factory.mktemp("wishes"))
    with pytest.MonkeyPatch.context() as patch:
        yield run_page("conditions.md", folder, patch)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = copy_tables(tmp_path_factory.mktemp("filled"))
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.warns(AugMaskWarning, match="count as missing and are imputed.*'ZZ'"),
    ):
        yield run_page("impute.md", folder, patch)


def test_missing_values_of_rows_are_filled(wishes):
    some, full = wishes["some"], wishes["full"]
    assert some.isna().any().any()
    assert not full.isna().any().any()
    assert (full["bmi"][some["bmi"].notna()] == some["bmi"].dropna()).all()
    assert len(wishes["draws"]) == 5
    assert len(wishes["spread"]) == some.isna().sum().sum()


def test_completions_keep_what_is_known_and_say_what_they_agree_on(filled):
    some, draws = filled["some"], filled["draws"]
    for frame in (filled["full"], filled["best"], *draws):
        assert frame.index.equals(some.index)
        assert not frame.isna().any().any()
        for name in some:
            seen = some[name].notna()
            assert (frame.loc[seen, name] == some.loc[seen, name]).all()
    assert filled["full"]["height"].dtype == "int64"
    assert len(filled["spread"]) == some.isna().sum().sum()
    assert len(filled["stacked"]) == 20 * len(some)


def test_pooling_adds_what_missing_values_cost(filled):
    found = filled["found"]
    assert found.lower < found.estimate < found.upper
    assert found.total > found.within > 0


def test_a_pipeline_predicts_rows_with_missing_values(filled):
    assert len(filled["risk"]) == len(filled["some"])
    assert np.isfinite(filled["risk"]).all()


def test_a_missing_value_that_is_a_level_stays_and_a_strange_level_is_filled(filled):
    asked, answered = filled["asked"], filled["answered"]
    joint = "annual_income_joint"
    pd.testing.assert_series_equal(asked[joint], answered[joint])
    assert asked[joint].isna().any()
    assert not answered["annual_income"].isna().any()
    assert answered["state"].iloc[60] in set(filled["loans"]["state"])


def test_conditions_hold_in_every_row(wishes):
    for rows in (wishes["women"], wishes["same"]):
        assert len(rows) == 300
        assert (rows["male"] == 0).all()
        assert rows["age"].between(50, 60).all()
        assert 0 < rows.attrs["where"]["rate"] < 1
    pd.testing.assert_frame_equal(wishes["women"], wishes["same"])


def test_alternatives_and_what_is_missing_hold_in_every_row(wishes):
    rows = wishes["either"]
    assert ((rows["male"] == 0) & ((rows["age"] < 40) | (rows["bmi"] > 35))).all()
    assert wishes["unweighed"]["weight"].isna().all()
    assert len(wishes["unweighed"]) == 200


def test_partial_rows_are_completed(wishes):
    rows = wishes["rows"]
    assert rows["age"].tolist() == [40, 60, 80]
    assert rows["bmi"][[0, 2]].tolist() == [22.5, 31.0]
    assert not rows.isna().any().any()


def test_learned_missing_values_are_those_of_the_table(wishes):
    rates = wishes["patients"].isna().mean() - wishes["incomplete"].isna().mean()
    assert rates.abs().max() < 0.03
    both = (wishes["patients"][["weight", "bmi"]].isna().all(axis=1)).mean()
    assert wishes["together"].mean() == pytest.approx(both, abs=0.03)
    lacks = wishes["sampled"]["annual_income_joint"].isna()
    assert lacks[wishes["alone"]].mean() > 0.99
    assert lacks[~wishes["alone"]].mean() < 0.01


def test_constraints_are_kept(wishes):
    kept, loans = wishes["kept"], wishes["loans"]
    assert (kept["balance"] <= kept["loan_amount"]).all()
    assert wishes["affordable"](kept).all()
    seen = set(zip(loans["grade"], loans["sub_grade"], strict=True))
    assert set(zip(kept["grade"], kept["sub_grade"], strict=True)) <= seen


def test_the_page_on_security_keeps_its_promise(tmp_path, monkeypatch):
    with pytest.warns(AugMaskWarning, match="'guest'.*generated rows get new values"):
        model = run_page("security.md", tmp_path, monkeypatch)["model"]
    assert model.sample(3).notna().all(axis=None)


def test_files_are_read_as_the_page_says(tmp_path, monkeypatch):
    jobs = ["?", "cook", "king"]
    lines = [
        f"{-999 if i % 9 == 0 else i * 137 % 5000};{jobs[i % 3]}" for i in range(90)
    ]
    survey = "\n".join(["income;job", *lines])
    (tmp_path / "survey.csv").write_text(survey)
    visits = "visit,dose\n" + "".join(
        f'{i % 12 + 1:02}/{i % 11 + 1:02}/2021,"{i % 7 + 1},{i * 7 % 900 + 100}"\n'
        for i in range(132)
    )
    (tmp_path / "visits.csv").write_text(visits)
    names = run_page("files.md", tmp_path, monkeypatch)
    assert (names["frame"]["income"].dropna() >= 0).all()
    assert names["frame"]["job"].isna().sum() == 30
    assert names["model"].schema_["dose"].kind == "float"
    assert names["rows"]["income"].notna().all()


@pytest.fixture
def few_visits(monkeypatch):
    """Make the clinic small and training short, so that pages take seconds."""

    def few(n=5000, **keywords):
        return load_clinic(min(n, 150), **keywords)

    options = {"steps": 3, "sampling_steps": 4}
    short = partial(am.AugMask, augmenter="ecdf", preset="fast", options=options)
    monkeypatch.setattr(am, "load_clinic", few, raising=False)
    monkeypatch.setattr(am, "AugMask", short, raising=False)


# What augmask remarks about the clinic is part of what these pages explain.
remarks = pytest.mark.filterwarnings(
    f"ignore::{AugMaskWarning.__module__}.AugMaskWarning"
)


@remarks
@pytest.mark.parametrize("page", ["get-started.md", "index.md", "../README.md"])
def test_the_first_lines_give_complete_rows_of_the_clinic(
    page, few_visits, tmp_path, monkeypatch
):
    names = run_page(page, tmp_path, monkeypatch)
    assert len(names["rows"]) == 1000
    assert not names["rows"].isna().any(axis=None)
    assert names["rows"]["age"].dtype == "int64"
    assert len(names["filled"]) == 5
    if "older" in names:
        assert (names["older"]["age"] >= 60).all()
        assert list(tmp_path.glob("*.augmask"))


def test_the_two_remarks_that_get_started_explains_are_made(few_visits, tmp_path):
    model = am.AugMask(augmenter="ecdf", preset="fast", options={"steps": 3})
    with pytest.warns(AugMaskWarning) as seen:
        model.fit(am.load_clinic())
    texts = " ".join(str(warning.message) for warning in seen)
    assert "'patient'" in texts
    assert "'none' may encode a missing value in column 'insurance'" in texts
    assert len(seen) == 2


@remarks
def test_meanings_of_missing_values_are_what_the_page_says(tmp_path, monkeypatch):
    names = run_page("missing-values.md", tmp_path, monkeypatch)
    notes = " ".join(names["schema"].notes())
    assert "not applicable: 'cause'" in notes
    assert "-999.0 may encode a missing value in column 'weight'" in notes
    rows = names["rows"]
    assert rows["referred"].isna().any()
    assert not rows.drop(columns="referred").isna().any(axis=None)


@remarks
def test_rows_are_written_in_parts_and_a_cluster_goes_from_folder_to_folder(
    few_visits, tmp_path, monkeypatch
):
    (tmp_path / "lake").mkdir()
    for i in range(3):
        rows = load_clinic(200, seed=i)
        rows.to_parquet(tmp_path / "lake" / f"{i}.parquet", index=False)
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        local_directory=str(tmp_path),
    ) as cluster:
        changes = {
            "tcp://10.0.0.5:8786": cluster.scheduler_address,
            "10_000_000, partitions=40": "300, partitions=4",
        }
        names = run_page("large-tables.md", tmp_path, monkeypatch, changes)
    assert len(pd.read_parquet("rows.parquet")) == 2000
    assert sum(names["counts"]) == 2000
    assert len(pd.read_parquet("synthetic")) == 300
    assert len(list(Path("synthetic").glob("part-*"))) == 4
    complete = pd.read_parquet("complete")
    assert len(complete) == 600
    assert not complete.isna().any(axis=None)
    assert names["scores"].facts["sampled"] == {"real": 600, "synthetic": 300}
    assert Path("synthetic.html").exists()


def test_choices_of_settings_are_accepted(tmp_path, monkeypatch):
    model = run_page("presets.md", tmp_path, monkeypatch)["model"]
    table = pd.DataFrame({"x": [1.5, 2.5] * 20, "y": ["a", "b"] * 20})
    model.set_params(options=model.options | {"steps": 2}, augmenter="ecdf")
    assert model.fit(table).settings_.sampling_steps == 100
