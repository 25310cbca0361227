from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from augmask import AugMask
from augmask.errors import AugMaskWarning, DataError, UsageError
from augmask.sample import impute as module
from augmask.sample.multiple import Imputations
from augmask.table.cells import read_cells
from augmask.table.encode import Codec
from augmask.table.infer import infer_schema

TINY = {"steps": 3, "width": 8, "depth": 1, "sampling_batch": 50, "holdout": 0.0}


def make_frame(n: int = 60, holes: float = 0.3) -> pd.DataFrame:
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
    frame = frame.mask(rng.random(frame.shape) < holes)
    frame.insert(2, "country", "DE")
    frame.insert(0, "key", [f"k{i:05d}" for i in range(n)])
    return frame


@pytest.fixture(scope="module")
def model() -> AugMask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        return model.fit(make_frame())


def assert_kept(given: pd.DataFrame, found: pd.DataFrame, but: dict | None = None):
    """Raise unless every observed cell came back."""
    assert found.index.equals(given.index)
    assert found.columns.equals(given.columns)
    for name in given:
        seen = given[name].notna()
        seen[(but or {}).get(name, [])] = False
        assert (found.loc[seen, name] == given.loc[seen, name]).all(), name


def test_observed_cells_stay_to_the_last_bit_and_no_hole_is_left(model):
    frame = make_frame()
    shuffled = frame[frame.columns[::-1]].sample(frac=1, random_state=1)
    before = shuffled.copy()
    found = model.impute(shuffled)
    pd.testing.assert_frame_equal(shuffled, before)
    assert_kept(shuffled, found)
    assert not found.isna().any().any()
    assert found["kg"].dtype == "float64"
    rows = model.sample(3)
    for name in ("kg", "age", "job", "smokes", "day", "city"):
        assert found[name].dtype == rows[name].dtype, name


def test_rows_that_were_never_seen_and_values_beyond_the_table(model):
    frame = make_frame().iloc[:4].copy()
    frame["kg"] = [1 / 3, 1e6, np.nan, -5.0]
    frame["age"] = [200.0, 31.5, np.nan, 40.0]
    found = model.impute(frame)
    assert_kept(frame, found)
    # 31.5 is no whole number, so the column stays one of floats
    assert found["age"].dtype == "float64"


def test_an_unknown_level_is_a_hole_and_is_named_once(model):
    frame = make_frame().drop(columns="job")
    frame["job"] = "smith"
    frame.loc[[1, 5], "job"] = "pilot"
    frame.loc[7, "city"] = "Rom"
    with pytest.warns(AugMaskWarning) as told:
        found = model.impute(frame)
    assert len(told) == 1
    assert "column 'job': 'pilot'; column 'city': 'Rom'" in str(told[0].message)
    assert set(found["job"]) <= {"smith", "cook", "clerk"}
    assert_kept(frame, found, but={"job": [1, 5], "city": [7]})


def test_columns_set_aside_keep_what_the_user_has(model):
    frame = make_frame()
    frame.loc[3, "country"] = None
    frame["key"] = "same"
    found = model.impute(frame)
    pd.testing.assert_series_equal(found["country"], frame["country"])
    pd.testing.assert_series_equal(found["key"], frame["key"])
    # they say nothing, so they may be missing
    bare = model.impute(frame.drop(columns=["country", "key"]))
    pd.testing.assert_frame_equal(bare, found.drop(columns=["country", "key"]))


def test_a_hole_that_is_a_level_is_a_value():
    frame = make_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        schema = {"kg": {"missing_as": "level"}, "city": {"missing_as": "level"}}
        model.fit(frame, schema=schema)
    found = model.impute(frame)
    for name in ("kg", "city"):
        assert found[name].isna().equals(frame[name].isna())
    assert_kept(frame, found)
    assert not found["age"].isna().any()


def test_rows_without_a_hole_are_not_run(model, monkeypatch):
    sizes, inner = [], module.complete_rows

    def watched(backbone, num, cat, known, generator, **options):
        sizes.append(len(num))
        assert not known.all(axis=1).any()
        return inner(backbone, num, cat, known, generator, **options)

    monkeypatch.setattr(module, "complete_rows", watched)
    whole = model.impute(make_frame())
    holed = make_frame()[whole.columns].isna().any(axis=1).sum()
    assert sum(sizes) == holed
    assert max(sizes) <= TINY["sampling_batch"]
    sizes.clear()
    pd.testing.assert_frame_equal(model.impute(whole), whole)
    assert sizes == []


def test_draws_differ_and_the_seed_decides(model):
    frame, reports = make_frame(), []
    found = model.impute(frame, n_draws=4, progress=lambda *r: reports.append(r[:3]))
    assert isinstance(found, Imputations)
    assert len(found) == 4
    assert reports[-1][0] == "impute"
    assert reports[-1][1] == reports[-1][2]
    for one in found:
        assert_kept(frame, one)
    hole = frame["kg"].isna()
    draws = np.stack([one.loc[hole, "kg"] for one in found])
    assert (draws.std(axis=0) > 0).all()
    again = model.impute(frame, n_draws=4)
    pd.testing.assert_frame_equal(again.long(), found.long())
    other = model.impute(frame, n_draws=4, seed=1)
    assert not other.long().equals(found.long())
    summary = found.summary()
    learned = [c for c in frame if c not in ("key", "country")]
    assert len(summary) == frame[learned].isna().sum().sum()


