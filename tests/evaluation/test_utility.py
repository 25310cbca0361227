from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from augmask.errors import DataError, UsageError
from augmask.evaluation.utility import utility

pytest.importorskip("xgboost")

NAMES = ["x", "z"], ["g", "y"]


def classes(rng, n, names):
    x, z = rng.normal(size=(2, n))
    g = rng.choice(["p", "q"], n)
    hidden = x + np.where(g == "p", 0.8, -0.8) + 0.3 * rng.normal(size=n)
    cuts = np.linspace(-1, 1, len(names) + 1)[1:-1]
    y = np.array(names)[np.digitize(hidden, cuts)]
    return pd.DataFrame({"x": x, "z": z, "g": g, "y": y})


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    return tuple(classes(rng, n, ["no", "yes"]) for n in (400, 400, 300))


def test_a_copy_of_the_training_rows_has_ratio_one(binary):
    train, _, test = binary
    result = utility(train, train, test, *NAMES, target="y")
    assert result.value == 1.0
    assert result.tstr == result.trtr > 0.9
    assert result.measure == "auroc"
    assert result.table.loc["auroc"].tolist() == [result.tstr, result.trtr]


def test_fresh_rows_are_as_good_and_shuffled_ones_useless(binary):
    train, fresh, test = binary
    assert 0.95 < utility(train, fresh, test, *NAMES, target="y").value < 1.05
    rng = np.random.default_rng(1)
    shuffled = train.assign(y=rng.permutation(train["y"]))
    broken = utility(train, shuffled, test, *NAMES, target="y")
    assert broken.tstr == pytest.approx(0.5, abs=0.12)
    assert broken.value == broken.tstr / broken.trtr


def test_auroc_is_the_same_whichever_class_comes_first(binary):
    train, fresh, test = binary
    swapped = [f.assign(y=f["y"].map({"yes": "no", "no": "yes"})) for f in binary]
    assert utility(*swapped[:2], swapped[2], *NAMES, target="y").tstr == pytest.approx(
        utility(train, fresh, test, *NAMES, target="y").tstr, abs=1e-3
    )


def test_one_synthetic_class_has_auroc_one_half(binary):
    train, fresh, test = binary
    result = utility(train, fresh.assign(y="yes"), test, *NAMES, target="y")
    assert result.tstr == 0.5


def test_an_absent_class_costs_only_its_own_share():
    rng = np.random.default_rng(2)
    train, fresh, test = (classes(rng, n, ["lo", "mid", "hi"]) for n in (600, 600, 400))
    full = utility(train, fresh, test, *NAMES, target="y")
    without = utility(train, fresh[fresh["y"] != "hi"], test, *NAMES, target="y")
    assert without.table.loc["auroc of hi", "synthetic"] == 0.5
    assert without.table.loc["auroc of lo", "synthetic"] > 0.8
    assert without.tstr == pytest.approx(without.table["synthetic"].iloc[1:].mean())
    assert without.trtr == full.trtr
    assert without.value < full.value


def test_levels_that_real_rows_lack_are_ignored(binary):
    train, fresh, test = binary
    odd = fresh[:50].assign(y="perhaps")
    grown = pd.concat([fresh, odd], ignore_index=True)
    want = utility(train, fresh, test, *NAMES, target="y")
    assert utility(train, grown, test, *NAMES, target="y").tstr == want.tstr
    # As an input, an unknown level is neither "p" nor "q".
    strange = fresh.assign(g=fresh["g"].where(fresh.index > 50, "new"))
    assert 0.8 < utility(train, strange, test, *NAMES, target="y").value < 1.1


def numbers(rng, n):
    x, z = rng.normal(size=(2, n))
    return pd.DataFrame({"x": x, "z": z, "y": x + 0.2 * rng.normal(size=n)})


def test_regression_of_a_positive_target_is_on_the_log_scale():
    rng = np.random.default_rng(3)
    train, fresh, test = (
        f.assign(y=np.exp(f["y"] + 4)) for f in (numbers(rng, n) for n in (500,) * 3)
    )
    copy = utility(train, train, test, ["x", "z", "y"], [], target="y")
    assert copy.value == 1.0
    assert copy.measure == "rmse of log(clip(y, 1, 20000))"
    assert 0.15 < copy.trtr < 0.4
    assert copy.table.loc["rmse of y", "real"] > 5
    result = utility(train, fresh, test, ["x", "z", "y"], [], target="y")
    assert result.value == result.trtr / result.tstr
    assert 0.8 < result.value < 1.2


