from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from augmask import AugMask
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.sample import impute as module
from augmask.sample.imputations import Imputations
from augmask.table.cells import read_cells
from augmask.table.codec import Codec
from augmask.table.infer import infer_schema

TINY = {
    "steps": 3,
    "width": 8,
    "depth": 1,
    "sampling_batch": 50,
    "validation_fraction": 0.0,
}


def make_frame(n: int = 60, missing: float = 0.3) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "kg": rng.normal(70, 12, n),
            "age": rng.integers(20, 90, n).astype(float),
            "job": pd.Categorical(rng.choice(["smith", "cook", "clerk"], n)),
            "smokes": rng.random(n) < 0.3,
            "day": pd.date_range("2020-01-01", periods=n, freq="D", tz="Europe/Paris"),
            "city": rng.choice(["Ulm", "Bonn"], n),
        }
    )
    frame = frame.mask(rng.random(frame.shape) < missing)
    frame.insert(2, "country", "DE")
    frame.insert(0, "key", [f"k{i:05d}" for i in range(n)])
    return frame


@pytest.fixture(scope="module")
def model() -> AugMask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        return model.fit(make_frame())


def assert_unchanged(
    before: pd.DataFrame, after: pd.DataFrame, but: dict | None = None
):
    """Raise unless every observed cell is unchanged."""
    assert after.index.equals(before.index)
    assert after.columns.equals(before.columns)
    for name in before:
        observed = before[name].notna()
        observed[(but or {}).get(name, [])] = False
        assert (after.loc[observed, name] == before.loc[observed, name]).all(), name


def test_observed_cells_are_unchanged_and_nothing_is_missing(model):
    frame = make_frame()
    shuffled = frame[frame.columns[::-1]].sample(frac=1, random_state=1)
    before = shuffled.copy()
    imputed = model.impute(shuffled)
    pd.testing.assert_frame_equal(shuffled, before)
    assert_unchanged(shuffled, imputed)
    assert not imputed.isna().any().any()
    assert imputed["kg"].dtype == "float64"
    rows = model.sample(3)
    for name in ("kg", "age", "job", "smokes", "day", "city"):
        assert imputed[name].dtype == rows[name].dtype, name


def test_new_rows_and_values_out_of_range(model):
    frame = make_frame().iloc[:4].copy()
    frame["kg"] = [1 / 3, 1e6, np.nan, -5.0]
    frame["age"] = [200.0, 31.5, np.nan, 40.0]
    imputed = model.impute(frame)
    assert_unchanged(frame, imputed)
    # 31.5 is not an integer, so the column stays float
    assert imputed["age"].dtype == "float64"


def test_unknown_levels_are_imputed_with_one_warning(model):
    frame = make_frame().drop(columns="job")
    frame["job"] = "smith"
    frame.loc[[1, 5], "job"] = "pilot"
    frame.loc[7, "city"] = "Rom"
    with pytest.warns(AugMaskWarning) as record:
        imputed = model.impute(frame)
    assert len(record) == 1
    assert "column 'job': 'pilot'; column 'city': 'Rom'" in str(record[0].message)
    assert set(imputed["job"]) <= {"smith", "cook", "clerk"}
    assert_unchanged(frame, imputed, but={"job": [1, 5], "city": [7]})


def test_identifiers_and_constants_are_unchanged(model):
    frame = make_frame()
    frame.loc[3, "country"] = None
    frame["key"] = "same"
    imputed = model.impute(frame, seed=0)
    pd.testing.assert_series_equal(imputed["country"], frame["country"])
    pd.testing.assert_series_equal(imputed["key"], frame["key"])
    # they are not learned, so they may be absent
    bare = model.impute(frame.drop(columns=["country", "key"]), seed=0)
    pd.testing.assert_frame_equal(bare, imputed.drop(columns=["country", "key"]))


def test_missing_values_modelled_as_a_level_are_not_imputed():
    frame = make_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        schema = {"kg": {"missing_as": "level"}, "city": {"missing_as": "level"}}
        model.fit(frame, schema=schema)
    imputed = model.impute(frame)
    for name in ("kg", "city"):
        assert imputed[name].isna().equals(frame[name].isna())
    assert_unchanged(frame, imputed)
    assert not imputed["age"].isna().any()


def test_complete_rows_are_not_passed_to_the_network(model, monkeypatch):
    sizes, inner = [], module.complete_rows

    def recording(backbone, num, cat, known, generator, **options):
        sizes.append(len(num))
        assert not known.all(axis=1).any()
        return inner(backbone, num, cat, known, generator, **options)

    monkeypatch.setattr(module, "complete_rows", recording)
    complete = model.impute(make_frame())
    incomplete = make_frame()[complete.columns].isna().any(axis=1).sum()
    assert sum(sizes) == incomplete
    assert max(sizes) <= TINY["sampling_batch"]
    sizes.clear()
    pd.testing.assert_frame_equal(model.impute(complete), complete)
    assert sizes == []


