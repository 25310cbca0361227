"""Conditions, missing values and constraints through the model, for each backbone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from augmask.diffusion.cdtd import CDTD, CDTDSampler
from augmask.diffusion.sampling import run_sampler
from augmask.errors import AugMaskWarning, ConditionError, DataError, UsageError
from augmask.model import AugMask, load
from augmask.sample.generate import check_missing
from augmask.sample.row_generator import RowGenerator

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


def fitted(backbone="cdtd", **options):
    model = AugMask(
        backbone, "ecdf", options={**SIZES, **SMALL[backbone]}, device="cpu"
    )
    with pytest.warns(UserWarning, match="street|identifiers"):
        return model.fit(FRAME, schema=SCHEMA, **options)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.fixture(scope="module", params=["cdtd", "tabdiff", "tabddpm"])
def any_model(request, model):
    return model if request.param == "cdtd" else fitted(request.param)


def test_every_row_satisfies_all_conditions(any_model):
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


def test_an_exact_value_is_in_every_row(any_model):
    rows = any_model.sample(25, where="weight == 71.3 and smokes == True and age == 40")
    assert rows["weight"].tolist() == [71.3] * 25
    assert rows["smokes"].all()
    assert rows["age"].tolist() == [40] * 25
    assert rows["age"].dtype == "int64"


def test_a_rare_level_that_shares_a_code_is_in_every_row(model):
    assert model.schema_["street"].rare_levels
    rare = model.schema_["street"].rare_levels[0][0]
    assert (model.sample(30, where={"street": rare})["street"] == rare).all()


def test_a_condition_excludes_missing_values_modelled_as_a_level(model):
    assert model.sample(200)["packs"].isna().any()
    rows = model.sample(60, where="packs >= 5")
    assert (rows["packs"] >= 5).all()


def test_initial_noise_is_screened_where_it_decides_the_row(model):
    assert model._source(0).can_screen
    assert not fitted("tabddpm")._source(0).can_screen


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("every", [2, 3, 11])
def test_the_ensemble_member_that_screened_a_noise_denoises_it(members, every):
    sizes = {**SIZES, **SMALL["cdtd"], "steps": 40}
    model = AugMask(augmenter="ecdf", options=sizes, device="cpu", ensemble=members)
    generator = model.fit(FRAME[["age", "weight", "job"]])._source(0)
    assert generator.can_screen
    n = 30
    everything = np.ones(n, bool)
    _, all_rows = generator.screen(n, n, "x", lambda _: everything)
    accepted = np.arange(n) % every == 1
    promising, rows = generator.screen(n, n, "x", lambda _: accepted)
    assert promising == len(rows) == accepted.sum()
    np.testing.assert_allclose(rows.num, all_rows.num[accepted], atol=1e-4)
    assert (rows.cat == all_rows.cat[accepted]).all()


def test_invalid_arguments_raise_before_any_row_is_drawn(model):
    with pytest.raises(ConditionError, match="'jobb'"):
        model.sample_batches(5, where={"jobb": "cook"})
    with pytest.raises(UsageError, match="missing must be None"):
        model.sample_batches(5, missing="all")
    with pytest.raises(
        UsageError, match=r"n, the number of rows, must be given .* got None"
    ):
        model.sample_batches(where={"job": "cook"})


class SampleOnly(CDTD):
    """A backbone with `sample` and without `sampler`."""

    sampler = property()

    def sample(self, n, generator, steps=12, solver="euler"):
        return run_sampler(CDTDSampler(self, steps, solver), n, generator)


def test_a_backbone_without_a_sampler_supports_rejection_only():
    options = {**SIZES, **SMALL["cdtd"], "steps": 5}
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=200).round(2)})
    model = AugMask(SampleOnly, "ecdf", options=options, device="cpu").fit(frame)
    assert (model.sample(30, where="x < 9")["x"] < 9).all()
    with pytest.raises(
        UsageError, match=r"needs the method sampler .* SampleOnly lacks it"
    ):
        model.sample(20, where={"x": float(frame["x"][0])})


def test_learned_missing_values_are_those_of_the_table(model):
    sampled = model.sample(3000, missing="learned")
    rates = FRAME.isna().mean()
    for name in ("age", "weight", "job", "smokes", "born", "key"):
        assert sampled[name].isna().mean() == pytest.approx(rates[name], abs=0.04)
    assert (sampled["job"].isna() == sampled["smokes"].isna()).all()
    assert str(sampled["smokes"].dtype) == "object"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_conditions_and_missing_values_in_a_file(model, tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    options = {"where": "40 <= age <= 60", "missing": "learned", "seed": 4}
    assert model.sample_to(path, 50, **options) == 50
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    rows = read(path)
    sampled = model.sample(50, **options)
    assert (rows.isna() == sampled.isna()).all().all()
    assert (rows["age"] == sampled["age"]).all()


def test_a_model_file_keeps_constraints_and_missingness(tmp_path):
    def adult_smokers(frame):
        return (frame["age"] > 20) | ~frame["smokes"]

    with pytest.warns(
        AugMaskWarning, match="2 of 50 rows violate the constraint adult_smokers"
    ):
        model = fitted(constraints=["born <= left", ["smokes", "job"], adult_smokers])
    rows = model.sample(300)
    assert (rows["born"] <= rows["left"]).all()
    assert adult_smokers(rows).all()
    assert 0 < rows.attrs["where"]["rate"] < 1
    rows = model.sample(100, missing="learned", seed=3)
    path = tmp_path / "m.augmask"
    model.save(path)
    with pytest.raises(UsageError, match=r"adult_smokers.*constraints=\[\.\.\.\]"):
        load(path)
    with pytest.raises(UsageError, match=r"without (a|the) .*<lambda>"):
        load(path, constraints=[adult_smokers, lambda frame: frame["age"] > 0])
    restored = load(path, constraints=[adult_smokers])
    pd.testing.assert_frame_equal(restored.sample(100, missing="learned", seed=3), rows)


PARTIAL_OPTIONS = {"steps": 200, "batch_size": 128, "sampling_steps": 12, "ema": 0.98}
PARTIAL_OPTIONS |= {"width": 32, "depth": 1, "time_width": 8}


def partial_frame(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "key": [f"K{i:04d}" for i in range(n)],
            "age": rng.integers(18, 90, n),
            "weight": rng.normal(70, 12, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "day": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "packs": rng.poisson(9, n).astype(float),
        }
    )
    frame["end"] = frame["day"] + pd.to_timedelta(rng.integers(0, 90, n), "D")
    frame.loc[rng.random(n) < 0.5, "packs"] = np.nan
    return frame


@pytest.fixture(scope="module")
def partial_model():
    model = AugMask(augmenter="ecdf", options=PARTIAL_OPTIONS, device="cpu")
    schema = {"packs": {"missing_as": "level", "kind": "integer"}}
    with pytest.warns(UserWarning, match="identifiers"):
        return model.fit(partial_frame(), schema=schema, constraints=["day <= end"])


def test_known_cells_of_partial_rows_stay(partial_model):
    partial = pd.DataFrame(
        {
            "weight": [71.3, None, 55.0, None] * 10,
            "job": ["cook", "smith", None, None] * 10,
            "day": ["2024-02-29", None, "2024-03-01", None] * 10,
            "key": ["mine", None, None, None] * 10,
        }
    )
    rows = partial_model.sample(where=partial)
    assert list(rows.columns) == list(partial_frame().columns)
    assert len(rows) == 40
    for name in ("weight", "job", "key"):
        known = partial[name].notna()
        assert (rows[name][known] == partial[name][known]).all()
    days = pd.to_datetime(partial["day"])
    assert (rows["day"][days.notna()] == days.dropna()).all()
    assert not rows.drop(columns="packs").isna().any().any()
    assert (rows["day"] <= rows["end"]).all()
    assert rows["age"].nunique() > 10
    # a column whose missing values are a level is drawn too, missing in some rows
    assert 0 < rows["packs"].isna().sum() < 40
    assert rows.dtypes.equals(partial_model.sample(5).dtypes)


def test_n_must_be_the_number_of_partial_rows(partial_model):
    partial = pd.DataFrame({"age": [20, 30]})
    assert len(partial_model.sample(2, where=partial)) == 2
    with pytest.raises(UsageError, match="partial rows, 2, or be left out, got 3"):
        partial_model.sample(3, where=partial)


@pytest.mark.parametrize(
    ("partial", "error", "message"),
    [
        ({"agee": [1]}, ConditionError, "'agee'.*did you mean 'age'"),
        ({"job": ["cock"]}, ConditionError, "unknown level 'cock' in column 'job'"),
        ({"age": ["old"]}, DataError, "'age'"),
        (
            {"day": ["2024-05-05"], "end": ["2024-01-05"]},
            ConditionError,
            "1 of 1 partial rows violated a constraint",
        ),
    ],
)
def test_invalid_partial_rows_are_refused(partial_model, partial, error, message):
    with pytest.raises(error, match=message):
        partial_model.sample(where=pd.DataFrame(partial))


def test_redrawn_rows_keep_their_identifiers(partial_model, monkeypatch):
    partial = pd.DataFrame({"job": ["cook", "smith"] * 100})
    first = partial_model.sample(where=partial, seed=0)
    sizes = []
    decode = RowGenerator.decode

    def counting(generator, num, *more):
        sizes.append(len(num))
        return decode(generator, num, *more)

    monkeypatch.setattr(RowGenerator, "decode", counting)
    rows = partial_model.sample(where=partial, seed=0)
    pd.testing.assert_frame_equal(rows, first)
    assert sizes[0] == 200
    assert len(sizes) > 1, "no row was redrawn"
    assert rows["key"].is_unique
    assert not rows["key"].isin(partial_frame()["key"]).any()
    # the identifiers of an unconditional sample
    assert rows["key"].tolist() == partial_model.sample(200, seed=0)["key"].tolist()


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("age < 25 or age > 80", lambda f: ~f["age"].between(25, 80)),
        ("job != 'cook'", lambda f: f["job"] != "cook"),
        ("age not in [40, 41] and 39 <= age <= 42", lambda f: f["age"].isin([39, 42])),
        (
            "job == 'clerk' and (age > 70 or weight < 60)",
            lambda f: (f["job"] == "clerk") & ((f["age"] > 70) | (f["weight"] < 60)),
        ),
        # a missing value that is a level is part of a complete row
        (
            "packs is missing and age > 30",
            lambda f: f["packs"].isna() & (f["age"] > 30),
        ),
        (
            "packs is not missing and smokes == True",
            lambda f: f["packs"].notna() & f["smokes"],
        ),
    ],
)
def test_alternatives_hold_in_every_row(any_model, where, holds):
    rows = any_model.sample(40, where=where, seed=3)
    assert len(rows) == 40
    assert holds(rows).all()
    assert not rows["key"].duplicated().any()


def test_rows_are_chosen_by_what_is_missing(model):
    rows = model.sample(30, where="weight is missing", missing="learned", seed=2)
    assert rows["weight"].isna().all()
    assert not rows["key"].duplicated().any()
    assert 0.1 < rows.attrs["where"]["rate"] < 0.6
    rows = model.sample(
        30, where="weight is not missing and age > 60", missing="learned", seed=2
    )
    assert rows["weight"].notna().all()
    assert (rows["age"] > 60).all()
    again = model.sample(
        30, where="weight is not missing and age > 60", missing="learned", seed=2
    )
    pd.testing.assert_frame_equal(rows, again)
    either = model.sample(
        200, where="weight is missing or job is missing", missing="learned", seed=2
    )
    assert (either["weight"].isna() | either["job"].isna()).all()
    assert either["weight"].notna().any()


def test_what_cannot_be_missing_is_said(model):
    with pytest.raises(ConditionError, match=r"'weight' cannot be missing in complete"):
        model.sample(3, where="weight is missing")
    with pytest.raises(ConditionError, match="'age' cannot be missing: it has no"):
        model.sample(3, where="age is missing", missing="learned")
    assert len(model.sample(3, where="weight is not missing")) == 3


def test_missing_together_though_never_so_is_an_error(model, monkeypatch):
    monkeypatch.setattr("augmask.sample.conditional.MAX_SEARCH", 500)
    monkeypatch.setattr("augmask.sample.conditional.MIN_RATE", 0.5)
    # the two are missing together
    where = "job is missing and smokes is not missing"
    with pytest.raises(ConditionError, match=r"none of .* satisfied the condition"):
        model.sample(3, where=where, missing="learned")


@pytest.mark.parametrize(
    "missing", [10**400, pd.NA, np.ones(2), {"a": 1}, "x", True, 0]
)
def test_what_missing_must_be(missing):
    with pytest.raises(UsageError, match="missing must be None"):
        check_missing(missing)
