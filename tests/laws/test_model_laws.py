"""What holds for the whole path, from a frame to a frame, to the last bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from tests.augmenters import AUGMENTER_PARAMS

from augmask import AugMask, load

from .made_frame import make_frame

SIZES = {
    "width": 16,
    "depth": 1,
    "time_width": 8,
    "batch_size": 32,
    "sampling_steps": 4,
}
SETTINGS = {"steps": 25, "warmup": 5, "validation_fraction": 0.05} | SIZES

pytestmark = pytest.mark.filterwarnings("ignore::augmask.errors.AugMaskWarning")


def fitted(frame: pd.DataFrame, **changes) -> AugMask:
    options = SETTINGS | changes.pop("options", {})
    parameters = {"augmenter": "ecdf", "device": "cpu"} | changes
    return AugMask(options=options, **parameters).fit(frame)


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


@pytest.mark.parametrize("plan", ["one", "stack:4", "cycle:3", "anchor:3:0.5"])
def test_without_missing_values_all_strategies_are_the_same(plan):
    frame = make_frame(missing=0)
    models = {
        name: fitted(frame, options={"completions": plan}, **strategy)
        for name, strategy in STRATEGIES.items()
    }
    assert_same(models["NoAug"], models["AugFull"])
    assert_same(models["NoAug"], models["AugMask"])


@pytest.mark.parametrize("augmenter", AUGMENTER_PARAMS)
def test_without_missing_values_all_augmenters_are_the_same(augmenter):
    frame = make_frame(missing=0)
    assert_same(fitted(frame, augmenter="mean"), fitted(frame, augmenter=augmenter))


def test_with_missing_values_strategies_differ():
    frame = make_frame()
    rows = [fitted(frame, **s).sample(40) for s in STRATEGIES.values()]
    assert not rows[0].equals(rows[1])
    assert not rows[1].equals(rows[2])


@pytest.mark.parametrize("augmenter", ["ecdf", "lgbm-s"])
@pytest.mark.parametrize("plan", ["one", "stack:3"])
def test_same_seed_same_bytes(augmenter, plan, tmp_path):
    files = []
    for seed in (0, 0, 1):
        model = fitted(
            make_frame(), augmenter=augmenter, options={"completions": plan}, seed=seed
        )
        files.append(tmp_path / f"{len(files)}.augmask")
        model.save(files[-1])
    one, two, other = (path.read_bytes() for path in files)
    assert one == two
    assert one != other
    first, third = load(files[0]), load(files[2])
    assert not first.sample(40).equals(third.sample(40))


def test_the_seed_of_sampling_determines_the_rows():
    model = fitted(make_frame())
    pd.testing.assert_frame_equal(model.sample(40, seed=7), model.sample(40, seed=7))
    assert not model.sample(40, seed=7).equals(model.sample(40, seed=8))


def test_save_then_load_gives_the_same_samples(tmp_path):
    model = fitted(make_frame())
    model.save(tmp_path / "m.augmask")
    assert_same(model, load(tmp_path / "m.augmask", device="cpu"))


NOT_LEARNED = {
    "constant": "DE",
    "constant number": 3.5,
    "constant date": pd.Timestamp("2020-01-01"),
    "empty": None,
    "identifier": [f"row {i:03d}" for i in range(60)],
}


@pytest.mark.parametrize("name", NOT_LEARNED)
@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("augmenter", ["ecdf", "lgbm-s"])
def test_a_column_that_is_not_learned_changes_no_other(name, place, augmenter):
    frame = make_frame()
    wider = frame.copy()
    wider.insert(place, "extra", NOT_LEARNED[name])
    plain = fitted(frame, augmenter=augmenter).sample(40, seed=1)
    rows = fitted(wider, augmenter=augmenter).sample(40, seed=1)
    assert rows.columns.tolist() == wider.columns.tolist()
    pd.testing.assert_frame_equal(rows.drop(columns="extra"), plain)
    if name.startswith("constant"):
        assert (rows["extra"] == NOT_LEARNED[name]).all()
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


def test_global_random_state_has_no_effect():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    one = fitted(make_frame(), augmenter="lgbm-s")
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert_same(one, fitted(make_frame(), augmenter="lgbm-s"))
