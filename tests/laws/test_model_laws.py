"""What holds for the whole path, from a frame to a frame, to the last bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from tests.augmenters import RULES

from augmask import AugMask, load

from .made_frame import make_frame

SIZES = {
    "width": 16,
    "depth": 1,
    "time_width": 8,
    "batch_size": 32,
    "sampling_steps": 4,
}
SETTINGS = {"steps": 25, "warmup": 5, "holdout": 0.05} | SIZES

pytestmark = pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")


def fitted(frame: pd.DataFrame, **changes) -> AugMask:
    options = SETTINGS | changes.pop("options", {})
    given = {"augmenter": "ecdf", "device": "cpu"} | changes
    return AugMask(options=options, **given).fit(frame)


def weights(model: AugMask) -> dict[str, np.ndarray]:
    return {k: v.numpy() for k, v in model.backbone_.state_dict().items()}


def assert_same(one: AugMask, two: AugMask) -> None:
    mine, yours = weights(one), weights(two)
    assert mine.keys() == yours.keys()
    for name, array in mine.items():
        assert np.array_equal(array, yours[name]), name
    pd.testing.assert_frame_equal(one.sample(40, seed=1), two.sample(40, seed=1))


STRATEGIES = {
    "NoAug": {"augmenter": "mean", "supervise": "all"},
    "AugFull": {"augmenter": "lgbm-s", "supervise": "all"},
    "AugMask": {"augmenter": "lgbm-s", "supervise": "observed"},
}


@pytest.mark.parametrize("draws", ["one", "stack:4", "cycle:3", "anchor:3:0.5"])
def test_without_holes_all_strategies_are_one(draws):
    frame = make_frame(holes=0)
    models = {
        name: fitted(frame, options={"completions": draws}, **strategy)
        for name, strategy in STRATEGIES.items()
    }
    assert_same(models["NoAug"], models["AugFull"])
    assert_same(models["NoAug"], models["AugMask"])


@pytest.mark.parametrize("augmenter", RULES)
def test_without_holes_every_rule_is_the_same(augmenter):
    frame = make_frame(holes=0)
    assert_same(fitted(frame, augmenter="mean"), fitted(frame, augmenter=augmenter))


def test_with_holes_strategies_differ():
    frame = make_frame()
    drawn = [fitted(frame, **s).sample(40) for s in STRATEGIES.values()]
    assert not drawn[0].equals(drawn[1])
    assert not drawn[1].equals(drawn[2])


@pytest.mark.parametrize("augmenter", ["ecdf", "lgbm-s"])
@pytest.mark.parametrize("draws", ["one", "stack:3"])
def test_same_seed_same_bytes(augmenter, draws, tmp_path):
    files = []
    for seed in (0, 0, 1):
        model = fitted(
            make_frame(), augmenter=augmenter, options={"completions": draws}, seed=seed
        )
        files.append(tmp_path / f"{len(files)}.augmask")
        model.save(files[-1])
    one, two, other = (path.read_bytes() for path in files)
    assert one == two
    assert one != other
    first, third = load(files[0]), load(files[2])
    assert not first.sample(40).equals(third.sample(40))


def test_the_seed_of_sampling_decides_the_rows():
    model = fitted(make_frame())
    pd.testing.assert_frame_equal(model.sample(40, seed=7), model.sample(40, seed=7))
    assert not model.sample(40, seed=7).equals(model.sample(40, seed=8))


def test_save_then_load_gives_the_same_samples(tmp_path):
    model = fitted(make_frame())
    model.save(tmp_path / "m.augmask")
    assert_same(model, load(tmp_path / "m.augmask", device="cpu"))


ASIDE = {
    "constant": "DE",
    "constant number": 3.5,
    "constant date": pd.Timestamp("2020-01-01"),
    "empty": None,
    "identifier": [f"row {i:03d}" for i in range(60)],
}


@pytest.mark.parametrize("name", ASIDE)
@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("augmenter", ["ecdf", "lgbm-s"])
def test_a_column_set_aside_changes_no_other(name, place, augmenter):
    frame = make_frame()
    wider = frame.copy()
    wider.insert(place, "extra", ASIDE[name])
    plain = fitted(frame, augmenter=augmenter).sample(40, seed=1)
    rows = fitted(wider, augmenter=augmenter).sample(40, seed=1)
    assert rows.columns.tolist() == wider.columns.tolist()
    pd.testing.assert_frame_equal(rows.drop(columns="extra"), plain)
    if name.startswith("constant"):
        assert (rows["extra"] == ASIDE[name]).all()
    else:
        assert rows["extra"].isna().all() == (name == "empty")


@pytest.mark.parametrize("augmenter", ["ecdf", "mice", "lgbm-s", "lgbm-chain"])
def test_no_global_random_state_is_touched(augmenter):
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    ours = np.random.get_state()  # noqa: NPY002
    theirs = torch.random.get_rng_state()
    fitted(make_frame(), augmenter=augmenter).sample(20)
    now = np.random.get_state()  # noqa: NPY002
    assert ours[0] == now[0]
    assert np.array_equal(ours[1], now[1])
    assert ours[2:] == now[2:]
    assert torch.equal(theirs, torch.random.get_rng_state())


def test_global_random_state_has_no_say():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    one = fitted(make_frame(), augmenter="lgbm-s")
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert_same(one, fitted(make_frame(), augmenter="lgbm-s"))