def test_a_frame_that_does_not_fit_is_refused_in_one_sentence(model):
    frame = make_frame()
    with pytest.raises(DataError, match=r"must have the column 'age' that was learned"):
        model.impute(frame.drop(columns="age"))
    with pytest.raises(DataError, match=r"no columns but .*'aeg'; did you mean 'age'"):
        model.impute(frame.assign(aeg=1))
    with pytest.raises(UsageError, match="draws"):
        model.impute(frame, n_draws=0)
    with pytest.raises(DataError, match="was learned as"):
        model.impute(frame.assign(age="old"))


def test_beliefs_name_every_level_and_no_code_is_averaged():
    """Rare levels share what is believed of them; kept holes are no answer."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=800)
    job = np.where(x > 0, "smith", "cook")
    job = np.where(rng.random(800) < 0.2, [f"rare{i}" for i in range(800)], job)
    frame = pd.DataFrame({"x": x, "job": job, "bonus": rng.choice([None, "a"], 800)})
    frame["grade"] = np.where(x > 0, 30, 10)
    frame = frame.astype({"job": object, "grade": object})
    frame.loc[rng.random(800) < 0.3, ["job", "grade"]] = None
    strange = frame.assign(bonus=frame["bonus"].where(x < 1, "b"))
    options = TINY | {"steps": 300, "width": 64, "depth": 2, "sampling_batch": 4000}
    kinds = {"bonus": {"missing_as": "level"}, "job": "category", "grade": "category"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask("tabddpm", "ecdf", preset="fast", options=options, device="cpu")
        found = model.fit(frame, schema=kinds).impute(strange, n_draws=5)
    column = model.schema_["job"]
    assert len(column.folded) > 5
    levels, shares = found._filled["job"].class_probs
    assert list(levels) == [*column.levels, *(level for level, _ in column.folded)]
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
    rare = shares[:, len(column.levels) :]
    np.testing.assert_allclose(rare, rare[:, :1] * np.ones_like(rare), rtol=1e-5)
    hole = frame["job"].isna().to_numpy()
    told = pd.DataFrame(shares, columns=levels)
    assert (told["smith"] > told["cook"])[x[hole] > 1].mean() > 0.9
    assert (told["cook"] > told["smith"])[x[hole] < -1].mean() > 0.9
    # "b" was never seen; the answer may be "a", not another hole
    assert list(found._filled["bonus"].class_probs.levels) == ["a"]

    best, summary = found.best(), found.summary()
    assert set(best["grade"]) == {10, 30}
    for name in ("job", "grade", "bonus"):
        mine = summary[summary["column"] == name].set_index("row")
        assert (mine["mode"] == best[name][mine.index]).all()
        assert mine["mean"].isna().all()
    # finer than fifths
    assert ((summary["probability"] * 5) % 1).between(0.01, 0.99).any()


def test_a_hole_believed_to_be_a_kept_one_leaves_every_level_as_likely():
    frame = make_frame()
    schema = infer_schema(frame, {"city": {"missing_as": "level"}})
    codec = Codec.fit(frame, schema)
    fill = np.arange(len(frame)) < 1
    cells = read_cells(frame["city"], "city", ())
    class_probs = module._Belief(
        module._Holes(schema["city"], "city", cells, fill), codec.layout
    )
    j = codec.layout.cat_names.index("city")
    kept = np.zeros((1, sum(codec.layout.cards)), np.float32)
    kept[0, sum(codec.layout.cards[: j + 1]) - 1] = 1
    class_probs.add(np.array([0]), kept)
    assert class_probs.shares().shares.tolist() == [[0.5, 0.5]]


def test_every_member_of_an_ensemble_has_its_say_in_every_row(model, monkeypatch):
    # as many rows as both members share evenly, in draws as well as in batches
    frame = make_frame(40, holes=0.0)
    frame["kg"] = np.nan
    done = module.complete_rows

    def by_turns(backbone, num, cat, *rest, **more):
        """Fill as two members would: rows in turn, each with a number of its own."""
        found = done(backbone, num, cat, *rest, **more)
        own = np.where(np.arange(len(num)) % 2, 1.0, -1.0)
        return found._replace(num=np.where(found.num == num, num, own[:, None]))

    monkeypatch.setattr(module, "complete_rows", by_turns)
    draws = model.impute(frame, n_draws=2)
    first, second = (one["kg"].to_numpy() for one in draws)
    assert (first != second).all()
    assert len(np.unique(first)) == len(np.unique(second)) == 1


def fitted(data) -> AugMask:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AugMask(augmenter="ecdf", preset="fast", options=TINY, device="cpu")
        return model.fit(data)


def test_cells_of_a_csv_file_come_back_digit_by_digit(tmp_path):
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
    found = fitted(path).impute(path)
    assert not found.isna().any().any()
    for j, (name, texts) in enumerate(columns.items()):
        seen = ~gone[:, j]
        assert found[name][seen].astype(str).tolist() == list(np.array(texts)[seen])


def test_numbers_that_no_float_holds_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(2)
    exact = [Decimal(int(v)) / 10**9 + 10**12 for v in rng.integers(0, 10**9, 300)]
    frame = pd.DataFrame({"money": pd.Series(exact, dtype=object)})
    frame["y"] = np.arange(300) % 7
    frame.loc[::5, "money"] = None
    long = frame.assign(money=frame["money"].map(str, na_action="ignore"))
    for given in (frame, long):
        found = fitted(given).impute(given)
        seen = given["money"].notna()
        assert found["money"][seen].tolist() == given["money"][seen].tolist()
        kinds = {type(value) for value in found["money"]}
        assert len(kinds) == 1, kinds
        found.to_parquet(tmp_path / "t.parquet")
