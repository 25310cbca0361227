"""Wishes through the whole model: conditions, holes and rules, on every backbone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.diffusion.cdtd import CDTD
from augmask.diffusion.cdtd_back import CDTDSampler
from augmask.diffusion.sampling import run_sampler
from augmask.errors import AugMaskWarning, ConditionError, UsageError
from augmask.model import AugMask, load

SIZES = {"steps": 300, "batch_size": 128, "sampling_steps": 12, "ema": 0.98}
SMALL = {
    "cdtd": {"width": 32, "depth": 1, "time_width": 8},
    "tabddpm": {"width": 32, "depth": 1},
    "tabdiff": {"width": 32, "depth": 1, "time_width": 16},
}


def make_frame(n=300):
    rng = np.random.default_rng(0)
    born = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 20_000, n), "D")
    frame = pd.DataFrame(
        {
            "key": [f"K{i:04d}" for i in range(n)],
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "street": [f"street {min(i, 110 + i % 4)}" for i in range(n)],
            "smokes": pd.Series(rng.random(n) < 0.3, dtype=object),
            "packs": rng.poisson(9, n).astype(float),
            "born": born,
            "left": born + pd.to_timedelta(rng.integers(1, 9000, n), "D"),
        }
    )
    frame.loc[~frame["smokes"].astype(bool), "packs"] = np.nan
    frame["weight"] = frame["weight"].mask(rng.random(n) < 0.3)
    frame.loc[rng.random(n) < 0.25, ["job", "smokes"]] = None
    return frame


FRAME = make_frame()
SCHEMA = {"packs": {"missing_as": "level", "kind": "integer"}, "street": "category"}


def fitted(backbone="cdtd", **wishes):
    model = AugMask(
        backbone, "ecdf", options={**SIZES, **SMALL[backbone]}, device="cpu"
    )
    with pytest.warns(UserWarning, match="street|identifiers"):
        return model.fit(FRAME, SCHEMA, **wishes)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module", params=["cdtd", "tabdiff", "tabddpm"])
def any_model(request, model):
    return model if request.param == "cdtd" else fitted(request.param)


def test_every_row_satisfies_a_mix_of_conditions_in_every_backbone(any_model):
    plain = any_model.sample(40)
    rows = any_model.sample(
        40,
        where={"job": "cook", "age": (30, 70), "born": ("1960-01-01", None)},
    )
    assert (rows["job"] == "cook").all()
    assert rows["age"].between(30, 70).all()
    assert (rows["born"] >= "1960-01-01").all()
    assert rows.dtypes.equals(plain.dtypes)
    assert not rows.drop(columns="packs").isna().any().any()
    assert not rows["key"].duplicated().any()
    assert 0 < rows.attrs["where"]["rate"] < 1
    # the other cells are not copies of a few rows
    assert rows["weight"].nunique() > 20


def test_an_exact_number_is_given_as_it_was_asked_for(any_model):
    rows = any_model.sample(25, where="weight == 71.3 and smokes == True and age == 40")
    assert rows["weight"].tolist() == [71.3] * 25
    assert rows["smokes"].all()
    assert rows["age"].tolist() == [40] * 25
    assert rows["age"].dtype == "int64"


def test_a_rare_level_that_shares_a_code_is_given_as_it_was_asked_for(model):
    assert model.schema_["street"].folded
    rare = model.schema_["street"].folded[0][0]
    assert (model.sample(30, where={"street": rare})["street"] == rare).all()


def test_a_condition_on_a_column_that_keeps_its_holes_leaves_none(model):
    assert model.sample(200)["packs"].isna().any()
    rows = model.sample(60, where="packs >= 5")
    assert (rows["packs"] >= 5).all()


def test_starts_are_screened_where_they_decide_the_row(model):
    source = model._source(0)
    assert source.screens
    assert not fitted("tabddpm")._source(0).screens


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("every", [2, 3, 11])
def test_a_start_is_followed_by_the_member_that_screened_it(members, every):
    sizes = {**SIZES, **SMALL["cdtd"], "steps": 40}
    made = AugMask(augmenter="ecdf", options=sizes, device="cpu", ensemble=members)
    source = made.fit(FRAME[["age", "weight", "job"]])._source(0)
    assert source.screens
    n = 30
    _, every_row = source.screen(n, n, "x", lambda frame: np.ones(len(frame), bool))
    picked = np.arange(n) % every == 1
    found, rows = source.screen(n, n, "x", lambda _: picked)
    assert found == len(rows) == picked.sum()
    np.testing.assert_allclose(rows.num, every_row.num[picked], atol=1e-4)
    assert (rows.cat == every_row.cat[picked]).all()


def test_what_is_wrong_is_said_before_anything_is_drawn(model):
    with pytest.raises(ConditionError, match="'jobb'"):
        model.sample_batches(5, where={"jobb": "cook"})
    with pytest.raises(UsageError, match="missing must be None"):
        model.sample_batches(5, missing="all")
    with pytest.raises(UsageError, match=r"n must be .* got None"):
        model.sample_batches(where={"job": "cook"})


class NoWay(CDTD):
    """A backbone that can be sampled and nothing else."""

    sampler = property()

    def sample(self, n, generator, steps=12, solver="euler"):
        return run_sampler(CDTDSampler(self, steps, solver), n, generator)


def test_a_backbone_without_a_way_gives_what_it_often_draws_and_no_more():
    options = {**SIZES, **SMALL["cdtd"], "steps": 5}
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=200).round(2)})
    model = AugMask(NoWay, "ecdf", options=options, device="cpu").fit(frame)
    assert (model.sample(30, where="x < 9")["x"] < 9).all()
    with pytest.raises(UsageError, match=r"needs the method way .* NoWay lacks it"):
        model.sample(20, where={"x": float(frame["x"][0])})


def test_holes_are_those_of_the_table(model):
    made = model.sample(3000, missing="learned")
    rates = FRAME.isna().mean()
    for name in ("age", "weight", "job", "smokes", "born", "key"):
        assert made[name].isna().mean() == pytest.approx(rates[name], abs=0.04)
    assert (made["job"].isna() == made["smokes"].isna()).all()
    assert str(made["smokes"].dtype) == "object"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_wishes_go_into_a_file(model, tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    wish = {"where": "40 <= age <= 60", "missing": "learned", "seed": 4}
    assert model.sample_to(path, 50, **wish) == 50
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    rows = read(path)
    made = model.sample(50, **wish)
    assert (rows.isna() == made.isna()).all().all()
    assert (rows["age"] == made["age"]).all()


def test_a_file_keeps_rules_and_holes(tmp_path):
    def sober(frame):
        return (frame["age"] > 20) | ~frame["smokes"]

    with pytest.warns(AugMaskWarning, match="2 of 50 rows break the rule sober"):
        model = fitted(constraints=["born <= left", ["smokes", "job"], sober])
    rows = model.sample(300)
    assert (rows["born"] <= rows["left"]).all()
    assert sober(rows).all()
    assert 0 < rows.attrs["where"]["rate"] < 1
    rows = model.sample(100, missing="learned", seed=3)
    path = tmp_path / "m.augmask"
    model.save(path)
    with pytest.raises(UsageError, match=r"a rule of your own, sober; .*rules="):
        load(path)
    with pytest.raises(UsageError, match="without a rule <lambda>"):
        load(path, constraints=[sober, lambda frame: frame["age"] > 0])
    again = load(path, constraints=[sober])
    pd.testing.assert_frame_equal(again.sample(100, missing="learned", seed=3), rows)