def test_draws_differ_and_the_seed_decides(model):
    frame, reports = make_frame(), []
    imputed = model.impute(
        frame, n_draws=4, seed=0, progress=lambda *r: reports.append(r[:3])
    )
    assert isinstance(imputed, Imputations)
    assert len(imputed) == 4
    assert reports[-1][0] == "impute"
    assert reports[-1][1] == reports[-1][2]
    for one in imputed:
        assert_unchanged(frame, one)
    missing = frame["kg"].isna()
    draws = np.stack([one.loc[missing, "kg"] for one in imputed])
    assert (draws.std(axis=0) > 0).all()
    again = model.impute(frame, n_draws=4, seed=0)
    pd.testing.assert_frame_equal(again.long(), imputed.long())
    other = model.impute(frame, n_draws=4, seed=1)
    assert not other.long().equals(imputed.long())
    summary = imputed.summary()
    learned = [c for c in frame if c not in ("key", "country")]
    assert len(summary) == frame[learned].isna().sum().sum()


def test_other_columns_and_their_order_stay_as_they_are(model):
    frame = make_frame()
    plain = model.impute(frame, seed=0)
    nested = pd.Series([[1, 2], {"a": 3}] * (len(frame) // 2), dtype=object)
    wide = frame.assign(nested=nested, aged=None)
    wide["text"] = pd.Series(["x", None] * (len(frame) // 2), dtype="string")
    wide = wide[["text", *reversed(list(frame)), "nested", "aged"]]
    imputed = model.impute(wide, seed=0)
    assert list(imputed) == list(wide)
    for name in ("nested", "aged", "text"):
        pd.testing.assert_series_equal(imputed[name], wide[name])
    pd.testing.assert_frame_equal(imputed[list(frame)], plain)


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow"])
def test_polars_and_arrow_come_back(model, kind):
    frame = make_frame()
    polars = pl.from_pandas(frame).with_columns(
        extra=pl.lit([1, 2]), kg=pl.col("kg").cast(pl.Float32)
    )
    given = {"polars": polars, "lazy": polars.lazy(), "arrow": polars.to_arrow()}[kind]
    imputed = model.impute(given, seed=0)
    draws = model.impute(given, seed=0, n_draws=2)
    if kind == "arrow":
        assert imputed.schema.names == given.schema.names
        assert draws.long().num_rows == 2 * len(frame)
        imputed, best = pl.from_arrow(imputed), pl.from_arrow(draws.best())
    else:
        assert draws.long().height == 2 * len(frame)
        best = draws.best()
    assert imputed["extra"].to_list() == [[1, 2]] * len(frame)
    for one in (imputed, best):
        assert one.columns == polars.columns
        for name in polars.columns:
            seen = polars[name].is_not_null()
            assert one[name].filter(seen).equals(polars[name].filter(seen)), name
    assert imputed["kg"].null_count() == 0
    assert imputed.schema["kg"] == pl.Float32


def test_learned_columns_must_be_there(model):
    frame = make_frame()
    with pytest.raises(DataError, match="the learned column 'age' is absent"):
        model.impute(frame.drop(columns="age"))
    with pytest.raises(DataError, match=r"'age' is absent.*; did you mean 'aeg'"):
        model.impute(frame.rename(columns={"age": "aeg"}))
    with pytest.raises(UsageError, match="n_draws"):
        model.impute(frame, n_draws=0)
    with pytest.raises(DataError, match="was learned as"):
        model.impute(frame.assign(age="old"))


def test_class_probabilities_cover_all_levels_and_not_missing():
    """Rare levels share their probability; "missing" is not a level to impute."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=800)
    job = np.where(x > 0, "smith", "cook")
    job = np.where(rng.random(800) < 0.2, [f"rare{i}" for i in range(800)], job)
    frame = pd.DataFrame({"x": x, "job": job, "bonus": rng.choice([None, "a"], 800)})
    frame["grade"] = np.where(x > 0, 30, 10)
    frame = frame.astype({"job": object, "grade": object})
    frame.loc[rng.random(800) < 0.3, ["job", "grade"]] = None
    with_new_level = frame.assign(bonus=frame["bonus"].where(x < 1, "b"))
    options = TINY | {"steps": 300, "width": 64, "depth": 2, "sampling_batch": 4000}
    kinds = {"bonus": {"missing_as": "level"}, "job": "category", "grade": "category"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask("tabddpm", "ecdf", preset="fast", options=options, device="cpu")
        imputed = model.fit(frame, schema=kinds).impute(with_new_level, n_draws=5)
    column = model.schema_["job"]
    assert len(column.rare_levels) > 5
    levels, probs = imputed._imputed["job"].class_probs
    assert list(levels) == [*column.levels, *(level for level, _ in column.rare_levels)]
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    rare = probs[:, len(column.levels) :]
    np.testing.assert_allclose(rare, rare[:, :1] * np.ones_like(rare), rtol=1e-5)
    missing = frame["job"].isna().to_numpy()
    prob = pd.DataFrame(probs, columns=levels)
    assert (prob["smith"] > prob["cook"])[x[missing] > 1].mean() > 0.9
    assert (prob["cook"] > prob["smith"])[x[missing] < -1].mean() > 0.9
    # "b" is unknown; it may be imputed with "a" but not become missing
    assert list(imputed._imputed["bonus"].class_probs.levels) == ["a"]

    best, summary = imputed.best(), imputed.summary()
    assert set(best["grade"]) == {10, 30}
    for name in ("job", "grade", "bonus"):
        mine = summary[summary["column"] == name].set_index("row")
        assert (mine["mode"] == best[name][mine.index]).all()
        assert mine["mean"].isna().all()
    # finer than counts of five draws
    assert ((summary["probability"] * 5) % 1).between(0.01, 0.99).any()


def test_probability_on_missing_alone_gives_uniform_class_probabilities():
    frame = make_frame()
    schema = infer_schema(frame, {"city": {"missing_as": "level"}})
    codec = Codec.fit(frame, schema)
    fill = np.arange(len(frame)) < 1
    cells = read_cells(frame["city"], "city", ())
    sums = module._ClassProbSums(
        module._Target(schema["city"], "city", cells, fill), codec.layout
    )
    j = codec.layout.cat_names.index("city")
    on_missing = np.zeros((1, sum(codec.layout.cards)), np.float32)
    on_missing[0, sum(codec.layout.cards[: j + 1]) - 1] = 1
    sums.add(np.array([0]), on_missing)
    assert sums.normalized().probs.tolist() == [[0.5, 0.5]]


def test_every_member_of_an_ensemble_imputes_every_row(model, monkeypatch):
    # the members share draws and batches evenly
    frame = make_frame(40, missing=0.0)
    frame["kg"] = np.nan
    inner = module.complete_rows

    def alternating(backbone, num, cat, *rest, **more):
        """Impute as two members would: alternating rows, each with its own number."""
        imputed = inner(backbone, num, cat, *rest, **more)
        own = np.where(np.arange(len(num)) % 2, 1.0, -1.0)
        return imputed._replace(num=np.where(imputed.num == num, num, own[:, None]))

    monkeypatch.setattr(module, "complete_rows", alternating)
    draws = model.impute(frame, n_draws=2)
    first, second = (one["kg"].to_numpy() for one in draws)
    assert (first != second).all()
    assert len(np.unique(first)) == len(np.unique(second)) == 1


def fitted(data) -> AugMask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        return model.fit(data)


def test_cells_of_a_csv_file_keep_all_digits(tmp_path):
    rng = np.random.default_rng(1)
    wide = [str(2**53 + int(v)) for v in rng.integers(1, 2**40, 160)]
    few = [str(2**53 + int(v)) for v in rng.integers(0, 4, 160)]
    code = [f"{v:05d}" for v in rng.integers(0, 40, 160)]
    gone = rng.random((160, 3)) < 0.2
    columns = {"wide": wide, "few": few, "code": code}
    lines = [",".join([*columns, "y"])]
    for i in range(160):
        cells = [
            "" if gone[i, j] else column[i] for j, column in enumerate(columns.values())
        ]
        lines.append(",".join([*cells, str(i % 7)]))
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    imputed = fitted(path).impute(path)
    assert not imputed.isna().any().any()
    for j, (name, texts) in enumerate(columns.items()):
        observed = ~gone[:, j]
        cells = imputed[name][observed].astype(str).tolist()
        assert cells == list(np.array(texts)[observed])


def test_numbers_beyond_float_precision_are_unchanged(tmp_path):
    rng = np.random.default_rng(2)
    exact = [Decimal(int(v)) / 10**9 + 10**12 for v in rng.integers(0, 10**9, 300)]
    frame = pd.DataFrame({"money": pd.Series(exact, dtype=object)})
    frame["y"] = np.arange(300) % 7
    frame.loc[::5, "money"] = None
    long = frame.assign(money=frame["money"].map(str, na_action="ignore"))
    for data in (frame, long):
        imputed = fitted(data).impute(data)
        observed = data["money"].notna()
        cells = data["money"][observed].tolist()
        assert imputed["money"][observed].tolist() == cells
        kinds = {type(value) for value in imputed["money"]}
        assert len(kinds) == 1, kinds
        imputed.to_parquet(tmp_path / "t.parquet")


def test_long_whole_numbers_beside_decimals_stay_as_they_are(tmp_path):
    """As floats, two neighbours of 2**60 would be equal."""
    cells = [2**60 + 1, 0.5, None, 3] * 10
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object), "y": ["a", "b"] * 20})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AugMaskWarning)
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY).fit(frame)
        filled = model.impute(frame)["x"]
    observed = frame["x"].notna()
    assert filled[observed].tolist() == frame["x"][observed].tolist()
    assert filled.notna().all()