@pytest.mark.parametrize(
    "rescale",
    [lambda y: y - 3, lambda y: 1e5 * (y + 10), lambda y: (y + 10) / 100],
    ids=["signed", "beyond the clip", "proportion"],
)
def test_other_targets_are_standardised(rescale):
    rng = np.random.default_rng(4)
    train, fresh, test = (
        f.assign(y=rescale(f["y"])) for f in (numbers(rng, n) for n in (400,) * 3)
    )
    result = utility(train, fresh, test, ["x", "z", "y"], [], target="y")
    assert result.measure == "rmse of standardised y"
    # Noise of 0.2 beside a spread of about 1, whatever the unit.
    assert 0.2 < result.trtr < 0.35
    raw = result.table.loc["rmse of y", "real"]
    assert raw == pytest.approx(result.trtr * train["y"].std(ddof=0), rel=1e-6)


def test_a_constant_target_is_predicted_by_both():
    frame = pd.DataFrame({"x": np.arange(30.0), "y": 3.0})
    assert utility(frame, frame, frame, ["x", "y"], [], target="y").value == 1.0


def test_same_seed_same_result(binary):
    first, second = (utility(*binary, *NAMES, target="y", seed=5) for _ in range(2))
    assert first.tstr == second.tstr


@pytest.mark.parametrize("target", ["y", "x"])
def test_lightgbm_finds_what_xgboost_finds(binary, target):
    train, fresh, test = binary
    found = [
        utility(train, fresh, test, *NAMES, target=target, learner=learner)
        for learner in ("lightgbm", "xgboost")
    ]
    assert [result.learner for result in found] == ["lightgbm", "xgboost"]
    assert found[0].trtr == pytest.approx(found[1].trtr, rel=0.1)
    assert found[0].value == pytest.approx(found[1].value, abs=0.1)
    again = utility(train, fresh, test, *NAMES, target=target, learner="lightgbm")
    assert again.tstr == found[0].tstr


def test_lightgbm_takes_missing_values(binary):
    rng = np.random.default_rng(0)
    incomplete = [f.mask(rng.random(f.shape) < 0.2) for f in binary]
    result = utility(*incomplete, *NAMES, target="y", learner="lightgbm")
    assert 0.9 < result.value < 1.1
    assert result.trtr > 0.7
    with pytest.raises(DataError, match="missing"):
        utility(*incomplete, *NAMES, target="y")
    with pytest.raises(UsageError, match="learner must be"):
        utility(*incomplete, *NAMES, target="y", learner="forest")


def test_bad_inputs_are_refused(binary):
    train, fresh, test = binary
    with pytest.raises(UsageError, match="'w' is in neither"):
        utility(*binary, *NAMES, target="w")
    with pytest.raises(UsageError, match="no other column"):
        utility(*binary, [], ["y"], target="y")
    with pytest.raises(DataError, match="two classes"):
        utility(train, fresh, test.assign(y="yes"), *NAMES, target="y")


def test_a_missing_xgboost_names_the_extra(binary, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(UsageError, match=r"augmask\[utility\]"):
        utility(*binary, *NAMES, target="y")


@pytest.mark.parametrize("target", ["y", "x"])
def test_a_cache_trains_on_real_rows_once(binary, target, monkeypatch):
    import augmask.evaluation.utility as module

    train, fresh, test = binary
    plain = [utility(train, rows, test, *NAMES, target=target) for rows in binary[:2]]
    trained = []
    original = module._learn

    def counted(*args, **options):
        trained.append(args)
        return original(*args, **options)

    monkeypatch.setattr(module, "_learn", counted)
    cache: dict = {}
    for rows, expected in zip(binary[:2], plain, strict=True):
        result = utility(train, rows, test, *NAMES, target=target, cache=cache)
        assert (result.tstr, result.trtr) == (expected.tstr, expected.trtr)
    # The training rows were the synthetic table once, too.
    assert len(trained) == 2
    utility(train, fresh.iloc[1:], test, *NAMES, target=target, cache=cache)
    assert len(trained) == 3
